//! Paths that are promised to take no lock and to change no shared count: counted, by single steps, as locked
//! instructions. An x86-64 processor has no other way to do either.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]

use orlop::exec::{BufferId, BufferSpec, Execution, PlanBuilder};
use orlop::memory::{Context, Request};
use orlop::tensor::{Tensor, TensorOptions};
use orlop::types::{DType, Device, MemoryKind};
use orlop_testkit::stepping::{step_through, watched};
use std::hint::black_box;

/// A plan of this number of buffers, and its execution.
fn prepared(context: &Context, count: u64, all_at_once: bool) -> (Execution, Vec<BufferId>) {
    let mut plan = PlanBuilder::new();
    let buffers = (0..count).map(|index| {
        let spec = BufferSpec::new("buffer", [256], DType::F32).expect("a shape");
        plan.buffer(spec, if all_at_once { 0..=0 } else { index..=index + 1 }).expect("steps")
    });
    let buffers = buffers.collect();
    let mut execution = plan.finish().expect("a plan").prepare(context).expect("memory");
    execution.sanitize(false).expect("off");
    (execution, buffers)
}

fn run(execution: &mut Execution, buffers: &[BufferId], all_at_once: bool) {
    execution.begin().expect("nothing is in use");
    if all_at_once {
        let tensors = execution.step(0).expect("the first");
        buffers.iter().for_each(|&buffer| _ = black_box(tensors.tensor(buffer).expect("it is live")));
        return;
    }
    for (step, &buffer) in (0..).zip(buffers) {
        let tensors = execution.step(step).expect("the next");
        black_box(tensors.tensor(buffer).expect("it is live"));
    }
}

#[test]
fn planned_buffers_are_lent_without_a_locked_instruction() {
    let test = "planned_buffers_are_lent_without_a_locked_instruction";
    let executed = step_through(test, || {
        let context = Context::new();
        for all_at_once in [false, true] {
            for count in [10, 40] {
                let (mut execution, buffers) = prepared(&context, count, all_at_once);
                run(&mut execution, &buffers, all_at_once);
                watched(|| run(&mut execution, &buffers, all_at_once));
            }
        }
    });
    let Some(executed) = executed else { return };
    println!("one by one, 10 and 40; at once, 10 and 40: {executed:?}");
    assert!(executed.iter().all(|region| region.locked == 0), "{executed:?}");
}

#[test]
fn cached_memory_is_handed_out_without_a_locked_instruction() {
    let test = "cached_memory_is_handed_out_without_a_locked_instruction";
    let executed = step_through(test, || {
        let context = Context::new();
        let allocator = context.allocator(Device::CPU, MemoryKind::Workspace).unwrap();
        let request = Request::new(4096);
        let by_handle = || drop(black_box(allocator.allocate(&request).unwrap()));
        let by_context = || drop(black_box(context.allocate(Device::CPU, &request).unwrap()));
        let options = TensorOptions::new().context(&context);
        let tensor = || drop(black_box(Tensor::empty([1024], options).unwrap()));
        for pair in [&by_handle as &dyn Fn(), &by_context, &tensor] {
            (0..100).for_each(|_| pair());
            watched(pair);
        }
    });
    let Some(executed) = executed else { return };
    println!("by handle, by context, as a tensor: {executed:?}");
    assert!(executed.iter().all(|region| region.locked == 0), "{executed:?}");
}
