//! A bounded cache of exact sizes with LRU eviction (T10).
//!
//! Blocks that come back are kept by their rounded size and handed out again for requests of exactly that
//! size. The cache holds a bounded number of blocks; when it is full the one that has waited longest goes
//! back to the backing. If eviction and new memory keep happening together, the bound was too small and
//! grows by a tenth, as in TensorFlow's `pool_allocator.cc`.
//!
//! Each thread keeps what it returns in its own slot, and takes *places* for it from the bound, a few at a
//! time. When no place is left it evicts the oldest of its own blocks, or, if it has none, of the thread that
//! keeps the most. So the bound holds over all threads, and the order of eviction is exact with one.
//!
//! Right for programs with few distinct sizes; a loop of varying shapes finds nothing that fits exactly.

use super::bound::Bound;
use super::lru::{self, Lru};
use super::supply::Supply;
use crate::backing::{Backing, BackingRef};
use crate::{
    Allocator, AllocatorRef, RawBlock, Record, RegionWatch, Request, Result, Semantics, StreamUses, Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{BlockCounter, Mutex, OwnerState, ShardedCounters, thread_slot};
use std::ptr::NonNull;
use std::sync::Arc;

/// How requests are rounded before they are looked up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Rounding {
    /// To the next multiple.
    Multiple(Alignment),
    /// To the next power of two.
    Pow2,
    /// By a rule of the user's. What it returns below the request is raised to the request.
    Custom(fn(usize) -> usize),
}

impl Rounding {
    #[inline]
    fn round(self, bytes: usize) -> usize {
        match self {
            Self::Multiple(align) => {
                let mask = align.bytes() - 1;
                bytes.checked_add(mask).map_or(bytes, |bytes| bytes & !mask)
            }
            Self::Pow2 => bytes.checked_next_power_of_two().unwrap_or(bytes),
            Self::Custom(rule) => rule(bytes).max(bytes),
        }
    }
}

/// Cached blocks have this alignment; requests for more are not cached.
const ALIGN: Alignment = Alignment::CPU;

/// Says in a block's token that it must not be cached.
const UNCACHED: usize = usize::MAX;

/// How many places a thread takes at once.
const PLACES: usize = 64;

/// The pool; see the head of its file.
#[derive(Debug)]
pub struct Pool<B: Backing = BackingRef> {
    supply: Supply<B>,
    rounding: Rounding,
    bound: Mutex<Bound>,
    counters: ShardedCounters<Lru>,
}

/// Settings of a [`Pool`].
#[derive(Debug)]
pub struct PoolBuilder<B> {
    backing: B,
    rounding: Rounding,
    bound: usize,
    grows: bool,
}

impl<B: Backing> Pool<B> {
    /// Begins with multiples of 64 bytes and a bound of 4096 blocks that grows.
    pub fn builder(backing: B) -> PoolBuilder<B> {
        PoolBuilder { backing, rounding: Rounding::Multiple(ALIGN), bound: 4096, grows: true }
    }

    /// How many blocks the cache may hold now.
    pub fn bound(&self) -> usize {
        self.bound.lock().blocks
    }

    /// How many blocks were evicted so far.
    pub fn evictions(&self) -> u64 {
        self.bound.lock().evictions
    }
}

impl<B: Backing> PoolBuilder<B> {
    /// With this rounding.
    #[must_use]
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Holding at most so many blocks at first.
    #[must_use]
    pub fn bound(mut self, blocks: usize) -> Self {
        self.bound = blocks;
        self
    }

    /// Never raising the bound.
    #[must_use]
    pub fn fixed_bound(mut self) -> Self {
        self.grows = false;
        self
    }

    /// The engine itself, for putting under an adaptor.
    #[must_use]
    pub fn build_engine(self) -> Pool<B> {
        let bound = Bound::new(self.bound, self.grows);
        Pool {
            supply: Supply::new(self.backing),
            rounding: self.rounding,
            bound: Mutex::new(bound),
            counters: ShardedCounters::default(),
        }
    }

    /// The engine behind a handle.
    #[must_use]
    pub fn build(self) -> AllocatorRef<Pool<B>> {
        AllocatorRef::new(self.build_engine())
    }
}

impl<B: Backing> Pool<B> {
    /// What this thread does not keep: from another thread's cache, or from the backing.
    #[cold]
    fn look_elsewhere(&self, request: &Request, key: usize, cacheable: bool) -> Result<RawBlock> {
        let mut found = None;
        self.counters.with(thread_slot::current(), Lru::missed);
        if cacheable && self.counters.slots() > 1 {
            self.counters.for_each_slot(|cache| found = found.take().or_else(|| cache.take(key)));
        }
        let record = match found {
            Some(mut record) => {
                // SAFETY: about to be handed out; nobody else knows it.
                if !unsafe { self.supply.prepare(&record, request) } {
                    self.keep(record);
                    return Err(self.supply.cannot_zero());
                }
                record.assign(request);
                record
            }
            None => {
                let align = request.align.max(ALIGN);
                let mut record = self.supply.gain(self.name(), request, key, align, || self.trim(0))?;
                record.token = if cacheable && key <= lru::SIZE { key } else { UNCACHED };
                record
            }
        };
        self.counters.enter(thread_slot::current()).count_in(request.kind, record.granted, request.bytes);
        Ok(RawBlock::new(record))
    }

    /// Keeps a block for which this thread has no place.
    #[cold]
    fn keep(&self, mut record: Box<Record>) {
        loop {
            let mut evicted = None;
            {
                let mut bound = self.bound.lock();
                let places = bound.free.min(PLACES);
                bound.free -= places;
                let slot = thread_slot::current();
                let mut cache = self.counters.enter(slot);
                let (puts, misses) = cache.value().news();
                (bound.puts, bound.misses) = (bound.puts + puts, bound.misses + misses);
                cache.value().add_places(places);
                if places == 0 {
                    evicted = cache.value().take_oldest();
                }
                drop(cache);
                if places == 0 && evicted.is_none() {
                    evicted = self.take_from_the_richest();
                    if evicted.is_none() {
                        break;
                    }
                }
                if evicted.is_some() {
                    bound.evicted();
                }
            }
            if let Some(evicted) = evicted {
                // SAFETY: it was cached, so nobody uses it, and it was gained with `ALIGN`.
                unsafe { self.supply.lose(&evicted, ALIGN) };
            }
            match self.counters.with(thread_slot::current(), |cache| cache.put(record)) {
                Ok(()) => return,
                Err(back) => record = back,
            }
        }
        // The bound is 0, or others took what they kept just now: not kept.
        // SAFETY: the block just came back, and it was gained with `ALIGN`.
        unsafe { self.supply.lose(&record, ALIGN) };
    }

    /// The oldest block of the thread that keeps the most, and its place for this thread.
    fn take_from_the_richest(&self) -> Option<Box<Record>> {
        let mut most = 0;
        self.counters.for_each_slot(|cache| most = most.max(cache.held()));
        let mut taken = None;
        self.counters.for_each_slot(|cache| {
            if taken.is_none() && most > 0 && cache.held() >= most {
                taken = cache.take_oldest();
                if taken.is_some() {
                    cache.give_up_place();
                }
            }
        });
        if taken.is_some() {
            self.counters.with(thread_slot::current(), |cache| cache.add_places(1));
        }
        taken
    }
}

// SAFETY: 1. a block is a region of its own, and is in the cache or with one user. 2. regions are initialised
// by the backing's promise. 3. cached blocks and regions that are not zero are zeroed here. 4. the cache is
// behind a slot. 5. what is cached goes back when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pool<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        // Kinds that cannot be here never pass: the first block of a kind is notable, and checked.
        if request.align > ALIGN || request.zeroed || request.bytes == 0 {
            return None;
        }
        let key = self.rounding.round(request.bytes);
        let mut held = self.counters.try_enter()?;
        let class = held.value().known_class(key)?;
        let granted = held.value().newest(class)?.granted;
        if held.exceeds_limit(request.kind, granted) {
            return None;
        }
        let mut record = held.value().take_newest(class)?;
        let id = held.count_in_below_limit(request.kind, granted, request.bytes);
        record.assign_unused(request, id);
        Some(RawBlock::new(record))
    }

    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        if block.token == UNCACHED || !block.uses.is_empty() {
            return Some(block);
        }
        // SAFETY: the engine is there until the block has left (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        let Some(mut held) = engine.counters.try_enter() else { return Some(block) };
        if !held.value().has_place(&block) {
            return Some(block);
        }
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record from `allocate`.
        held.value().put_quickly(unsafe { block.into_record() });
        held.count_out_open(kind, granted, requested);
        None
    }

    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if let Some(block) = self.take_cached(request) {
            return Ok(block);
        }
        request.kind.check_on(self.supply.device())?;
        let cacheable = request.align <= ALIGN;
        let key = self.rounding.round(request.bytes.max(1));
        if cacheable {
            let mut held = self.counters.enter(thread_slot::current());
            if let Some(mut record) = held.value().take(key) {
                if request.zeroed {
                    // Outside the slot: a backing is user code.
                    drop(held);
                    // SAFETY: about to be handed out; nobody else knows it.
                    if !unsafe { self.supply.prepare(&record, request) } {
                        self.keep(record);
                        return Err(self.supply.cannot_zero());
                    }
                    held = self.counters.enter(thread_slot::current());
                }
                held.count_in(request.kind, record.granted, request.bytes);
                record.assign(request);
                return Ok(RawBlock::new(record));
            }
        }
        self.look_elsewhere(request, key, cacheable)
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
        if record.token == UNCACHED {
            // SAFETY: gained for this block alone, with this alignment (`look_elsewhere`).
            unsafe { engine.supply.lose(&record, record.align.max(ALIGN)) };
            return Ok(engine.counters.enter(thread_slot::current()).count_out(kind, granted, requested));
        }
        record.uses = StreamUses::new();
        let mut held = engine.counters.enter(thread_slot::current());
        match held.value().put(record) {
            Ok(()) => Ok(held.count_out(kind, granted, requested)),
            Err(record) => {
                drop(held);
                engine.keep(record);
                Ok(engine.counters.enter(thread_slot::current()).count_out(kind, granted, requested))
            }
        }
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
        "pool"
    }

    fn usage(&self) -> Usage {
        let mut metadata = 0;
        self.counters.for_each_slot(|cache| metadata += cache.metadata());
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
            while excess > 0 {
                let Some(record) = cache.take_oldest() else { break };
                excess = excess.saturating_sub(record.granted as u64);
                gone.push(record);
            }
        });
        // SAFETY: they were cached, so nobody uses them, and were gained with `ALIGN`.
        unsafe { self.supply.lose_all(&gone, ALIGN) }
    }
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
    fn exact_sizes_come_back_and_others_do_not() {
        let pool = Pool::builder(System::new()).build();
        let address = pool.allocate(&Request::new(1000)).map(|block| block.as_ptr()).unwrap();
        assert_eq!(pool.allocate(&Request::new(1024)).unwrap().as_ptr(), address);
        assert_ne!(pool.allocate(&Request::new(1025)).unwrap().as_ptr(), address);
    }

    #[test]
    fn the_block_that_waited_longest_is_evicted() {
        let pool = Pool::builder(System::new()).bound(2).fixed_bound().build();
        let blocks: Vec<_> = [64, 128, 192].map(|bytes| pool.allocate(&Request::new(bytes)).unwrap()).into();
        drop(blocks);
        assert_eq!((pool.evictions(), pool.stats().usage.reserved), (1, 128 + 192));
    }
}
