//! Code of users that panics in the middle of a request: accounts, clones of backings, allocators.

use orlop_alloc::backing::{Backing, Mmap, Region, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::ThreadArenas;
use orlop_alloc::engine_support::{Charge, Charged, RawBlock};
use orlop_alloc::{Allocator, AllocatorRef, Error, Refusal, Request, Usage};
use orlop_context::{Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Accounts that panic in one of their functions. Only the others are called otherwise.
#[derive(Debug)]
struct PanickingAccounts {
    panics_in: &'static str,
    /// The bytes that one request may be rounded up by.
    rounding: u64,
    live: Arc<AtomicU64>,
}

impl PanickingAccounts {
    fn enter(&self, name: &str) {
        if name == self.panics_in {
            resume_unwind(Box::new(()));
        }
    }
}

impl Charge for PanickingAccounts {
    fn charge(&self, _: MemoryKind, bytes: u64) -> Option<u64> {
        let is_rounding = self.live.load(Ordering::Relaxed) > 0;
        self.enter(if is_rounding { "charge the rounding" } else { "charge" });
        if is_rounding && bytes > self.rounding {
            return None;
        }
        self.live.fetch_add(bytes, Ordering::Relaxed);
        Some(u64::from(is_rounding))
    }

    fn discharge(&self, _: MemoryKind, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
        self.enter("discharge");
    }

    fn correct(&self, _: MemoryKind, charged: u64, needed: u64) {
        self.live.fetch_add(needed.wrapping_sub(charged), Ordering::Relaxed);
        self.enter("correct");
    }

    fn refuse(&self, _: &AllocatorRef, _: &Request, _: u64) -> Error {
        self.enter("refuse");
        Error::NoRawDeleter
    }

    fn exceeded(&self, _: &Request, _: u64) {
        self.enter("exceeded");
    }
}

/// A panic of accounts loses no block, and leaves nothing charged; one in `charge` refuses the request.
#[test]
fn accounts_that_panic_lose_no_block() {
    let cases = [
        ("charge", u64::MAX, false),
        ("charge the rounding", u64::MAX, false),
        ("refuse", 0, false),
        ("discharge", 0, false),
        ("exceeded", u64::MAX, true),
        ("discharge", u64::MAX, true),
        ("correct", u64::MAX, true),
    ];
    for (panics_in, rounding, is_served) in cases {
        let live = Arc::new(AtomicU64::new(0));
        let accounts = PanickingAccounts { panics_in, rounding, live: Arc::clone(&live) };
        let upstream = Bfc::new(System::new()).into_ref().erase();
        let gate = AllocatorRef::standing_for(Charged::new(upstream.clone(), accounts), upstream.clone());
        let result = gate.allocate(&Request::new(100));
        assert_eq!(result.is_ok(), is_served, "{panics_in}");
        if panics_in == "refuse" {
            assert!(matches!(&result, Err(Error::OutOfMemory(report)) if report.refusal == Refusal::Budget));
        }
        if let Ok(mut block) = result {
            assert!(block.grow_in_place(1000) && block.len() == 1000);
            assert_eq!(live.load(Ordering::Relaxed), block.capacity() as u64);
        }
        assert_eq!((upstream.stats().live(), live.load(Ordering::Relaxed)), (0, 0), "{panics_in}");
        upstream.verify().unwrap();
    }
}

/// A backing whose clones run a hook.
#[derive(Debug)]
struct Clones(Mmap, CloneHook);

#[derive(Clone)]
struct CloneHook(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for CloneHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CloneHook")
    }
}

impl Clone for Clones {
    fn clone(&self) -> Self {
        (self.1.0)();
        Self(self.0, self.1.clone())
    }
}

// SAFETY: regions come from the inner backing unchanged.
unsafe impl Backing for Clones {
    fn reserve(&self, bytes: usize, align: orlop_core::Alignment) -> Option<Region> {
        self.0.reserve(bytes, align)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.release(region) };
    }

    orlop_alloc::forward_backing!(0; except reserve, release);
}

/// The engine clones its backing for each thread: with no lock held, and whatever the clone does.
#[test]
fn a_backing_may_use_the_arenas_that_clone_it_and_panic() {
    let (slot, panics) = (Arc::new(Mutex::new(None::<AllocatorRef>)), Arc::new(AtomicBool::new(true)));
    let (inside, armed) = (slot.clone(), Arc::clone(&panics));
    let hook = CloneHook(Arc::new(move || {
        let allocator = inside.lock().unwrap().clone().unwrap();
        assert!(matches!(allocator.allocate(&Request::new(1)), Err(Error::Reentrant { .. })));
        std::thread::scope(|scope| {
            // Another thread has another arena, whose backing is not cloned by this one.
            scope.spawn(|| allocator.verify().unwrap());
        });
        if armed.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new(()));
        }
    }));
    let allocator = ThreadArenas::new(Clones(Mmap::new(), hook), 4096).into_ref().erase();
    *slot.lock().unwrap() = Some(allocator.clone());
    assert!(allocator.allocate(&Request::new(100)).unwrap_err().is_out_of_memory());
    drop(allocator.allocate(&Request::new(100)).unwrap());
    assert!(!panics.load(Ordering::Relaxed) && allocator.stats().live() == 0);
    slot.lock().unwrap().take();
}

/// An allocator that panics.
#[derive(Debug)]
struct Panics(Bfc<System>, Arc<AtomicBool>);

// SAFETY: the inner engine's blocks, unchanged.
unsafe impl Allocator for Panics {
    fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
        if self.1.load(Ordering::Relaxed) {
            resume_unwind(Box::new(()));
        }
        self.0.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> orlop_alloc::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.deallocate(block) }
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn name(&self) -> &str {
        "panics"
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

/// The panic reaches the caller, and neither a charge nor a loan stays.
#[test]
fn an_allocator_that_panics_leaves_no_charge_and_no_loan() {
    let (context, kind) = (Context::new(), MemoryKind::KvCache);
    let panics = Arc::new(AtomicBool::new(false));
    let allocator = Panics(Bfc::new(System::new()), Arc::clone(&panics)).into_ref();
    context.register(Device::CPU, kind, allocator).unwrap();
    context.set_budget(Device::CPU, kind, Budget::hard(1000)).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 20)).unwrap();
    for bytes in [100, 4096] {
        let request = Request::new(bytes).kind(kind);
        let allocate = || context.allocate(Device::CPU, &request).map(drop);
        panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(allocate)).is_err());
        let status = context.budget_status(Device::CPU, kind);
        assert_eq!((status.live, status.borrowed), (0, 0), "{bytes}");
        panics.store(false, Ordering::Relaxed);
        allocate().unwrap();
    }
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).lent, 0);
}
