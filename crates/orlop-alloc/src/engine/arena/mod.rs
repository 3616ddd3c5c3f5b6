//! The bump arena: reserve once, allocate by advancing an offset, free everything at once.
//!
//! Memory of a step that is freed together needs no free lists. A block is a part of the current segment;
//! returning it only counts it out. When the segment is full, a larger one is added, and the next rewind
//! replaces all segments by one, so that a loop settles on a single segment.
//!
//! A rewind must not leave a block dangling. [`Arena::reset`] therefore refuses while there are live blocks.
//! [`Arena::renew`] continues with a new segment instead and releases the old ones when their last blocks
//! return. Both report what they did.
//!
//! A thread that allocates repeatedly gets the *lease* of the current segment: it then allocates and frees
//! without a lock. When another thread allocates, or rewinds the arena, it ends the lease first, which costs
//! microseconds; until a thread has again allocated alone for a while, all use the lock. For threads that
//! allocate at the same time, [`ThreadArenas`](super::ThreadArenas) are better.
//!
//! # When memory goes back to the system
//!
//! The bytes of a freed block are reused only after a rewind. Without one an arena grows with every request:
//! it is for memory that is freed together, not for models that replace each other. A rewind keeps the memory
//! for the next round. [`Allocator::trim`](crate::Allocator::trim) and `Context::trim` release it while no
//! block is live; after [`Arena::renew`], old segments are released with their last blocks.

mod core;
mod lease;
mod segments;
#[cfg(all(test, not(loom)))]
mod tests;

pub(super) use self::core::ArenaCore;
pub(super) use self::lease::{ArenaCounters, leases_segments};
pub(super) use self::segments::SEGMENT_BITS;

use crate::backing::{Backing, BackingRef};
use crate::handle::CountingEngine;
use crate::{Allocator, RawBlock, RegionWatch, Request, Result, Semantics, Usage};
use orlop_core::Device;
use orlop_sync::OwnerState;
use std::ptr::NonNull;
use std::sync::Arc;

/// The number of consecutive allocations of a thread before it gets a lease. A model has few.
const LEASE_AFTER: u32 = if cfg!(loom) { 0 } else { 16 };

/// The outcome of [`Arena::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// No block was live: the arena's memory is reused from the start.
    Rewound,
    /// Live blocks keep the old memory; new blocks come from a new segment.
    Renewed {
        /// The number of live blocks.
        live: usize,
    },
}

/// A bump allocator over a backing; see the module documentation.
#[derive(Debug)]
pub struct Arena<B: Backing = BackingRef> {
    core: ArenaCore<B>,
    counters: ArenaCounters,
}

impl<B: Backing> Arena<B> {
    /// Creates an arena that reserves `bytes` bytes at the first request, and larger segments later as
    /// needed.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> Self {
        Self::with_limit(backing, bytes, usize::MAX)
    }

    /// Creates an arena as [`Arena::new`] does, which reserves at most `limit` bytes.
    #[must_use]
    pub fn with_limit(backing: B, bytes: usize, limit: usize) -> Self {
        let core = ArenaCore::new(backing, bytes, limit, 0, LEASE_AFTER);
        Self { core, counters: ArenaCounters::default() }
    }

    /// Returns the bytes allocated since the last rewind, including padding.
    pub fn used(&self) -> usize {
        self.core.used(&self.counters)
    }

    /// Frees everything, in constant time once the arena has settled on one segment.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`](crate::Error::ArenaInUse) while blocks allocated since the last rewind are live;
    /// the arena is then unchanged.
    pub fn reset(&self) -> Result<()> {
        self.core.reset(&self.counters)
    }

    /// Frees everything like [`Arena::reset`]; if blocks are live, it leaves them their memory and continues
    /// with a new segment.
    pub fn renew(&self) -> Reset {
        self.core.renew(&self.counters)
    }
}

// SAFETY: 1. blocks are disjoint parts of segments: `used`, or the lease's free part in its place, only
// advances until a rewind, which happens only when no block of the segment is live and no slot has leased it.
// 2. the backing guarantees that regions are initialised. 3. the fast path refuses zeroed requests; else
// bytes handed out before are zeroed. 4. the segments are behind a mutex, and a lease is behind its slot.
// 5. segments are released when the engine is dropped. 6. each path that hands a block out counts it in, and
// each path that takes one back counts it out, as its last action.
unsafe impl<B: Backing> Allocator for Arena<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.core.allocate(&self.counters, request)
    }

    /// Grows only the block that was allocated last, within its segment.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.core.grow_in_place(&self.counters, block, bytes) }
    }

    crate::handle::counts_itself!(counters);

    fn device(&self) -> Device {
        self.core.backing().device()
    }

    fn name(&self) -> &str {
        "arena"
    }

    fn usage(&self) -> Usage {
        self.core.usage()
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.core.backing().is_pinned(), ..Semantics::default() }
    }

    fn reset_peak(&self) {
        self.core.reset_peak();
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.core.watch_regions(watch);
    }

    /// Releases the segments if no block in them is live.
    fn trim(&self, target: u64) -> u64 {
        self.core.trim(&self.counters, target)
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.core.allocated_size(&self.counters, ptr.as_ptr().addr())
    }

    fn verify(&self) -> Result<()> {
        self.core.verify(&self.counters)
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl<B: Backing> CountingEngine for Arena<B> {
    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        let (core, counters) = (NonNull::from(&engine.core), NonNull::from(&engine.counters));
        // SAFETY: guaranteed by the caller.
        unsafe { ArenaCore::deallocate_counted(core, counters, block) }
    }

    leases_segments!(counters);
}
