//! Plans, executions and their errors.

use orlop_alloc::Error as AllocError;
use orlop_context::{Budget, Context};
use orlop_core::{Alignment, DType, Device, MemoryKind};
use orlop_exec::{BufferId, BufferSpec, ExecError, Execution, PlanBuilder, Rebound};
use orlop_plan::{GraphBuilder, SearchBudget, verify};
use orlop_tensor::Error;
use std::thread;

fn floats(name: &str, count: usize) -> BufferSpec {
    BufferSpec::new(name, [count], DType::F32).unwrap()
}

/// `a` in the steps 0 and 1, `b` in 1 and 2, `c` in 2 and 3, where `a` was.
fn chain(count: usize) -> (PlanBuilder, [BufferId; 3]) {
    let mut plan = PlanBuilder::new();
    let buffers = [("a", 0..=1), ("b", 1..=2), ("c", 2..=3)];
    let buffers = buffers.map(|(name, steps)| plan.buffer(floats(name, count), steps).unwrap());
    (plan, buffers)
}

fn run(execution: &mut Execution, [a, b, c]: [BufferId; 3], value: f64) -> f32 {
    execution.begin().unwrap();
    execution.step(0).unwrap().tensor(a).unwrap().fill_(value).unwrap();
    for (step, from, to) in [(1, a, b), (2, b, c)] {
        let step = execution.step(step).unwrap();
        // Two buffers of one arena are read and written at once.
        let (from, to) = (step.tensor(from).unwrap(), step.tensor(to).unwrap());
        let (read, mut write) = (from.as_slice::<f32>().unwrap(), to.as_mut_slice::<f32>().unwrap());
        for (to, from) in write.iter_mut().zip(read.iter()) {
            *to = from + 1.0;
        }
    }
    execution.step(3).unwrap().tensor(c).unwrap().to_vec::<f32>().unwrap()[0]
}

#[test]
fn the_stated_workspace_is_reserved() {
    let context = Context::new();
    let (mut plan, buffers) = chain(1000);
    let weights = plan.persistent(floats("weights", 300));
    let plan = plan.finish().unwrap();
    // Two of 4000 bytes, the second at a multiple of 256.
    assert_eq!(plan.workspace_bytes(), 4096 + 4000);
    let mut execution = plan.prepare(&context).unwrap();
    assert_eq!(execution.reserved_bytes(), plan.workspace_bytes() + 1200);
    let stats = context.stats(Device::CPU);
    assert_eq!(stats.kind(MemoryKind::Workspace).requested_bytes, plan.workspace_bytes() as u64);
    assert_eq!(stats.kind(MemoryKind::Persistent).requested_bytes, 1200);
    execution.tensor(weights).unwrap().fill_(7.0).unwrap();
    for value in 0..3 {
        assert_eq!(run(&mut execution, buffers, f64::from(value)), value as f32 + 2.0);
    }
    assert_eq!(execution.tensor(weights).unwrap().to_vec::<f32>().unwrap(), [7.0; 300]);
    drop(execution);
    assert_eq!(context.stats(Device::CPU).totals.all.live_blocks(), 0);
}

#[test]
fn buffers_are_refused_outside_their_steps() {
    let (plan, [a, b, c]) = chain(16);
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let error = execution.step(0).unwrap().tensor(b).unwrap_err();
    assert_eq!(error.to_string(), "\"b\" is used in the steps 1..=2, and this is step 0");
    let clone = execution.step(1).unwrap().tensor(a).unwrap().clone();
    let view = clone.narrow(0, 1, 2).unwrap();
    execution.step(2).unwrap().tensor(c).unwrap().fill_(1.0).unwrap();
    assert!(matches!(clone.fill_(0.0), Err(Error::Unbound { .. })));
    assert!(matches!(view.fill_(0.0), Err(Error::Unbound { .. })));
    assert!(matches!(execution.step(1), Err(ExecError::Backwards { step: 1, now: 2 })));
    assert!(matches!(execution.tensor(a), Err(ExecError::NotLive { .. })));
    assert_eq!(execution.step(3).unwrap().tensor(c).unwrap().to_vec::<f32>().unwrap(), [1.0; 16]);
    let (mut other, _) = chain(1);
    let foreign = other.persistent(floats("foreign", 1));
    assert!(matches!(execution.tensor(foreign), Err(ExecError::UnknownBuffer { buffer: 3, buffers: 3 })));
    let mut other = PlanBuilder::new();
    let foreign = other.buffer(floats("other", 16), 0..=3).unwrap();
    let error = execution.tensor(foreign).unwrap_err();
    assert_eq!(error.to_string(), "buffer 0 is of another plan: in this one, \"a\" has its number");
    assert!(execution.plan().place(foreign).is_none() && execution.plan().name(foreign).is_none());
    assert!(matches!(other.view("view", a, [1], 0), Err(ExecError::OtherPlan { buffer: 0, .. })));
    // The same buffers with other shapes have the same ids.
    assert_eq!(chain(32).1, [a, b, c]);
}

#[test]
fn a_step_waits_for_accesses() {
    let (plan, [a, _, c]) = chain(16);
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let clone = execution.step(0).unwrap().tensor(a).unwrap().clone();
    let slice = clone.as_mut_slice::<f32>().unwrap();
    let error = execution.step(2).unwrap_err();
    assert_eq!(error.to_string(), "\"a\" is in use after its last step");
    assert!(matches!(execution.begin(), Err(ExecError::InUse { source: Error::Borrowed { .. }, .. })));
    drop(slice);
    execution.step(2).unwrap().tensor(c).unwrap().fill_(1.0).unwrap();
}

#[test]
fn two_executions_have_two_arenas() {
    let (plan, buffers) = chain(1000);
    let plan = plan.finish().unwrap();
    let context = Context::new();
    thread::scope(|scope| {
        for value in 0..2 {
            let mut execution = plan.prepare(&context).unwrap();
            let rounds = if cfg!(miri) { 3 } else { 200 };
            scope.spawn(move || {
                for round in 0..rounds {
                    let value = f64::from(1000 * value + round);
                    assert_eq!(f64::from(run(&mut execution, buffers, value)), value + 2.0);
                }
            });
        }
    });
}

/// The tensors of a step are used by several threads.
#[test]
fn threads_share_a_step() {
    let mut plan = PlanBuilder::new();
    let parts: Vec<_> = (0..4).map(|_| plan.buffer(floats("part", 64), 0..=1).unwrap()).collect();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    for _ in 0..10 {
        execution.begin().unwrap();
        let step = execution.step(0).unwrap();
        thread::scope(|scope| {
            for &part in &parts {
                let step = &step;
                scope.spawn(move || step.tensor(part).unwrap().fill_(3.0).unwrap());
            }
        });
        let step = execution.step(1).unwrap();
        for &part in &parts {
            assert_eq!(step.tensor(part).unwrap().to_vec::<f32>().unwrap(), [3.0; 64]);
        }
    }
}

#[test]
fn views_and_outputs_in_place_share_bytes() {
    let mut plan = PlanBuilder::new();
    let hidden = plan.buffer(BufferSpec::new("hidden", [4, 8], DType::F32).unwrap(), 0..=1).unwrap();
    let row = plan.view("row", hidden, [8], 16).unwrap();
    let corner = plan.view("corner", row, [2], 6).unwrap();
    let active = plan.in_place(BufferSpec::new("active", [32], DType::F32).unwrap(), hidden, 1..=2).unwrap();
    let larger = plan.view("larger", row, [8], 10).unwrap_err();
    assert_eq!(larger.to_string(), "\"larger\" needs 72 bytes, and \"row\" has 32");
    let plan = plan.finish().unwrap();
    assert_eq!(plan.workspace_bytes(), 128);
    assert_eq!(plan.place(corner).unwrap().1, 88..96);
    let mut execution = plan.prepare(&Context::new()).unwrap();
    let step = execution.step(0).unwrap();
    step.tensor(hidden).unwrap().fill_(1.0).unwrap();
    step.tensor(row).unwrap().fill_(2.0).unwrap();
    step.tensor(corner).unwrap().fill_(3.0).unwrap();
    let step = execution.step(1).unwrap();
    let read = step.tensor(hidden).unwrap().as_slice::<f32>().unwrap();
    assert!(matches!(step.tensor(active).unwrap().fill_(0.0), Err(Error::Borrowed { .. })));
    drop(read);
    let step = execution.step(2).unwrap();
    let values = step.tensor(active).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((values[15], values[16], values[22], values[23], values[24]), (1.0, 2.0, 3.0, 3.0, 1.0));
    assert!(step.tensor(hidden).is_err());
}

#[test]
fn what_cannot_be_in_place() {
    let mut plan = PlanBuilder::new();
    let hidden = plan.buffer(floats("hidden", 8), 0..=3).unwrap();
    let why = |error: ExecError| match error {
        ExecError::NotOver { why, .. } => why,
        error => panic!("{error}"),
    };
    let early = plan.in_place(floats("early", 8), hidden, 2..=4).unwrap_err();
    assert_eq!(why(early), "its bytes are used later");
    let late = plan.in_place(floats("late", 8), hidden, 5..=6).unwrap_err();
    assert_eq!(why(late), "its time is over before");
    let elsewhere = floats("elsewhere", 8).kind(MemoryKind::KvCache);
    assert_eq!(why(plan.in_place(elsewhere, hidden, 3..=4).unwrap_err()), "it is in another arena");
    assert!(matches!(plan.in_place(floats("big", 9), hidden, 3..=4), Err(ExecError::TooSmall { .. })));
    let good = plan.in_place(floats("good", 8), hidden, 3..=4).unwrap();
    let second = plan.in_place(floats("second", 8), hidden, 3..=4).unwrap_err();
    assert_eq!(why(second), "its bytes are used later");
    plan.in_place(floats("third", 8), good, 4..=5).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "an invalid range")]
    let backwards = plan.buffer(floats("x", 8), 3..=2);
    assert!(matches!(backwards, Err(ExecError::NoSteps { .. })));
    assert!(matches!(plan.buffer(floats("x", 8), 0..=u64::MAX), Err(ExecError::NoSteps { .. })));
    assert!(BufferSpec::new("x", [-1i64], DType::F32).is_err());
    assert!(BufferSpec::new("x", [1usize << 62], DType::F64).is_err());
}

#[test]
fn one_arena_for_each_device_and_kind() {
    let mut plan = PlanBuilder::new();
    let large = Alignment::new(4096).unwrap();
    plan.buffer(floats("a", 10).align(large), 0..=0).unwrap();
    plan.buffer(floats("b", 10), 0..=1).unwrap();
    plan.buffer(floats("cache", 10).kind(MemoryKind::KvCache), 0..=1).unwrap();
    plan.persistent(floats("state", 10).kind(MemoryKind::KvCache));
    let plan = plan.finish().unwrap();
    let arenas: Vec<_> =
        plan.arenas().iter().map(|arena| (arena.memory_kind(), arena.is_persistent())).collect();
    let expected =
        [(MemoryKind::Workspace, false), (MemoryKind::KvCache, false), (MemoryKind::KvCache, true)];
    assert_eq!(arenas, expected);
    for arena in plan.arenas() {
        verify(arena.problem(), arena.plan()).unwrap();
        assert_eq!(arena.bytes() as u64, arena.plan().height());
    }
    let mut execution = plan.prepare(&Context::new()).unwrap();
    assert_eq!(execution.step(0).unwrap().step(), 0);
}

#[test]
fn without_memory_nothing_is_reserved() {
    let context = Context::new();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1000)).unwrap();
    let mut plan = PlanBuilder::new();
    plan.persistent(floats("weights", 1000));
    plan.buffer(floats("a", 1000), 0..=1).unwrap();
    let error = plan.finish().unwrap().prepare(&context).unwrap_err();
    assert!(matches!(error, ExecError::Alloc(AllocError::OutOfMemory(_))), "{error}");
    assert_eq!(context.stats(Device::CPU).totals.all.live_blocks(), 0);
}

#[test]
fn other_shapes_reuse_the_memory_or_get_more() {
    let context = Context::new();
    let with_state = |count| {
        let (mut plan, buffers) = chain(count);
        let state = plan.persistent(floats("state", 10));
        (plan.finish().unwrap(), buffers, state)
    };
    let (plan, buffers, state) = with_state(1000);
    let mut execution = plan.prepare(&context).unwrap();
    execution.tensor(state).unwrap().fill_(9.0).unwrap();
    assert_eq!(run(&mut execution, buffers, 1.0), 3.0);
    let reserved = execution.reserved_bytes();
    for (count, expected) in [
        (500, Rebound { reused: 1, reserved: 0, kept: 1 }),
        (1000, Rebound { reused: 1, reserved: 0, kept: 1 }),
        (2000, Rebound { reused: 0, reserved: 1, kept: 1 }),
    ] {
        let (plan, buffers, state) = with_state(count);
        assert_eq!(execution.rebind(&plan).unwrap(), expected);
        assert_eq!(run(&mut execution, buffers, 1.0), 3.0);
        assert_eq!(execution.tensor(state).unwrap().to_vec::<f32>().unwrap(), [9.0; 10]);
        assert_eq!(count == 2000, execution.reserved_bytes() > reserved);
    }
    // Without memory the present plan stays.
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(20_000)).unwrap();
    let (larger, ..) = with_state(100_000);
    assert!(matches!(execution.rebind(&larger), Err(ExecError::Alloc(_))));
    assert_eq!(run(&mut execution, with_state(2000).1, 5.0), 7.0);
    // While a buffer is in use it stays, too.
    execution.begin().unwrap();
    let clone = execution.step(0).unwrap().tensor(buffers[0]).unwrap().clone();
    let slice = clone.as_slice::<f32>().unwrap();
    let (smaller, small, _) = with_state(100);
    assert!(matches!(execution.rebind(&smaller), Err(ExecError::InUse { .. })));
    drop(slice);
    execution.rebind(&smaller).unwrap();
    assert!(matches!(clone.fill_(0.0), Err(Error::Unbound { .. })));
    assert_eq!(run(&mut execution, small, 1.0), 3.0);
}

#[test]
fn graphs_are_executed() {
    let mut graph = GraphBuilder::new();
    let input = graph.planned_input("input", 256);
    let double = graph.node("double", &[input]).unwrap();
    let doubled = graph.output(double, "doubled", 256).unwrap();
    graph.scratch(double, 64).unwrap();
    let view = graph.node("view", &[doubled]).unwrap();
    let square = graph.output(view, "square", 256).unwrap();
    graph.view(doubled, square).unwrap();
    let relu = graph.node("relu", &[square]).unwrap();
    let active = graph.output(relu, "active", 256).unwrap();
    graph.in_place(square, active).unwrap();
    graph.keep(active).unwrap();
    let graph = graph.finish();
    let mut plan = PlanBuilder::new().budget(SearchBudget::iterations(100));
    let describe = |value| {
        let name = graph.value_name(value).unwrap_or_default();
        if name == "square" { BufferSpec::new(name, [8, 8], DType::F32) } else { Ok(floats(name, 64)) }
    };
    let buffers = plan.graph(&graph, &graph.given_order(), describe).unwrap();
    let plan = plan.finish().unwrap();
    assert_eq!((plan.steps(), plan.workspace_bytes()), (4, 256 + 256 + 64));
    let id = |value| buffers.value(value).unwrap();
    let mut execution = plan.prepare(&Context::new()).unwrap();
    for round in 1..4u8 {
        execution.begin().unwrap();
        let step = execution.step(0).unwrap();
        step.tensor(id(input)).unwrap().fill_(f64::from(round)).unwrap();
        step.tensor(buffers.scratch(double).unwrap()).unwrap().fill_(1.0).unwrap();
        step.tensor(id(doubled)).unwrap().fill_(2.0 * f64::from(round)).unwrap();
        let step = execution.step(2).unwrap();
        assert!(step.tensor(buffers.scratch(double).unwrap()).is_err());
        assert_eq!(step.tensor(id(square)).unwrap().to_vec::<f32>().unwrap(), [f32::from(2 * round); 64]);
        let step = execution.step(3).unwrap();
        assert_eq!(step.tensor(id(active)).unwrap().to_vec::<f32>().unwrap(), [f32::from(2 * round); 64]);
    }
    let wrong = |_| Ok(floats("x", 65));
    let error = PlanBuilder::new().graph(&graph, &graph.given_order(), wrong).unwrap_err();
    assert_eq!(error.to_string(), "\"x\" has 256 bytes in the graph, and 260 as described");
    assert!(PlanBuilder::new().graph(&graph, &[], describe).is_err());
}

#[test]
fn plans_without_buffers() {
    let mut execution = PlanBuilder::new().finish().unwrap().prepare(&Context::new()).unwrap();
    execution.run(|_, _| Ok::<_, ExecError>(())).unwrap();
    assert_eq!((execution.reserved_bytes(), execution.plan().len()), (0, 0));
    let mut plan = PlanBuilder::new();
    let empty = plan.buffer(floats("empty", 0), 0..=0).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    assert_eq!(execution.step(0).unwrap().tensor(empty).unwrap().numel(), 0);
}
