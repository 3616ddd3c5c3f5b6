//! The cell that an allocator lives in, as long as it is needed.
//!
//! # Who may touch the cell
//!
//! 1. whoever holds a handle;
//! 2. whoever holds a block: from `count_in` until its `count_out` has begun to say so to others, and no longer;
//! 3. whoever was told [`OwnerState::Unused`]: exclusively, to destroy it.
//!
//! With 2 the cell may be gone before the function has returned that counts the block out, and so it may when the ledger is
//! closed. A reference that is passed to a function must live until that has returned. So all functions on these ways get
//! pointers, the engine's too ([`Exits`]), and only what they call before that point gets references.
//!
//! # From a block to a handle
//!
//! A block leads to the cell (rule 2), and from there to a handle if there still is one ([`handle_of`]). What could go
//! wrong, and the partners that prevent it:
//!
//! * the last handle goes at the same time: the count is one word, [`Handles::join_from_block`] does not raise it from
//!   zero, and [`Handles::leave`] says once that it has come there. So either the one that goes is not the last, or there
//!   is no handle to be had. No ordering is needed for that.
//! * the cell goes before the new handle: it is destroyed after [`OwnerState::Unused`], which takes a closed ledger, and only the
//!   last handle's end closes it. What the new handle does comes before that by `handles.leave` (release, then acquire).
//! * the cell goes while the block asks: the block has not left the ledger then, and `counters.last` and `counters.close` order
//!   all that its holder does before it leaves with the destruction. Other owners of a shared block come before the one
//!   that returns it by `share.leave` and `share.alone`.
//! * a block enters a ledger that is closed: only handles allocate, and closing comes after the last of them.

use super::weak::Link;
use crate::block::Owner;
use crate::observer::{Event, RegionWatch};
use crate::shield::report;
use crate::{Allocator, AllocatorRef, Block, Error, RawBlock, Record, Request, Result, Stats};
use orlop_core::MemoryKind;
use orlop_sync::{BlockCounter, Handles, OwnerState, ShardedCounters, SwapCell, Totals, thread_slot};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The ways out of an engine, after which it may be gone: see [`Allocator::deallocate_counted`]. They take pointers, and a
/// `dyn Allocator` has methods only. Each is to be called with the address of an engine of the type it was made for.
#[derive(Clone, Copy)]
pub(super) struct Exits {
    give_cached: unsafe fn(NonNull<()>, RawBlock) -> Option<RawBlock>,
    deallocate_counted: unsafe fn(NonNull<()>, RawBlock) -> Result<OwnerState>,
    close: unsafe fn(NonNull<()>) -> OwnerState,
}

impl Exits {
    pub(super) fn of<A: Allocator>() -> Self {
        unsafe fn give_cached<A: Allocator>(engine: NonNull<()>, block: RawBlock) -> Option<RawBlock> {
            // SAFETY: the engine's address, and the caller's promises.
            unsafe { A::give_cached(engine.cast(), block) }
        }
        unsafe fn deallocate_counted<A: Allocator>(
            engine: NonNull<()>,
            block: RawBlock,
        ) -> Result<OwnerState> {
            // SAFETY: as above.
            unsafe { A::deallocate_counted(engine.cast(), block) }
        }
        unsafe fn close<A: Allocator>(engine: NonNull<()>) -> OwnerState {
            // SAFETY: as above.
            unsafe { A::close(engine.cast()) }
        }
        Self { give_cached: give_cached::<A>, deallocate_counted: deallocate_counted::<A>, close: close::<A> }
    }
}

/// What blocks know of their allocator's cell: it begins with this.
pub(crate) struct Head {
    /// Whether the quick way is open: the engine counts itself, and nobody is to be told of every block.
    pub(super) quick: AtomicBool,
    pub(super) exits: Exits,
    /// The cell's allocator.
    pub(super) allocator: NonNull<dyn Allocator>,
    /// The cell.
    pub(super) shared: NonNull<Shared<dyn Allocator>>,
}

/// An allocator with its counts. Lives until no handle and no block remains.
#[repr(C)]
pub(crate) struct Shared<A: ?Sized> {
    pub(super) head: Head,
    pub(super) handles: Handles,
    /// `None` over an engine that counts itself.
    pub(super) counters: Option<ShardedCounters>,
    pub(super) refused_frees: AtomicU64,
    /// The observer, with what it is yet to be told of regions: one relaxed load while there is none.
    pub(super) watch: SwapCell<Arc<RegionWatch>>,
    /// To weak handles.
    pub(super) link: Link,
    pub(super) allocator: A,
}

impl Head {
    /// The cell's allocator.
    #[inline(always)]
    pub(crate) fn allocator(&self) -> &dyn Allocator {
        // SAFETY: it is in the cell that this is the head of, and that lives as long.
        unsafe { self.allocator.as_ref() }
    }

    /// A block that the calling thread has cached, counted, if the quick way is open and leads to one.
    #[inline(always)]
    pub(super) fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        if self.quick.load(Ordering::Relaxed) { self.allocator().take_cached(request) } else { None }
    }

    /// Returns a block to what the calling thread has cached, if the quick way is open; else the block.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::give_cached`]. On `None` the cell may be gone.
    #[inline(always)]
    pub(super) unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // SAFETY: the block has not left (the caller's promise).
        let head = unsafe { this.as_ref() };
        if !head.quick.load(Ordering::Relaxed) {
            return Some(block);
        }
        // SAFETY: the cell's engine, and the caller's promise.
        unsafe { (head.exits.give_cached)(head.allocator.cast(), block) }
    }
}

impl<A: ?Sized + Allocator> Shared<A> {
    /// Who counts: the cell's ledger or the engine's.
    pub(super) fn counter(&self) -> Option<&dyn BlockCounter> {
        match &self.counters {
            Some(counters) => Some(counters),
            None => self.allocator.counter(),
        }
    }

    /// What happened so far: the ledger's figures and the engine's.
    pub(super) fn stats(&self) -> Stats {
        let totals = self.counter().map_or_else(Totals::default, BlockCounter::totals);
        let pinned = &totals.kinds[MemoryKind::HostPinned.index()];
        Stats {
            has_unpinned: pinned.allocations > 0 && !self.allocator.semantics().pinned,
            totals,
            usage: self.allocator.usage(),
            refused_frees: self.refused_frees.load(Ordering::Relaxed),
        }
    }

    /// Allocates and counts.
    #[inline(always)]
    pub(super) fn take(&self, request: &Request) -> Result<RawBlock> {
        if self.counters.is_none()
            && let Some(watch) = self.watch.get()
            && let Some(raw) = self.head.allocator().take_cached(request)
        {
            tell_taken(&watch, &raw);
            return Ok(raw);
        }
        match self.allocator.allocate(request) {
            Ok(raw) => {
                if let Some(counters) = &self.counters {
                    counters.count_in(thread_slot::current(), raw.kind, raw.granted, raw.requested);
                }
                if let Some(watch) = self.watch.get() {
                    tell_taken(&watch, &raw);
                }
                Ok(raw)
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Makes a block larger where it is, and counts that; whether it could be. Observers see it as if the block had come back
    /// and been handed out again.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::grow_in_place`].
    pub(super) unsafe fn grow_in_place(&self, raw: &mut RawBlock, bytes: usize) -> bool {
        let (granted, requested) = (raw.granted, raw.requested);
        // SAFETY: the caller's promise.
        if !unsafe { self.allocator.grow_in_place(raw, bytes) } {
            return false;
        }
        if let Some(counters) = &self.counters {
            let (more, asked) =
                (raw.granted.saturating_sub(granted), raw.requested.saturating_sub(requested));
            counters.enter(thread_slot::current()).count_growth(raw.kind, more, asked, raw.granted);
        }
        if let Some(watch) = self.watch.get() {
            self.tell_grown(&watch, raw, granted, requested);
        }
        true
    }

    #[cold]
    fn tell_grown(&self, watch: &RegionWatch, block: &RawBlock, granted: usize, requested: usize) {
        let mut before = Record::new(block.ptr, granted, block.device, block.access);
        (before.requested, before.id, before.kind, before.tag) = (requested, block.id, block.kind, block.tag);
        (before.stream, before.align) = (block.stream, block.align);
        // Not an allocator's: it ends with the record.
        let before = Block::new(RawBlock::new(Box::new(before)));
        watch.observe(&Event::Freed { block: before.raw(), allocator: watch.allocator() });
        tell_taken(watch, block);
    }

    #[cold]
    pub(super) fn empty(&self, request: &Request) -> Result<Block> {
        request.kind.check_on(self.allocator.device())?;
        Ok(Block::new(RawBlock::empty(request, self.allocator.device())))
    }

    /// Tells what the last call did to regions, for calls that are not about one block.
    pub(super) fn tell_regions(&self) {
        if let Some(watch) = self.watch.get() {
            watch.tell();
        }
    }

    /// Returns and counts. After [`OwnerState::Unused`] the caller destroys the cell. A refusal is counted, told, and
    /// left in `refused`.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[inline(always)]
    pub(super) unsafe fn give(this: NonNull<Self>, raw: RawBlock, refused: &mut Option<Error>) -> OwnerState {
        // No loan: the cell may go meanwhile. SAFETY: the block has not left (the caller's promise).
        match unsafe { this.as_ref() }.watch.cloned() {
            // SAFETY: the caller's promise.
            None => unsafe { Self::give_unseen(this, raw, refused) },
            // SAFETY: as above.
            Some(watch) => unsafe { Self::give_seen(this, watch, raw, refused) },
        }
    }

    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[cold]
    unsafe fn give_seen(
        this: NonNull<Self>,
        watch: Arc<RegionWatch>,
        raw: RawBlock,
        refused: &mut Option<Error>,
    ) -> OwnerState {
        // SAFETY: the block has not left (the caller's promise).
        let cell = unsafe { this.as_ref() };
        watch.observe(&Event::Freed { block: &raw, allocator: watch.allocator() });
        let left = match &cell.counters {
            Some(_) => Some(raw),
            // SAFETY: the cell's engine, and the caller's promise.
            None => unsafe { (cell.head.exits.give_cached)(cell.head.allocator.cast(), raw) },
        };
        // SAFETY: the caller's promise; `give_cached` gave the block back as it was.
        let state = left.map_or(OwnerState::InUse, |raw| unsafe { Self::give_unseen(this, raw, refused) });
        // The block has left: from here on the cell may be gone, and the watch is what is left.
        watch.tell();
        state
    }

    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[inline(always)]
    unsafe fn give_unseen(this: NonNull<Self>, raw: RawBlock, refused: &mut Option<Error>) -> OwnerState {
        // SAFETY: the block has not left (the caller's promise).
        let cell = unsafe { this.as_ref() };
        let Some(counters) = &cell.counters else {
            // SAFETY: the cell's engine, and the caller's promise.
            return match unsafe { (cell.head.exits.deallocate_counted)(cell.head.allocator.cast(), raw) } {
                Ok(state) => state,
                Err(error) => {
                    // The block is still counted, so the cell is there.
                    *refused = Some(cell.refuse(error));
                    OwnerState::InUse
                }
            };
        };
        let (kind, granted, requested) = (raw.kind, raw.granted, raw.requested);
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { cell.allocator.deallocate(raw) } {
            // It stays counted: a leak is safe, and counting a block out twice would end the engine's life early.
            *refused = Some(cell.refuse(error));
            return OwnerState::InUse;
        }
        counters.enter(thread_slot::current()).count_out(kind, granted, requested)
    }

    /// Closes whatever counts. After [`OwnerState::Unused`] the caller destroys the cell.
    ///
    /// # Safety
    ///
    /// The caller's was the last handle, and this is called once.
    pub(super) unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: it is not closed yet, so nobody was told `Unused`.
        let cell = unsafe { this.as_ref() };
        match &cell.counters {
            // SAFETY: the caller's promise.
            Some(counters) => unsafe { ShardedCounters::close(NonNull::from(counters)) },
            // SAFETY: the cell's engine, and the caller's promise.
            None => unsafe { (cell.head.exits.close)(cell.head.allocator.cast()) },
        }
    }

    #[cold]
    pub(super) fn refuse(&self, error: Error) -> Error {
        self.refused_frees.fetch_add(1, Ordering::Relaxed);
        report(|| tracing::error!(allocator = self.allocator.name(), %error, "free refused"));
        if let Some(watch) = self.watch.get() {
            watch.observe(&Event::FreeRefused { error: &error, allocator: self.allocator.name() });
        }
        error
    }

    /// Completes an out-of-memory report with what only the ledger knows.
    #[cold]
    pub(super) fn explain(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(report) = &mut error {
            if report.by_kind.is_empty() {
                report.fill(&self.counter().map_or_else(Totals::default, BlockCounter::totals));
            }
            if report.by_tag.is_empty() {
                report.set_tags(self.allocator.tag_uses());
            }
            if let Some(watch) = self.watch.get() {
                // What went back for the request's sake comes first.
                watch.tell();
                watch.observe(&Event::OutOfMemory { report });
            }
        }
        error
    }
}

/// Tells of a block that was handed out.
#[cold]
pub(super) fn tell_taken(watch: &RegionWatch, block: &RawBlock) {
    // The region first that the block is in.
    watch.tell();
    watch.observe(&Event::Allocated { block, allocator: watch.allocator() });
}

/// A handle to the allocator that a block came from, if that still has one.
///
/// # Safety
///
/// `owner` is the cell that a block was counted in which has not come back, and does not before this returns.
pub(crate) unsafe fn handle_of(owner: Owner) -> Option<AllocatorRef> {
    // SAFETY: the cell lives while a block does (rule 2).
    let shared = unsafe { owner.as_ref() }.shared;
    // SAFETY: as above.
    let joined = unsafe { shared.as_ref() }.handles.join_from_block();
    // Made only if it is counted: a handle that is dropped counts itself out.
    joined.then(|| AllocatorRef { shared })
}

/// Makes a block larger where it is; whether it could be.
///
/// # Safety
///
/// `owner` is the cell that `raw` was counted in, and `raw` has not come back.
pub(crate) unsafe fn grow_block(owner: Owner, raw: &mut RawBlock, bytes: usize) -> bool {
    // SAFETY: the cell lives: `raw` has not left its ledger (rule 2).
    let shared = unsafe { owner.as_ref() }.shared;
    // SAFETY: as above.
    let shared = unsafe { shared.as_ref() };
    // SAFETY: the caller's promise.
    unsafe { shared.grow_in_place(raw, bytes) }
}

/// Returns a block's memory to its owner, and the owner's to the system if that was the last of it.
///
/// # Safety
///
/// 1. `owner` is the cell that `raw` was counted in, and `raw` was not returned before;
/// 2. nobody on the host uses its bytes any more.
#[inline]
pub(crate) unsafe fn return_block(owner: Owner, raw: RawBlock) {
    // SAFETY: the promises are the caller's.
    if let Some(raw) = unsafe { Head::give_cached(owner, raw) } {
        // SAFETY: the caller's promises; `give_cached` gave the block back as it was.
        unsafe { return_slowly(owner, raw) };
    }
}

/// # Safety
///
/// As for [`return_block`].
#[inline(never)]
unsafe fn return_slowly(owner: Owner, raw: RawBlock) {
    // SAFETY: the cell lives: `raw` has not left its ledger yet (rule 2).
    let owner = unsafe { owner.as_ref() }.shared;
    // SAFETY: the caller's promises are those of `deallocate`. A refusal was counted and traced; a drop has nobody to
    // return it to.
    let state = unsafe { Shared::give(owner, raw, &mut None) };
    if state == OwnerState::Unused {
        // SAFETY: `OwnerState::Unused` is told once, when no handle and no block remains (rule 3).
        unsafe { destroy(owner) };
    }
}

/// Destroys the cell of a block that was the last.
///
/// # Safety
///
/// The caller was told [`OwnerState::Unused`] by this cell's ledger, and tells nobody else.
#[cold]
pub(crate) unsafe fn destroy_owner(owner: Owner) {
    // SAFETY: the cell is there until it is destroyed (the caller's promise).
    let shared = unsafe { owner.as_ref() }.shared;
    // SAFETY: the caller's promise.
    unsafe { destroy(shared) };
}

/// # Safety
///
/// The caller was told [`OwnerState::Unused`] by this cell's ledger.
#[cold]
pub(super) unsafe fn destroy<A: ?Sized>(shared: NonNull<Shared<A>>) {
    // SAFETY: the cell is there, and nobody but weak handles looks at it.
    unsafe { shared.as_ref() }.link.cut();
    // SAFETY: the cell came from a `Box` and nobody else holds a handle, a block or the `Unused` answer.
    let shared = unsafe { Box::from_raw(shared.as_ptr()) };
    let watch = shared.watch.cloned();
    drop(shared);
    if let Some(watch) = watch {
        // An engine that goes gives all it holds back; one that others hold lives on.
        watch.end();
        watch.tell();
    }
}
