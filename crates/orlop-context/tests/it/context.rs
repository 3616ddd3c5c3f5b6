//! Tests of the context.

use orlop_alloc::adaptor::Hardening;
use orlop_alloc::backing::{Null, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, LadderStep, Request};
use orlop_alloc::{Event, Observer, Refusal};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::ByteSize;
use orlop_core::{Device, MemoryKind, StreamId};
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Under Miri, where every byte costs, a thousandth of the size.
const MIB: u64 = 1 << if cfg!(miri) { 10 } else { 20 };

fn fixed(bytes: usize) -> AllocatorRef {
    Bfc::builder(System::new()).policy(BfcPolicy::tensorflow()).limit(bytes).build().into_ref().erase()
}

fn mib(count: usize) -> Request {
    Request::new(count << MIB.trailing_zeros())
}

#[test]
fn kinds_fall_back_to_the_default_one() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let default = Direct::new(System::new()).into_ref().erase();
    let weights = fixed(64 << 20);
    context.register(Device::CPU, MemoryKind::Default, default.clone()).unwrap();
    context.register(Device::CPU, MemoryKind::Persistent, weights.clone()).unwrap();
    assert!(context.allocator(Device::CPU, MemoryKind::KvCache).unwrap().same_as(&default));
    assert!(context.allocator(Device::CPU, MemoryKind::Persistent).unwrap().same_as(&weights));
}

#[test]
fn who_serves_is_known_also_behind_a_budget() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let (default, weights) = (Direct::new(System::new()).into_ref().erase(), fixed(64 << 20));
    let serves =
        |kind, allocator: &AllocatorRef| context.is_served_by(Device::CPU, kind, |it| it.same_as(allocator));
    assert!(!serves(MemoryKind::Default, &default) && context.devices().is_empty());
    context.register(Device::CPU, MemoryKind::Default, default.clone()).unwrap();
    context.register(Device::CPU, MemoryKind::Persistent, weights.clone()).unwrap();
    let before = context.allocate(Device::CPU, &mib(1).kind(MemoryKind::Persistent)).unwrap().share();
    context.set_budget(Device::CPU, MemoryKind::Persistent, Budget::hard(4 * MIB)).unwrap();
    let gated = context.allocate(Device::CPU, &mib(1).kind(MemoryKind::Persistent)).unwrap().share();
    for block in [&before, &gated] {
        assert!(context.is_served_by(Device::CPU, MemoryKind::Persistent, |it| block.is_from(it)));
        assert!(!context.is_served_by(Device::CPU, MemoryKind::KvCache, |it| block.is_from(it)));
    }
    assert!(serves(MemoryKind::KvCache, &default) && !serves(MemoryKind::KvCache, &weights));
    assert!(!context.is_served_by(Device::cuda(0), MemoryKind::Default, |_| true));
}

#[test]
fn an_unknown_device_is_a_typed_error_naming_both() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let error = context.allocate(Device::cuda(3), &mib(1).kind(MemoryKind::KvCache)).unwrap_err();
    assert!(matches!(error, Error::NoAllocator { device, .. } if device == Device::cuda(3)));
    // The device is known, but has no default kind.
    let persistent = Bfc::new(Null::new(Device::cuda(3))).into_ref();
    context.register(Device::cuda(3), MemoryKind::Persistent, persistent).unwrap();
    let error = context.allocate(Device::cuda(3), &mib(1).kind(MemoryKind::KvCache)).unwrap_err();
    let expected = (Device::cuda(3), MemoryKind::KvCache);
    assert!(matches!(error, Error::NoAllocator { device, kind } if (device, kind) == expected));
    let error = context.allocate(Device::cuda(3), &mib(1).kind(MemoryKind::HostPinned)).unwrap_err();
    assert!(matches!(error, Error::InvalidRequest(orlop_core::Error::HostKindOnDevice { .. })));
}

#[test]
fn devices_made_elsewhere_are_served() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let device = Device::custom(7, 1);
    context.register(device, MemoryKind::Default, Bfc::new(Null::new(device)).into_ref()).unwrap();
    let block = context.allocate(device, &mib(3)).unwrap();
    assert_eq!((block.device(), block.bytes().is_err()), (device, true));
    assert_eq!(context.stats(device).totals.all.requested_bytes, 3 * MIB);
    let misplaced =
        context.register(Device::CPU, MemoryKind::Default, Bfc::new(Null::new(device)).into_ref());
    assert!(matches!(misplaced, Err(Error::WrongDevice { .. })));
}

#[test]
fn pinned_memory_is_on_the_cpu_also_without_a_device() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let mut block = context.allocate(Device::CPU, &mib(1).kind(MemoryKind::HostPinned)).unwrap();
    assert_eq!((block.device(), block.kind()), (Device::CPU, MemoryKind::HostPinned));
    block.bytes_mut().unwrap().fill(1);
}

#[test]
fn accounting_by_kind_at_any_moment() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let weights = context.allocate(Device::CPU, &mib(3).kind(MemoryKind::Persistent)).unwrap();
    let cache = context.allocate(Device::CPU, &mib(2).kind(MemoryKind::KvCache)).unwrap();
    let live = |kind| context.stats(Device::CPU).kind(kind).requested_bytes;
    assert_eq!((live(MemoryKind::Persistent), live(MemoryKind::KvCache)), (3 * MIB, 2 * MIB));
    drop((weights, cache));
    assert_eq!((live(MemoryKind::Persistent), live(MemoryKind::KvCache)), (0, 0));
}

#[test]
fn a_hard_budget_holds_and_says_so() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4 * MIB)).unwrap();
    let request = mib(3).kind(MemoryKind::KvCache);
    let first = context.allocate(Device::CPU, &request).unwrap();
    let Err(Error::OutOfMemory(report)) = context.allocate(Device::CPU, &request) else {
        panic!("over budget")
    };
    assert_eq!((report.refusal, report.limit), (Refusal::Budget, Some(4 * MIB)));
    assert!(report.hint().contains(&ByteSize(6 * MIB).to_string()), "{}", report.hint());
    // Each step once: there is nothing to borrow.
    assert_eq!(report.tried, [(LadderStep::Callbacks, 0), (LadderStep::Borrow, 0)]);
    assert!(report.report().contains("tried callbacks: 0 B freed\n  tried borrowing: 0 B lent"));
    // Other kinds are not bounded, and the budget is free again when the block is.
    let _other = context.allocate(Device::CPU, &mib(30)).unwrap();
    drop(first);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).live, 0);
    drop(context.allocate(Device::CPU, &request).unwrap());
}

#[test]
fn unused_budget_is_borrowed_and_repaid() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let budget = |kind, bytes| context.set_budget(Device::CPU, kind, Budget::hard(bytes)).unwrap();
    budget(MemoryKind::KvCache, 4 * MIB);
    budget(MemoryKind::Workspace, 8 * MIB);
    let cache = context.allocate(Device::CPU, &mib(7).kind(MemoryKind::KvCache)).unwrap();
    let status = context.budget_status(Device::CPU, MemoryKind::KvCache);
    assert!(status.borrowed >= 3 * MIB);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).lent, status.borrowed);
    // Lent budget cannot be used meanwhile.
    assert!(context.allocate(Device::CPU, &mib(6).kind(MemoryKind::Workspace)).is_err());
    drop(cache);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Workspace).lent, 0);
    drop(context.allocate(Device::CPU, &mib(6).kind(MemoryKind::Workspace)).unwrap());
    let borrowing = context.ladder().into_iter().find(|count| count.step == LadderStep::Borrow).unwrap();
    assert!(borrowing.taken >= 1 && borrowing.bytes >= 3 * MIB);
}

#[test]
fn strict_budgets_neither_lend_nor_borrow() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4 * MIB)).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(8 * MIB).strict()).unwrap();
    assert!(context.allocate(Device::CPU, &mib(7).kind(MemoryKind::KvCache)).is_err());
    assert!(context.allocate(Device::CPU, &mib(9).kind(MemoryKind::Workspace)).is_err());
}

#[test]
fn callbacks_free_memory_for_their_kind() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4 * MIB)).unwrap();
    let request = mib(3).kind(MemoryKind::KvCache);
    let evictable = Arc::new(Mutex::new(vec![context.allocate(Device::CPU, &request).unwrap()]));
    let held: Weak<Mutex<Vec<Block>>> = Arc::downgrade(&evictable);
    context.on_pressure(
        MemoryKind::KvCache,
        Arc::new(move |pressure| {
            assert_eq!(pressure.kind, MemoryKind::KvCache);
            let freed = held.upgrade().and_then(|held| held.lock().unwrap().pop());
            freed.map_or(0, |block| block.capacity() as u64)
        }),
    );
    drop(context.allocate(Device::CPU, &request).unwrap());
    assert!(evictable.lock().unwrap().is_empty());
    // Nothing is left to free: the error lists the step all the same.
    let _all = context.allocate(Device::CPU, &request).unwrap();
    let Err(Error::OutOfMemory(report)) = context.allocate(Device::CPU, &request) else {
        panic!("over budget")
    };
    assert!(report.tried.contains(&(LadderStep::Callbacks, 0)));
    assert!(context.allocate(Device::CPU, &request.no_retry()).is_err());
}

#[test]
fn a_soft_budget_calls_and_never_fails() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let over = Arc::new(AtomicU64::new(0));
    let reported = Arc::clone(&over);
    context.on_pressure(
        MemoryKind::KvCache,
        Arc::new(move |pressure| {
            reported.fetch_max(pressure.bytes, Ordering::Relaxed);
            0
        }),
    );
    let budget = Budget { hard: None, soft: Some(2 * MIB), borrows: false };
    context.set_budget(Device::CPU, MemoryKind::KvCache, budget).unwrap();
    let _first = context.allocate(Device::CPU, &mib(2).kind(MemoryKind::KvCache)).unwrap();
    let _second = context.allocate(Device::CPU, &mib(1).kind(MemoryKind::KvCache)).unwrap();
    assert!(over.load(Ordering::Relaxed) >= MIB);
}

#[test]
fn caches_of_other_kinds_are_given_back_for_one_in_need() {
    // One device with 16 MiB behind both allocators: address space only, so that it is cheap under Miri.
    const MIB: u64 = 1 << 20;
    let request = Request::new(12 << 20);
    let device = Device::custom(1, 0);
    let backing: orlop_alloc::backing::BackingRef = Arc::new(Null::with_limit(device, 16 * MIB));
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let engine = || Bfc::builder(Arc::clone(&backing)).policy(BfcPolicy::tensorflow()).build().into_ref();
    context.register(device, MemoryKind::Default, engine()).unwrap();
    context.register(device, MemoryKind::Workspace, engine()).unwrap();
    drop(context.allocate(device, &request.kind(MemoryKind::Workspace)).unwrap());
    assert!(context.stats(device).usage.reserved >= 12 * MIB);
    let block = context.allocate(device, &request).unwrap();
    assert!(block.capacity() as u64 >= 12 * MIB);
    let others = context.ladder().into_iter().find(|count| count.step == LadderStep::OtherCaches).unwrap();
    assert!(others.taken == 1 && others.bytes >= 12 * MIB);
}

#[test]
fn scopes_nest_and_streams_are_per_thread() {
    let (outer, inner) = (Context::new(), Context::new());
    outer.scope(|| {
        assert!(Context::current().same_as(&outer));
        inner.scope(|| assert!(Context::current().same_as(&inner)));
        assert!(Context::current().same_as(&outer));
    });
    let device = Device::cuda(0);
    outer.set_stream(device, StreamId::from_raw(5));
    outer.on_stream(device, StreamId::from_raw(9), || {
        assert_eq!(outer.stream(device), StreamId::from_raw(9));
        assert_eq!(inner.stream(device), StreamId::default_of(device));
        assert_eq!(inner.stream(Device::CPU), StreamId::HOST);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(outer.stream(device), StreamId::from_raw(5)));
        });
    });
    assert_eq!(outer.stream(device), StreamId::from_raw(5));
}

#[test]
fn an_observer_sees_each_block_once() {
    #[derive(Default)]
    struct Count {
        allocated: AtomicUsize,
        freed: AtomicUsize,
    }
    impl Observer for Count {
        fn observe(&self, event: &Event<'_>) {
            match event {
                Event::Allocated { .. } => self.allocated.fetch_add(1, Ordering::Relaxed),
                Event::Freed { .. } => self.freed.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        }
    }
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let count = Arc::new(Count::default());
    context.add_observer(Arc::clone(&count) as Arc<dyn Observer>);
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(64 * MIB)).unwrap();
    drop(context.allocate(Device::CPU, &mib(1).kind(MemoryKind::Workspace)).unwrap());
    context.remove_observer(&(Arc::clone(&count) as Arc<dyn Observer>));
    drop(context.allocate(Device::CPU, &mib(1)).unwrap());
    assert_eq!((count.allocated.load(Ordering::Relaxed), count.freed.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_bad_limit_in_the_configuration_is_told() {
    let config = AllocatorConfig::new().named("no such allocator");
    let context = Context::with(Device::CPU, config);
    assert!(matches!(context.allocate(Device::CPU, &mib(1)), Err(Error::UnknownName { .. })));
}

/// Writes the byte at `offset`, which may be past the end of the user's bytes.
fn scribble(block: &Block, offset: usize) {
    let place = block.as_ptr().as_ptr().wrapping_add(offset);
    // SAFETY: it is inside the memory that the engine under the adaptor granted.
    let byte = unsafe { place.read() };
    // SAFETY: as above.
    unsafe { place.write(!byte) };
}

#[test]
fn a_hardened_context_finds_writes_behind_blocks() {
    #[derive(Default)]
    struct Overwritten(AtomicUsize);
    impl Observer for Overwritten {
        fn observe(&self, event: &Event<'_>) {
            if let Event::FreeRefused { error: Error::Overwritten { address, .. }, .. } = event {
                self.0.store(*address, Ordering::Relaxed);
            }
        }
    }
    let context = Context::with(Device::CPU, AllocatorConfig::new().hardened(Hardening::new()));
    let found = Arc::new(Overwritten::default());
    context.add_observer(Arc::clone(&found) as Arc<dyn Observer>);
    let block = context.allocate(Device::CPU, &Request::new(100)).unwrap();
    scribble(&block, 99);
    drop(block);
    assert_eq!(context.stats(Device::CPU).refused_frees, 0);
    if cfg!(miri) || std::env::var_os("ASAN_OPTIONS").is_some() {
        eprintln!("skipped: a block that was overwritten stays where it is, and leaks are errors here");
        return;
    }
    for kind in [MemoryKind::Default, MemoryKind::HostPinned] {
        let block = context.allocate(Device::CPU, &Request::new(100).kind(kind)).unwrap();
        let address = block.as_ptr().as_ptr().addr();
        scribble(&block, 100);
        drop(block);
        assert_eq!(found.0.load(Ordering::Relaxed), address, "{kind}");
    }
    assert_eq!(context.stats(Device::CPU).refused_frees, 2);
}

#[test]
fn a_hardened_context_finds_writes_after_the_return() {
    let hardening = Hardening::full().guard_pages(0);
    let context = Context::with(Device::CPU, AllocatorConfig::new().hardened(hardening));
    let allocator = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    let block = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
    let ptr = block.as_ptr();
    drop(block);
    Allocator::verify(&allocator).unwrap();
    // SAFETY: the memory is in quarantine, so it exists; the write is the mistake to be detected.
    unsafe { ptr.write(1) };
    assert!(matches!(Allocator::verify(&allocator), Err(Error::Overwritten { .. })));
    Allocator::trim(&allocator, 0);
}

#[test]
fn guard_pages_keep_to_what_is_said_of_memory() {
    let guarded = AllocatorConfig::new().hardened(Hardening::new().guard_pages(1));
    let regions = |config: AllocatorConfig, kind| {
        let context = Context::with(Device::CPU, config.named("direct"));
        let blocks: Vec<_> =
            (0..3).map(|_| context.allocate(Device::CPU, &Request::new(100).kind(kind)).unwrap()).collect();
        assert!(blocks.iter().all(|block| block.bytes().is_ok()));
        Allocator::usage(&context.allocator(Device::CPU, kind).unwrap()).reserved
    };
    let limited = regions(guarded.clone().limit(1 << 20), MemoryKind::Default);
    assert!(limited < 3 * 4096, "{limited}");
    let backed = regions(guarded.clone().backing(Arc::new(System::new())), MemoryKind::Default);
    assert!(backed < 3 * 4096, "{backed}");
    if cfg!(all(unix, not(miri))) {
        // Whole pages, one for each.
        assert!(regions(guarded, MemoryKind::Default) >= 3 * 4096);
    }
}

#[test]
fn bare_addresses_that_come_twice_or_from_elsewhere_are_found_without_hardening() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let allocator = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    for bytes in [100, 5000, 3 << 20] {
        let ptr = context.allocate(Device::CPU, &Request::new(bytes)).unwrap().into_raw_ptr().unwrap();
        // SAFETY: the block was given up, and its bytes are unused.
        unsafe { allocator.free(ptr, None) }.unwrap();
        // SAFETY: it is refused, in every build.
        let again = unsafe { allocator.free(ptr, None) };
        assert!(matches!(again, Err(Error::DoubleFree { .. } | Error::ForeignPointer { .. })), "{again:?}");
    }
    let mut elsewhere = 0u64;
    // SAFETY: it is refused.
    let foreign = unsafe { allocator.free(std::ptr::NonNull::from(&mut elsewhere).cast(), None) };
    assert!(matches!(foreign, Err(Error::ForeignPointer { .. })), "{foreign:?}");
    assert_eq!(context.stats(Device::CPU).refused_frees, 4);
    Allocator::verify(&allocator).unwrap();
}

#[test]
fn only_the_caching_engine_is_held_over_forks() {
    let config = || AllocatorConfig::new().fork_safe();
    for good in [config(), config().named("caching"), config().warned()] {
        let allocator = good.make().unwrap();
        assert!(Allocator::name(&allocator).contains("caching"));
    }
    for bad in
        [config().named("bfc"), config().node(0), config().hardened(Hardening::new()), config().logged()]
    {
        assert!(matches!(bad.make(), Err(Error::Configuration { .. })));
    }
}
