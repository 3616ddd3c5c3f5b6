//! Visitors are called for every region that an engine reserves and releases: with address, length and node.

use orlop_alloc::backing::{Mmap, Region, RegionChange, System, Visited, Visitor};
use orlop_alloc::{Allocator, Request};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The memory that a device would have registered, as ranges from start to end. Memory that grows in place is
/// registered and unregistered in pieces.
#[derive(Default)]
struct Registered {
    ranges: BTreeMap<usize, usize>,
    node: Option<u32>,
    gained: usize,
    lost: usize,
}

impl Registered {
    fn bytes(&self) -> usize {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    fn holds(&self, start: usize, bytes: usize) -> bool {
        let at = self.ranges.range(..=start).next_back();
        at.is_some_and(|(_, &end)| start + bytes <= end)
    }

    fn see(&mut self, change: RegionChange, region: &Region, node: Option<u32>) {
        assert_eq!(node, self.node, "the node of the backing");
        assert!(region.bytes > 0);
        let (start, end) = (region.address(), region.address() + region.bytes);
        let before = self.ranges.range(..end).next_back().map(|(&start, &end)| (start, end));
        match change {
            RegionChange::Reserved => {
                assert!(before.is_none_or(|(_, end)| end <= start), "gained twice");
                self.gained += region.bytes;
                // Joined with the range that ends where it starts.
                let joined = before.filter(|&(_, end)| end == start).map_or(start, |(start, _)| start);
                self.ranges.insert(joined, end);
            }
            RegionChange::Released => {
                let (from, to) = before.expect("it was gained");
                assert!(from <= start && end <= to, "lost, but never gained");
                self.lost += region.bytes;
                self.ranges.remove(&from);
                if from < start {
                    self.ranges.insert(from, start);
                }
                if end < to {
                    self.ranges.insert(end, to);
                }
            }
        }
    }
}

fn watching(node: Option<u32>) -> (Visitor, Arc<Mutex<Registered>>) {
    let seen = Arc::new(Mutex::new(Registered { node, ..Registered::default() }));
    let visitor = {
        let seen = Arc::clone(&seen);
        Arc::new(move |change, region: &Region, node| {
            seen.lock().expect("no panic with it held").see(change, region, node);
        })
    };
    (visitor, seen)
}

/// Every engine that takes a backing, by its name in the registry.
const ENGINES: [&str; 7] = ["caching", "bfc", "pool", "pow2", "arena", "direct", "system"];

#[test]
fn visitors_see_all_that_engines_reserve_and_release() {
    for engine in ENGINES {
        for node in [None, Some(0)] {
            let (visitor, seen) = watching(node);
            let config = AllocatorConfig::new().named(engine).visitor(visitor);
            let config = node.map_or(config.clone(), |node| config.node(node));
            let allocator = config.make().unwrap();
            let mut blocks = Vec::new();
            for bytes in [100, 3000, 70_000, 5 << 20, 100, 1 << 20, 40 << 10] {
                let block = allocator.allocate(&Request::new(bytes)).unwrap();
                let address = block.as_ptr().as_ptr().addr();
                assert!(seen.lock().unwrap().holds(address, block.capacity()), "{engine}: {bytes}");
                blocks.push(block);
            }
            let reserved = |seen: &Registered| (seen.bytes(), seen.gained - seen.lost);
            let held = usize::try_from(allocator.usage().reserved).unwrap();
            assert_eq!(reserved(&seen.lock().unwrap()), (held, held), "{engine}");
            blocks.truncate(1);
            allocator.trim(0);
            let held = usize::try_from(allocator.usage().reserved).unwrap();
            assert_eq!(reserved(&seen.lock().unwrap()), (held, held), "{engine} after a trim");
            let gained = seen.lock().unwrap().gained;
            drop((blocks, allocator));
            let seen = seen.lock().unwrap();
            assert_eq!((seen.bytes(), seen.gained, seen.lost), (0, gained, gained), "{engine} in the end");
        }
    }
}

/// The first visitor is called first for a new region, and last for its release, as registrations nest.
#[test]
fn visitors_nest() {
    let log: Arc<Mutex<Vec<(u32, RegionChange)>>> = Arc::default();
    let logging = |name| -> Visitor {
        let log = Arc::clone(&log);
        Arc::new(move |change, _, _| log.lock().unwrap().push((name, change)))
    };
    let config = AllocatorConfig::new().named("direct").visitor(logging(1)).visitor(logging(2));
    let allocator = config.make().unwrap();
    drop(allocator.allocate(&Request::new(1000)).unwrap());
    let (gained, lost) = (RegionChange::Reserved, RegionChange::Released);
    assert_eq!(*log.lock().unwrap(), [(1, gained), (2, gained), (2, lost), (1, lost)]);
}

#[test]
fn visitors_of_a_context_see_pinned_memory_too() {
    let (visitor, seen) = watching(None);
    let context = Context::with(Device::CPU, AllocatorConfig::new().visitor(visitor));
    for kind in [MemoryKind::Default, MemoryKind::HostPinned, MemoryKind::KvCache] {
        let block = context.allocate(Device::CPU, &Request::new(1000).kind(kind)).unwrap();
        let address = block.as_ptr().as_ptr().addr();
        assert!(seen.lock().unwrap().holds(address, block.capacity()), "{kind}");
    }
    drop(context);
    assert_eq!(seen.lock().unwrap().bytes(), 0);
}

/// A device keeps using the page that it registered: the page must not be replaced.
#[test]
fn pages_that_visitors_saw_stay() {
    use orlop_alloc::backing::Backing;
    use orlop_core::Alignment;
    let (visitor, _) = watching(None);
    let visited = Visited::new(Mmap::new(), vec![visitor]);
    let region = visited.reserve(1 << 20, Alignment::PLANNED).unwrap();
    // SAFETY: an unused region of this backing.
    assert_eq!(unsafe { visited.discard(region.ptr, region.bytes) }, 0);
    // SAFETY: reserved above, and released once.
    unsafe { visited.release(region) };
    let none = Visited::new(System::new(), Vec::new());
    assert_eq!((none.name(), none.is_pinned()), ("system", false));
}
