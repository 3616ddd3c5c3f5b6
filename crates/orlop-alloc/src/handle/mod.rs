//! The handle to an allocator, and the cell that keeps the allocator alive exactly as long as it is needed.
//!
//! # Why not `Arc`
//!
//! A block must be able to return to its allocator after the last handle is gone. With an `Arc` in every
//! block, all threads would change one reference count at every allocation. Here only *handles* are counted
//! that way, and they are cloned rarely. Blocks hold a plain pointer to the cell. The cell's
//! [`ShardedCounters`] count blocks per thread slot anyway; once the last handle is gone, they tell which
//! block was the last, and its thread destroys the cell.
//!
//! A handle can also be created from a block ([`MemoryBlock::allocator`](crate::MemoryBlock::allocator)), as
//! long as there is another handle.
//!
//! The cell, and the rules of access to it, are in `cell`; what it reports to observers is in `observed`.

mod as_allocator;
mod cell;
mod counting;
mod external;
mod for_contexts;
mod from_block;
#[cfg(all(test, not(loom)))]
mod lifetime_tests;
mod observed;
mod weak;

pub(crate) use self::cell::CellHead;
pub use self::counting::{Counting, CountingEngine};
pub(crate) use self::counting::{counted_by, counts_itself};
pub use self::external::ExternalAccount;
pub use self::for_contexts::ContextHandle;
pub(crate) use self::from_block::{destroy_owner, grow_block, handle_of, return_block};
pub use self::weak::WeakAllocator;

use self::cell::{AllocatorCell, Counts, SLOW, destroy};
use self::counting::CountingFns;
use self::observed::notify_allocated;
use self::weak::WeakLink;
use crate::Block;
use crate::block::Owner;
use crate::observer::{RegionDelivery, RegionWatch, SharedObserver};
use crate::{Allocator, Observer, RawBlock, Request, Result, Stats};
use orlop_sync::{Handles, OwnerState, ShardedCounters, SwapCell};
use std::fmt;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// A counted handle to an allocator. Cloning changes one reference count; blocks change none.
pub struct AllocatorRef<A: ?Sized + Allocator = dyn Allocator> {
    /// Invariant: it points to an `AllocatorCell` from a leaked `Box`, whose `handles` counts this handle.
    cell: NonNull<AllocatorCell<A>>,
}

impl<A: Allocator + 'static> AllocatorRef<A> {
    /// Puts `allocator` behind a handle, with statistics.
    #[must_use]
    pub fn new(allocator: A) -> Self {
        Self::with_statistics(allocator, true)
    }

    /// Puts `allocator` behind a handle. With `counted: false` its statistics omit bytes and peaks. Blocks
    /// are still counted, because the allocator must outlive them, and [`Stats::usage`] still has the
    /// reserved bytes.
    ///
    /// The budgets of a context apply to it where it is registered. Where it is only passed for requests, its
    /// live blocks do not count against them: see `Context::allocate_from` of `orlop-context`.
    #[must_use]
    pub fn with_statistics(mut allocator: A, counted: bool) -> Self {
        allocator.set_statistics(counted);
        let counts = match CountingFns::of_allocator::<A>() {
            Some(engine) => Counts::Engine(engine),
            None => Counts::Handle(ShardedCounters::new(counted)),
        };
        Self::in_cell(allocator, counts, None)
    }

    /// Puts an adaptor over `upstream` behind a handle that stands in its place: its statistics have the
    /// totals of `upstream`, so that no block is counted twice.
    #[must_use]
    pub fn standing_for(adaptor: A, upstream: AllocatorRef) -> Self {
        Self::in_cell(adaptor, Counts::Handle(ShardedCounters::new(false)), Some(upstream))
    }

    fn in_cell(allocator: A, counts: Counts, stands_for: Option<AllocatorRef>) -> Self {
        let completes = !allocator.device().is_cpu() && !allocator.semantics().completes_alignment;
        let cell = NonNull::from(Box::leak(Box::<AllocatorCell<A>>::new_uninit())).cast::<AllocatorCell<A>>();
        // SAFETY: the field is inside the cell's memory.
        let place = unsafe { cell.cast::<u8>().add(offset_of!(AllocatorCell<A>, allocator)) }.cast::<A>();
        let contents = AllocatorCell {
            head: CellHead {
                closed: AtomicU8::new(if completes { SLOW } else { 0 }),
                completes,
                counts,
                allocator: place,
                cell,
            },
            handles: Handles::new(),
            stands_for,
            refused_frees: AtomicU64::new(0),
            watches: SwapCell::default(),
            link: WeakLink::default(),
            allocator,
        };
        // SAFETY: the memory was just allocated for the cell, and no other pointer to it is used.
        unsafe { cell.write(contents) };
        let erased = ManuallyDrop::new(Self { cell }.erase());
        erased.cell().allocator.on_shared(&erased);
        Self { cell }
    }

    /// Erases the type of the allocator.
    #[must_use]
    pub fn erase(self) -> AllocatorRef {
        let cell: NonNull<AllocatorCell<dyn Allocator>> = self.cell;
        // The count moves along with the pointer.
        std::mem::forget(self);
        AllocatorRef { cell }
    }
}

impl<A: Allocator + 'static> From<AllocatorRef<A>> for AllocatorRef {
    fn from(handle: AllocatorRef<A>) -> Self {
        handle.erase()
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    pub(crate) fn owner(&self) -> Owner {
        self.cell.cast()
    }

    /// Allocates a block; it returns to this allocator when dropped.
    ///
    /// A request for zero bytes costs nothing and returns an empty block, which still has its device and
    /// kind.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) with a report,
    /// [`Error::InvalidRequest`](crate::Error::InvalidRequest) for a kind that the device cannot have.
    #[inline]
    pub fn allocate(&self, request: &Request) -> Result<Block> {
        match self.allocate_cached(request) {
            Some(block) => Ok(block),
            None => self.allocate_slow(request),
        }
    }

    /// Allocates a block only if the calling thread has one cached: no lock, no growth, no error.
    /// [`AllocatorRef::allocate`] tries this first.
    #[inline]
    pub fn allocate_cached(&self, request: &Request) -> Option<Block> {
        let mut raw = self.head().take_cached(request)?;
        raw.set_owner(self.owner());
        Some(Block::new(raw))
    }

    #[inline(never)]
    fn allocate_slow(&self, request: &Request) -> Result<Block> {
        match self.gate() {
            // A gate's own gate is passed: gates may form a circle.
            Some(gate) => gate.allocate_ungated(request),
            None => self.allocate_ungated_slow(request),
        }
    }

    #[inline(never)]
    fn allocate_ungated_slow(&self, request: &Request) -> Result<Block> {
        let cell = self.cell();
        if request.bytes == 0 && !cell.allocator.has_opaque_handles() {
            return cell.empty(request);
        }
        let mut raw = cell.take(request)?;
        raw.set_owner(self.owner());
        Ok(Block::new(raw))
    }

    /// Adopts a block from elsewhere that the engine has counted: it returns to this allocator.
    fn adopt_raw(&self, mut raw: RawBlock) -> Block {
        let cell = self.cell();
        raw.set_owner(self.owner());
        let block = Block::new(raw);
        if let Some(watches) = cell.watches.cloned() {
            notify_allocated(&watches, block.raw());
        }
        block
    }

    #[inline(always)]
    fn head(&self) -> &CellHead {
        // SAFETY: the cell begins with its head (`repr(C)`), and lives while this handle does (rule 1 of
        // `cell`).
        unsafe { self.cell.cast::<CellHead>().as_ref() }
    }

    #[inline]
    fn cell(&self) -> &AllocatorCell<A> {
        // SAFETY: by the invariant this handle is counted, so the cell lives (rule 1 of `cell`).
        unsafe { self.cell.as_ref() }
    }

    /// Returns the statistics of the handle and of the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cell().stats()
    }

    /// Restarts the peaks of live and reserved bytes from their current values.
    pub fn reset_peaks(&self) {
        self.cell().counter().reset_peaks();
        self.cell().allocator.reset_peak();
    }

    /// Adds an observer: it receives every allocation and free from now on, and region events, for existing
    /// regions at once. Adding it again changes nothing.
    ///
    /// The region events are delivered when the result is dropped. Drop it with no lock held that the
    /// observer may take.
    ///
    /// Regions that are themselves blocks, as those of [`Direct`](crate::engine::Direct),
    /// [`Pool`](crate::engine::Pool) and [`Pow2`](crate::engine::Pow2) are, are not reported for blocks that
    /// exist already: those engines keep no list of them.
    pub fn add_observer(&self, observer: Arc<dyn Observer>) -> RegionDelivery {
        self.add_shared_observer(&SharedObserver::new(observer))
    }

    /// Removes an observer, which receives the recorded region events when the result is dropped: see
    /// [`AllocatorRef::add_observer`]. Another thread that is inside a call may still report that.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) -> RegionDelivery {
        let (mut removed, mut former) = (None, Vec::new());
        self.cell().change_watches(&mut former, |now| {
            removed = Some(Arc::clone(&now?.find(observer)?.regions));
            let others = now?.watches().iter().filter(|watch| !Arc::ptr_eq(&watch.observer, observer));
            Some(others.cloned().collect())
        });
        removed.iter().for_each(|watch: &Arc<RegionWatch>| watch.end());
        RegionDelivery::of(removed.into_iter().collect(), former)
    }

    /// Returns `true` if the observer was added and not removed.
    #[must_use]
    pub fn has_observer(&self, observer: &Arc<dyn Observer>) -> bool {
        self.cell().watches.with(|watches| watches.find(observer).is_some()).unwrap_or(false)
    }

    /// Returns the observers, in the order in which they were added.
    #[must_use]
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.shared_observers().iter().map(|observer| Arc::clone(observer)).collect()
    }

    /// Frees a block by its address, from [`Block::into_raw_ptr`]. `requested` is its requested size, if the
    /// caller knows that.
    ///
    /// # Errors
    ///
    /// [`NoRawDeleter`](crate::Error::NoRawDeleter) if the engine cannot do that;
    /// [`ForeignPointer`](crate::Error::ForeignPointer), [`DoubleFree`](crate::Error::DoubleFree).
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate_raw`].
    pub unsafe fn free(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.deallocate_raw(ptr, requested) }.map(|_| ())
    }

    /// Returns `true` if this is the only handle. There may still be blocks.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.cell().handles.only()
    }

    /// Returns `true` if both handles are of the same allocator.
    #[must_use]
    pub fn same_as<B: ?Sized + Allocator>(&self, other: &AllocatorRef<B>) -> bool {
        self.cell.cast::<()>() == other.cell.cast::<()>()
    }
}

impl<A: ?Sized + Allocator> Clone for AllocatorRef<A> {
    fn clone(&self) -> Self {
        self.cell().handles.join();
        Self { cell: self.cell }
    }
}

impl<A: ?Sized + Allocator> Drop for AllocatorRef<A> {
    fn drop(&mut self) {
        let cell = self.cell();
        if !cell.handles.leave() {
            return;
        }
        // Blocks may outlive the handles; cached memory is given back now.
        cell.allocator.trim(0);
        cell.deliver_regions();
        // SAFETY: this was the last handle, and it is closed once.
        if unsafe { AllocatorCell::close(self.cell) } == OwnerState::Unused {
            // SAFETY: `Unused` was returned, which happens once.
            unsafe { destroy(self.cell) };
        }
    }
}

impl<A: ?Sized + Allocator> Deref for AllocatorRef<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.cell().allocator
    }
}

impl<A: ?Sized + Allocator> fmt::Debug for AllocatorRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocatorRef").field(&&self.cell().allocator).finish()
    }
}

// SAFETY: a handle gives shared access to an allocator, which is `Send + Sync` by its trait; the counts are
// atomic, and the thread that destroys the cell has exclusive access (rule 3 of `cell`), whichever thread
// that is.
unsafe impl<A: ?Sized + Allocator> Send for AllocatorRef<A> {}
// SAFETY: as above.
unsafe impl<A: ?Sized + Allocator> Sync for AllocatorRef<A> {}
