//! A run in the steady state allocates nothing: neither from the heap nor from the context.
#![cfg(not(miri))]

use orlop_alloc::bare::GlobalAllocator;
use orlop_context::Context;
use orlop_core::{DType, Device};
use orlop_exec::{BufferSpec, ExecError, Execution, PlanBuilder};

/// Counts what is allocated.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

#[test]
fn a_run_allocates_nothing() {
    let context = Context::new();
    let mut plan = PlanBuilder::new();
    let spec = |name: String| BufferSpec::new(&name, [256], DType::F32).unwrap();
    let buffers: Vec<_> = (0..500)
        .map(|index| plan.buffer(spec(format!("buffer {index}")), index..=index + index % 7).unwrap())
        .collect();
    let plan = plan.finish().unwrap();
    let mut execution = plan.prepare(&context).unwrap();
    // Its search for stray writes allocates.
    execution.sanitize(false).unwrap();
    let run = |execution: &mut Execution| {
        execution.run(|step, tensors| {
            let first = usize::try_from(step).unwrap();
            if let Some(&buffer) = buffers.get(first) {
                tensors.tensor(buffer)?.fill_(1.0)?;
            }
            Ok::<_, ExecError>(())
        })
    };
    run(&mut execution).unwrap();
    let allocations = || GlobalAllocator::stats().totals.all.allocations;
    // The test harness allocates now and then, too: one of several hundreds of runs without any is proof.
    let is_steady = (0..20).any(|_| {
        let before = allocations();
        (0..100).for_each(|_| run(&mut execution).unwrap());
        allocations() == before
    });
    assert!(is_steady);
    assert_eq!(context.stats(Device::CPU).totals.all.allocations, 1);
}
