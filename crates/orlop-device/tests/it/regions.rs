//! The region events of an allocator, compared with its reserved memory.

use orlop_alloc::{
    Allocator as _, AllocatorRef, Block, Event, Observer, RegionAction, RegionEvent, Request,
    engine_support::EventClock,
};
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceAllocator, NullDevice, Policy, TorchConf};
use orlop_sync::Mutex;
use orlop_testkit::device::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An observer that reconstructs the reserved memory from region events.
#[derive(Default)]
struct MemoryMap(Mutex<Mapped>);

#[derive(Default)]
struct Mapped {
    /// Bytes by address. Adjacent ranges are not merged.
    ranges: BTreeMap<usize, usize>,
    events: usize,
    last: Option<u64>,
}

impl Mapped {
    fn bytes(&self) -> u64 {
        self.ranges.values().map(|&bytes| bytes as u64).sum()
    }

    fn covers(&self, address: usize, bytes: usize) -> bool {
        let mut at = address;
        while at < address + bytes {
            let Some((&start, &bytes)) = self.ranges.range(..=at).next_back() else { return false };
            if start + bytes <= at {
                return false;
            }
            at = start + bytes;
        }
        true
    }

    fn apply(&mut self, event: &RegionEvent) {
        let (start, end) = (event.address, event.address + event.bytes);
        self.events += 1;
        // Two events may have the same time where the clock is coarse.
        assert!(event.at >= self.last && event.at.is_some() && event.bytes > 0, "out of order");
        self.last = event.at;
        if matches!(event.action, RegionAction::Reserved | RegionAction::Mapped) {
            let before = self.ranges.range(..end).next_back();
            assert!(before.is_none_or(|(at, bytes)| at + bytes <= start), "{start:x} is reserved twice");
            self.ranges.insert(start, event.bytes);
            return;
        }
        assert!(
            self.covers(start, event.bytes),
            "{} bytes at {start:x} are released but not reserved",
            event.bytes
        );
        while let Some((&at, &bytes)) =
            self.ranges.range(..end).next_back().filter(|(at, n)| *at + *n > start)
        {
            self.ranges.remove(&at);
            if at < start {
                self.ranges.insert(at, start - at);
            }
            if at + bytes > end {
                self.ranges.insert(end, at + bytes - end);
            }
        }
    }
}

impl Observer for MemoryMap {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Region { event, .. } => self.0.lock().apply(event),
            Event::Allocated { block, .. } | Event::Freed { block, .. } => {
                assert!(self.0.lock().covers(block.address(), block.granted));
            }
            _ => {}
        }
    }
}

fn watch(allocator: &AllocatorRef) -> Arc<MemoryMap> {
    // Events have times once the clock exists.
    let _ = EventClock::get();
    let map = Arc::<MemoryMap>::default();
    allocator.add_observer(Arc::clone(&map) as Arc<dyn Observer>);
    map
}

fn device(policy: Policy) -> AllocatorRef<DeviceAllocator<NullDevice>> {
    DeviceAllocator::new(NullDevice::new(Device::cuda(0), 256 << 20), policy).into_ref()
}

fn policies() -> [Policy; 4] {
    let expandable = TorchConf::known("expandable_segments:True").0;
    let torch = Policy::torch(&TorchConf::default());
    [torch, Policy::torch(&expandable), Policy::orlop(), Policy::orlop_without_pages()]
}

/// Allocates and frees at random, on three streams; some requests fail.
fn run(allocator: &AllocatorRef, blocks: &mut Vec<Block>, steps: u64, seed: u64, check: impl Fn()) {
    let mut random = Random::new(seed);
    let mut below = |end: usize| random.below(end);
    for step in 0..steps {
        let large = below(8) == 0;
        let bytes = 1 + below(if large { 24 << 20 } else { 64 << 10 });
        let request = Request::new(bytes).stream(StreamId::from_raw(below(3) as u64));
        if let Ok(block) = allocator.allocate(&request) {
            if below(4) == 0 {
                block
                    .record_stream(StreamId::from_raw(below(3) as u64))
                    .expect("its allocator waits for streams");
            }
            blocks.push(block);
        }
        while blocks.len() > below(24) {
            drop(blocks.swap_remove(below(blocks.len())));
        }
        if step % 37 == 0 {
            allocator.trim(below(16 << 20) as u64);
        }
        check();
    }
}

#[test]
fn reported_bytes_are_the_reserved_bytes() {
    for policy in policies() {
        let name = policy.name;
        let allocator = device(policy).erase();
        let map = watch(&allocator);
        let check = || assert_eq!(map.0.lock().bytes(), allocator.usage().reserved, "{name}");
        let mut blocks = Vec::new();
        run(&allocator, &mut blocks, 400, 7, check);
        drop(blocks);
        allocator.trim(0);
        check();
        assert!(map.0.lock().events > 4, "{name}");
        let last = allocator.allocate(&Request::new(5 << 20)).unwrap();
        drop(allocator);
        assert!(map.0.lock().bytes() >= 5 << 20, "{name}");
        drop(last);
        assert_eq!(map.0.lock().bytes(), 0, "{name}");
    }
}

#[test]
fn a_late_observer_gets_the_reserved_regions() {
    for policy in policies() {
        let allocator = device(policy).erase();
        let mut blocks = Vec::new();
        run(&allocator, &mut blocks, 200, 11, || {});
        allocator.trim(0);
        let first = watch(&allocator);
        assert_eq!(first.0.lock().bytes(), allocator.usage().reserved, "{}", allocator.name());
        let second = watch(&allocator);
        run(&allocator, &mut blocks, 200, 13, || {
            assert_eq!(second.0.lock().bytes(), allocator.usage().reserved, "{}", allocator.name());
        });
        let events = second.0.lock().events;
        for observer in allocator.observers() {
            allocator.remove_observer(&observer);
        }
        blocks.clear();
        allocator.trim(0);
        assert_eq!(second.0.lock().events, events);
    }
}

/// A method of the allocator itself, which does not go through the handle.
#[test]
fn emptying_the_cache_is_reported() {
    let device = device(Policy::torch(&TorchConf::default()));
    let map = watch(&device.clone().erase());
    drop(device.allocate(&Request::new(8 << 20)).unwrap());
    assert_eq!(map.0.lock().bytes(), 20 << 20);
    device.empty_cache().unwrap();
    assert_eq!(map.0.lock().bytes(), 0);
}

/// An observer that allocates from the allocator that it observes.
struct Recursive {
    allocator: Mutex<Option<AllocatorRef>>,
    kept: Mutex<Vec<Block>>,
    events: AtomicU64,
}

impl Observer for Recursive {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Region { .. }) && self.events.fetch_add(1, Ordering::Relaxed) < 3 {
            let allocator = self.allocator.lock().clone();
            let block = allocator.and_then(|allocator| allocator.allocate(&Request::new(30 << 20)).ok());
            self.kept.lock().extend(block);
        }
    }
}

#[test]
fn an_observer_may_allocate_from_its_allocator() {
    for policy in policies() {
        let allocator = device(policy).erase();
        let observer = Arc::new(Recursive {
            allocator: Mutex::new(Some(allocator.clone())),
            kept: Mutex::default(),
            events: AtomicU64::new(0),
        });
        allocator.add_observer(Arc::clone(&observer) as Arc<dyn Observer>);
        let _block = allocator.allocate(&Request::new(30 << 20)).unwrap();
        // Each of the first three regions led to another.
        assert_eq!((observer.events.load(Ordering::Relaxed), observer.kept.lock().len()), (4, 3));
        observer.allocator.lock().take();
        let kept = std::mem::take(&mut *observer.kept.lock());
        drop(kept);
    }
}
