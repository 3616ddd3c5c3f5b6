//! Tensors of the caller in planned memory, outputs in place that outlive their inputs, and arenas without a
//! search for stray writes.

use orlop_alloc::backing::Null;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, Request};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryKind};
use orlop_exec::{BufferSpec, ExecError, PlanBuilder};
use orlop_tensor::{Error, Tensor};

fn floats(name: &str, count: usize) -> BufferSpec {
    BufferSpec::new(name, [count], DType::F32).unwrap()
}

/// A tensor of the caller gets the memory of a buffer, and loses it with the buffer.
#[test]
fn an_existing_tensor_is_bound_to_a_buffer() {
    let mut plan = PlanBuilder::new();
    let input = plan.buffer(floats("input", 8), 0..=0).unwrap();
    let first = plan.view("first", input, [4], 0).unwrap();
    let second = plan.view("second", input, [4], 4).unwrap();
    let output = plan.in_place(floats("output", 8), input, 0..=1).unwrap();
    let next = plan.buffer(floats("next", 8), 2..=2).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let mine = Tensor::unbound([8], DType::F32).unwrap();
    let view = mine.narrow(0, 4, 4).unwrap();
    let text = |error: ExecError| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let error = text(execution.bind(next, &mine).unwrap_err());
    assert_eq!(error, "\"next\" is used in the steps 2..=2, and this is step 0");
    for _ in 0..2 {
        execution.step(0).unwrap();
        let error = text(execution.bind(second, &view).unwrap_err());
        let expected = "the tensor cannot be bound to \"second\", which does not begin where its buffer does";
        assert_eq!(error, expected);
        let error = execution.bind(first, &mine).unwrap_err();
        assert!(matches!(error, ExecError::TooSmall { needed: 32, bytes: 16, .. }), "{error}");
        let held = execution.tensor(input).unwrap().clone();
        let error = execution.bind(output, &mine).unwrap_err();
        assert!(matches!(error, ExecError::NotBound { source: Error::MemoryInUse, .. }), "{error}");
        drop(held);
        let taken = Tensor::zeros([8], DType::F32).unwrap();
        let error = text(execution.bind(output, &taken).unwrap_err());
        assert_eq!(error, "the tensor cannot be bound to \"output\": the storage is bound already");
        execution.bind(output, &mine).unwrap();
        execution.tensor(input).unwrap().fill_(1.0).unwrap();
        assert_eq!(mine.to_vec::<f32>().unwrap(), [1.0; 8]);
        // In the output's last step, the input is over.
        let step = execution.step(1).unwrap();
        view.fill_(2.0).unwrap();
        assert_eq!(step.tensor(output).unwrap().to_vec::<f32>().unwrap()[3..5], [1.0, 2.0]);
        execution.step(2).unwrap().tensor(next).unwrap().fill_(3.0).unwrap();
        let error = view.to_vec::<f32>().unwrap_err().to_string();
        let expected = "the storage has no memory any more: step 2 revoked \"output\", whose last step was 1";
        assert_eq!(error, expected);
        execution.begin().unwrap();
    }
}

/// Views of an output in place are used on, after the end of what it was written over.
#[test]
fn an_output_in_place_is_held_over_the_end_of_its_input() {
    let mut plan = PlanBuilder::new();
    let input = plan.buffer(floats("input", 8), 0..=0).unwrap();
    let output = plan.in_place(floats("output", 8), input, 0..=3).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let view = execution.step(0).unwrap().tensor(output).unwrap().narrow(0, 0, 4).unwrap();
    let read = view.as_slice::<f32>().unwrap();
    execution.step(1).unwrap();
    drop(read);
    execution.step(3).unwrap();
    view.fill_(1.0).unwrap();
    assert_eq!(execution.tensor(output).unwrap().to_vec::<f32>().unwrap()[3], 1.0);
    execution.step(4).unwrap();
    assert!(matches!(view.fill_(1.0), Err(Error::Unbound { .. })));
}

/// On a device that the host cannot access, the search for stray writes cannot start, and says so.
#[test]
fn a_search_that_cannot_start_names_the_arena() {
    let context = Context::new();
    let device = Device::cuda(0);
    let allocator = Direct::new(Null::new(device)).into_ref();
    context.register(device, MemoryKind::Default, allocator).unwrap();
    let mut plan = PlanBuilder::new();
    let here = [0..=0, 1..=1].map(|steps| plan.buffer(floats("here", 8), steps).unwrap());
    plan.buffer(floats("there", 8).device(device), 0..=0).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&context).unwrap();
    execution.sanitize(false).unwrap();
    let error = execution.sanitize(true).unwrap_err();
    assert!(matches!(error, ExecError::NotSanitized { device: of, .. } if of == device), "{error}");
    // It is on where it can be: the bytes of a buffer that has ended are overwritten.
    execution.step(0).unwrap().tensor(here[0]).unwrap().fill_(1.0).unwrap();
    let value = execution.step(1).unwrap().tensor(here[1]).unwrap().to_vec::<f32>().unwrap()[0];
    assert!(value < -1e6, "{value}");
}

#[test]
fn an_execution_is_in_blocks_of_the_caller() {
    let mut plan = PlanBuilder::new();
    let hidden = plan.buffer(floats("hidden", 64), 0..=1).unwrap();
    let state = plan.persistent(floats("state", 16));
    let plan = plan.finish().unwrap();
    let context = Context::new();
    let block = |bytes: usize, align: usize| {
        let request = Request::new(bytes).align(Alignment::new(align).unwrap());
        context.allocate(Device::CPU, &request).unwrap()
    };
    let [first, second] = [plan.arenas()[0].bytes(), plan.arenas()[1].bytes()];
    let one = plan.prepare_in(&context, vec![block(first, 256)]).unwrap_err();
    assert!(matches!(one.error, ExecError::Blocks { blocks: 1, arenas: 2 }));
    let small = plan.prepare_in(&context, vec![block(first, 256), block(second - 1, 256)]).unwrap_err();
    assert!(matches!(small.error, ExecError::UnfitBlock { arena: 1, .. }), "{small}");
    // The blocks come back.
    assert_eq!((one.blocks.len(), small.blocks.len()), (1, 2));
    drop((one, small));
    let live = || context.stats(Device::CPU).totals.all.live_blocks();
    let blocks = vec![block(first + 4096, 512), block(second, 256)];
    assert_eq!(live(), 2);
    let mut execution = plan.prepare_in(&context, blocks).unwrap();
    assert_eq!((live(), execution.reserved_bytes() >= first + 4096), (2, true));
    let step = execution.step(0).unwrap();
    step.tensor(hidden).unwrap().fill_(2.0).unwrap();
    step.tensor(state).unwrap().fill_(3.0).unwrap();
    assert_eq!(step.tensor(hidden).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
    drop(execution);
    assert_eq!(live(), 0);
}
