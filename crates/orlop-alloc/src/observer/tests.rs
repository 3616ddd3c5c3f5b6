//! The region events of engines, compared with the usage that the engines report.

use super::*;
use crate::adaptor::Limit;
use crate::backing::{HugePages, Mmap, System};
use crate::bfc::{Bfc, BfcPolicy, RegionGrowth};
use crate::caching::Caching;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator as _, AllocatorRef, Block, Request};
use orlop_core::StreamId;
use orlop_sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reconstructs the reserved memory from the events.
#[derive(Default)]
struct Map {
    ranges: Mutex<RecordedRanges>,
}

#[derive(Default)]
struct RecordedRanges {
    /// Pieces by address; adjacent pieces are not joined.
    pieces: BTreeMap<usize, usize>,
    received: usize,
    last: Option<u64>,
}

impl RecordedRanges {
    fn sum(&self) -> u64 {
        self.pieces.values().map(|&bytes| bytes as u64).sum()
    }

    fn holds(&self, address: usize, bytes: usize) -> bool {
        let mut at = address;
        while at < address + bytes {
            let Some((&start, &bytes)) = self.pieces.range(..=at).next_back() else { return false };
            if start + bytes <= at {
                return false;
            }
            at = start + bytes;
        }
        true
    }

    fn take(&mut self, address: usize, bytes: usize) {
        assert!(self.holds(address, bytes), "{bytes} bytes at {address:x} go that never came");
        let end = address + bytes;
        while let Some((&start, &length)) =
            self.pieces.range(..end).next_back().filter(|(s, l)| *s + *l > address)
        {
            self.pieces.remove(&start);
            if start < address {
                self.pieces.insert(start, address - start);
            }
            if start + length > end {
                self.pieces.insert(end, start + length - end);
            }
        }
    }

    fn add(&mut self, address: usize, bytes: usize) {
        let before = self.pieces.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(start, bytes)| start + bytes <= address), "held twice: {address:x}");
        self.pieces.insert(address, bytes);
    }

    fn apply(&mut self, event: &RegionEvent) {
        self.received += 1;
        // Where ticks are long, two events may have the same time.
        assert!(event.at >= self.last && event.at.is_some() && event.bytes > 0, "out of order");
        self.last = event.at;
        match event.action {
            RegionAction::Reserved | RegionAction::Mapped => self.add(event.address, event.bytes),
            RegionAction::Released | RegionAction::Unmapped => self.take(event.address, event.bytes),
        }
    }
}

impl Map {
    fn ranges(&self) -> MutexGuard<'_, RecordedRanges> {
        self.ranges.lock()
    }
}

impl Observer for Map {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Region { event, .. } => self.ranges().apply(event),
            Event::Allocated { block, .. } => assert!(self.ranges().holds(block.address(), block.granted)),
            Event::Freed { block, .. } => assert!(self.ranges().holds(block.address(), block.granted)),
            _ => {}
        }
    }
}

fn watch(allocator: &AllocatorRef) -> Arc<Map> {
    // From now on events have times.
    let _ = EventClock::get();
    let map = Arc::<Map>::default();
    allocator.add_observer(Arc::clone(&map) as Arc<dyn Observer>);
    map
}

/// Allocators that know all their regions.
fn allocators() -> Vec<AllocatorRef> {
    let mmap = || Mmap::new().huge_pages(HugePages::Never);
    let steps = BfcPolicy { growth: RegionGrowth::Steps { step: 1 << 20 }, ..BfcPolicy::tensorflow() };
    vec![
        Caching::new(mmap()).into_ref().erase(),
        Caching::builder(System::new()).limit(64 << 20).build().into_ref().erase(),
        Limit::new(Caching::new(mmap()).into_ref(), 128 << 20).into_ref().erase(),
        Bfc::builder(System::new()).limit(64 << 20).build().into_ref().erase(),
        Bfc::builder(System::new()).policy(steps).limit(64 << 20).build().into_ref().erase(),
        Arena::new(System::new(), 1 << 16).into_ref().erase(),
    ]
}

/// A pseudo-random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// A mix of operations; some requests fail.
fn run(allocator: &AllocatorRef, blocks: &mut Vec<Block>, steps: u64, seed: u64, check: impl Fn()) {
    let mut dice = Dice(seed);
    for step in 0..steps {
        let large = dice.below(8) == 0;
        let bytes = 1 + dice.below(if large { 24 << 20 } else { 64 << 10 });
        let request = Request::new(usize::try_from(bytes).unwrap_or_default())
            .stream(StreamId::from_raw(dice.below(3)));
        if let Ok(block) = allocator.allocate(&request) {
            if dice.below(4) == 0 {
                // Refused by engines without streams.
                let _recorded = block.record_stream(StreamId::from_raw(dice.below(3)));
            }
            blocks.push(block);
        }
        while blocks.len() as u64 > dice.below(24) {
            let index = usize::try_from(dice.below(blocks.len() as u64)).unwrap_or_default();
            drop(blocks.swap_remove(index));
        }
        if step % 37 == 0 {
            allocator.trim(dice.below(16 << 20));
        }
        check();
    }
}

const STEPS: u64 = if cfg!(miri) { 4 } else { 400 };

#[test]
fn region_events_add_up_to_the_usage() {
    for allocator in allocators() {
        let map = watch(&allocator);
        let check = || assert_eq!(map.ranges().sum(), allocator.usage().reserved, "{}", allocator.name());
        let mut blocks = Vec::new();
        run(&allocator, &mut blocks, STEPS, 7, check);
        drop(blocks);
        allocator.trim(0);
        check();
        assert!(map.ranges().received > if cfg!(miri) { 0 } else { 4 }, "{}", allocator.name());
        let _last = allocator.allocate(&Request::new(5 << 20)).unwrap();
        let name = allocator.name().to_owned();
        drop(allocator);
        assert!(map.ranges().sum() >= 5 << 20, "{name}");
        drop(_last);
        assert_eq!(map.ranges().sum(), 0, "{name}");
    }
}

#[test]
fn a_later_observer_receives_existing_regions() {
    for allocator in allocators() {
        let mut blocks = Vec::new();
        run(&allocator, &mut blocks, STEPS / 2, 11, || {});
        allocator.trim(0);
        let first = watch(&allocator);
        assert_eq!(first.ranges().sum(), allocator.usage().reserved, "{}", allocator.name());
        let second = watch(&allocator);
        run(&allocator, &mut blocks, STEPS / 2, 13, || {
            assert_eq!(second.ranges().sum(), allocator.usage().reserved, "{}", allocator.name());
        });
        let received = second.ranges().received;
        for observer in allocator.observers() {
            allocator.remove_observer(&observer);
        }
        blocks.clear();
        allocator.trim(0);
        assert_eq!(second.ranges().received, received);
    }
}

#[test]
fn engines_whose_blocks_are_regions_report_them() {
    let pool = Pool::builder(System::new()).bound(8).fixed_bound().build().into_ref().erase();
    for allocator in
        [Direct::new(System::new()).into_ref().erase(), Pow2::new(System::new()).into_ref().erase(), pool]
    {
        let map = watch(&allocator);
        let mut blocks = Vec::new();
        run(&allocator, &mut blocks, STEPS, 17, || {
            assert_eq!(map.ranges().sum(), allocator.usage().reserved, "{}", allocator.name());
        });
        drop(blocks);
        drop(allocator);
        assert_eq!(map.ranges().sum(), 0);
    }
}

#[test]
fn calls_beside_the_handle_are_reported() {
    let caching = Caching::new(Mmap::new()).into_ref();
    let map = watch(&caching.clone().erase());
    drop(caching.allocate(&Request::new(8 << 20)).unwrap());
    for _ in 0..3 {
        caching.decay();
        assert_eq!(map.ranges().sum(), caching.usage().reserved);
    }
    let arena = Arena::new(System::new(), 4096).into_ref();
    let map = watch(&arena.clone().erase());
    for _ in 0..2 {
        drop([100, 10_000].map(|bytes| arena.allocate(&Request::new(bytes)).unwrap()));
        arena.reset().unwrap();
        assert_eq!(map.ranges().sum(), arena.usage().reserved);
    }
}

/// Counts the region events it receives.
#[derive(Default)]
struct Count {
    came: AtomicU64,
    already: AtomicU64,
}

impl Observer for Count {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Region { event, .. } = event {
            let count = if event.already { &self.already } else { &self.came };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn observers_beside_others_receive_existing_regions() {
    let steps = BfcPolicy { growth: RegionGrowth::Steps { step: 1 << 20 }, ..BfcPolicy::tensorflow() };
    let allocator = Bfc::builder(System::new()).policy(steps).limit(64 << 20).build().into_ref().erase();
    let _kept = allocator.allocate(&Request::new(1000)).unwrap();
    let counts: [Arc<Count>; 2] = Default::default();
    counts.iter().for_each(|count| drop(allocator.add_observer(Arc::clone(count) as Arc<dyn Observer>)));
    let _more = allocator.allocate(&Request::new(2 << 20)).unwrap();
    for count in &counts {
        assert_eq!(count.already.load(Ordering::Relaxed), 1);
        assert_eq!(count.came.load(Ordering::Relaxed), 1);
    }
}

/// Allocates from the allocator that it watches.
struct Greedy {
    allocator: Mutex<Option<AllocatorRef>>,
    kept: Mutex<Vec<Block>>,
    received: AtomicU64,
}

impl Observer for Greedy {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Region { .. }) && self.received.fetch_add(1, Ordering::Relaxed) < 3 {
            let allocator = self.allocator.lock().clone();
            let block = allocator.and_then(|allocator| allocator.allocate(&Request::new(30 << 20)).ok());
            self.kept.lock().extend(block);
        }
    }
}

#[test]
fn an_observer_may_allocate_from_what_it_observes() {
    for allocator in
        [Direct::new(System::new()).into_ref().erase(), Pow2::new(System::new()).into_ref().erase()]
    {
        let greedy = Arc::new(Greedy {
            allocator: Mutex::new(Some(allocator.clone())),
            kept: Mutex::default(),
            received: AtomicU64::new(0),
        });
        allocator.add_observer(Arc::clone(&greedy) as Arc<dyn Observer>);
        let _block = allocator.allocate(&Request::new(30 << 20)).unwrap();
        // Each region led to another: the first three times.
        assert_eq!((greedy.received.load(Ordering::Relaxed), greedy.kept.lock().len()), (4, 3));
        greedy.allocator.lock().take();
        let kept = std::mem::take(&mut *greedy.kept.lock());
        drop(kept);
    }
}

#[test]
fn threads_report_all_regions_in_order() {
    let (threads, steps) = if cfg!(miri) { (2, 2) } else { (4, 150) };
    for allocator in allocators() {
        // Blocks may be reported before their regions: only the regions are compared.
        struct Regions(Map);
        impl Observer for Regions {
            fn observe(&self, event: &Event<'_>) {
                if matches!(event, Event::Region { .. }) {
                    self.0.observe(event);
                }
            }
        }
        let _ = EventClock::get();
        let regions = Arc::new(Regions(Map::default()));
        allocator.add_observer(Arc::clone(&regions) as Arc<dyn Observer>);
        std::thread::scope(|scope| {
            for seed in 0..threads {
                let allocator = &allocator;
                scope.spawn(move || run(allocator, &mut Vec::new(), steps, seed, || {}));
            }
        });
        assert_eq!(regions.0.ranges().sum(), allocator.usage().reserved, "{}", allocator.name());
    }
}
