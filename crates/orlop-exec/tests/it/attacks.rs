//! Hostile plans, and failures in the middle: nothing is lost, and no buffer's bytes are reached by another.

use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryKind};
use orlop_exec::{BufferId, BufferSpec, ExecError, Execution, PlanBuilder, Rebound};
use orlop_plan::GraphBuilder;
use orlop_tensor::{Error, Tensor};

fn floats(name: &str, count: usize) -> BufferSpec {
    BufferSpec::new(name, [count], DType::F32).unwrap()
}

fn value_of(tensor: &Tensor) -> f32 {
    tensor.to_vec::<f32>().unwrap()[0]
}

/// A step moves all arenas, or none.
#[test]
fn a_refused_step_moves_no_arena() {
    let mut plan = PlanBuilder::new();
    let a = plan.buffer(floats("a", 8), 0..=1).unwrap();
    let next = plan.buffer(floats("next", 8), 2..=3).unwrap();
    let cache = plan.buffer(floats("cache", 8).kind(MemoryKind::KvCache), 0..=1).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    for (refused, now) in [(false, 0), (true, 1)] {
        execution.begin().unwrap();
        execution.step(now).unwrap().tensor(a).unwrap().fill_(1.0).unwrap();
        let held = execution.tensor(cache).unwrap().clone();
        let slice = held.as_slice::<f32>().unwrap();
        let error = if refused { execution.begin() } else { execution.step(2).map(|_| ()) };
        assert!(matches!(error, Err(ExecError::InUse { name, .. }) if &*name == "cache"));
        assert_eq!(execution.now(), now);
        // The first arena has not moved: its buffer is live, with its bytes.
        assert_eq!(value_of(execution.tensor(a).unwrap()), 1.0);
        let clone = execution.step(1).unwrap().tensor(a).unwrap().clone();
        drop(slice);
        let step = execution.step(2).unwrap();
        step.tensor(next).unwrap().fill_(2.0).unwrap();
        assert!(matches!(clone.fill_(3.0), Err(Error::Unbound { .. })));
        assert_eq!(value_of(step.tensor(next).unwrap()), 2.0);
    }
}

fn with_states(count: usize) -> (PlanBuilder, [BufferId; 2]) {
    let mut plan = PlanBuilder::new();
    let weights = plan.persistent(floats("weights", count));
    let cache = plan.persistent(floats("cache", count).kind(MemoryKind::KvCache));
    (plan, [weights, cache])
}

/// While one persistent arena is in use, none is divided.
#[test]
fn a_refused_rebind_divides_no_arena() {
    let (plan, states) = with_states(64);
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let smaller = with_states(16).0.finish().unwrap();
    for held in states {
        for (state, value) in states.into_iter().zip([1.0, 2.0]) {
            execution.tensor(state).unwrap().fill_(value).unwrap();
        }
        let clone = execution.tensor(held).unwrap().clone();
        let slice = clone.as_slice::<f32>().unwrap();
        assert!(matches!(execution.rebind(&smaller), Err(ExecError::InUse { .. })));
        for (state, value) in states.into_iter().zip([1.0, 2.0]) {
            assert_eq!(execution.tensor(state).unwrap().to_vec::<f32>().unwrap(), [value; 64]);
        }
        drop(slice);
    }
    let all = Rebound { reused: 2, ..Rebound::default() };
    assert_eq!(execution.rebind(&smaller).unwrap(), all);
    assert_eq!(execution.tensor(states[1]).unwrap().numel(), 16);
}

/// A persistent arena is kept if its tensors are the same, not only its buffers.
#[test]
fn other_views_are_other_tensors() {
    let with_view = |of: usize, first| {
        let mut plan = PlanBuilder::new();
        let states = [plan.persistent(floats("state", 64)), plan.persistent(floats("other", 64))];
        let view = plan.view("view", states[of], [4], first).unwrap();
        (plan.finish().unwrap(), states, view)
    };
    let (plan, ..) = with_view(0, 0);
    let mut execution = plan.prepare(&Context::new()).unwrap();
    for (of, first, kept) in [(0, 0, 1), (0, 32, 0), (1, 32, 0), (1, 32, 1)] {
        let (plan, states, view) = with_view(of, first);
        assert_eq!(execution.rebind(&plan).unwrap().kept, kept, "{of} {first}");
        for state in states {
            execution.tensor(state).unwrap().fill_(1.0).unwrap();
        }
        execution.tensor(view).unwrap().fill_(2.0).unwrap();
        for (number, state) in states.into_iter().enumerate() {
            let values = execution.tensor(state).unwrap().to_vec::<f32>().unwrap();
            let viewed: Vec<usize> = (0..64).filter(|&index| values[index] == 2.0).collect();
            let expected = if number == of { first..first + 4 } else { 0..0 };
            assert_eq!(viewed, expected.collect::<Vec<_>>());
        }
    }
}

/// A plan without arenas between two others: all memory is released, and reserved again.
#[test]
fn a_plan_of_nothing_between_others() {
    let context = Context::new();
    let nothing = PlanBuilder::new().finish().unwrap();
    let mut execution = nothing.prepare(&context).unwrap();
    for _ in 0..3 {
        let (plan, states) = with_states(16);
        let plan = plan.finish().unwrap();
        assert_eq!(execution.rebind(&plan).unwrap().reserved, 2);
        execution.tensor(states[1]).unwrap().fill_(1.0).unwrap();
        let clone = execution.tensor(states[1]).unwrap().clone();
        assert_eq!(execution.rebind(&nothing).unwrap(), Rebound::default());
        // A clone of what is dropped keeps its memory.
        assert_eq!(value_of(&clone), 1.0);
        drop(clone);
        assert_eq!(context.stats(Device::CPU).totals.all.live_blocks(), 0);
        assert!(matches!(execution.tensor(states[0]), Err(ExecError::UnknownBuffer { .. })));
    }
}

#[test]
fn views_of_any_place() {
    let mut plan = PlanBuilder::new();
    let base = plan.buffer(floats("base", 8), 0..=0).unwrap();
    for first in [9, 1 << 62, usize::MAX / 4, usize::MAX] {
        for count in [0, 1] {
            let error = plan.view("view", base, [count], first).unwrap_err();
            assert!(matches!(error, ExecError::TooSmall { .. }), "{error}");
        }
    }
    let end = plan.view("end", base, [0], 8).unwrap();
    let odd = plan.view("odd", base, [4], 3).unwrap();
    // A buffer over a view would not get the view's bytes.
    let over = plan.in_place(floats("over", 4), odd, 0..=1).unwrap_err();
    assert!(matches!(over, ExecError::NotOver { .. }), "{over}");
    let plan = plan.finish().unwrap();
    assert_eq!(plan.workspace_bytes(), 32);
    let mut execution = plan.prepare(&Context::new()).unwrap();
    let step = execution.step(0).unwrap();
    assert_eq!(step.tensor(end).unwrap().numel(), 0);
    step.tensor(odd).unwrap().fill_(1.0).unwrap();
}

/// Sizes, alignments and steps at their limits are errors, or work.
#[test]
#[cfg_attr(miri, ignore = "it has memory of any size")]
fn extreme_plans() {
    let huge = || BufferSpec::new("huge", [isize::MAX as usize / 4], DType::F32).unwrap();
    let kinds = [MemoryKind::Workspace, MemoryKind::KvCache, MemoryKind::Persistent, MemoryKind::Default];
    let mut plan = PlanBuilder::new();
    for kind in kinds {
        plan.buffer(huge().kind(kind), 0..=0).unwrap();
    }
    let plan = plan.finish().unwrap();
    assert!(plan.workspace_bytes() >= isize::MAX as usize);
    let context = Context::new();
    assert!(plan.prepare(&context).is_err());
    let mut plan = PlanBuilder::new();
    for _ in 0..3 {
        plan.buffer(huge(), 0..=0).unwrap();
    }
    assert!(plan.finish().is_err());
    for align in [1 << 40, 1 << 62, 1 << 63] {
        let Ok(align) = Alignment::new(align) else { continue };
        let mut plan = PlanBuilder::new();
        for _ in 0..3 {
            plan.buffer(floats("aligned", 1).align(align), 0..=0).unwrap();
        }
        assert!(plan.finish().and_then(|plan| plan.prepare(&context)).is_err());
    }
    assert_eq!(context.stats(Device::CPU).totals.all.live_blocks(), 0);
    let mut plan = PlanBuilder::new();
    let state = plan.persistent(floats("state", 4));
    let late = plan.buffer(floats("late", 4), u64::MAX - 2..=u64::MAX - 2).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&context).unwrap();
    for _ in 0..2 {
        execution.begin().unwrap();
        execution.step(u64::MAX - 2).unwrap().tensor(late).unwrap().fill_(1.0).unwrap();
        for step in [u64::MAX - 1, u64::MAX] {
            let step = execution.step(step).unwrap();
            assert!(step.tensor(late).is_err());
            step.tensor(state).unwrap().fill_(2.0).unwrap();
        }
        assert!(matches!(execution.step(0), Err(ExecError::Backwards { .. })));
    }
}

/// A graph that is refused leaves nothing in the plan.
#[test]
fn a_refused_graph_adds_nothing() {
    let mut graph = GraphBuilder::new();
    let input = graph.planned_input("input", 256);
    let node = graph.node("node", &[input]).unwrap();
    let output = graph.output(node, "output", 256).unwrap();
    graph.output(node, "unused", 0).unwrap();
    graph.scratch(node, 0).unwrap();
    graph.keep(output).unwrap();
    graph.planned_input("unused input", 64);
    let graph = graph.finish();
    let mut plan = PlanBuilder::new();
    let size = |value| usize::try_from(graph.value_size(value).unwrap()).unwrap() / 4;
    let refused = plan.graph(&graph, &graph.given_order(), |value| {
        if value == output { Err(ExecError::TooLarge { bytes: 0 }) } else { Ok(floats("x", size(value))) }
    });
    assert!(matches!(refused, Err(ExecError::TooLarge { .. })));
    let panicking = std::panic::AssertUnwindSafe(|| {
        plan.graph(&graph, &graph.given_order(), |value| {
            if value == output { panic!("a test") } else { Ok(floats("x", size(value))) }
        })
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    let elsewhere = plan.graph(&graph, &graph.given_order(), |value| {
        if value == output { BufferSpec::new("x", [3], DType::U8) } else { Ok(floats("x", size(value))) }
    });
    assert!(matches!(elsewhere, Err(ExecError::SizeMismatch { .. })));
    let buffers = plan.graph(&graph, &graph.given_order(), |value| Ok(floats("x", size(value)))).unwrap();
    assert_eq!(buffers.value(input).map(BufferId::index), Some(0));
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let step = execution.step(0).unwrap();
    step.tensor(buffers.value(input).unwrap()).unwrap().fill_(1.0).unwrap();
    execution.run(|_, _| Ok::<_, ExecError>(())).unwrap();
}

/// A panic in the middle of a run, and guards that are never dropped.
#[test]
#[cfg_attr(miri, ignore = "it leaks memory, as it must")]
fn panics_and_leaks_in_a_run() {
    let mut plan = PlanBuilder::new();
    let a = plan.buffer(floats("a", 8), 0..=1).unwrap();
    let b = plan.buffer(floats("b", 8), 2..=3).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    let panicking = |execution: &mut Execution| {
        let run = std::panic::AssertUnwindSafe(|| {
            execution.run(|step, tensors| -> Result<(), ExecError> {
                let tensor = tensors.tensor(if step < 2 { a } else { b })?;
                std::mem::forget(tensor.as_mut_slice::<f32>()?);
                std::mem::forget(tensor.narrow(0, 0, 4)?);
                if step == 2 { panic!("a test") } else { Ok(()) }
            })
        });
        std::panic::catch_unwind(run)
    };
    let error = panicking(&mut execution).unwrap().unwrap_err();
    // The second step finds the guard that the first has leaked.
    assert!(matches!(error, ExecError::Tensor(Error::Borrowed { .. })), "{error}");
    // The leaked view is a handle: its guard can never be known to be over.
    assert!(matches!(execution.begin(), Err(ExecError::InUse { .. })));
    assert!(execution.step(1).unwrap().tensor(a).is_ok());
}

/// The search for stray writes stays as it was set when an arena gets new memory.
#[test]
fn the_search_stays_as_it_was_set() {
    let plan_of = |count| {
        let mut plan = PlanBuilder::new();
        let buffers = [0..=0, 1..=1].map(|steps| plan.buffer(floats("buffer", count), steps).unwrap());
        (plan.finish().unwrap(), buffers)
    };
    let (small, _) = plan_of(8);
    let (large, [first, next]) = plan_of(64);
    for on in [true, false] {
        let mut execution = small.prepare(&Context::new()).unwrap();
        execution.sanitize(on).unwrap();
        assert_eq!(execution.rebind(&large).unwrap().reserved, 1);
        execution.step(0).unwrap().tensor(first).unwrap().fill_(1.0).unwrap();
        // The search overwrites the bytes of a buffer that has ended.
        let bytes_are_kept = value_of(execution.step(1).unwrap().tensor(next).unwrap()) == 1.0;
        assert_eq!(bytes_are_kept, !on);
    }
}
