//! One arena per thread, behind one handle.
//!
//! The scratch memory of a step belongs to the thread that runs it: an arena shared by several threads can be
//! rewound only when all of them are done. [`ThreadArenas`] keeps one [`Arena`] per thread slot. A thread
//! allocates from and rewinds its own arena; a block returns to its arena on whichever thread it is dropped.
//! All arenas form one allocator, so a context counts and bounds them together, as workspace.
//!
//! A thread has the lease of its arena's current segment, so it allocates and frees without a lock. A block
//! that another thread frees is counted under the lock of its arena.
//!
//! If there are more threads than slots, some threads share an arena. That is safe: an arena has a lock, and
//! a rewind refuses while blocks are live. When a thread ends, the next thread that gets its slot takes over
//! its arena.
//!
//! The memory of each arena goes back to the system as that of an [`Arena`](super::Arena) does: by
//! [`Allocator::trim`](crate::Allocator::trim) while it has no live block, on whichever thread.

use super::arena::{ArenaCore, ArenaCounters, Reset, SEGMENT_BITS, leases_segments};
use crate::backing::{Backing, Shielded};
use crate::handle::CountingEngine;
use crate::{
    Allocator, Error, OutOfMemory, RawBlock, Refusal, RegionWatch, RegionWatches, Request, Result, Semantics,
    Usage,
};
use orlop_core::Device;
use orlop_sync::{
    ColdMutex, OwnerState,
    thread_slot::{self, SLOTS},
};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// The index of an arena fits above [`SEGMENT_BITS`], and no token is `usize::MAX`.
const _: () = assert!(SLOTS < 1 << (usize::BITS - SEGMENT_BITS));

/// One [`Arena`](super::Arena) per thread; see the module documentation.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_context::Budget;
/// use orlop_alloc::engine::ThreadArenas;
/// use orlop_alloc::{Allocator, Request};
/// use orlop_context::Context;
/// use orlop_core::{Device, MemoryKind};
///
/// let context = Context::new();
/// let arenas = ThreadArenas::new(System::new(), 1 << 20).into_ref();
/// context.register(Device::CPU, MemoryKind::Workspace, arenas.clone())?;
/// context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(64 << 20))?;
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| -> orlop_alloc::Result<()> {
///             for _step in 0..3 {
///                 drop(context.allocate(Device::CPU, &Request::new(4096).kind(MemoryKind::Workspace))?);
///                 arenas.reset()?;
///             }
///             Ok(())
///         });
///     }
/// });
/// assert_eq!(context.memory_map().live(MemoryKind::Workspace), 0);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct ThreadArenas<B: Backing + Clone> {
    backing: Shielded<B>,
    bytes: usize,
    arenas: Box<[OnceLock<ArenaCore<B>>]>,
    counters: ArenaCounters,
    /// Held while an arena is created, so that each watch is added to each arena once.
    watches: ColdMutex<RegionWatches>,
}

impl<B: Backing + Clone> ThreadArenas<B> {
    /// Creates an engine whose arenas reserve `bytes` bytes each at their first request, and larger segments
    /// later as needed.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> Self {
        let arenas = (0..SLOTS).map(|_| OnceLock::new()).collect();
        let (backing, counters) = (Shielded::new(backing), ArenaCounters::default());
        Self { backing, bytes, arenas, counters, watches: ColdMutex::default() }
    }

    /// Frees everything in the calling thread's arena: see
    /// [`Arena::reset`](super::Arena::reset).
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`](crate::Error::ArenaInUse) while blocks of that arena are live; nothing has
    /// changed then.
    pub fn reset(&self) -> Result<()> {
        self.own().map_or(Ok(()), |arena| arena.reset(&self.counters))
    }

    /// Frees everything in the calling thread's arena; if blocks are live, it leaves them their memory: see
    /// [`Arena::renew`](super::Arena::renew).
    pub fn renew(&self) -> Reset {
        self.own().map_or(Reset::Rewound, |arena| arena.renew(&self.counters))
    }

    /// Returns the bytes allocated from the calling thread's arena since its last rewind, including padding.
    pub fn used(&self) -> usize {
        self.own().map_or(0, |arena| arena.used(&self.counters))
    }

    /// Returns the number of arenas that were ever used.
    pub fn arenas(&self) -> usize {
        self.all().count()
    }

    fn own(&self) -> Option<&ArenaCore<B>> {
        self.arenas.get(thread_slot::index())?.get()
    }

    fn all(&self) -> impl Iterator<Item = &ArenaCore<B>> + '_ {
        self.arenas.iter().filter_map(OnceLock::get)
    }

    /// Returns the arena of a block.
    fn arena_of(&self, block: &RawBlock) -> Option<&ArenaCore<B>> {
        self.arenas.get(block.token >> SEGMENT_BITS)?.get()
    }

    /// Creates the calling thread's arena, unless another thread with its slot has just done so.
    #[cold]
    fn make(&self, request: &Request) -> Result<&ArenaCore<B>> {
        // User code, so it comes before the lock; and what is not needed ends after it.
        let mut backing = self.backing.cloned()?;
        let slot = thread_slot::index();
        let watches = self.watches.lock();
        if self.arenas[slot].get().is_none()
            && let Some(backing) = backing.take()
        {
            let arena = ArenaCore::new(backing, self.bytes, usize::MAX, slot, 0);
            watches.all().iter().for_each(|watch| arena.watch_regions(watch));
            // It is empty, and set under this lock only.
            let _ = self.arenas[slot].set(arena);
        }
        drop(watches);
        let refused = || OutOfMemory::new(Refusal::Backing, self.name(), self.device(), request);
        self.own().ok_or_else(|| refused().into())
    }
}

// SAFETY: 1 to 5. blocks come from arenas, which meet the contract as [`Arena`](super::Arena) does; a block's
// token selects its arena, also in a lease. 6. each path that hands a block out counts it in, and each path
// that takes one back counts it out, as its last action.
unsafe impl<B: Backing + Clone> Allocator for ThreadArenas<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let arena = self.own().map_or_else(|| self.make(request), Ok)?;
        arena.allocate(&self.counters, request)
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let Some(arena) = self.arena_of(block) else { return false };
        // SAFETY: the token selects the arena that allocated the block; the rest is guaranteed by the caller.
        unsafe { arena.grow_in_place(&self.counters, block, bytes) }
    }

    crate::handle::counts_itself!(counters);

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        "thread_arenas"
    }

    fn usage(&self) -> Usage {
        self.all().map(ArenaCore::usage).fold(Usage::default(), |sum, one| Usage {
            reserved: sum.reserved + one.reserved,
            peak_reserved: sum.peak_reserved + one.peak_reserved,
            regions: sum.regions + one.regions,
            deferred: 0,
            metadata: sum.metadata + one.metadata,
        })
    }

    fn reset_peak(&self) {
        self.all().for_each(ArenaCore::reset_peak);
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    fn describe(&self, report: &mut OutOfMemory) {
        report.reserved = self.usage().reserved;
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let mut watches = self.watches.lock();
        let ended = watches.add(watch, []);
        let arenas: Vec<_> = self.all().collect();
        drop(watches);
        // The lock is released first: dropping an observer may run user code. Arenas created from now on get
        // the watch.
        drop(ended);
        arenas.into_iter().for_each(|arena| arena.watch_regions(watch));
    }

    /// Releases the memory of the arenas that have no live blocks.
    fn trim(&self, target: u64) -> u64 {
        let mut released = 0;
        for arena in self.all() {
            let excess = self.usage().reserved.saturating_sub(target);
            if excess > 0 {
                released += arena.trim(&self.counters, arena.usage().reserved.saturating_sub(excess));
            }
        }
        released
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        let address = ptr.as_ptr().addr();
        self.all().find_map(|arena| arena.allocated_size(&self.counters, address))
    }

    fn verify(&self) -> Result<()> {
        self.all().try_for_each(|arena| arena.verify(&self.counters))
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl<B: Backing + Clone> CountingEngine for ThreadArenas<B> {
    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        let Some(arena) = engine.arena_of(&block) else {
            return Err(Error::ForeignPointer { address: block.address() });
        };
        let (arena, counters) = (NonNull::from(arena), NonNull::from(&engine.counters));
        // SAFETY: the token selects the arena that allocated the block; the rest is guaranteed by the caller.
        unsafe { ArenaCore::deallocate_counted(arena, counters, block) }
    }

    leases_segments!(counters);
}
