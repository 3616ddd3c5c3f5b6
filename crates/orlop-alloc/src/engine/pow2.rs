//! A pool of powers of two: 32 size buckets from 32 bytes up, cached per thread.
//!
//! A returned block goes to the slot of the thread that returns it, and the next request of that thread finds
//! it there: one exchange and one pop. There is no central cache behind the slots. A thread whose own
//! bucket is empty looks into the larger ones, then into the other slots, and only then calls the backing. So
//! every cached block can be found by every thread, and `trim` reaches the caches of idle threads.
//!
//! It is fast and wasteful: rounding to powers of two costs a third of the memory on average and half in the
//! worst case. Searching upward saves calls of the backing and wastes more: a block from `n` buckets up is up
//! to `2^(n + 1)` times as large as its request.
//!
//! | buckets searched upward | a block is at most | wasted at most |
//! |---|---|---|
//! | 0 | 2 times as large | 1/2 |
//! | 1 (the default) | 4 times | 3/4 |
//! | 2 | 8 times | 7/8 |
//! | `n` | `2^(n + 1)` times | all but `1/2^(n + 1)` |
//! | 31 (all) | the largest cached block | nearly all of 64 GiB |
//!
//! Nothing bounds the cache: blocks go back to the system when they are trimmed
//! ([`Allocator::trim`](crate::Allocator::trim), `Context::trim`), or with the engine. A program that
//! replaces models trims after it has dropped the old one.

use super::region_source::{RegionSource, answered_by_source, cached_align};
use crate::backing::{Backing, BackingRef};
use crate::handle::CountingEngine;
use crate::{Allocator, RawBlock, Record, Request, Result, StreamUses, Usage};
use orlop_core::Alignment;
use orlop_sync::{OwnerState, ShardedCounters};
use std::ptr::NonNull;

/// Number of buckets: 32 bytes to 64 GiB. Larger requests are not cached.
const BUCKETS: usize = 32;

const SMALLEST_LOG2: u32 = 5;

/// The number of larger buckets that a request searches by default.
const SEARCH_UP: usize = 1;

/// Maximum number of blocks that a thread takes from other slots at once.
const MAX_STOLEN: usize = 16;

/// The token of a block that does not belong to a bucket.
const UNCACHED: usize = usize::MAX;

/// A pool of powers of two; see the module documentation.
#[derive(Debug)]
pub struct Pow2<B: Backing = BackingRef> {
    source: RegionSource<B>,
    /// The alignment of cached blocks; requests for more are not cached.
    align: Alignment,
    /// The number of larger buckets that a request searches.
    search_up: usize,
    /// Counters and caches, per slot, under one lock.
    counters: ShardedCounters<Cache>,
}

/// The cached blocks of one slot: records of unused memory. A record's token is the bucket that it was made
/// for.
#[derive(Debug, Default)]
struct Cache {
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    buckets: [Vec<Box<Record>>; BUCKETS],
}

impl<B: Backing> Pow2<B> {
    /// Creates an engine over this backing.
    #[must_use]
    pub fn new(backing: B) -> Self {
        let source = RegionSource::new(backing);
        let align = cached_align(source.device());
        Self { source, align, search_up: SEARCH_UP, counters: ShardedCounters::default() }
    }

    /// Sets the number of larger buckets that a request searches when its own is empty, up to 31, which is
    /// all of them. The module documentation says what each number wastes.
    #[must_use]
    pub fn search_up(mut self, buckets: usize) -> Self {
        self.search_up = buckets.min(BUCKETS - 1);
        self
    }

    /// Returns `true` if a request can be served from the buckets.
    #[inline(always)]
    fn is_cached(&self, request: &Request, bucket: usize) -> bool {
        request.align <= self.align && bucket < BUCKETS
    }

    /// Takes a cached block of at least the bucket's size from another slot, and moves a few more of that
    /// bucket into this thread's slot.
    #[cold]
    fn steal(&self, bucket: usize) -> Option<Box<Record>> {
        let mut stolen = Vec::with_capacity(MAX_STOLEN);
        let mut found_in = bucket;
        self.counters.for_each_slot(|cache| {
            for bucket in bucket..=(bucket + self.search_up).min(BUCKETS - 1) {
                if !stolen.is_empty() && bucket != found_in {
                    break;
                }
                found_in = bucket;
                let blocks = &mut cache.buckets[bucket];
                // Half of them, the oldest: the other thread's most recent blocks are on top.
                let take = blocks.len().div_ceil(2).min(MAX_STOLEN - stolen.len());
                stolen.extend(blocks.drain(..take));
            }
        });
        let found = stolen.pop()?;
        self.counters.with(|cache| cache.buckets[found_in].append(&mut stolen));
        Some(found)
    }

    /// Hands out a block that was cached. Not called inside a slot: a backing is user code.
    fn reuse(&self, mut record: Box<Record>, request: &Request) -> Result<RawBlock> {
        // SAFETY: the block was cached and has not been handed out; its bucket's size is at least the
        // request's.
        if !unsafe { self.source.prepare(&record, request) } {
            self.counters.with(|cache| cache.buckets[record.token].push(record));
            return Err(self.source.cannot_zero());
        }
        self.counters.count_in(request.kind, record.granted, request.bytes);
        record.assign(request);
        Ok(RawBlock::new(record))
    }

    /// Allocates a block in a new region, for `bucket` or for none.
    #[cold]
    fn allocate_region(
        &self,
        request: &Request,
        bytes: usize,
        align: Alignment,
        bucket: usize,
    ) -> Result<RawBlock> {
        // If the backing has no memory left, releasing all cached blocks may help.
        let mut record = self.source.reserve_block(self.name(), request, bytes, align, || self.trim(0))?;
        record.token = bucket;
        self.counters.count_in(request.kind, record.granted, request.bytes);
        Ok(RawBlock::new(record))
    }
}

/// Returns the bucket for `bytes`. The result is at least [`BUCKETS`] if there is none, because
/// `bytes` is too large or zero.
#[inline(always)]
fn bucket_of(bytes: usize) -> usize {
    let below = bytes.wrapping_sub(1) | ((1 << SMALLEST_LOG2) - 1);
    (usize::BITS - SMALLEST_LOG2 - below.leading_zeros()) as usize
}

// SAFETY: 1. a block is a region of its own, at least as large as its bucket, and is in one cache or with one
// user. 2. the backing guarantees that regions are initialised. 3. for a request of zeros, `prepare` zeroes
// used blocks, and `reserve_block` zeroes regions that are not zeroed. 4. caches are behind slots. 5. cached
// blocks are released when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pow2<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if let Some(block) = self.take_cached(request) {
            return Ok(block);
        }
        request.kind.check_on(self.source.device())?;
        let bucket = bucket_of(request.bytes);
        if !self.is_cached(request, bucket) {
            return self.allocate_region(request, request.bytes, request.align, UNCACHED);
        }
        let found = self.counters.with(|cache| {
            let found = cache.buckets[bucket].pop();
            found.or_else(|| cache.buckets[bucket + 1..].iter_mut().take(self.search_up).find_map(Vec::pop))
        });
        match found.or_else(|| self.steal(bucket)) {
            Some(record) => self.reuse(record, request),
            None => self.allocate_region(request, (1 << SMALLEST_LOG2) << bucket, self.align, bucket),
        }
    }

    crate::handle::counts_itself!(counters);

    fn name(&self) -> &str {
        "pow2"
    }

    fn usage(&self) -> Usage {
        let mut metadata = 0;
        self.counters.for_each_slot(|cache| {
            let capacity: usize = cache.buckets.iter().map(Vec::capacity).sum();
            metadata += size_of::<Cache>() + capacity * size_of::<usize>();
        });
        self.source.usage(metadata)
    }

    answered_by_source!();

    fn trim(&self, target: u64) -> u64 {
        let mut excess = self.source.reserved().saturating_sub(target);
        let mut gone = Vec::new();
        self.counters.for_each_slot(|cache| {
            // Largest first, so that the fewest regions are released.
            for bucket in cache.buckets.iter_mut().rev() {
                while excess > 0 {
                    let Some(record) = bucket.pop() else { break };
                    excess = excess.saturating_sub(record.granted as u64);
                    gone.push(record);
                }
            }
        });
        // SAFETY: the blocks were cached, so they are not in use, and their regions were reserved with
        // this alignment.
        unsafe { self.source.release_all(&gone, self.align) }
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl<B: Backing> CountingEngine for Pow2<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        let bucket = bucket_of(request.bytes);
        // Unsupported kinds do not pass: the first block of a kind always exceeds the counter's limit, and
        // takes the slow path, which checks the kind.
        if !self.is_cached(request, bucket) || request.zeroed {
            return None;
        }
        // SAFETY: nothing is called inside that is not in this file, in `Vec` or in the guard.
        let mut guard = unsafe { self.counters.try_enter() }?;
        let granted = guard.value().buckets[bucket].last()?.granted;
        if guard.counts().exceeds_limit(request.kind, granted) {
            return None;
        }
        let mut record = guard.value().buckets[bucket].pop()?;
        let id = guard.count_in(request.kind, granted, request.bytes);
        record.assign_unused(request, id);
        Some(RawBlock::new(record))
    }

    // Inlined into its callers by pointer, it would contain a call and need a stack frame.
    #[inline(never)]
    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // The token is the bucket that the block was made for, even if the block served a request of the
        // bucket below.
        let bucket = block.token;
        if bucket >= BUCKETS || !block.uses.is_empty() {
            return Some(block);
        }
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: as in `take_cached`; the vector has room and does not grow.
        let Some(mut guard) = (unsafe { engine.counters.try_enter() }) else { return Some(block) };
        let blocks = &mut guard.value().buckets[bucket];
        if blocks.len() == blocks.capacity() {
            return Some(block);
        }
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record from `allocate`.
        blocks.push(unsafe { block.into_record() });
        guard.count_out(kind, granted, requested);
        None
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: every block of this engine has a record from `allocate`.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        let bucket = record.token;
        if bucket >= BUCKETS {
            // SAFETY: the region was reserved for this block alone, with this alignment, and the block was
            // returned.
            unsafe { engine.source.release(&record, record.align) };
        } else {
            record.uses = StreamUses::new();
            engine.counters.with(|cache| cache.buckets[bucket].push(record));
        }
        let counters = NonNull::from(&engine.counters);
        // SAFETY: the block was counted in, and leaves with this call.
        Ok(unsafe { ShardedCounters::count_out(counters, kind, granted, requested) })
    }

    crate::handle::counted_by!(counters);
}

impl<B: Backing> Drop for Pow2<B> {
    fn drop(&mut self) {
        self.trim(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::{Null, System};
    use orlop_core::Device;

    #[test]
    fn buckets_are_powers_of_two_from_32() {
        for (bytes, bucket) in [(1, 0), (32, 0), (33, 1), (1000, 5), (1024, 5), (64 << 30, 31)] {
            assert_eq!(bucket_of(bytes), bucket);
        }
        assert!([0, (64 << 30) + 1, usize::MAX].into_iter().all(|bytes| bucket_of(bytes) >= BUCKETS));
    }

    #[test]
    fn a_block_is_found_again_also_one_bucket_up_and_in_other_slots() {
        let pool = Pow2::new(System::new()).into_ref();
        let first = pool.allocate(&Request::new(100)).unwrap();
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.allocate(&Request::new(120)).unwrap().as_ptr(), address);
        assert_eq!(pool.allocate(&Request::new(40)).unwrap().as_ptr(), address);
        let address_there = std::thread::scope(|scope| {
            scope.spawn(|| pool.allocate(&Request::new(128)).unwrap().as_ptr().addr()).join().unwrap()
        });
        assert_eq!(address_there, address.addr());
        assert_eq!(pool.stats().usage.reserved, 128);
    }

    #[test]
    fn the_search_goes_as_far_up_as_it_is_set_to() {
        for (up, log2, finds) in [(0, 8, false), (1, 8, true), (1, 9, false), (3, 10, true), (99, 30, true)] {
            let pool = Pow2::new(Null::new(Device::CPU)).search_up(up).into_ref();
            let large = pool.allocate(&Request::new(1 << log2)).unwrap();
            let address = large.as_ptr();
            drop(large);
            let small = pool.allocate(&Request::new(100)).unwrap();
            assert_eq!(small.as_ptr() == address, finds, "{up} {log2}");
            assert!(!finds || small.capacity() == 1 << log2);
            let there = std::thread::scope(|scope| {
                drop(small);
                scope.spawn(|| pool.allocate(&Request::new(100)).unwrap().as_ptr().addr()).join().unwrap()
            });
            assert_eq!(there == address.addr(), finds, "in another slot: {up} {log2}");
        }
    }

    #[test]
    fn trim_stops_at_the_target() {
        let pool = Pow2::new(System::new()).into_ref();
        let blocks: Vec<_> = (0..8).map(|_| pool.allocate(&Request::new(1 << 20)).unwrap()).collect();
        drop(blocks);
        assert_eq!(pool.trim(3 << 20), 5 << 20);
        assert_eq!(pool.stats().usage.reserved, 3 << 20);
        assert_eq!(pool.trim(0), 3 << 20);
    }
}
