//! The handle users hold, and the cell that keeps an allocator alive exactly as long as it is needed.
//!
//! # Why not `Arc`
//!
//! A block must be able to return to its allocator after the last user handle is gone. With an `Arc` in
//! every block, all threads would bump one reference count at every allocation. Here only *handles* are
//! counted that way, and they are cloned rarely. Blocks hold a bare pointer to the cell; the cell's
//! [`ShardedCounters`], which counts blocks per thread slot anyhow, says who was the last to leave after the last
//! handle went, and that one frees the cell.
//!
//! A handle can be made from a block too ([`MemoryBlock::allocator`](crate::MemoryBlock::allocator)), as long as there is
//! one.
//!
//! The cell, and who may touch it, is in `cell`.

mod cell;
#[cfg(all(test, not(loom)))]
mod lifetime_tests;
mod weak;

pub(crate) use self::cell::{Head, destroy_owner, grow_block, handle_of, return_block};
pub(crate) use self::weak::WeakAllocator;

use self::cell::{Exits, Shared, destroy, tell_taken};
use self::weak::Link;
use crate::Block;
use crate::block::Owner;
use crate::observer::{Event, RegionWatch, is_same, tell};
use crate::{
    Allocator, DeviceMemory, LookupResult, Observer, OutOfMemory, RawBlock, Request, Result, Semantics,
    Stats, TagUse, Usage,
};
use orlop_core::Device;
use orlop_sync::{Handles, OwnerState, ShardedCounters, SwapCell, thread_slot};
use std::fmt;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A counted handle to an allocator. Cloning costs one reference count; blocks cost none.
pub struct AllocatorRef<A: ?Sized + Allocator = dyn Allocator> {
    /// Invariant: points to a `Shared` from `Box::into_raw`, whose `handles` counts this handle.
    shared: NonNull<Shared<A>>,
}

impl<A: Allocator + 'static> AllocatorRef<A> {
    /// Puts `allocator` behind a handle, statistics on.
    #[must_use]
    pub fn new(allocator: A) -> Self {
        Self::with_statistics(allocator, true)
    }

    /// Puts `allocator` behind a handle. With `counted: false` its statistics leave bytes and peaks out: blocks are still
    /// counted, because the allocator must outlive them, and [`Stats::usage`] still says what is reserved.
    ///
    /// Budgets of a context hold for it where it is registered. Where it is only passed for requests, nothing of what lives
    /// counts against them: see [`Context::allocate_from`](crate::Context::allocate_from).
    #[must_use]
    pub fn with_statistics(mut allocator: A, counted: bool) -> Self {
        allocator.set_statistics(counted);
        let counters = allocator.counter().is_none().then(|| ShardedCounters::new(counted));
        let shared = NonNull::from(Box::leak(Box::<Shared<A>>::new_uninit())).cast::<Shared<A>>();
        // SAFETY: inside the cell's memory.
        let place = unsafe { shared.cast::<u8>().add(offset_of!(Shared<A>, allocator)) }.cast::<A>();
        let cell = Shared {
            head: Head {
                quick: AtomicBool::new(counters.is_none()),
                exits: Exits::of::<A>(),
                allocator: place,
                shared,
            },
            handles: Handles::new(),
            counters,
            refused_frees: AtomicU64::new(0),
            watch: SwapCell::default(),
            link: Link::default(),
            allocator,
        };
        // SAFETY: just allocated for it, and nobody else knows it.
        unsafe { shared.write(cell) };
        Self { shared }
    }

    /// The same handle with the type forgotten.
    #[must_use]
    pub fn erase(self) -> AllocatorRef {
        let shared: NonNull<Shared<dyn Allocator>> = self.shared;
        // The count moves along with the pointer.
        std::mem::forget(self);
        AllocatorRef { shared }
    }
}

impl<A: Allocator + 'static> From<AllocatorRef<A>> for AllocatorRef {
    fn from(handle: AllocatorRef<A>) -> Self {
        handle.erase()
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    pub(crate) fn owner(&self) -> Owner {
        self.shared.cast()
    }

    /// Gets a block; it returns to this allocator when dropped.
    ///
    /// A request for zero bytes costs nothing and gives an empty block that still knows its device and kind.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) with the whole story, [`Error::InvalidRequest`](crate::Error::InvalidRequest) for a kind that cannot be on the device.
    #[inline]
    pub fn allocate(&self, request: &Request) -> Result<Block> {
        match self.allocate_cached(request) {
            Some(block) => Ok(block),
            None => self.allocate_slowly(request),
        }
    }

    /// Gets a block only if the calling thread has one cached: no lock, no growth, no error to be handed on.
    /// [`AllocatorRef::allocate`] asks this first, and goes on where it has none.
    #[inline]
    pub fn allocate_cached(&self, request: &Request) -> Option<Block> {
        let mut raw = self.head().take_cached(request)?;
        raw.set_owner(self.owner());
        Some(Block::new(raw))
    }

    #[inline(never)]
    fn allocate_slowly(&self, request: &Request) -> Result<Block> {
        let shared = self.shared();
        if request.bytes == 0 && !shared.allocator.has_opaque_handles() {
            return shared.empty(request);
        }
        let mut raw = shared.take(request)?;
        raw.set_owner(self.owner());
        Ok(Block::new(raw))
    }

    /// Takes in a block from elsewhere, which the engine has counted: it returns to this allocator.
    pub(crate) fn take_in(&self, mut raw: RawBlock) -> Block {
        let shared = self.shared();
        raw.set_owner(self.owner());
        let block = Block::new(raw);
        if let Some(watch) = shared.watch.get() {
            tell_taken(&watch, block.raw());
        }
        block
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: the cell begins with its head (`repr(C)`), and lives while this handle does (rule 1 at the head of
        // this file).
        unsafe { self.shared.cast::<Head>().as_ref() }
    }

    #[inline]
    fn shared(&self) -> &Shared<A> {
        // SAFETY: by the invariant this handle is counted, so the cell lives (rule 1 at the head).
        unsafe { self.shared.as_ref() }
    }

    /// What happened so far: the ledger's figures and the engine's.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// Peaks, live and reserved, start again from now.
    pub fn reset_peaks(&self) {
        if let Some(counter) = self.shared().counter() {
            counter.reset_peaks();
        }
        self.shared().allocator.reset_peak();
    }

    /// Who is told, if anybody.
    #[must_use]
    pub fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.shared().watch.cloned().map(|watch| Arc::clone(watch.observer()))
    }

    /// Tells `observer` of every allocation and free from now on, and of regions: of those that are there at once. `None`
    /// stops that.
    ///
    /// Regions that are blocks themselves, as those of [`Direct`](crate::engine::Direct), [`Pool`](crate::engine::Pool) and
    /// [`Pow2`](crate::engine::Pow2) are, are not known before: nobody keeps a list of them.
    pub fn set_observer(&self, observer: Option<Arc<dyn Observer>>) {
        tell(&self.put_observer(observer));
    }

    /// Sets an observer. Who it was and who it is are to be told of regions then, with no lock held.
    pub(crate) fn put_observer(&self, observer: Option<Arc<dyn Observer>>) -> Vec<Arc<RegionWatch>> {
        self.put_observer_if(observer, |_| true)
    }

    /// Sets an observer where there is none.
    pub(crate) fn put_first_observer(&self, observer: Arc<dyn Observer>) -> Vec<Arc<RegionWatch>> {
        self.put_observer_if(Some(observer), |now| now.is_none())
    }

    /// Sets an observer in the place of this one, if it is the one.
    pub(crate) fn put_in_place_of(
        &self,
        ours: &Arc<dyn Observer>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Vec<Arc<RegionWatch>> {
        self.put_observer_if(observer, |now| now.is_some_and(|now| is_same(now.observer(), ours)))
    }

    fn put_observer_if(
        &self,
        observer: Option<Arc<dyn Observer>>,
        is_so: impl Fn(Option<&Arc<RegionWatch>>) -> bool,
    ) -> Vec<Arc<RegionWatch>> {
        let shared = self.shared();
        // Asked before: who is not set is told nothing, and the engine notes nothing for it.
        if !is_so(shared.watch.get().as_deref()) {
            return Vec::new();
        }
        let watch = observer.map(|observer| Arc::new(RegionWatch::new(observer, shared.allocator.name())));
        if let Some(watch) = &watch {
            shared.allocator.watch_regions(watch);
        }
        let is_quick = watch.is_none() && shared.counters.is_none();
        let before = shared.watch.set_if(watch.clone(), |now| {
            let is_so = is_so(now);
            if is_so {
                // Relaxed: a thread that allocates meanwhile may be seen or not, as it happens.
                shared.head.quick.store(is_quick, Ordering::Relaxed);
            }
            is_so
        });
        match before {
            Ok(ended) => {
                ended.iter().for_each(|ended| ended.end());
                ended.into_iter().chain(watch).collect()
            }
            Err(refused) => {
                refused.iter().for_each(|refused| refused.end());
                Vec::new()
            }
        }
    }

    /// Frees a block by its bare address, from [`Block::into_raw_ptr`] (P4). The requested size may be told.
    ///
    /// # Errors
    ///
    /// [`NoRawDeleter`](crate::Error::NoRawDeleter) where the engine cannot;
    /// [`ForeignPointer`](crate::Error::ForeignPointer), [`DoubleFree`](crate::Error::DoubleFree).
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate_raw`].
    pub unsafe fn free(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<()> {
        // SAFETY: the caller's promise is the callee's.
        unsafe { self.deallocate_raw(ptr, requested) }.map(|_| ())
    }

    /// Whether this is the only handle (T1). Blocks may live all the same.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.shared().handles.only()
    }

    /// Whether two handles lead to the same allocator.
    #[must_use]
    pub fn same_as<B: ?Sized + Allocator>(&self, other: &AllocatorRef<B>) -> bool {
        self.shared.cast::<()>() == other.shared.cast::<()>()
    }
}

// SAFETY: an `AllocatorRef` called as an allocator does what the engine behind it does, and counts it. The
// engine's promises hold while the engine lives, and it lives at least as long as this handle.
unsafe impl<A: ?Sized + Allocator> Allocator for AllocatorRef<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        match self.head().take_cached(request) {
            Some(raw) => Ok(raw),
            None => self.shared().take(request),
        }
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let mut refused = None;
        // SAFETY: the caller's promises.
        let Some(block) = (unsafe { Head::give_cached(self.shared.cast(), block) }) else { return Ok(()) };
        // SAFETY: the caller's promises.
        let state = unsafe { Shared::give(self.shared, block, &mut refused) };
        // A handle is held, so the ledger is open.
        debug_assert_eq!(state, OwnerState::InUse);
        refused.map_or(Ok(()), Err)
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.shared().grow_in_place(block, bytes) }
    }

    fn device(&self) -> Device {
        self.shared().allocator.device()
    }

    fn name(&self) -> &str {
        self.shared().allocator.name()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.shared().allocator.device_memory()
    }

    fn usage(&self) -> Usage {
        self.shared().allocator.usage()
    }

    fn reset_peak(&self) {
        self.shared().allocator.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        self.shared().allocator.semantics()
    }

    fn trim(&self, target: u64) -> u64 {
        let bytes = self.shared().allocator.trim(target);
        self.shared().tell_regions();
        bytes
    }

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.shared().allocator.find(address)
    }

    fn has_tracked_sizes(&self) -> bool {
        self.shared().allocator.has_tracked_sizes()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.shared().allocator.allocated_size_slow(ptr) }
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        let shared = self.shared();
        // SAFETY: the caller's promises.
        match unsafe { shared.allocator.deallocate_raw(ptr, requested) } {
            Ok(found) => {
                if let Some(watch) = shared.watch.get() {
                    let (address, allocator) = (ptr.as_ptr().addr(), shared.allocator.name());
                    watch.observe(&Event::RawFreed { address, found: &found, allocator });
                    watch.tell();
                }
                if let Some(counters) = &shared.counters {
                    let slot = thread_slot::current();
                    let state = counters.enter(slot).count_out(found.kind, found.granted, found.requested);
                    // A handle is held, so the ledger is open.
                    debug_assert_eq!(state, OwnerState::InUse);
                }
                Ok(found)
            }
            Err(error) => Err(shared.refuse(error)),
        }
    }

    fn has_raw_deleter(&self) -> bool {
        self.shared().allocator.has_raw_deleter()
    }

    fn has_opaque_handles(&self) -> bool {
        self.shared().allocator.has_opaque_handles()
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.shared().allocator.set_safe_frontier(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.shared().allocator.describe(report);
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        self.shared().allocator.tag_uses()
    }

    fn is_over(&self, other: &AllocatorRef) -> bool {
        self.same_as(other) || self.shared().allocator.is_over(other)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.shared().allocator.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.shared().allocator.verify()
    }
}

impl<A: ?Sized + Allocator> Clone for AllocatorRef<A> {
    fn clone(&self) -> Self {
        self.shared().handles.join();
        Self { shared: self.shared }
    }
}

impl<A: ?Sized + Allocator> Drop for AllocatorRef<A> {
    fn drop(&mut self) {
        let shared = self.shared();
        if !shared.handles.leave() {
            return;
        }
        // Blocks may live on; what is merely cached goes back now (T21).
        shared.allocator.trim(0);
        shared.tell_regions();
        // SAFETY: this was the last handle, and it goes once.
        if unsafe { Shared::close(self.shared) } == OwnerState::Unused {
            // SAFETY: told `Unused`, once.
            unsafe { destroy(self.shared) };
        }
    }
}

impl<A: ?Sized + Allocator> Deref for AllocatorRef<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.shared().allocator
    }
}

impl<A: ?Sized + Allocator> fmt::Debug for AllocatorRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocatorRef").field(&&self.shared().allocator).finish()
    }
}

// SAFETY: a handle gives shared access to an allocator, which is `Send + Sync` by its trait; the counts are
// atomic, and whoever destroys the cell has exclusive access (rule 3), from whichever thread.
unsafe impl<A: ?Sized + Allocator> Send for AllocatorRef<A> {}
// SAFETY: as above.
unsafe impl<A: ?Sized + Allocator> Sync for AllocatorRef<A> {}
