//! The power-of-two pool (P16): 32 logarithmic buckets from 32 bytes, searched upward, with a thread-local
//! fast path.
//!
//! Returned blocks go to the slot of the thread that returns them and are found there again: one exchange, one
//! pop. There is no centre behind the slots. A thread that finds its own bucket empty looks one bucket up,
//! then into the other slots, and only then asks the backing; so a block is never out of reach because
//! another thread returned it, and `trim` reaches the caches of idle threads.
//!
//! Fast and wasteful: rounding to powers of two costs a third of the memory on average and half at worst.

use super::supply::Supply;
use crate::backing::{Backing, BackingRef};
use crate::{
    Allocator, AllocatorRef, RawBlock, Record, RegionWatch, Request, Result, Semantics, StreamUses, Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{BlockCounter, OwnerState, ShardedCounters, thread_slot};
use std::ptr::NonNull;
use std::sync::Arc;

/// How many buckets there are: 32 bytes to 64 GiB. Larger requests are not cached.
pub const BUCKETS: usize = 32;

const SMALLEST_LOG2: u32 = 5;

/// Cached blocks have this alignment; requests for more are not cached.
const ALIGN: Alignment = Alignment::CPU;

/// How many buckets above its own a request looks into: a block at most twice as large as needed.
const SEARCH_UP: usize = 1;

/// How many blocks a thread takes from another slot at once.
const STEAL: usize = 16;

/// Says in a block's token that it does not belong to a bucket.
const UNCACHED: usize = usize::MAX;

/// The power-of-two pool.
#[derive(Debug)]
pub struct Pow2<B: Backing = BackingRef> {
    supply: Supply<B>,
    /// Counts and caches, by slot: one lock for both.
    counters: ShardedCounters<Cache>,
}

/// What one slot caches: records of memory that nobody uses. A record's token is the bucket it was made for.
#[derive(Debug, Default)]
struct Cache {
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    buckets: [Vec<Box<Record>>; BUCKETS],
}

impl Cache {
    /// Takes back what could not be handed out.
    fn put_back(&mut self, record: Box<Record>) {
        self.buckets[record.token].push(record);
    }
}

impl<B: Backing> Pow2<B> {
    /// Over this backing.
    #[must_use]
    pub fn engine(backing: B) -> Self {
        Self { supply: Supply::new(backing), counters: ShardedCounters::default() }
    }

    /// The same behind a handle.
    #[must_use]
    pub fn new(backing: B) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing))
    }

    /// A cached block of at least the bucket's size from another slot; a few more of its kind are put into the
    /// thread's own.
    fn find_elsewhere(&self, bucket: usize) -> Option<Box<Record>> {
        let mut stolen = Vec::with_capacity(STEAL);
        let mut found_in = bucket;
        self.counters.for_each_slot(|cache| {
            for bucket in bucket..=(bucket + SEARCH_UP).min(BUCKETS - 1) {
                if !stolen.is_empty() && bucket != found_in {
                    break;
                }
                found_in = bucket;
                let blocks = &mut cache.buckets[bucket];
                // All but half: what the other thread uses now is on top.
                let take = blocks.len().div_ceil(2).min(STEAL - stolen.len());
                stolen.extend(blocks.drain(..take));
            }
        });
        let found = stolen.pop()?;
        self.counters.with(thread_slot::current(), |cache| cache.buckets[found_in].append(&mut stolen));
        Some(found)
    }

    /// What this thread's cache does not have: from another slot, or from the backing.
    #[cold]
    fn look_elsewhere(&self, request: &Request, bucket: usize, bytes: usize) -> Result<RawBlock> {
        let Some(mut record) = self.find_elsewhere(bucket) else {
            return self.fresh(request, bytes, ALIGN, bucket);
        };
        // SAFETY: it was cached and is about to be handed out; a bucket holds what is asked of it.
        if !unsafe { self.supply.prepare(&record, request) } {
            self.counters.with(thread_slot::current(), |cache| cache.put_back(record));
            return Err(self.supply.cannot_zero());
        }
        self.counters.enter(thread_slot::current()).count_in(request.kind, record.granted, request.bytes);
        record.assign(request);
        Ok(RawBlock::new(record))
    }

    /// A block in a fresh region, for `bucket` or none.
    #[cold]
    fn fresh(&self, request: &Request, bytes: usize, align: Alignment, bucket: usize) -> Result<RawBlock> {
        // The system may have room once everything cached is back there.
        let mut record = self.supply.gain(self.name(), request, bytes, align, || self.trim(0))?;
        record.token = bucket;
        self.counters.enter(thread_slot::current()).count_in(request.kind, record.granted, request.bytes);
        Ok(RawBlock::new(record))
    }
}

/// The bucket for `bytes`: [`BUCKETS`] or more for none, if they are too many or zero.
#[inline(always)]
fn bucket_of(bytes: usize) -> usize {
    let below = bytes.wrapping_sub(1) | ((1 << SMALLEST_LOG2) - 1);
    (usize::BITS - SMALLEST_LOG2 - below.leading_zeros()) as usize
}

/// Whether a request can be served from the buckets.
#[inline(always)]
fn is_cached(request: &Request, bucket: usize) -> bool {
    request.align <= ALIGN && bucket < BUCKETS
}

// SAFETY: 1. a block is a region of its own, at least as large as its bucket, and is in one cache or with one
// user. 2. regions are initialised by the backing's promise. 3. `block` zeroes what was used before or did not
// come zeroed. 4. caches are behind slots. 5. what is cached goes back when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pow2<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        let bucket = bucket_of(request.bytes);
        // Kinds that cannot be here never pass: the first block of a kind is notable, and checked.
        if !is_cached(request, bucket) || request.zeroed {
            return None;
        }
        let mut held = self.counters.try_enter()?;
        let granted = held.value().buckets[bucket].last()?.granted;
        if held.exceeds_limit(request.kind, granted) {
            return None;
        }
        let mut record = held.value().buckets[bucket].pop()?;
        let id = held.count_in_below_limit(request.kind, granted, request.bytes);
        record.assign_unused(request, id);
        Some(RawBlock::new(record))
    }

    // Where it is inlined into what calls it by pointer, a call is left in it, and needs a stack frame.
    #[inline(never)]
    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // The token is the bucket it was made for, also if it served a request from the one below.
        let bucket = block.token;
        if bucket >= BUCKETS || !block.uses.is_empty() {
            return Some(block);
        }
        // SAFETY: the engine is there until the block has left (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        let Some(mut held) = engine.counters.try_enter() else { return Some(block) };
        let blocks = &mut held.value().buckets[bucket];
        if blocks.len() == blocks.capacity() {
            return Some(block);
        }
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record from `allocate`.
        blocks.push(unsafe { block.into_record() });
        held.count_out_open(kind, granted, requested);
        None
    }

    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if let Some(block) = self.take_cached(request) {
            return Ok(block);
        }
        request.kind.check_on(self.supply.device())?;
        let bucket = bucket_of(request.bytes);
        if !is_cached(request, bucket) {
            return self.fresh(request, request.bytes, request.align, UNCACHED);
        }
        let mut held = self.counters.enter(thread_slot::current());
        let cache = held.value();
        let found = cache.buckets[bucket].pop();
        let found = found.or_else(|| cache.buckets.get_mut(bucket + SEARCH_UP).and_then(Vec::pop));
        let Some(mut record) = found else {
            drop(held);
            return self.look_elsewhere(request, bucket, (1 << SMALLEST_LOG2) << bucket);
        };
        if request.zeroed {
            // Outside the slot: a backing is user code.
            drop(held);
            // SAFETY: it was cached and is about to be handed out; a bucket holds what is asked of it.
            if !unsafe { self.supply.prepare(&record, request) } {
                self.counters.with(thread_slot::current(), |cache| cache.put_back(record));
                return Err(self.supply.cannot_zero());
            }
            held = self.counters.enter(thread_slot::current());
        }
        held.count_in(request.kind, record.granted, request.bytes);
        record.assign(request);
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::deallocate_counted(NonNull::from(self), block) }.map(|_| ())
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine is there until the block has left (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: every block of this engine has a record from `allocate`.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        let bucket = record.token;
        if bucket >= BUCKETS {
            // SAFETY: gained for this block alone, with its alignment, and returned by its last user.
            unsafe { engine.supply.lose(&record, record.align) };
            return Ok(engine.counters.enter(thread_slot::current()).count_out(kind, granted, requested));
        }
        record.uses = StreamUses::new();
        let mut held = engine.counters.enter(thread_slot::current());
        held.value().buckets[bucket].push(record);
        Ok(held.count_out(kind, granted, requested))
    }

    fn counter(&self) -> Option<&dyn BlockCounter> {
        Some(&self.counters)
    }

    unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: the engine is there until then (guaranteed by the caller).
        let counters = NonNull::from(unsafe { &this.as_ref().counters });
        // SAFETY: guaranteed by the caller.
        unsafe { ShardedCounters::close(counters) }
    }

    fn set_statistics(&mut self, on: bool) {
        self.counters.set_counted(on);
    }

    fn device(&self) -> Device {
        self.supply.device()
    }

    fn name(&self) -> &str {
        "pow2"
    }

    fn usage(&self) -> Usage {
        let mut metadata = 0;
        self.counters.for_each_slot(|cache| {
            let capacity: usize = cache.buckets.iter().map(Vec::capacity).sum();
            metadata += size_of::<Cache>() + capacity * size_of::<usize>();
        });
        self.supply.usage(metadata)
    }

    fn reset_peak(&self) {
        self.supply.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        self.supply.semantics()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.supply.block_bytes(ptr) }
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.supply.watch(watch);
    }

    fn trim(&self, target: u64) -> u64 {
        let mut excess = self.supply.reserved().saturating_sub(target);
        let mut gone = Vec::new();
        self.counters.for_each_slot(|cache| {
            // Largest first: fewest calls for the bytes.
            for bucket in cache.buckets.iter_mut().rev() {
                while excess > 0 {
                    let Some(record) = bucket.pop() else { break };
                    excess = excess.saturating_sub(record.granted as u64);
                    gone.push(record);
                }
            }
        });
        // SAFETY: they were cached, so nobody uses them, and were gained with `ALIGN`.
        unsafe { self.supply.lose_all(&gone, ALIGN) }
    }
}

impl<B: Backing> Drop for Pow2<B> {
    fn drop(&mut self) {
        self.trim(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;

    #[test]
    fn buckets_are_powers_of_two_from_32() {
        for (bytes, bucket) in [(1, 0), (32, 0), (33, 1), (1000, 5), (1024, 5), (64 << 30, 31)] {
            assert_eq!(bucket_of(bytes), bucket);
        }
        assert!([0, (64 << 30) + 1, usize::MAX].into_iter().all(|bytes| bucket_of(bytes) >= BUCKETS));
    }

    #[test]
    fn a_block_is_found_again_also_one_bucket_up_and_in_other_slots() {
        let pool = Pow2::new(System::new());
        let first = pool.allocate(&Request::new(100)).unwrap();
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.allocate(&Request::new(120)).unwrap().as_ptr(), address);
        assert_eq!(pool.allocate(&Request::new(40)).unwrap().as_ptr(), address);
        let there = std::thread::scope(|scope| {
            scope.spawn(|| pool.allocate(&Request::new(128)).unwrap().as_ptr().addr()).join().unwrap()
        });
        assert_eq!(there, address.addr());
        assert_eq!(pool.stats().usage.reserved, 128);
    }

    #[test]
    fn trim_stops_at_the_target() {
        let pool = Pow2::new(System::new());
        let blocks: Vec<_> = (0..8).map(|_| pool.allocate(&Request::new(1 << 20)).unwrap()).collect();
        drop(blocks);
        assert_eq!(pool.trim(3 << 20), 5 << 20);
        assert_eq!(pool.stats().usage.reserved, 3 << 20);
        assert_eq!(pool.trim(0), 3 << 20);
    }
}
