//! The power-of-two pool (P16): 32 logarithmic buckets from 32 bytes, searched upward, with a thread-local
//! fast path.
//!
//! Returned blocks go to the slot of the thread that returns them and are found there again: one exchange, one
//! pop. There is no centre behind the slots. A thread that finds its own bucket empty looks one bucket up,
//! then into the other slots, and only then asks the backing; so a block is never out of reach because
//! another thread returned it, and `trim` reaches the caches of idle threads.
//!
//! Fast and wasteful: rounding to powers of two costs a third of the memory on average and half at worst.

use crate::backing::{Backing, Global, Region};
use crate::out_of_memory::Refusal;
use crate::protocol::thread_slot::{self, SLOTS};
use crate::protocol::Slots;
use crate::{Allocator, AllocatorRef, OutOfMemory, RawBlock, Request, Result, Usage};
use orlop_core::{Alignment, Device};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

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
pub struct Pow2<B: Backing = Global> {
    backing: B,
    caches: Slots<Cache>,
    reserved: AtomicU64,
    peak: AtomicU64,
    regions: AtomicU64,
}

/// What one slot caches.
#[derive(Debug, Default)]
struct Cache {
    buckets: [Vec<Cached>; BUCKETS],
}

#[derive(Debug, Clone, Copy)]
struct Cached {
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a cached block is memory that nobody uses; it belongs to the cache, whichever thread visits it.
unsafe impl Send for Cached {}

impl<B: Backing> Pow2<B> {
    /// Over this backing.
    #[must_use]
    pub fn engine(backing: B) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            backing,
            caches: Slots::new(SLOTS, Cache::default),
            reserved: zero(),
            peak: zero(),
            regions: zero(),
        }
    }

    /// The same behind a handle.
    #[must_use]
    pub fn new(backing: B) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing))
    }

    /// A cached block of at least the bucket's size from this thread's slot or any other.
    #[cold]
    fn find_elsewhere(&self, own: usize, bucket: usize) -> Option<Cached> {
        let last = (bucket + SEARCH_UP).min(BUCKETS - 1);
        for bucket in bucket..=last {
            for step in 0..self.caches.count() {
                let other = (own + step) % self.caches.count();
                let mut stolen = self.caches.with(other, |cache| {
                    let blocks = &mut cache.buckets[bucket];
                    // All but half: what the other thread uses now is on top.
                    let take = blocks.len().div_ceil(2).min(STEAL);
                    blocks.drain(..take).collect::<Vec<_>>()
                });
                let Some(found) = stolen.pop() else { continue };
                self.caches.with(own, |cache| cache.buckets[bucket].append(&mut stolen));
                return Some(found);
            }
        }
        None
    }

    #[cold]
    fn gain(&self, request: &Request, bytes: usize, align: Alignment) -> Result<Region> {
        let region = self.backing.reserve(bytes, align).or_else(|| {
            // The system may have room once everything cached is back there.
            (self.trim(0) > 0).then(|| self.backing.reserve(bytes, align)).flatten()
        });
        let Some(region) = region else {
            let mut report = OutOfMemory::new(Refusal::Backing, self.name(), self.backing.device(), request);
            report.rounded = bytes;
            report.reserved = self.reserved.load(Ordering::Relaxed);
            return Err(report.into());
        };
        let reserved = self.reserved.fetch_add(region.bytes as u64, Ordering::Relaxed) + region.bytes as u64;
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        self.regions.fetch_add(1, Ordering::Relaxed);
        Ok(region)
    }

    /// # Safety
    ///
    /// A region gained by `gain` with this alignment, whose bytes nobody uses any more.
    unsafe fn lose(&self, ptr: NonNull<u8>, bytes: usize, align: Alignment) {
        self.reserved.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.regions.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.backing.release(Region { ptr, bytes, align, zeroed: false }) };
    }

    fn block(&self, request: &Request, ptr: NonNull<u8>, bytes: usize, dirty: bool, bucket: usize) -> RawBlock {
        if request.zeroed && dirty {
            // SAFETY: the block is about to be handed out and nobody else knows it.
            unsafe { self.backing.zero(ptr, request.bytes) };
        }
        RawBlock::new(request, ptr, bytes, self.backing.device(), self.backing.access()).with_token(bucket)
    }
}

/// The bucket for `bytes`, and its size. `None` above the largest.
#[inline]
fn bucket_of(bytes: usize) -> Option<(usize, usize)> {
    let log2 = (bytes.max(1 << SMALLEST_LOG2) - 1).ilog2() + 1;
    let bucket = (log2 - SMALLEST_LOG2) as usize;
    (bucket < BUCKETS).then(|| (bucket, 1 << log2))
}

// SAFETY: 1. a block is a region of its own, at least as large as its bucket, and is in one cache or with one
// user. 2. regions are initialised by the backing's promise. 3. `block` zeroes what was used before or did not
// come zeroed. 4. caches are behind slots. 5. what is cached goes back when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pow2<B> {
    #[inline]
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if request.kind.is_host_only() {
            request.kind.check_on(self.backing.device())?;
        }
        let Some((bucket, bytes)) = bucket_of(request.bytes).filter(|_| request.align <= ALIGN) else {
            let region = self.gain(request, request.bytes, request.align)?;
            return Ok(self.block(request, region.ptr, region.bytes, !region.zeroed, UNCACHED));
        };
        let own = thread_slot::current();
        let cached = self.caches.with(own, |cache| cache.buckets[bucket].pop());
        if let Some(cached) = cached.or_else(|| self.find_elsewhere(own, bucket)) {
            return Ok(self.block(request, cached.ptr, cached.bytes, true, bucket));
        }
        let region = self.gain(request, bytes, ALIGN)?;
        Ok(self.block(request, region.ptr, region.bytes, !region.zeroed, bucket))
    }

    #[inline]
    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // By its size, not by the bucket it was asked from: the block may have come from one bucket up, or
        // the backing may have given more.
        let bucket = bucket_of(block.granted.saturating_add(1)).map_or(BUCKETS - 1, |(above, _)| above - 1);
        if block.token == UNCACHED {
            // SAFETY: gained for this block alone, with its alignment.
            unsafe { self.lose(block.ptr, block.granted, block.align) };
            return Ok(());
        }
        let cached = Cached { ptr: block.ptr, bytes: block.granted };
        self.caches.with(thread_slot::current(), |cache| cache.buckets[bucket].push(cached));
        Ok(())
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        "pow2"
    }

    fn usage(&self) -> Usage {
        let mut metadata = 0;
        self.caches.for_each(|cache| {
            let capacity: usize = cache.buckets.iter().map(Vec::capacity).sum();
            metadata += size_of::<Cache>() + capacity * size_of::<Cached>();
        });
        Usage {
            reserved: self.reserved.load(Ordering::Relaxed),
            peak_reserved: self.peak.load(Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            deferred: 0,
            metadata: metadata as u64,
        }
    }

    fn reset_peak(&self) {
        self.peak.store(self.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn trim(&self, target: u64) -> u64 {
        let mut freed = 0;
        // Largest first: fewest calls for the bytes.
        for bucket in (0..BUCKETS).rev() {
            for slot in 0..self.caches.count() {
                if self.reserved.load(Ordering::Relaxed) <= target {
                    return freed;
                }
                let blocks = self.caches.with(slot, |cache| mem::take(&mut cache.buckets[bucket]));
                for (index, cached) in blocks.iter().enumerate() {
                    if self.reserved.load(Ordering::Relaxed) <= target {
                        self.caches.with(slot, |cache| cache.buckets[bucket].extend(&blocks[index..]));
                        break;
                    }
                    freed += cached.bytes as u64;
                    // SAFETY: it was cached, so nobody uses it, and it was gained with `ALIGN`.
                    unsafe { self.lose(cached.ptr, cached.bytes, ALIGN) };
                }
            }
        }
        freed
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
        for (bytes, expected) in [(1, (0, 32)), (32, (0, 32)), (33, (1, 64)), (1000, (5, 1024)), (1024, (5, 1024))] {
            assert_eq!(bucket_of(bytes), Some(expected));
        }
        assert_eq!(bucket_of(64 << 30), Some((31, 64 << 30)));
        assert_eq!(bucket_of((64 << 30) + 1), None);
        assert_eq!(bucket_of(usize::MAX), None);
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
