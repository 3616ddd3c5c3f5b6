//! The accounts of a context: every allocator, and external memory.

use orlop_alloc::backing::{Backing, Region, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pow2, ThreadArenas};
use orlop_alloc::{
    Access, AllocationId, Allocator, AllocatorRef, Block, Deleter, Error, Event, Observer, RawBlock, Record,
    Refusal, RegionWatch, Request, Usage,
};
use orlop_context::Context;
use orlop_context::{AllocatorConfig, Budget, Source};
use orlop_core::{Alignment, Device, MemoryKind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const KIND: MemoryKind = MemoryKind::Workspace;

fn context() -> Context {
    Context::with(Device::CPU, AllocatorConfig::new())
}

fn request(bytes: usize) -> Request {
    Request::new(bytes).kind(KIND)
}

/// External memory, freed with the block; `gone` counts that.
pub(crate) fn foreign(bytes: usize, kind: MemoryKind, gone: &Arc<AtomicUsize>) -> Block {
    let mut memory = vec![0u8; bytes];
    let mut record =
        Record::new(NonNull::from(memory.as_mut_slice()).cast(), bytes, Device::CPU, Access::Host);
    (record.requested, record.kind) = (bytes, kind);
    let gone = Arc::clone(gone);
    let deleter = Deleter::from_closure(move |_| {
        drop(memory);
        gone.fetch_add(1, Ordering::Relaxed);
    });
    // SAFETY: the memory is owned by the closure, initialised, and used through the block only.
    unsafe { Block::foreign(record, deleter) }
}

#[test]
fn memory_from_outside_counts_under_its_kind_whatever_goes_first() {
    let gone = Arc::new(AtomicUsize::new(0));
    let context = context();
    let block = context.adopt(foreign(1000, MemoryKind::Persistent, &gone));
    let mapped = context.adopt_mapped(foreign(3000, MemoryKind::Persistent, &gone));
    let stats = context.stats(Device::CPU);
    assert_eq!(
        (stats.kind(MemoryKind::Persistent).live_bytes, stats.usage.reserved, stats.cached()),
        (4000, 4000, 0)
    );
    let map = context.memory_map();
    assert_eq!((map.live_from(Source::Foreign), map.live_from(Source::Mapped)), (1000, 3000));
    // An account is no allocator: it serves no requests.
    assert!(!block.has_allocator() && !block.is_simple() && block.allocator().is_none());
    // Adopted only once.
    let mapped = context.adopt(mapped);
    assert_eq!(context.stats(Device::CPU).live(), 4000);
    drop(mapped);
    assert_eq!((gone.load(Ordering::Relaxed), context.stats(Device::CPU).live()), (1, 1000));
    drop(context);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    drop(block);
    assert_eq!(gone.load(Ordering::Relaxed), 2);
}

#[test]
fn memory_that_is_given_away_again_is_counted_out_and_not_freed() {
    let gone = Arc::new(AtomicUsize::new(0));
    let context = context();
    let block = context.adopt(foreign(1000, KIND, &gone));
    let (_, deleter) = block.into_foreign().unwrap();
    assert_eq!((gone.load(Ordering::Relaxed), context.stats(Device::CPU).live()), (0, 0));
    drop(deleter);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

#[test]
fn a_deleter_may_do_anything() {
    // It drops the last handle to the context, and another block of the same account.
    let gone = Arc::new(AtomicUsize::new(0));
    let first = context();
    let inner = first.adopt(foreign(10, KIND, &gone));
    let mut byte = Box::new(0u8);
    let record = Record::new(NonNull::from(&mut *byte), 1, Device::CPU, Access::Host);
    let held = Mutex::new(Some((first.clone(), inner)));
    let deleter = Deleter::from_closure(move |_| drop((held.lock().unwrap().take(), byte)));
    // SAFETY: the byte is owned by the closure, and used through the block only.
    let outer = first.adopt(unsafe { Block::foreign(record, deleter) });
    drop(first);
    drop(outer);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    // A block whose deleter panics is counted out all the same.
    let second = context();
    let mut byte = 0u8;
    let record = Record::new(NonNull::from(&mut byte), 1, Device::CPU, Access::Host);
    // SAFETY: the byte outlives the block.
    let block = second.adopt(unsafe { Block::foreign(record, Deleter::from_closure(|_| panic!("deleter"))) });
    assert_eq!(second.stats(Device::CPU).live(), 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(block))).is_err());
    assert_eq!(second.stats(Device::CPU).live(), 0);
}

/// Live bytes by the events observed.
#[derive(Default)]
struct Sum(AtomicI64);

impl Observer for Sum {
    fn observe(&self, event: &Event<'_>) {
        let signed = |bytes: usize| i64::try_from(bytes).expect("a small block");
        match event {
            Event::Allocated { block, .. } => self.0.fetch_add(signed(block.granted), Ordering::Relaxed),
            Event::Freed { block, .. } => self.0.fetch_sub(signed(block.granted), Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[test]
fn observers_see_all_that_is_counted() {
    let gone = Arc::new(AtomicUsize::new(0));
    let (context, sum) = (context(), Arc::new(Sum::default()));
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let early = context.allocate_from(&arena, &request(64)).unwrap();
    drop(early);
    context.add_observer(Arc::clone(&sum) as Arc<dyn Observer>);
    let late = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let blocks = [
        context.adopt(foreign(1000, KIND, &gone)),
        context.allocate_from(&arena, &request(64)).unwrap(),
        context.allocate_from(&late, &request(128)).unwrap(),
    ];
    assert_eq!(sum.0.load(Ordering::Relaxed), 1192);
    drop(blocks);
    assert_eq!(sum.0.load(Ordering::Relaxed), 0);
    context.remove_observer(&(Arc::clone(&sum) as Arc<dyn Observer>));
    drop(context.allocate_from(&late, &request(128)).unwrap());
    assert!(late.observers().is_empty() && arena.observers().is_empty());
}

#[test]
fn an_arena_that_is_passed_counts_as_long_as_it_is_there() {
    let context = context();
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let block = context.allocate_from(&arena, &request(5000)).unwrap();
    let direct = arena.allocate(&request(1000)).unwrap();
    let map = context.memory_map();
    assert_eq!((map.live(KIND), map.live_from(Source::Explicit)), (6000, 6000));
    assert!(map.reserved() >= 1 << 16 && map.cached() > 0);
    assert!(arena.is_unique(), "the context keeps no handle");
    drop(arena);
    // Its blocks keep it alive, and it is counted.
    assert_eq!(context.stats(Device::CPU).kind(KIND).live_bytes, 6000);
    drop((block, direct));
    assert_eq!((context.memory_map().allocators.len(), context.stats(Device::CPU).usage.reserved), (0, 0));
}

#[test]
fn each_byte_counts_once() {
    // Registered and explicit; explicit with an adaptor over it; registered for two kinds; an adaptor over a
    // registered one.
    let context = context();
    let engine = Bfc::new(System::new()).into_ref().erase();
    context.register(Device::CPU, MemoryKind::Default, engine.clone()).unwrap();
    context.register(Device::CPU, KIND, engine.clone()).unwrap();
    let over = orlop_alloc::adaptor::Limit::new(engine.clone(), 1 << 20).into_ref().erase();
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let over_arena = orlop_alloc::adaptor::Limit::new(arena.clone(), 1 << 20).into_ref().erase();
    let blocks: Vec<Block> = [&engine, &over, &arena, &over_arena]
        .into_iter()
        .map(|allocator| context.allocate_from(allocator, &request(1024)).unwrap())
        .collect();
    assert_eq!((context.stats(Device::CPU).live(), context.memory_map().live(KIND)), (4096, 4096));
    drop(blocks);
    assert_eq!(context.memory_map().total(), 0);
}

#[test]
fn what_was_registered_before_counts_on() {
    let context = context();
    context.register(Device::CPU, KIND, Direct::new(System::new()).into_ref()).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    context.register(Device::CPU, KIND, Direct::new(System::new()).into_ref()).unwrap();
    assert_eq!(context.stats(Device::CPU).kind(KIND).live_bytes, block.capacity() as u64);
}

#[test]
fn a_budget_holds_for_what_is_passed() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(10_000)).unwrap();
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    let held = context.allocate_from(&arena, &request(6000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 6000);
    for refused in [
        context.allocate_from(&arena, &request(6000)),
        // The same budget bounds the kind's own allocator.
        context.allocate(Device::CPU, &request(6000)),
    ] {
        let Err(Error::OutOfMemory(report)) = refused else { panic!("over budget") };
        assert_eq!((report.refusal, report.live, report.limit), (Refusal::Budget, 6000, Some(10_000)));
    }
    let other = context.allocate(Device::CPU, &request(1000)).unwrap();
    assert!(context.allocate_from(&arena, &request(4000)).is_err());
    drop(other);
    drop(held);
    drop(context.allocate_from(&arena, &request(9000)).unwrap());
    // A registered or serving allocator is charged once, by its gate.
    let serving = context.allocator(Device::CPU, KIND).unwrap();
    let block = context.allocate_from(&serving, &request(6000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, block.capacity() as u64);
    let over = orlop_alloc::adaptor::Limit::new(serving, 1 << 20).into_ref().erase();
    let more = context.allocate_from(&over, &request(100)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, (block.capacity() + more.capacity()) as u64);
}

#[test]
fn what_is_passed_borrows_and_repays() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(1000)).unwrap();
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4000)).unwrap();
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    let block = context.allocate_from(&arena, &request(3000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).lent, 2000);
    drop(block);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).lent, 0);
}

#[test]
fn arenas_of_threads_are_one_workspace() {
    let context = context();
    let arenas = ThreadArenas::new(System::new(), 1 << 16).into_ref();
    context.register(Device::CPU, KIND, arenas.clone()).unwrap();
    context.set_budget(Device::CPU, KIND, Budget::hard(20_000)).unwrap();
    let mine = context.allocate(Device::CPU, &request(6000)).unwrap();
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let blocks = [6000, 6000].map(|bytes| context.allocate(Device::CPU, &request(bytes)).unwrap());
            assert!(matches!(arenas.reset(), Err(Error::ArenaInUse { live: 2 })));
            assert_eq!(arenas.used(), 12_016);
            blocks
        });
        other.join().unwrap()
    });
    assert_eq!((arenas.arenas(), arenas.used(), context.memory_map().live(KIND)), (2, 6000, 18_000));
    assert!(context.allocate(Device::CPU, &request(6000)).is_err(), "one budget for all threads");
    // Freed on another thread.
    drop(theirs);
    drop(mine);
    arenas.reset().unwrap();
    assert_eq!((arenas.used(), context.memory_map().live(KIND)), (0, 0));
    let reserved = arenas.stats().usage.reserved;
    assert_eq!((arenas.trim(0), arenas.stats().usage.reserved), (reserved, 0));
}

#[test]
fn an_allocator_that_is_missing_is_named_by_its_kind() {
    let context = context();
    let error = context.allocate(Device::cuda(3), &Request::new(64).kind(MemoryKind::KvCache)).unwrap_err();
    assert!(matches!(error, Error::NoAllocator { kind: MemoryKind::KvCache, .. }), "{error}");
    assert!(error.to_string().contains("kv_cache"), "{error}");
    // External memory does not create a device that serves requests.
    let record = Record::new(NonNull::dangling(), 64, Device::cuda(3), Access::Device);
    // SAFETY: no other pointer to it is used.
    let block = context.adopt(unsafe { Block::borrowed(record) });
    assert_eq!(context.stats(Device::cuda(3)).live(), 64);
    assert!(context.allocate(Device::cuda(3), &Request::new(64)).is_err());
    drop(block);
}

/// The first block of a kind on a thread has an id, also if another thread has used the kind.
#[test]
fn every_block_has_a_name_of_its_own() {
    use std::sync::mpsc::channel;
    let allocator = Pow2::new(System::new()).into_ref();
    let ((ask, asked), (answer, answered)) = (channel(), channel());
    std::thread::scope(|scope| {
        let there = allocator.clone();
        scope.spawn(move || {
            // Blocks cached here serve every kind.
            drop(there.allocate(&Request::new(100)).unwrap());
            answer.send(None).unwrap();
            asked.recv().unwrap();
            answer.send(Some(there.allocate(&request(100)).unwrap())).unwrap();
        });
        assert!(answered.recv().unwrap().is_none());
        let here = [request(1 << 20), request(2 << 20)].map(|request| allocator.allocate(&request).unwrap());
        ask.send(()).unwrap();
        let block = answered.recv().unwrap().unwrap();
        assert_ne!(block.id(), AllocationId::NONE);
        assert!(here.iter().all(|other| other.id() != block.id()));
    });
}

/// An allocator that serves one kind may be registered for another, by the handle that the context returns.
#[test]
fn what_comes_by_a_gate_is_charged_once() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
    let serving = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    context.register(Device::CPU, KIND, serving).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, block.capacity() as u64);
    drop(block);
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 0);
}

#[test]
fn an_arena_that_was_passed_and_is_registered_is_charged_once() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    drop(context.allocate_from(&arena, &request(1000)).unwrap());
    context.register(Device::CPU, KIND, arena.clone()).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, block.capacity() as u64);
    let other = context.allocate_from(&arena, &request(1 << 16)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 2 << 16);
    drop((block, other));
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 0);
}

/// As for statistics, so for budgets: an adaptor over an explicit allocator hands out that one's blocks.
#[test]
fn what_is_passed_twice_over_is_charged_once() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
    let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
    let over = orlop_alloc::adaptor::Limit::new(arena.clone(), 1 << 20).into_ref().erase();
    for order in [[&arena, &over], [&over, &arena]] {
        let blocks = order.map(|allocator| context.allocate_from(allocator, &request(1000)).unwrap());
        let map = context.memory_map();
        assert_eq!((context.budget_status(Device::CPU, KIND).live, map.live(KIND)), (2000, 2000));
        drop(blocks);
    }
}

#[test]
fn arenas_of_threads_are_as_pinned_as_their_memory() {
    #[derive(Debug, Clone)]
    struct AllPinned(System);
    // SAFETY: the system's memory, unchanged; no device accesses it by DMA.
    unsafe impl Backing for AllPinned {
        fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
            self.0.reserve(bytes, align)
        }
        unsafe fn release(&self, region: Region) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.release(region) }
        }
        fn is_pinned(&self) -> bool {
            true
        }
        fn name(&self) -> &str {
            "all-pinned"
        }
        unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.zero(ptr, bytes) }
        }
    }
    let backing = AllPinned(System::new());
    let (one, many) =
        (Arena::new(backing.clone(), 1 << 16).into_ref(), ThreadArenas::new(backing, 1 << 16).into_ref());
    assert!(one.semantics().pinned && many.semantics().pinned);
    assert!(many.allocate(&request(100)).unwrap().is_pinned());
}

#[test]
fn a_block_that_grows_may_be_the_largest() {
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    for allocator in [arena, Caching::new(System::new()).into_ref().erase()] {
        let mut block = allocator.allocate(&request(1 << 10)).unwrap();
        assert!(block.grow_in_place(1 << 12), "{}", allocator.name());
        assert_eq!(allocator.stats().totals.largest, block.capacity() as u64, "{}", allocator.name());
    }
}

/// Counts the region events it receives.
#[derive(Default)]
struct Regions(AtomicUsize);

impl Observer for Regions {
    fn observe(&self, event: &Event<'_>) {
        let is_region = matches!(event, Event::Region { .. });
        self.0.fetch_add(is_region.into(), Ordering::Relaxed);
    }
}

/// Each observer of an arena receives each region once, however many contexts share the arena.
#[test]
fn observers_of_several_contexts_see_a_shared_arena_once() {
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    let contexts = [context(), context()];
    let told = [Arc::new(Regions::default()), Arc::new(Regions::default())];
    for (context, told) in contexts.iter().zip(&told) {
        context.add_observer(Arc::clone(told) as Arc<dyn Observer>);
    }
    for _ in 0..10 {
        for context in &contexts {
            drop(context.allocate_from(&arena, &request(64)).unwrap());
        }
    }
    assert_eq!(told.map(|told| told.0.load(Ordering::Relaxed)), [1, 1]);
}

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Runs one hook when it is first watched, and another when it is first trimmed.
struct Hooked {
    inner: Direct<System>,
    watched: Arc<Hook>,
    trimmed: Arc<Hook>,
}

fn run(hook: &Hook) {
    let hook = hook.lock().expect("no panic").take();
    hook.into_iter().for_each(|hook| hook());
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

// SAFETY: the inner allocator's, unchanged.
unsafe impl Allocator for Hooked {
    fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
        self.inner.allocate(request)
    }
    unsafe fn deallocate(&self, block: RawBlock) -> orlop_alloc::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.deallocate(block) }
    }
    fn device(&self) -> Device {
        Device::CPU
    }
    fn name(&self) -> &str {
        "hooked"
    }
    fn usage(&self) -> Usage {
        self.inner.usage()
    }
    fn trim(&self, _: u64) -> u64 {
        run(&self.trimmed);
        0
    }
    fn watch_regions(&self, _: &Arc<RegionWatch>) {
        run(&self.watched);
    }
}

/// An explicit allocator is dropped while its context accesses it: its destructor may use the context.
#[test]
fn a_last_handle_that_goes_meanwhile_ends_with_nothing_locked() {
    let (watched, trimmed): (Arc<Hook>, Arc<Hook>) = Default::default();
    let context = context();
    let hooked = Hooked {
        inner: Direct::new(System::new()),
        watched: Arc::clone(&watched),
        trimmed: Arc::clone(&trimmed),
    };
    let hooked = hooked.into_ref().erase();
    drop(context.allocate_from(&hooked, &request(64)).unwrap());
    *watched.lock().unwrap() = Some(Box::new(move || drop(hooked)));
    let (ended, end) = std::sync::mpsc::channel();
    let inside = context.clone();
    *trimmed.lock().unwrap() = Some(Box::new(move || {
        inside.add_observer(Arc::new(Regions::default()));
        ended.send(()).unwrap();
    }));
    std::thread::spawn(move || context.add_observer(Arc::new(Regions::default())));
    end.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
}

/// Its gate charges it, as it does for earlier live blocks.
#[test]
fn what_was_registered_and_is_passed_stays_in_the_budget() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(10_000)).unwrap();
    let [former, current] = [(), ()].map(|()| Arena::new(System::new(), 1 << 20).into_ref().erase());
    context.register(Device::CPU, KIND, former.clone()).unwrap();
    // It is recorded as a registered allocator.
    let early = context.allocate_from(&former, &request(1000)).unwrap();
    context.register(Device::CPU, KIND, current).unwrap();
    let mut late = context.allocate_from(&former, &request(6000)).unwrap().share();
    let live = || context.budget_status(Device::CPU, KIND).live;
    assert_eq!((live(), context.memory_map().live(KIND)), (7000, 7000));
    for refused in
        [context.allocate_from(&former, &request(4000)), context.allocate(Device::CPU, &request(4000))]
    {
        assert!(matches!(refused, Err(Error::OutOfMemory(report)) if report.refusal == Refusal::Budget));
    }
    // The difference fits once.
    assert!(context.grow_in_place(&mut late, 8000) && !context.grow_in_place(&mut late, 9500));
    assert_eq!(live(), 9000);
    drop((early, late));
    assert_eq!((live(), context.memory_map().live(KIND)), (0, 0));
}

/// It never had a gate, so its own statistics count.
#[test]
fn what_was_registered_before_there_were_budgets_is_counted_when_it_is_passed() {
    let context = context();
    let [former, current] = [(), ()].map(|()| Arena::new(System::new(), 1 << 20).into_ref().erase());
    context.register(Device::CPU, KIND, former.clone()).unwrap();
    drop(context.allocate_from(&former, &request(1000)).unwrap());
    context.register(Device::CPU, KIND, current).unwrap();
    context.set_budget(Device::CPU, KIND, Budget::hard(10_000)).unwrap();
    let _held = context.allocate_from(&former, &request(6000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 6000);
    assert_eq!(context.memory_map().live(KIND), 6000);
    assert!(context.allocate_from(&former, &request(6000)).is_err());
}

/// As documented: without statistics its live blocks do not count, unless it is registered.
#[test]
fn an_allocator_without_statistics_counts_where_it_is_registered() {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(10_000)).unwrap();
    let silent = AllocatorRef::with_statistics(Direct::new(System::new()), false).erase();
    let _passed = context.allocate_from(&silent, &request(6000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 0);
    assert!(context.allocate_from(&silent, &request(12_000)).is_err(), "a request alone is bounded");
    context.register(Device::CPU, KIND, silent.clone()).unwrap();
    let _registered = context.allocate_from(&silent, &request(6000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 6000);
    assert!(context.allocate_from(&silent, &request(6000)).is_err());
}

#[test]
fn statistics_show_what_they_lack() {
    let plain = Direct::new(System::new()).into_ref().erase();
    let silent = AllocatorRef::with_statistics(Direct::new(System::new()), false).erase();
    drop(plain.allocate(&request(100)).unwrap());
    let table = plain.stats().to_string();
    assert!(!table.contains("statistics") && !table.contains("pinned"), "{table}");
    let pinned = Request::new(100).kind(MemoryKind::HostPinned);
    drop([plain.allocate(&pinned).unwrap(), silent.allocate(&pinned).unwrap()]);
    let [plain_table, silent_table] = [&plain, &silent].map(|allocator| allocator.stats().to_string());
    let unpinned = format!("{} memory is not pinned", MemoryKind::HostPinned);
    assert!(plain_table.contains(&unpinned) && !plain_table.contains("statistics"), "{plain_table}");
    assert!(
        silent_table.contains(&unpinned) && silent_table.contains("statistics are off"),
        "{silent_table}"
    );
    // The same holds for sums.
    let context = context();
    context.register(Device::CPU, MemoryKind::HostPinned, silent).unwrap();
    let sum = context.stats(Device::CPU);
    assert!(sum.totals.uncounted && sum.has_unpinned);
}
