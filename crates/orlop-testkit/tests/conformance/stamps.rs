//! Timestamped free.

use orlop_alloc::backing::Null;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KIB: usize = 1 << 10;

/// An engine with one region of `bytes` bytes.
struct StampedEngine {
    engine: AllocatorRef<Bfc<Null>>,
    clock: Arc<AtomicU64>,
}

impl StampedEngine {
    fn new(bytes: usize) -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let builder = Bfc::builder(Null::new(Device::cuda(0))).policy(BfcPolicy::tensorflow_fixed());
        Self { engine: builder.limit(bytes).clock(clock.clone()).build().into_ref(), clock }
    }

    fn get(&self, bytes: usize) -> Block {
        self.engine.allocate(&Request::new(bytes)).unwrap()
    }

    fn get_before(&self, bytes: usize, stamp: u64) -> Option<Block> {
        self.engine.allocate(&Request::new(bytes).freed_before(stamp)).ok()
    }

    /// Frees a block with this stamp.
    fn free_at(&self, block: Block, stamp: u64) {
        self.clock.store(stamp - 1, Ordering::Relaxed);
        drop(block);
        self.engine.verify().unwrap();
    }

    fn largest_free(&self) -> u64 {
        let error = self.engine.allocate(&Request::new(1 << 40).freed_before(1)).unwrap_err();
        let orlop_alloc::Error::OutOfMemory(report) = error else { panic!("{error}") };
        report.largest_free
    }
}

/// Returns the offset from the first address.
fn offset(block: &Block) -> usize {
    block.as_ptr().as_ptr().addr() - Null::FIRST_ADDRESS
}

/// Allocates four blocks of 16 KiB, which fill the region.
fn full() -> (StampedEngine, [Block; 4]) {
    let stamped = StampedEngine::new(64 * KIB);
    let blocks = [(); 4].map(|()| stamped.get(16 * KIB));
    (stamped, blocks)
}

#[test]
fn chunks_freed_later_than_asked_for_are_skipped() {
    let (stamped, [a, b, _c, _d]) = full();
    stamped.free_at(a, 10);
    stamped.free_at(b, 5);
    assert!(stamped.get_before(16 * KIB, 4).is_none());
    // `a` is lower and of equal size, but its stamp is too late.
    let taken = stamped.get_before(16 * KIB, 5).unwrap();
    assert_eq!(offset(&taken), 16 * KIB);
    assert!(stamped.get_before(16 * KIB, 9).is_none());
    assert_eq!(offset(&stamped.get_before(16 * KIB, 10).unwrap()), 0);
}

#[test]
fn a_request_without_a_stamp_takes_any_chunk() {
    let (stamped, [a, _b, _c, _d]) = full();
    stamped.free_at(a, 10);
    assert_eq!(offset(&stamped.get(16 * KIB)), 0);
}

#[test]
fn memory_that_was_never_used_has_no_stamp() {
    let stamped = StampedEngine::new(64 * KIB);
    stamped.clock.store(1000, Ordering::Relaxed);
    assert!(stamped.get_before(16 * KIB, 1).is_some());
}

#[test]
fn splits_inherit_the_stamp() {
    let (stamped, [a, _b, _c, _d]) = full();
    stamped.free_at(a, 10);
    let front = stamped.get(4 * KIB);
    assert_eq!(offset(&front), 0);
    // The rest of `a` has the stamp of `a`.
    assert!(stamped.get_before(4 * KIB, 9).is_none());
    assert_eq!(offset(&stamped.get_before(4 * KIB, 10).unwrap()), 4 * KIB);
}

#[test]
fn stamped_neighbours_stay_apart_until_the_frontier_passes() {
    let (stamped, [a, b, _c, _d]) = full();
    stamped.free_at(a, 10);
    stamped.free_at(b, 11);
    assert_eq!(stamped.largest_free(), 16 * KIB as u64);
    // The frontier itself is not safe yet: only lower stamps are.
    stamped.engine.set_safe_frontier(10);
    assert!(stamped.get_before(16 * KIB, 1).is_none());
    stamped.engine.set_safe_frontier(11);
    // The stamp of `a` is cleared: any request may use it.
    let a = stamped.get_before(16 * KIB, 1).unwrap();
    assert_eq!(offset(&a), 0);
    stamped.free_at(a, 12);
    stamped.engine.set_safe_frontier(13);
    let merged = stamped.get_before(32 * KIB, 1).unwrap();
    assert_eq!(offset(&merged), 0);
    stamped.engine.verify().unwrap();
}

#[test]
fn the_frontier_never_moves_back() {
    let (stamped, [a, _b, _c, _d]) = full();
    stamped.engine.set_safe_frontier(20);
    stamped.engine.set_safe_frontier(3);
    stamped.free_at(a, 10);
    assert!(stamped.get_before(16 * KIB, 1).is_some());
}

#[test]
fn without_anything_else_stamped_chunks_merge_for_who_does_not_mind() {
    let (stamped, [a, b, _c, _d]) = full();
    stamped.free_at(a, 10);
    stamped.free_at(b, 11);
    // A request with an earlier stamp does not get the merged chunk.
    assert!(stamped.get_before(32 * KIB, 11).is_none());
    let merged = stamped.get(32 * KIB);
    assert_eq!((offset(&merged), merged.capacity()), (0, 32 * KIB));
    stamped.engine.verify().unwrap();
}

#[test]
fn a_forced_merge_takes_the_later_stamp() {
    let (stamped, [a, b, _c, _d]) = full();
    stamped.free_at(a, 10);
    stamped.free_at(b, 11);
    // 20 KiB of the merged 32 KiB: the rest is too small to split, so all of it is granted; hence 12 KiB.
    let merged = stamped.get(20 * KIB);
    assert_eq!((offset(&merged), merged.capacity()), (0, 32 * KIB));
    drop(merged);
    let (stamped, [a, b, c, _d]) = full();
    for (block, stamp) in [(a, 10), (b, 11), (c, 12)] {
        stamped.free_at(block, stamp);
    }
    let front = stamped.get(20 * KIB);
    assert_eq!((offset(&front), front.capacity()), (0, 32 * KIB));
    assert!(stamped.get_before(16 * KIB, 11).is_none());
    assert_eq!(offset(&stamped.get_before(16 * KIB, 12).unwrap()), 32 * KIB);
}

#[test]
fn a_forced_merge_that_fails_does_not_forget_the_stamps() {
    let (stamped, [a, _b, c, _d]) = full();
    stamped.free_at(a, 10);
    stamped.free_at(c, 11);
    assert!(stamped.engine.allocate(&Request::new(32 * KIB)).is_err());
    assert!(stamped.get_before(16 * KIB, 9).is_none());
    // Both are still waiting for the frontier, and are cleared when it passes.
    stamped.engine.set_safe_frontier(12);
    assert!(stamped.get_before(16 * KIB, 1).is_some(), "cleared when the frontier passed");
    stamped.engine.verify().unwrap();
}

#[test]
fn chunks_merge_by_and_by_as_the_frontier_moves() {
    let (stamped, blocks) = full();
    for (block, stamp) in blocks.into_iter().zip([13, 11, 12, 14]) {
        stamped.free_at(block, stamp);
    }
    for (frontier, bytes, expected) in [(12, 16 * KIB, 16 * KIB), (13, 32 * KIB, 16 * KIB), (14, 48 * KIB, 0)]
    {
        stamped.engine.set_safe_frontier(frontier);
        let block = stamped.get_before(bytes, 1).unwrap();
        assert_eq!(offset(&block), expected, "frontier {frontier}");
        // Freed, and safe at once: below the frontier.
        stamped.free_at(block, 1);
    }
    stamped.engine.set_safe_frontier(15);
    assert_eq!(offset(&stamped.get_before(64 * KIB, 1).unwrap()), 0);
}

#[test]
fn free_regions_go_when_stuck_and_only_then() {
    const MIB: usize = 1 << 20;
    let engine = |policy: BfcPolicy| {
        Bfc::builder(Null::with_limit(Device::cuda(0), 6 * MIB as u64))
            .policy(policy)
            .limit(6 * MIB)
            .build()
            .into_ref()
    };
    for (policy, succeeds) in
        [(BfcPolicy::tensorflow(), false), (BfcPolicy::tensorflow().releasing_when_stuck(), true)]
    {
        let engine = engine(policy);
        // Regions of 2 and 4 MiB, both free at the end.
        let blocks = [2 * MIB, 4 * MIB].map(|bytes| engine.allocate(&Request::new(bytes)).unwrap());
        drop(blocks);
        assert_eq!(engine.stats().usage.regions, 2);
        let large = engine.allocate(&Request::new(5 * MIB));
        assert_eq!(large.is_ok(), succeeds);
        assert_eq!(engine.stats().usage.regions, if succeeds { 1 } else { 2 });
        engine.verify().unwrap();
    }
    // Live blocks stay, and nothing is released that could not help.
    let engine = engine(BfcPolicy::tensorflow().releasing_when_stuck());
    let [_small, large] = [2 * MIB, 4 * MIB].map(|bytes| engine.allocate(&Request::new(bytes)).unwrap());
    drop(large);
    assert!(engine.allocate(&Request::new(5 * MIB)).is_err());
    assert_eq!(engine.stats().usage.regions, 2);
}

/// Growth restarts after a trim: the doubled step may be more than the backing will ever have.
#[test]
fn the_engine_grows_again_after_a_trim_in_a_tight_backing() {
    const MIB: usize = 1 << 20;
    let engine = Bfc::new(Null::with_limit(Device::cuda(0), 9 * MIB as u64)).into_ref();
    for _ in 0..5 {
        let mut blocks: Vec<Block> = Vec::new();
        while let Ok(block) = engine.allocate(&Request::new(MIB)) {
            blocks.push(block);
        }
        assert!(blocks.len() >= 6, "{}", blocks.len());
        drop(blocks);
        engine.trim(0);
        assert_eq!(engine.stats().usage.reserved, 0);
    }
}

/// Nine tenths of a few granules, rounded up, is the same size again: the search for less must end.
#[test]
fn a_backing_without_anything_is_given_up() {
    for bytes in [1, 2304, 2305, 100_000] {
        let engine = Bfc::builder(Null::with_limit(Device::CPU, 0)).limit(bytes.max(256)).build().into_ref();
        assert!(engine.allocate(&Request::new(bytes.min(256))).is_err());
        assert!(engine.allocate(&Request::new(bytes)).is_err());
    }
}
