//! Allocators whose pointers are opaque handles get requests for zero bytes too.

use orlop_alloc::adaptor::{Hardened, Hardening, Limit, Retry, Tracking, Waiting};
use orlop_alloc::backing::Null;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Request, Result, Usage, engine_support::RawBlock};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const DEVICE: Device = Device::cuda(0);

/// Returns addresses as opaque handles, and counts the requests.
#[derive(Debug)]
struct Handles {
    inner: Direct<Null>,
    asked: Arc<AtomicUsize>,
    opaque: bool,
}

// SAFETY: all promises are the inner engine's, whose blocks return to it.
unsafe impl Allocator for Handles {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.inner.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.deallocate(block) }
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn name(&self) -> &str {
        "handles"
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn has_opaque_handles(&self) -> bool {
        self.opaque
    }
}

fn handles(opaque: bool) -> (Handles, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    (Handles { inner: Direct::new(Null::new(DEVICE)), asked: Arc::clone(&asked), opaque }, asked)
}

/// Allocates two empty blocks. Returns how many requests reached the allocator, and whether the blocks have
/// different pointers.
fn take_two(asked: &AtomicUsize, allocate: impl Fn(&Request) -> Result<orlop_alloc::Block>) -> (usize, bool) {
    let request = Request::new(0).kind(MemoryKind::KvCache);
    let blocks = [
        allocate(&request).expect("there is address space"),
        allocate(&request).expect("there is address space"),
    ];
    assert!(blocks.iter().all(|block| block.is_empty() && block.device() == DEVICE));
    assert!(blocks.iter().all(|block| block.kind() == MemoryKind::KvCache));
    (asked.load(Ordering::Relaxed), blocks[0].as_ptr() != blocks[1].as_ptr())
}

#[test]
fn opaque_allocators_are_asked_for_no_bytes_and_others_are_not() {
    let (engine, asked) = handles(true);
    let allocator = engine.into_ref();
    assert_eq!(take_two(&asked, |request| allocator.allocate(request)), (2, true));
    let stats = allocator.stats();
    assert_eq!((stats.totals.all.allocations, stats.totals.all.frees), (2, 2), "they are counted");
    assert_eq!(stats.usage.regions, 0, "and came back");
    let (engine, asked) = handles(false);
    let allocator = engine.into_ref();
    assert_eq!(take_two(&asked, |request| allocator.allocate(request)).0, 0);
    assert_eq!(allocator.stats().totals.all.allocations, 0);
}

#[test]
fn adaptors_pass_it_on() {
    type Stack = fn(Handles) -> AllocatorRef;
    let stacks: [(&str, Stack); 5] = [
        ("limit", |it| Limit::new(it, 1 << 20).into_ref().erase()),
        ("retry", |it| Retry::new(it, 1, |_, _, _| panic!("no retry")).into_ref().erase()),
        ("tracking", |it| Tracking::new(it).into_ref().erase()),
        ("waiting", |it| Waiting::new(it, Duration::ZERO).into_ref().erase()),
        ("hardened", |it| Hardened::new(it, Hardening::full().guard_pages(0)).into_ref().erase()),
    ];
    for (name, stack) in stacks {
        for opaque in [true, false] {
            let (engine, asked) = handles(opaque);
            let allocator = stack(engine);
            assert_eq!(allocator.has_opaque_handles(), opaque, "{name}");
            let asked = take_two(&asked, |request| allocator.allocate(request)).0;
            assert_eq!(asked, if opaque { 2 } else { 0 }, "{name}");
        }
    }
}

#[test]
fn contexts_ask_too_with_and_without_budgets() {
    for budget in [None, Some(Budget::hard(1 << 20))] {
        let (engine, asked) = handles(true);
        let context = Context::with(DEVICE, AllocatorConfig::new());
        context.register(DEVICE, MemoryKind::Default, engine.into_ref()).unwrap();
        if let Some(budget) = budget {
            context.set_budget(DEVICE, MemoryKind::KvCache, budget).unwrap();
        }
        assert_eq!(take_two(&asked, |request| context.allocate(DEVICE, request)), (2, true));
    }
}
