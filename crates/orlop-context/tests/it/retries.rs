//! A request without retry fails at the first refusal.

use orlop_alloc::LadderStep;
use orlop_alloc::Request;
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns a context with budgets, a callback that counts its calls, and cached blocks of other kinds.
fn short_of_memory() -> (Context, Arc<AtomicUsize>) {
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("bfc").limit(8 << 20));
    context
        .set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 20))
        .expect("the CPU has budgets");
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4 << 20)).expect("the CPU has budgets");
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    context.on_pressure(
        MemoryKind::Workspace,
        Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            0
        }),
    );
    (context, calls)
}

fn steps(context: &Context) -> u64 {
    LadderStep::ALL.len() as u64 * context.ladder().iter().map(|step| step.taken).sum::<u64>()
}

#[test]
fn no_step_of_the_ladder_is_taken() {
    // Over its budget, where borrowing would help; over the engine's limit, where nothing would.
    for bytes in [2 << 20, 64 << 20] {
        let request = Request::new(bytes).kind(MemoryKind::Workspace);
        let (context, calls) = short_of_memory();
        let error = context.allocate(Device::CPU, &request.no_retry()).unwrap_err();
        assert!(error.is_out_of_memory());
        assert_eq!((steps(&context), calls.load(Ordering::Relaxed)), (0, 0), "{bytes}");
        assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).borrowed, 0);
        // With retry, steps are taken.
        let retried = context.allocate(Device::CPU, &request);
        assert_eq!(retried.is_ok(), bytes == 2 << 20);
        assert!(steps(&context) > 0 && calls.load(Ordering::Relaxed) == 1, "{bytes}");
    }
}

/// An engine uses its own cached memory in any case.
#[test]
fn an_engine_gives_its_own_cache_back_for_a_request() {
    let context = Context::with(Device::CPU, AllocatorConfig::new().limit(8 << 20));
    let blocks: Vec<_> =
        (0..6).map(|_| context.allocate(Device::CPU, &Request::new(1 << 20)).unwrap()).collect();
    drop(blocks);
    assert!(context.allocate(Device::CPU, &Request::new(7 << 20).no_retry()).is_ok());
    assert_eq!(steps(&context), 0);
}
