//! The cell that an allocator lives in, as long as it is needed.
//!
//! # Who may access the cell
//!
//! 1. the owner of a handle;
//! 2. the owner of a block: from `count_in` until `count_out` has begun to make the block's end visible to
//!    other threads, and no longer;
//! 3. the caller that got [`OwnerState::Unused`]: exclusively, to destroy it.
//!
//! By rule 2 the cell may be destroyed before the function that counts the block out has returned, and also
//! before the function that closes the counters has returned. A reference passed to a function must be valid
//! until that returns. So all functions on these paths take pointers, the engine's too ([`ReleaseFns`]); only
//! what they call before that point takes references.
//!
//! # From a block to a handle
//!
//! A block leads to the cell (rule 2), and from there to a handle if there still is one
//! ([`handle_of`](super::handle_of)). What could go wrong, and what prevents it:
//!
//! * The last handle is dropped at the same time: the count is one word, [`Handles::join_from_block`] does
//!   not raise it from zero, and [`Handles::leave`] reports once that it reached zero. So either the handle
//!   being dropped is not the last, or no new handle is created. That needs no memory ordering.
//! * The cell is destroyed before the new handle is dropped: it is destroyed after [`OwnerState::Unused`],
//!   which requires closed counters, and only the drop of the last handle closes them. Everything the new
//!   handle does is ordered before that by `handles.leave` (release, then acquire).
//! * The cell is destroyed while a block is used to create a handle: the block is not counted out at that
//!   time, and `counters.last` and `counters.close` order everything that its owner does before counting it
//!   out before the destruction. Other owners of a shared block are ordered before the one that returns it by
//!   `share.leave` and `share.alone`.
//! * A block is counted in after the counters were closed: only handles allocate, and the counters are closed
//!   after the last of them.

use super::counting::CountingFns;
use super::weak::WeakLink;
use crate::observer::{Event, WatchList};
use crate::{Allocator, AllocatorRef, Block, Error, RawBlock, Request, Result, Stats};
use orlop_core::{Alignment, MemoryKind};
use orlop_host::shield::report;
use orlop_sync::{BlockCounter, Handles, OwnerState, ShardedCounters, SwapCell, Totals};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The part of a cell that does not depend on the allocator's type: blocks point to it, and the cell begins
/// with it.
pub(crate) struct CellHead {
    /// Why the fast path is closed: [`SLOW`], [`GATED`]; zero if it is open.
    pub(super) closed: AtomicU8,
    /// True for memory of a device, unless the allocator completes requests for it. They take the slow path,
    /// which does so.
    pub(super) completes: bool,
    /// What counts the blocks.
    pub(super) counts: Counts,
    /// The cell's allocator.
    pub(super) allocator: NonNull<dyn Allocator>,
    /// The cell.
    pub(super) cell: NonNull<AllocatorCell<dyn Allocator>>,
}

/// The fast path is closed for all: an observer watches blocks, or the handle completes all requests.
pub(super) const SLOW: u8 = 1;

/// The fast path is closed for requests by handles, which go through a budget gate; see
/// [`ContextHandle::set_gate`](super::ContextHandle::set_gate).
pub(super) const GATED: u8 = 2;

/// What counts the blocks of an allocator.
pub(super) enum Counts {
    /// The handle, in these counters.
    Handle(ShardedCounters),
    /// The engine; its functions are of the type of the cell's allocator.
    Engine(CountingFns),
}

/// An allocator with its counts. It exists until no handle and no block is left.
#[repr(C)]
pub(crate) struct AllocatorCell<A: ?Sized> {
    pub(super) head: CellHead,
    pub(super) handles: Handles,
    /// The allocator whose totals this one's are, if it stands in the place of that one.
    pub(super) stands_for: Option<AllocatorRef>,
    pub(super) refused_frees: AtomicU64,
    /// The observers, with the region events that they have not received yet: one relaxed load while there
    /// are none. The cell keeps a removed list, even if an observer removes itself, as long as it is read:
    /// so observers run on a clone of the list or, on allocations and frees, the former list is dropped
    /// afterwards.
    pub(super) watches: SwapCell<Arc<WatchList>>,
    /// The link of weak handles.
    pub(super) link: WeakLink,
    pub(super) allocator: A,
}

impl CellHead {
    /// Returns the cell's allocator.
    #[inline(always)]
    pub(crate) fn allocator(&self) -> &dyn Allocator {
        // SAFETY: the allocator is in the cell that this is the head of, so it lives as long as `self`.
        unsafe { self.allocator.as_ref() }
    }

    /// Allocates a block that the calling thread has cached, and counts it, if the fast path is open and has
    /// one.
    #[inline(always)]
    pub(super) fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        if self.closed.load(Ordering::Relaxed) == 0 { self.take_from_engine(request) } else { None }
    }

    /// [`CellHead::take_cached`] for a request that passes no gate.
    #[inline(always)]
    pub(super) fn take_cached_ungated(&self, request: &Request) -> Option<RawBlock> {
        if self.closed.load(Ordering::Relaxed) & SLOW == 0 { self.take_from_engine(request) } else { None }
    }

    /// Allocates a block from the calling thread's cache in an engine that counts its blocks.
    #[inline(always)]
    fn take_from_engine(&self, request: &Request) -> Option<RawBlock> {
        match &self.counts {
            // SAFETY: the address is that of the cell's engine, which lives as long as `self`.
            Counts::Engine(engine) => unsafe { (engine.take_cached)(self.allocator.cast(), request) },
            Counts::Handle(_) => None,
        }
    }

    /// Caches a freed block for the calling thread, if the fast path is open for it. Returns the block if
    /// not.
    ///
    /// # Safety
    ///
    /// As for [`CountingEngine::give_cached`](super::CountingEngine::give_cached). After `None` the cell may
    /// be destroyed.
    #[inline(always)]
    pub(super) unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // SAFETY: the block is not counted out yet (guaranteed by the caller).
        let head = unsafe { this.as_ref() };
        if head.closed.load(Ordering::Relaxed) & SLOW != 0 {
            return Some(block);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Self::give_to_engine(this, block) }
    }

    /// Caches a freed block for the calling thread in an engine that counts its blocks. Returns the block if
    /// it does not.
    ///
    /// # Safety
    ///
    /// As for [`CellHead::give_cached`].
    #[inline(always)]
    pub(super) unsafe fn give_to_engine(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // SAFETY: the block is not counted out yet (guaranteed by the caller).
        let head = unsafe { this.as_ref() };
        match &head.counts {
            // SAFETY: the address is that of the cell's engine; the rest is guaranteed by the caller.
            Counts::Engine(engine) => unsafe { (engine.give_cached)(head.allocator.cast(), block) },
            Counts::Handle(_) => Some(block),
        }
    }
}

impl<A: ?Sized + Allocator> AllocatorCell<A> {
    /// Returns the counters: the cell's, or the engine's own.
    pub(super) fn counter(&self) -> &dyn BlockCounter {
        match &self.head.counts {
            Counts::Handle(counters) => counters,
            Counts::Engine(engine) => {
                // SAFETY: the address is that of the cell's engine, which lives as long as `self`.
                let counter = unsafe { (engine.counter)(self.head.allocator.cast()) };
                // SAFETY: the engine's counter, borrowed from it.
                unsafe { counter.as_ref() }
            }
        }
    }

    /// Returns the totals of the counters, or of the allocator that this one stands for.
    pub(super) fn totals(&self) -> Totals {
        match &self.stands_for {
            Some(upstream) => upstream.cell().totals(),
            None => self.counter().totals(),
        }
    }

    /// Returns the statistics of the counters and of the engine.
    pub(super) fn stats(&self) -> Stats {
        let totals = self.totals();
        let pinned = &totals.kinds[MemoryKind::HostPinned.index()];
        Stats {
            has_unpinned: pinned.allocations > 0 && !self.allocator.semantics().pinned,
            totals,
            usage: self.allocator.usage(),
            refused_frees: self.refused_frees.load(Ordering::Relaxed),
        }
    }

    /// Allocates a block and counts it.
    #[inline(always)]
    pub(super) fn take(&self, request: &Request) -> Result<RawBlock> {
        if self.head.completes && request.align.is_unspecified() {
            return self.take_complete(&request.align(Alignment::PLANNED));
        }
        self.take_complete(request)
    }

    /// [`take`](Self::take), of a request with the alignment that it needs on this device.
    #[inline(always)]
    fn take_complete(&self, request: &Request) -> Result<RawBlock> {
        if !self.watches.is_empty()
            && let Some(raw) = self.head.take_from_engine(request)
        {
            self.notify_allocated(&raw);
            return Ok(raw);
        }
        // The head has the address of an allocator whose type is erased; here it would be computed.
        let is_erased = size_of::<*const A>() > size_of::<*const ()>();
        let allocated = if is_erased {
            self.head.allocator().allocate(request)
        } else {
            self.allocator.allocate(request)
        };
        match allocated {
            Ok(raw) => {
                if let Counts::Handle(counters) = &self.head.counts {
                    counters.count_in(raw.kind, raw.granted, raw.requested);
                }
                if !self.watches.is_empty() {
                    self.notify_allocated(&raw);
                }
                Ok(raw)
            }
            Err(error) => Err(self.fail(request, error)),
        }
    }

    /// Grows a block in place and counts that. Returns `false` if it cannot grow.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::grow_in_place`].
    pub(super) unsafe fn grow_in_place(&self, raw: &mut RawBlock, bytes: usize) -> bool {
        let (granted, requested) = (raw.granted, raw.requested);
        // SAFETY: guaranteed by the caller.
        if !unsafe { self.allocator.grow_in_place(raw, bytes) } {
            return false;
        }
        if let Counts::Handle(counters) = &self.head.counts {
            let (more, more_requested) =
                (raw.granted.saturating_sub(granted), raw.requested.saturating_sub(requested));
            counters.count_growth(raw.kind, more, more_requested, raw.granted);
        }
        if let Some(watches) = self.watches.cloned() {
            watches.deliver();
            let allocator = watches.allocator();
            watches.observe_block(&Event::Grown { block: raw, requested, granted, allocator });
        }
        true
    }

    #[cold]
    pub(super) fn empty(&self, request: &Request) -> Result<Block> {
        request.kind.check_on(self.allocator.device())?;
        let device = self.allocator.device();
        Ok(Block::new(RawBlock::empty(&request.align(request.align.on(device)), device)))
    }

    /// Frees a block and counts that. After [`OwnerState::Unused`] the caller destroys the cell. A refusal is
    /// counted and stored in `refused`, and reported to the observers.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[inline(always)]
    pub(super) unsafe fn give(this: NonNull<Self>, raw: RawBlock, refused: &mut Option<Error>) -> OwnerState {
        // SAFETY: the block is not counted out yet (guaranteed by the caller).
        let cell = unsafe { this.as_ref() };
        if cell.watches.is_empty() {
            // SAFETY: guaranteed by the caller.
            return unsafe { Self::give_unobserved(this, raw, refused) };
        }
        cell.notify_freed(&raw);
        // SAFETY: guaranteed by the caller.
        unsafe { Self::give_observed(this, raw, refused) }
    }

    /// # Safety
    ///
    /// As for [`Allocator::deallocate`].
    #[inline(always)]
    pub(super) unsafe fn give_unobserved(
        this: NonNull<Self>,
        raw: RawBlock,
        refused: &mut Option<Error>,
    ) -> OwnerState {
        // SAFETY: the block is not counted out yet (guaranteed by the caller).
        let cell = unsafe { this.as_ref() };
        let counters = match &cell.head.counts {
            Counts::Handle(counters) => counters,
            Counts::Engine(engine) => {
                // SAFETY: the address is that of the cell's engine; the rest is guaranteed by the caller.
                let freed = unsafe { (engine.deallocate_counted)(cell.head.allocator.cast(), raw) };
                // A closure would borrow the cell here, whatever the result is.
                return match freed {
                    Ok(state) => state,
                    // The block is still counted, so the cell exists.
                    Err(error) => {
                        *refused = Some(cell.refuse(error));
                        OwnerState::InUse
                    }
                };
            }
        };
        let (kind, granted, requested) = (raw.kind, raw.granted, raw.requested);
        // SAFETY: guaranteed by the caller.
        if let Err(error) = unsafe { cell.head.allocator().deallocate(raw) } {
            // The block stays counted: a leak is safe, while counting a block out twice would destroy the
            // engine too early.
            *refused = Some(cell.refuse(error));
            return OwnerState::InUse;
        }
        // SAFETY: the block was counted in, and leaves with this call.
        unsafe { ShardedCounters::count_out(NonNull::from(counters), kind, granted, requested) }
    }

    /// Closes the counters. After [`OwnerState::Unused`] the caller destroys the cell.
    ///
    /// # Safety
    ///
    /// The caller dropped the last handle, and this is called once.
    pub(super) unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: the counters are not closed yet, so no caller got `Unused`.
        let cell = unsafe { this.as_ref() };
        match &cell.head.counts {
            // SAFETY: guaranteed by the caller.
            Counts::Handle(counters) => unsafe { ShardedCounters::close(NonNull::from(counters)) },
            // SAFETY: the address is that of the cell's engine; the rest is guaranteed by the caller.
            Counts::Engine(engine) => unsafe { (engine.close)(cell.head.allocator.cast()) },
        }
    }

    #[cold]
    pub(super) fn refuse(&self, error: Error) -> Error {
        self.refused_frees.fetch_add(1, Ordering::Relaxed);
        report(|| tracing::error!(allocator = self.allocator.name(), %error, "free refused"));
        error
    }
}

/// # Safety
///
/// The caller got [`OwnerState::Unused`] from this cell's counters.
#[cold]
pub(super) unsafe fn destroy<A: ?Sized>(cell: NonNull<AllocatorCell<A>>) {
    // SAFETY: the cell exists, and only weak handles access it.
    let target = unsafe { cell.as_ref() }.link.target();
    if target.is_none_or(|target| target.cut()) {
        // SAFETY: guaranteed by the caller, and no weak handle leads to the cell.
        unsafe { free(cell) };
    }
}

/// # Safety
///
/// As for [`destroy`]; and weak handles access the cell no more.
pub(super) unsafe fn free<A: ?Sized>(cell: NonNull<AllocatorCell<A>>) {
    // SAFETY: the cell came from a `Box`, and there is no handle, no block and no other `Unused` result for
    // it.
    let cell = unsafe { Box::from_raw(cell.as_ptr()) };
    let watches = cell.watches.cloned();
    drop(cell);
    if let Some(watches) = watches {
        // An engine that is destroyed gives everything back; one that has other handles lives on.
        watches.end();
    }
}
