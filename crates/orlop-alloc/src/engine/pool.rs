//! A bounded cache of exact sizes with LRU eviction (T10).
//!
//! Blocks that come back are kept by their rounded size and handed out again for requests of exactly that
//! size. The cache holds a bounded number of blocks; when it is full the one that has waited longest goes
//! back to the backing. If eviction and new memory keep happening together, the bound was too small and
//! grows by a tenth, as in TensorFlow's `pool_allocator.cc`.
//!
//! Right for programs with few distinct sizes; a loop of varying shapes finds nothing that fits exactly.

use super::lru::Lru;
use super::supply::Supply;
use crate::backing::{Backing, Global};
use crate::protocol::{Counter, Entry, Ledger};
use crate::{Allocator, AllocatorRef, RawBlock, Request, Result, Usage};
use orlop_core::{Alignment, Device};

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
            Self::Multiple(align) => align.round_up(bytes).unwrap_or(bytes),
            Self::Pow2 => bytes.checked_next_power_of_two().unwrap_or(bytes),
            Self::Custom(rule) => rule(bytes).max(bytes),
        }
    }
}

/// Cached blocks have this alignment; requests for more are not cached.
const ALIGN: Alignment = Alignment::CPU;

/// Says in a block's token that it must not be cached.
const UNCACHED: usize = usize::MAX;

/// The pool; see the head of its file.
#[derive(Debug)]
pub struct Pool<B: Backing = Global> {
    supply: Supply<B>,
    rounding: Rounding,
    /// One slot, for counts and cache: a lock whose release is a plain store. What is done under it takes
    /// nanoseconds.
    ledger: Ledger<Lru>,
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
        self.ledger.with(0, |cache| cache.bound())
    }

    /// How many blocks were evicted so far.
    pub fn evictions(&self) -> u64 {
        self.ledger.with(0, |cache| cache.evictions())
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
        let mut lru = Some(Lru::new(self.bound, self.grows));
        Pool {
            supply: Supply::new(self.backing),
            rounding: self.rounding,
            ledger: Ledger::with_values(1, true, || lru.take().unwrap_or_else(|| Lru::new(0, false))),
        }
    }

    /// The engine behind a handle.
    #[must_use]
    pub fn build(self) -> AllocatorRef<Pool<B>> {
        AllocatorRef::new(self.build_engine())
    }
}

impl<B: Backing> Pool<B> {
    #[cold]
    fn fresh(&self, request: &Request, key: usize, cacheable: bool) -> Result<RawBlock> {
        let align = request.align.max(ALIGN);
        let mut record = self.supply.gain(self.name(), request, key, align, || self.trim(0))?;
        record.token = UNCACHED;
        let mut held = self.ledger.hold(0);
        if cacheable {
            record.token = held.value().class(key);
        }
        held.enter(request.kind, record.granted, request.bytes);
        Ok(RawBlock::new(record))
    }

    /// Gives the block that has waited longest back, outside the lock. Between this and the next look another
    /// thread may fill the place: the bound may be passed by as many blocks as there are threads.
    #[cold]
    fn evict(&self) {
        if let Some(evicted) = self.ledger.with(0, Lru::evict) {
            // SAFETY: it was cached, so nobody uses it, and it was gained with `ALIGN`.
            unsafe { self.supply.lose(&evicted, ALIGN) };
        }
    }
}

// SAFETY: 1. a block is a region of its own, and is in the cache or with one user. 2. regions are initialised
// by the backing's promise. 3. cached blocks and regions that are not zero are zeroed here. 4. the cache is
// behind a slot. 5. what is cached goes back when the engine is dropped.
unsafe impl<B: Backing> Allocator for Pool<B> {
    #[inline]
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if request.kind.is_host_only() {
            request.kind.check_on(self.supply.device())?;
        }
        let cacheable = request.align <= ALIGN;
        let key = self.rounding.round(request.bytes.max(1));
        if cacheable {
            let mut held = self.ledger.hold(0);
            if let Some((mut record, granted)) = held.value().take(key) {
                held.enter(request.kind, granted, request.bytes);
                if request.zeroed {
                    // SAFETY: about to be handed out; nobody else knows it.
                    unsafe { self.supply.zero(&record, request) };
                }
                record.assign(request);
                return Ok(RawBlock::new(record));
            }
        }
        self.fresh(request, key, cacheable)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_counted(block) }.map(|_| ())
    }

    #[inline]
    unsafe fn deallocate_counted(&self, block: RawBlock) -> Result<Entry> {
        // SAFETY: every block of this engine has a record from `allocate`.
        let record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        if record.token == UNCACHED {
            // SAFETY: gained for this block alone, with its alignment (which is above `ALIGN`).
            unsafe { self.supply.lose(&record, record.align) };
            return Ok(self.ledger.hold(0).leave(kind, granted, requested));
        }
        let mut held = self.ledger.hold(0);
        if held.value().is_full() {
            let keeps_none = held.value().bound() == 0;
            drop(held);
            if keeps_none {
                // SAFETY: the block just came back, and it was gained with `ALIGN`.
                unsafe { self.supply.lose(&record, ALIGN) };
                return Ok(self.ledger.hold(0).leave(kind, granted, requested));
            }
            self.evict();
            held = self.ledger.hold(0);
        }
        held.value().put(record);
        Ok(held.leave(kind, granted, requested))
    }

    fn counter(&self) -> Option<&dyn Counter> {
        Some(&self.ledger)
    }

    fn device(&self) -> Device {
        self.supply.device()
    }

    fn name(&self) -> &str {
        "pool"
    }

    fn usage(&self) -> Usage {
        self.supply.usage(self.ledger.with(0, |cache| cache.metadata()))
    }

    fn reset_peak(&self) {
        self.supply.reset_peak();
    }

    fn trim(&self, target: u64) -> u64 {
        let mut freed = 0;
        while self.supply.reserved() > target {
            let Some(record) = self.ledger.with(0, Lru::take_oldest) else { break };
            freed += record.granted as u64;
            // SAFETY: it was cached, so nobody uses it, and it was gained with `ALIGN`.
            unsafe { self.supply.lose(&record, ALIGN) };
        }
        freed
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
