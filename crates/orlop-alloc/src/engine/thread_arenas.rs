//! An arena for each thread, behind one handle.
//!
//! The scratch memory of a step belongs to the thread that runs it: an arena that several threads share can be rewound only
//! when all of them are done. [`ThreadArenas`] keeps one [`Arena`] for each thread slot. A thread takes from its own and
//! rewinds its own; blocks return to the arena they are from, on whichever thread they are dropped. It is one allocator, so
//! that a context counts and bounds the arenas of all threads together, as the workspace that they are.
//!
//! Threads beyond those that have a slot of their own share arenas. That is safe: an arena has a lock, and a rewind refuses
//! while blocks live. A thread that ends leaves its arena to the next one that gets its slot.

use super::arena::{Arena, Reset};
use crate::backing::Backing;
use crate::{
    Allocator, AllocatorRef, OutOfMemory, RawBlock, RegionWatch, RegionWatches, Request, Result, Semantics,
    Usage,
};
use orlop_core::Device;
use orlop_sync::{
    Mutex,
    thread_slot::{self, SLOTS},
};
use std::sync::{Arc, OnceLock};

/// Bits of a block's token that its arena has for itself; above is the number of the arena.
const SEGMENT_BITS: u32 = usize::BITS - 8;

const _: () = assert!(SLOTS <= 1 << 8);

/// One [`Arena`] for each thread; see the head of its file.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::context::Budget;
/// use orlop_alloc::engine::ThreadArenas;
/// use orlop_alloc::{Context, Request};
/// use orlop_core::{Device, MemoryKind};
///
/// let context = Context::new();
/// let arenas = ThreadArenas::new(System::new(), 1 << 20);
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
    /// Held while an arena is made, so that each watch comes to each arena once.
    watches: Mutex<RegionWatches>,
}

impl<B: Backing + Clone> ThreadArenas<B> {
    /// Arenas that reserve `bytes` each at their first request, and as much again as they need later.
    #[must_use]
    pub fn engine(backing: B, bytes: usize) -> Self {
        let arenas = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self { backing, bytes, arenas, watches: Mutex::default() }
    }

    /// Behind a handle.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing, bytes))
    }

    /// Makes all of the calling thread's arena available again: see [`Arena::reset`].
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`](crate::Error::ArenaInUse) while blocks of it live; nothing has changed.
    pub fn reset(&self) -> Result<()> {
        self.own().map_or(Ok(()), Arena::reset)
    }

    /// [`ThreadArenas::reset`], but leaves live blocks their memory: see [`Arena::renew`].
    pub fn renew(&self) -> Reset {
        self.own().map_or(Reset::Rewound, Arena::renew)
    }

    /// Bytes handed out in this generation of the calling thread's arena, padding included.
    pub fn used(&self) -> usize {
        self.own().map_or(0, Arena::used)
    }

    /// Arenas that were ever used.
    pub fn arenas(&self) -> usize {
        self.all().count()
    }

    fn own(&self) -> Option<&Arena<B>> {
        self.arenas.get(thread_slot::current().index())?.get()
    }

    fn all(&self) -> impl Iterator<Item = &Arena<B>> + '_ {
        self.arenas.iter().filter_map(OnceLock::get)
    }

    /// The calling thread's arena and its number.
    fn own_or_new(&self) -> (usize, &Arena<B>) {
        let slot = thread_slot::current().index();
        (slot, self.arenas[slot].get().unwrap_or_else(|| self.make(slot)))
    }

    #[cold]
    fn make(&self, slot: usize) -> &Arena<B> {
        let watches = self.watches.lock();
        self.arenas[slot].get_or_init(|| {
            let arena = Arena::engine(self.backing.clone(), self.bytes);
            watches.all().iter().for_each(|watch| arena.watch_regions(watch));
            arena
        })
    }
}

// SAFETY: blocks are those of arenas, which keep the promises; the arena's token is given back to it as it was.
unsafe impl<B: Backing + Clone> Allocator for ThreadArenas<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let (slot, arena) = self.own_or_new();
        let mut block = arena.allocate(request)?;
        debug_assert!(block.token >> SEGMENT_BITS == 0, "fewer segments than there is memory for");
        // SAFETY: the arena gets its token back as it was (`deallocate`).
        unsafe { block.record_mut() }.token |= slot << SEGMENT_BITS;
        Ok(block)
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> Result<()> {
        let (address, slot) = (block.address(), block.token >> SEGMENT_BITS);
        let Some(arena) = self.arenas.get(slot).and_then(OnceLock::get) else {
            return Err(crate::Error::ForeignPointer { address });
        };
        // SAFETY: the token as the arena made it.
        unsafe { block.record_mut() }.token &= (1 << SEGMENT_BITS) - 1;
        // SAFETY: the arena's own block, by the number in its token; the caller's promise.
        unsafe { arena.deallocate(block) }
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let token = block.token;
        let Some(arena) = self.arenas.get(token >> SEGMENT_BITS).and_then(OnceLock::get) else {
            return false;
        };
        // SAFETY: the token as the arena made it.
        unsafe { block.record_mut() }.token = token & ((1 << SEGMENT_BITS) - 1);
        // SAFETY: the arena's own block, by the number in its token; the caller's promise.
        let grown = unsafe { arena.grow_in_place(block, bytes) };
        // SAFETY: the token as it was.
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
        // With the lock released: an observer's end may run anything. Arenas made from now on know the watch.
        drop(ended);
        arenas.into_iter().for_each(|arena| arena.watch_regions(watch));
    }

    /// Gives the memory of the arenas back in which nothing lives.
    fn trim(&self, target: u64) -> u64 {
        let mut given_back = 0;
        for arena in self.all() {
            let excess = self.usage().reserved.saturating_sub(target);
            if excess > 0 {
                given_back += arena.trim(arena.usage().reserved.saturating_sub(excess));
            }
        }
        given_back
    }
}
