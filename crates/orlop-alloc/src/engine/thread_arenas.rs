//! One arena per thread, behind one handle.
//!
//! The scratch memory of a step belongs to the thread that runs it: an arena shared by several threads can be
//! rewound only when all of them are done. [`ThreadArenas`] keeps one [`Arena`] per thread slot. A thread
//! allocates from and rewinds its own arena; a block returns to its arena on whichever thread it is dropped.
//! All arenas form one allocator, so a context counts and bounds them together, as workspace.
//!
//! If there are more threads than slots, some threads share an arena. That is safe: an arena has a lock, and
//! a rewind refuses while blocks are live. When a thread ends, the next thread that gets its slot takes over
//! its arena.

use super::arena::{Arena, Reset};
use crate::backing::Backing;
use crate::{
    Allocator, OutOfMemory, RawBlock, RegionWatch, RegionWatches, Request, Result, Semantics, Usage,
};
use orlop_core::Device;
use orlop_sync::{
    Mutex,
    thread_slot::{self, SLOTS},
};
use std::sync::{Arc, OnceLock};

/// Number of low bits of a block's token that its arena uses; the bits above hold the arena's index.
const ARENA_TOKEN_BITS: u32 = usize::BITS - 8;

const _: () = assert!(SLOTS <= 1 << 8);

/// One [`Arena`] per thread; see the module documentation.
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
    backing: B,
    bytes: usize,
    arenas: Box<[OnceLock<Arena<B>>]>,
    /// Held while an arena is created, so that each watch is added to each arena once.
    watches: Mutex<RegionWatches>,
}

impl<B: Backing + Clone> ThreadArenas<B> {
    /// Creates an engine whose arenas reserve `bytes` bytes each at their first request, and larger segments
    /// later as needed.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> Self {
        let arenas = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self { backing, bytes, arenas, watches: Mutex::default() }
    }

    /// Frees everything in the calling thread's arena: see [`Arena::reset`].
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`](crate::Error::ArenaInUse) while blocks of that arena are live; nothing has
    /// changed then.
    pub fn reset(&self) -> Result<()> {
        self.own().map_or(Ok(()), Arena::reset)
    }

    /// Frees everything in the calling thread's arena; if blocks are live, it leaves them their memory: see
    /// [`Arena::renew`].
    pub fn renew(&self) -> Reset {
        self.own().map_or(Reset::Rewound, Arena::renew)
    }

    /// Returns the bytes allocated from the calling thread's arena since its last rewind, including padding.
    pub fn used(&self) -> usize {
        self.own().map_or(0, Arena::used)
    }

    /// Returns the number of arenas that were ever used.
    pub fn arenas(&self) -> usize {
        self.all().count()
    }

    fn own(&self) -> Option<&Arena<B>> {
        self.arenas.get(thread_slot::current().index())?.get()
    }

    fn all(&self) -> impl Iterator<Item = &Arena<B>> + '_ {
        self.arenas.iter().filter_map(OnceLock::get)
    }

    /// Returns the calling thread's arena and its index.
    fn own_or_new(&self) -> (usize, &Arena<B>) {
        let slot = thread_slot::current().index();
        (slot, self.arenas[slot].get().unwrap_or_else(|| self.make(slot)))
    }

    #[cold]
    fn make(&self, slot: usize) -> &Arena<B> {
        let watches = self.watches.lock();
        self.arenas[slot].get_or_init(|| {
            let arena = Arena::new(self.backing.clone(), self.bytes);
            watches.all().iter().for_each(|watch| arena.watch_regions(watch));
            arena
        })
    }
}

// SAFETY: blocks come from arenas, which meet the contract; each block is returned to its arena with the
// token that the arena set.
unsafe impl<B: Backing + Clone> Allocator for ThreadArenas<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let (slot, arena) = self.own_or_new();
        let mut block = arena.allocate(request)?;
        debug_assert!(block.token >> ARENA_TOKEN_BITS == 0, "fewer segments than there is memory for");
        // SAFETY: only the token changes, and `deallocate` restores it before the arena reads it.
        unsafe { block.record_mut() }.token |= slot << ARENA_TOKEN_BITS;
        Ok(block)
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> Result<()> {
        let (address, slot) = (block.address(), block.token >> ARENA_TOKEN_BITS);
        let Some(arena) = self.arenas.get(slot).and_then(OnceLock::get) else {
            return Err(crate::Error::ForeignPointer { address });
        };
        // SAFETY: only the token changes, to the value that the arena set.
        unsafe { block.record_mut() }.token &= (1 << ARENA_TOKEN_BITS) - 1;
        // SAFETY: the token's index selects the arena that allocated the block; the rest is guaranteed by the
        // caller.
        unsafe { arena.deallocate(block) }
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let token = block.token;
        let Some(arena) = self.arenas.get(token >> ARENA_TOKEN_BITS).and_then(OnceLock::get) else {
            return false;
        };
        // SAFETY: only the token changes, to the value that the arena set.
        unsafe { block.record_mut() }.token = token & ((1 << ARENA_TOKEN_BITS) - 1);
        // SAFETY: the token's index selects the arena that allocated the block; the rest is guaranteed by the
        // caller.
        let grown = unsafe { arena.grow_in_place(block, bytes) };
        // SAFETY: only the token changes, to the value that `allocate` set.
        unsafe { block.record_mut() }.token = token;
        grown
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        "thread_arenas"
    }

    fn usage(&self) -> Usage {
        self.all().map(Allocator::usage).fold(Usage::default(), |sum, one| Usage {
            reserved: sum.reserved + one.reserved,
            peak_reserved: sum.peak_reserved + one.peak_reserved,
            regions: sum.regions + one.regions,
            deferred: 0,
            metadata: sum.metadata + one.metadata,
        })
    }

    fn reset_peak(&self) {
        self.all().for_each(Allocator::reset_peak);
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
                released += arena.trim(arena.usage().reserved.saturating_sub(excess));
            }
        }
        released
    }
}
