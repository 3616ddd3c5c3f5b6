//! A bounded cache of exact sizes with LRU eviction.
//!
//! Returned blocks are cached by their rounded size and handed out again for requests of exactly that size.
//! The cache has a bounded number of blocks; when it is full, the oldest is released to the backing. If
//! evictions and misses keep happening together, the bound is too small and grows by a tenth, as in
//! TensorFlow's `pool_allocator.cc`.
//!
//! Each thread caches the blocks that it returns in its own slot, and takes capacity for them from the bound,
//! a few blocks at a time. When no capacity is left it evicts its own oldest block or, if it has none, the
//! oldest of the thread with the most blocks. So the bound holds over all threads, and with one thread the
//! order of eviction is exact.
//!
//! It suits programs with few distinct sizes; a loop over varying shapes rarely finds an exact fit.
//!
//! # When memory goes back to the system
//!
//! Cached blocks stay reserved until they are evicted or trimmed, also those of sizes that are not requested
//! any more: dropping a model caches its blocks, and loading one with other sizes reserves new ones. The
//! bound limits the number of cached blocks, not their bytes. A program that replaces models calls
//! `Context::trim`, or [`Allocator::trim`](crate::Allocator::trim), after it has dropped the old one: all
//! cached blocks of all threads are then released. The engine is destroyed, and its cache released, with its
//! last handle and block.

mod bound;
mod builder;
mod lru;

pub use self::builder::{PoolBuilder, Rounding};

use self::bound::Bound;
use self::lru::Lru;
use super::region_source::{RegionSource, answered_by_source};
use crate::backing::{Backing, BackingRef};
use crate::handle::CountingEngine;
use crate::{Allocator, RawBlock, Record, Request, Result, StreamUses, Usage};
use orlop_core::Alignment;
use orlop_sync::{ColdMutex, OwnerState, ShardedCounters};
use std::ptr::NonNull;

/// The token of a block that must not be cached.
const UNCACHED: usize = usize::MAX;

/// Number of blocks for which a thread takes capacity at once.
const CAPACITY_STEP: usize = 64;

/// A pool of exact sizes; see the module documentation.
#[derive(Debug)]
pub struct Pool<B: Backing = BackingRef> {
    source: RegionSource<B>,
    /// The alignment of cached blocks; requests for more are not cached.
    align: Alignment,
    rounding: Rounding,
    bound: ColdMutex<Bound>,
    counters: ShardedCounters<Lru>,
}

impl<B: Backing> Pool<B> {
    /// Creates a pool with the defaults of [`Pool::builder`].
    #[must_use]
    pub fn new(backing: B) -> Self {
        Self::builder(backing).build()
    }

    /// Creates a builder with multiples of 64 bytes and a bound of 4096 blocks that grows.
    pub fn builder(backing: B) -> PoolBuilder<B> {
        PoolBuilder { backing, rounding: Rounding::Multiple(Alignment::CPU), bound: 4096, grows: true }
    }

    /// Returns the number of blocks that the cache may have now.
    pub fn bound(&self) -> usize {
        self.bound.lock().blocks
    }

    /// Returns the number of evictions so far.
    pub fn evictions(&self) -> u64 {
        self.bound.lock().evictions
    }
}

impl<B: Backing> Pool<B> {
    /// Hands out a block that was cached. Not called inside a slot: a backing is user code.
    fn reuse(&self, mut record: Box<Record>, request: &Request) -> Result<RawBlock> {
        // SAFETY: the block was cached and has not been handed out; its size is the request's, rounded.
        if !unsafe { self.source.prepare(&record, request) } {
            self.cache_slow(record);
            return Err(self.source.cannot_zero());
        }
        self.counters.count_in(request.kind, record.granted, request.bytes);
        record.assign(request);
        Ok(RawBlock::new(record))
    }

    /// Allocates what this thread's cache does not have, from another thread's cache or from the backing.
    #[cold]
    fn allocate_slow(&self, request: &Request, key: usize, cacheable: bool) -> Result<RawBlock> {
        let mut found = None;
        self.counters.with(Lru::missed);
        if cacheable && self.counters.slots() > 1 {
            self.counters.for_each_slot(|cache| found = found.take().or_else(|| cache.take(key)));
        }
        if let Some(record) = found {
            return self.reuse(record, request);
        }
        let align = request.align.max(self.align);
        let mut record = self.source.reserve_block(self.name(), request, key, align, || self.trim(0))?;
        record.token = if cacheable && key <= lru::SIZE { key } else { UNCACHED };
        self.counters.count_in(request.kind, record.granted, request.bytes);
        Ok(RawBlock::new(record))
    }

    /// Caches a block for which this thread has no capacity.
    #[cold]
    fn cache_slow(&self, mut record: Box<Record>) {
        loop {
            let mut evicted = None;
            {
                let mut bound = self.bound.lock();
                let capacity = bound.free.min(CAPACITY_STEP);
                bound.free -= capacity;
                self.counters.with(|cache| {
                    let (puts, misses) = cache.take_counts();
                    (bound.puts, bound.misses) = (bound.puts + puts, bound.misses + misses);
                    cache.add_capacity(capacity);
                    if capacity == 0 {
                        evicted = cache.take_oldest();
                    }
                });
                if capacity == 0 && evicted.is_none() {
                    evicted = self.take_from_largest_cache();
                    if evicted.is_none() {
                        break;
                    }
                }
                if evicted.is_some() {
                    bound.evicted();
                }
            }
            if let Some(evicted) = evicted {
                // SAFETY: the block was cached, so it is not in use, and its region was reserved with
                // this alignment.
                unsafe { self.source.release(&evicted, self.align) };
            }
            match self.counters.with(|cache| cache.put(record)) {
                Ok(()) => return,
                Err(back) => record = back,
            }
        }
        // The bound is 0, or other threads have just emptied their caches: the block is not cached.
        // SAFETY: the block was just returned, and its region was reserved with this alignment.
        unsafe { self.source.release(&record, self.align) };
    }

    /// Takes the oldest block of the thread with the most blocks, and moves its capacity to this thread.
    fn take_from_largest_cache(&self) -> Option<Box<Record>> {
        let mut max = 0;
        self.counters.for_each_slot(|cache| max = max.max(cache.len()));
        let mut taken = None;
        self.counters.for_each_slot(|cache| {
            if taken.is_none() && max > 0 && cache.len() >= max {
                taken = cache.take_oldest();
                if taken.is_some() {
                    cache.reduce_capacity();
                }
            }
        });
        if taken.is_some() {
            self.counters.with(|cache| cache.add_capacity(1));
        }
        taken
    }
}

// SAFETY: 1. a block is a region of its own, and is in the cache or with one user. 2. the backing guarantees
// that regions are initialised. 3. for a request of zeros, `prepare` zeroes cached blocks, and
// `reserve_block` zeroes regions that are not zeroed. 4. the cache is behind a slot. 5. cached blocks are
// released when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pool<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if let Some(block) = self.take_cached(request) {
            return Ok(block);
        }
        request.kind.check_on(self.source.device())?;
        let cacheable = request.align <= self.align;
        let key = self.rounding.round(request.bytes.max(1));
        if cacheable && let Some(record) = self.counters.with(|cache| cache.take(key)) {
            return self.reuse(record, request);
        }
        self.allocate_slow(request, key, cacheable)
    }

    crate::handle::counts_itself!(counters);

    fn name(&self) -> &str {
        "pool"
    }

    fn usage(&self) -> Usage {
        let mut metadata = 0;
        self.counters.for_each_slot(|cache| metadata += cache.metadata());
        self.source.usage(metadata)
    }

    answered_by_source!();

    fn trim(&self, target: u64) -> u64 {
        let mut excess = self.source.reserved().saturating_sub(target);
        let mut gone = Vec::new();
        self.counters.for_each_slot(|cache| {
            while excess > 0 {
                let Some(record) = cache.take_oldest() else { break };
                excess = excess.saturating_sub(record.granted as u64);
                gone.push(record);
            }
            if target == 0 {
                cache.forget_sizes();
            }
        });
        // SAFETY: the blocks were cached, so they are not in use, and their regions were reserved with
        // this alignment.
        unsafe { self.source.release_all(&gone, self.align) }
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl<B: Backing> CountingEngine for Pool<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        // Unsupported kinds do not pass: the first block of a kind always exceeds the counter's limit, and
        // takes the slow path, which checks the kind.
        if request.align > self.align || request.zeroed || request.bytes == 0 {
            return None;
        }
        let key = self.rounding.round(request.bytes);
        // SAFETY: the cache calls nothing to look up a class or to take its newest block.
        let mut guard = unsafe { self.counters.try_enter() }?;
        let class = guard.value().known_class(key)?;
        let granted = guard.value().newest(class)?.granted;
        if guard.counts().exceeds_limit(request.kind, granted) {
            return None;
        }
        let mut record = guard.value().take_newest(class)?;
        let id = guard.count_in(request.kind, granted, request.bytes);
        record.assign_unused(request, id);
        Some(RawBlock::new(record))
    }

    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        if block.token == UNCACHED || !block.uses.is_empty() {
            return Some(block);
        }
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: the cache calls nothing to put a block back that it has room for.
        let Some(mut guard) = (unsafe { engine.counters.try_enter() }) else { return Some(block) };
        if !guard.value().can_put_fast(&block) {
            return Some(block);
        }
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record from `allocate`.
        guard.value().put_fast(unsafe { block.into_record() });
        guard.count_out(kind, granted, requested);
        None
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: every block of this engine has a record from `allocate`.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        if record.token == UNCACHED {
            // SAFETY: the region was reserved for this block alone, with this alignment (`allocate_slow`).
            unsafe { engine.source.release(&record, record.align.max(engine.align)) };
        } else {
            record.uses = StreamUses::new();
            if let Err(record) = engine.counters.with(|cache| cache.put(record)) {
                engine.cache_slow(record);
            }
        }
        let counters = NonNull::from(&engine.counters);
        // SAFETY: the block was counted in, and leaves with this call.
        Ok(unsafe { ShardedCounters::count_out(counters, kind, granted, requested) })
    }

    crate::handle::counted_by!(counters);
}

impl<B: Backing> Drop for Pool<B> {
    fn drop(&mut self) {
        self.trim(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;

    #[test]
    fn exact_sizes_are_reused_and_others_are_not() {
        let pool = Pool::new(System::new()).into_ref();
        let address = pool.allocate(&Request::new(1000)).map(|block| block.as_ptr()).unwrap();
        assert_eq!(pool.allocate(&Request::new(1024)).unwrap().as_ptr(), address);
        assert_ne!(pool.allocate(&Request::new(1025)).unwrap().as_ptr(), address);
    }

    #[test]
    fn a_trimmed_pool_keeps_nothing_of_the_sizes_it_had() {
        let pool = Pool::new(System::new()).into_ref();
        let metadata = || pool.stats().usage.metadata;
        let used = pool.allocate(&Request::new(64)).unwrap();
        pool.trim(0);
        let before = metadata();
        for size in 1..if cfg!(miri) { 10 } else { 1000 } {
            drop(pool.allocate(&Request::new(64 * size)).unwrap());
        }
        assert!(metadata() > before);
        pool.trim(0);
        assert_eq!((metadata(), pool.stats().usage.reserved), (before, 64));
        // A block that was in use meanwhile is cached like any other.
        let address = used.as_ptr();
        drop(used);
        assert_eq!(pool.allocate(&Request::new(64)).unwrap().as_ptr(), address);
    }

    #[test]
    fn the_oldest_block_is_evicted() {
        let pool = Pool::builder(System::new()).bound(2).fixed_bound().build().into_ref();
        let blocks: Vec<_> = [64, 128, 192].map(|bytes| pool.allocate(&Request::new(bytes)).unwrap()).into();
        drop(blocks);
        assert_eq!((pool.evictions(), pool.stats().usage.reserved), (1, 128 + 192));
    }
}
