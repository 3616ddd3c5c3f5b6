//! The steps of the reclaim ladder: what is counted of them, and for whom they are taken.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use allocator_api2::vec::Vec;
use orlop_alloc::backing::System;
use orlop_alloc::bare::CollectionAllocator;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, Block, Event, LadderStep, Observer, Request};
use orlop_context::{AllocatorConfig, Budget, Context, StepCount};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const KIB: usize = 1 << 10;

/// Returns a context whose allocator rounds up and splits, with these budgets of two kinds.
fn context(workspace: Budget, cache: Budget) -> Context {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Bfc::new(System::new()).into_ref()).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Workspace, workspace).unwrap();
    context.set_budget(Device::CPU, MemoryKind::KvCache, cache).unwrap();
    context
}

fn workspace(bytes: usize) -> Request {
    Request::new(bytes).kind(MemoryKind::Workspace)
}

fn count(context: &Context, step: LadderStep) -> StepCount {
    context.ladder().into_iter().find(|count| count.step == step).unwrap()
}

/// Holds a block until pressure.
fn hold(context: &Context, block: Block) {
    let held = Mutex::new(Some(block));
    context.on_pressure(
        MemoryKind::Workspace,
        Arc::new(move |_| {
            drop(held.lock().unwrap().take());
            0
        }),
    );
}

/// Sums the bytes of the loans that observers see.
#[derive(Default)]
struct Loans(Mutex<std::vec::Vec<u64>>);

impl Observer for Loans {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Reclaimed { step: LadderStep::Borrow, bytes, .. } = event {
            self.0.lock().unwrap().push(*bytes);
        }
    }
}

/// The engine grants more than was requested: the first loan is too small, and is repaid.
#[test]
fn a_loan_is_counted_once() {
    let context = context(Budget::hard(0), Budget::hard(1 << 20));
    let loans = Arc::<Loans>::default();
    context.add_observer(loans.clone());
    let block = context.allocate(Device::CPU, &workspace(400_000)).unwrap();
    let granted = block.capacity() as u64;
    assert!(granted > 400_000);
    assert_eq!(
        count(&context, LadderStep::Borrow),
        StepCount { step: LadderStep::Borrow, taken: 1, bytes: granted }
    );
    assert_eq!(*loans.0.lock().unwrap(), [granted]);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).borrowed, granted);
    drop(block);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).borrowed, 0);
}

/// A loan that does not serve the request is repaid, and not counted as lent.
#[test]
fn a_loan_that_did_not_help_is_repaid() {
    // Enough for the request, not for what the engine grants.
    let context = context(Budget::hard(0), Budget::hard(400_000));
    let error = context.allocate(Device::CPU, &workspace(400_000)).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(count(&context, LadderStep::Borrow).bytes, 0);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).borrowed, 0);
}

/// Also one of a lender whose budget is the largest number of bytes.
#[test]
fn a_loan_of_all_bytes_is_repaid() {
    let context = context(Budget::hard(4096), Budget::hard(u64::MAX));
    let _held = context.allocate(Device::CPU, &workspace(4096)).unwrap();
    assert!(context.allocate(Device::CPU, &workspace(usize::MAX)).is_err());
    let [workspace, cache] =
        [MemoryKind::Workspace, MemoryKind::KvCache].map(|kind| context.budget_status(Device::CPU, kind));
    assert_eq!((workspace.borrowed, workspace.lent), (0, 0));
    assert_eq!((cache.borrowed, cache.lent), (0, 0));
}

#[test]
fn a_handle_from_before_the_budget_is_bounded() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let engine = Direct::new(System::new()).into_ref();
    context.register(Device::CPU, MemoryKind::Default, engine.clone()).unwrap();
    let handle = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    let caching = Context::with(Device::CPU, AllocatorConfig::new());
    let cached = caching.allocator(Device::CPU, MemoryKind::Default).unwrap();
    for (context, handles) in [(&context, vec![handle, engine.clone().erase()]), (&caching, vec![cached])] {
        // A thread cache has memory for it already.
        handles.iter().for_each(|handle| drop(handle.allocate(&Request::new(16 * KIB)).unwrap()));
        context.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(16 << 10).strict()).unwrap();
        let live = || context.budget_status(Device::CPU, MemoryKind::Default).live;
        for handle in &handles {
            let block = handle.allocate(&Request::new(12 * KIB)).unwrap();
            assert_eq!(live(), block.capacity() as u64);
            assert!(handle.allocate(&Request::new(8 * KIB)).unwrap_err().is_out_of_memory());
            drop(block);
            assert_eq!(live(), 0);
        }
    }
    // Without the context there is no budget.
    drop(context);
    assert!(engine.allocate(&Request::new(64 * KIB)).is_ok());
}

/// The context without a budget allocates from an allocator that another one bounds.
#[test]
fn the_budget_of_one_context_does_not_bound_another() {
    let (one, other) = (Context::new(), Context::new());
    let engine = Direct::new(System::new()).into_ref().erase();
    for context in [&one, &other] {
        context.register(Device::CPU, MemoryKind::Default, engine.clone()).unwrap();
    }
    one.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(1000).strict()).unwrap();
    assert!(one.allocate(Device::CPU, &Request::new(4000)).is_err());
    assert!(other.allocate(Device::CPU, &Request::new(4000)).is_ok());
    assert!(other.allocate_from(&engine, &Request::new(4000)).is_ok());
    assert!(engine.allocate(&Request::new(4000)).is_err());
}

#[test]
fn growth_climbs_the_ladder() {
    let context = context(Budget::hard(64 << 10).strict(), Budget::hard(1 << 20));
    let mut block = context.allocate(Device::CPU, &workspace(16 * KIB)).unwrap().share();
    hold(&context, context.allocate(Device::CPU, &workspace(40 * KIB)).unwrap());
    // The block behind is in the way, and goes.
    let grown = context.grow_in_place(&mut block, 32 * KIB);
    assert_eq!(count(&context, LadderStep::Callbacks).taken, 1);
    assert!(grown && block.requested == 32 * KIB);
    assert_eq!(
        context.budget_status(Device::CPU, MemoryKind::Workspace).live,
        context.stats(Device::CPU).kind(MemoryKind::Workspace).live_bytes
    );
    // No callback frees anything, and a strict budget borrows nothing.
    assert!(!context.grow_in_place(&mut block, 80 * KIB));
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(64 << 10)).unwrap();
    assert!(context.grow_in_place(&mut block, 80 * KIB));
    assert_eq!(count(&context, LadderStep::Borrow).taken, 1);
    assert!(context.budget_status(Device::CPU, MemoryKind::Workspace).borrowed >= 16 << 10);
}

#[test]
fn the_ladder_ends_when_the_memory_is_not_needed() {
    let context = context(Budget::hard(16 << 10).strict(), Budget::hard(1 << 20));
    let calls: Arc<[AtomicUsize; 2]> = Arc::default();
    for index in 0..2 {
        let calls = Arc::clone(&calls);
        context.on_pressure(
            MemoryKind::Workspace,
            Arc::new(move |_| {
                calls[index].fetch_add(1, Ordering::Relaxed);
                0
            }),
        );
    }
    let is_needed = || calls[0].load(Ordering::Relaxed) == 0;
    assert!(context.allocate_while(Device::CPU, &workspace(32 * KIB), &is_needed).is_err());
    let engine = Direct::new(System::new()).into_ref().erase();
    calls[0].store(0, Ordering::Relaxed);
    assert!(context.allocate_from_while(&engine, &workspace(32 * KIB), &is_needed).is_err());
    assert_eq!([1, 0], [0, 1].map(|index: usize| calls[index].load(Ordering::Relaxed)));
}

/// Collections in a context are within its budgets, and climb its ladder.
#[test]
fn collections_are_within_the_budgets_of_a_context() {
    let context = context(Budget::hard(64 << 10).strict(), Budget::hard(1 << 20));
    hold(&context, context.allocate(Device::CPU, &workspace(48 * KIB)).unwrap());
    let allocator = CollectionAllocator::new(context.clone()).kind(MemoryKind::Workspace);
    let mut bytes: Vec<u8, _> = Vec::new_in(allocator);
    bytes.try_reserve(32 * KIB).unwrap();
    assert_eq!(count(&context, LadderStep::Callbacks).taken, 1);
    let live = context.budget_status(Device::CPU, MemoryKind::Workspace).live;
    assert_eq!((live >= 32 << 10, live), (true, context.stats(Device::CPU).live()));
    assert!(bytes.try_reserve(80 * KIB).is_err());
    drop(bytes);
    assert_eq!(context.stats(Device::CPU).live(), 0);
}
