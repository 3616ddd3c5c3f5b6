//! The trait every engine and adaptor implements.

use crate::{AllocatorRef, DeviceMemory, Error, OutOfMemory, RawBlock, RegionWatch, Request, Result};
use orlop_core::{Device, MemoryKind};
use orlop_sync::{BlockCounter, OwnerState};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// What an allocator's blocks are like beyond their bytes: when a returned one may be used again, what the caller must
/// arrange, and whether devices can read them by DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Semantics {
    /// True if a block that comes back is reused only after the streams that used it are done. False: it is
    /// reused at once, right for memory that only the host touches; recording a stream on such a block is an error
    /// ([`Block::record_stream`](crate::Block::record_stream)).
    pub stream_ordered: bool,
    /// True if the pages of every block are locked for DMA. False for other memory, and for an allocator of pinned memory
    /// in a process where nobody can pin: its blocks are plain host memory, and copies from them are slower. See
    /// [`Pinned`](crate::backing::Pinned).
    pub pinned: bool,
}

/// What an engine holds from its backing, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Held now.
    pub reserved: u64,
    /// The most that was held since the last reset.
    pub peak_reserved: u64,
    /// Regions held now.
    pub regions: u64,
    /// Returned blocks that wait for a stream.
    pub deferred: u64,
    /// The engine's own records about the memory.
    pub metadata: u64,
}

/// What an engine knows of a live address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupResult {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes granted.
    pub granted: usize,
    /// Which allocation it is.
    pub id: crate::AllocationId,
    /// What it is for.
    pub kind: MemoryKind,
}

/// Live bytes of one kind under one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagUse {
    /// What they are for.
    pub kind: MemoryKind,
    /// Who asked.
    pub tag: crate::Tag,
    /// Bytes, as granted.
    pub bytes: u64,
}

/// Hands out blocks and takes them back.
///
/// Users hold an [`AllocatorRef`](crate::AllocatorRef) and see [`Block`](crate::Block)s; this is the
/// interface below it, where a block is a [`RawBlock`] and adaptors can stand between.
///
/// # Safety
///
/// An implementation promises that, for every block from `allocate`:
///
/// 1. `granted >= requested`, `ptr` is a multiple of `align`, and until the block comes back no other live
///    block overlaps `ptr .. ptr + granted`;
/// 2. with [`Access::Host`](crate::Access::Host) those bytes are valid for reads and writes and are
///    initialised;
/// 3. if the request said `zeroed`, the bytes asked for read as zero;
/// 4. it may come back from any thread;
/// 5. this holds as long as `self` lives, wherever `self` is moved meanwhile;
/// 6. `counter` is always `Some` or always `None`; if `Some`, every block handed out is entered and every block
///    returned by `deallocate_counted` leaves, in that one ledger, which `close` closes.
pub unsafe trait Allocator: Debug + Send + Sync + 'static {
    /// Gets a block. `request.bytes` is not zero, except with [`Allocator::opaque_handles`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with the story; others as the engine says. After an error all invariants hold
    /// and the allocator works.
    fn allocate(&self, request: &Request) -> Result<RawBlock>;

    /// Takes a block back.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignPointer`] and [`Error::DoubleFree`] where the engine can tell; nothing has changed.
    ///
    /// # Safety
    ///
    /// 1. `block` came from `allocate` of this allocator and has not come back before;
    /// 2. nobody on the host uses its bytes any more; streams in `block.uses` may.
    unsafe fn deallocate(&self, block: RawBlock) -> Result<()>;

    /// Makes a block larger without moving it, so that its `requested` bytes are `bytes`, which are more than it was asked
    /// for; whether that could be. The bytes beyond are as those of a new block. If not, nothing has changed. An engine with
    /// a [`Allocator::counter`] counts there what is more.
    ///
    /// # Safety
    ///
    /// `block` came from `allocate` of this allocator and has not come back.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let _ = (block, bytes);
        false
    }

    /// Where the memory is.
    fn device(&self) -> Device;

    /// The engine's own ledger, if it counts blocks itself. A handle then does not count a second time: it
    /// returns blocks by [`Allocator::deallocate_counted`] and lets [`Allocator::close`] say when the engine may go.
    fn counter(&self) -> Option<&dyn BlockCounter> {
        None
    }

    /// Takes a block back, like [`Allocator::deallocate`], and says whether it was the last after
    /// [`Allocator::close`]. Engines with a [`Allocator::counter`] implement it; for others it never says so.
    ///
    /// With a pointer to the engine, because another thread may destroy the engine as soon as the block is counted out,
    /// while this is still returning: what is passed by reference must live until then. So must what is passed to the
    /// functions that this calls; until the block leaves a local reference will do.
    ///
    /// # Errors
    ///
    /// As for [`Allocator::deallocate`]; the block then stays counted.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`] of `this`, which is there until the block is counted out. On [`OwnerState::Unused`] the
    /// engine must not be used again.
    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState>
    where
        Self: Sized,
    {
        // SAFETY: nothing is counted out here, so the engine stays (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: guaranteed by the caller.
        unsafe { engine.deallocate(block) }.map(|()| OwnerState::InUse)
    }

    /// Closes the [`Allocator::counter`], which engines with one implement: see
    /// [`ShardedCounters::close`](orlop_sync::ShardedCounters::close). With a pointer as [`Allocator::deallocate_counted`], and for the
    /// same reason.
    ///
    /// # Safety
    ///
    /// No handle of the engine remains, and this is called once: on [`OwnerState::Unused`], now or from a later return, the engine
    /// is destroyed.
    unsafe fn close(this: NonNull<Self>) -> OwnerState
    where
        Self: Sized,
    {
        let _ = this;
        // Never asked of an engine without a counter. One that forgets it lives on.
        OwnerState::InUse
    }

    /// Switches byte statistics of [`Allocator::counter`] on or off, before the first block: see
    /// [`AllocatorRef::with_statistics`](crate::AllocatorRef::with_statistics). Nothing to do for others.
    fn set_statistics(&mut self, on: bool) {
        let _ = on;
    }

    /// A block from what the calling thread has cached, entered in [`Allocator::counter`]: no lock, nothing
    /// shared, no wait. `None` says to ask [`Allocator::allocate`], which knows more ways; always so for zero
    /// bytes, and without a counter.
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        let _ = request;
        None
    }

    /// Takes a block back into what the calling thread has cached, and counts it out. `Some` is the block as it
    /// was, to be given to [`Allocator::deallocate_counted`], with a pointer to the engine as there; always so if it could
    /// be the last one.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate_counted`]. On `None` the engine may be gone already.
    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock>
    where
        Self: Sized,
    {
        let _ = this;
        Some(block)
    }

    /// Memory of the device, if the engine's backing tells.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// A name for people.
    fn name(&self) -> &str;

    /// Bytes held.
    fn usage(&self) -> Usage;

    /// Makes `peak_reserved` start again from `reserved`.
    fn reset_peak(&self) {}

    /// What its blocks are like.
    fn semantics(&self) -> Semantics {
        Semantics::default()
    }

    /// Gives cached memory back until `reserved` is at most `target`, as far as live blocks allow. Returns
    /// the bytes given back.
    fn trim(&self, target: u64) -> u64 {
        let _ = target;
        0
    }

    /// What is known of the live block at `address`. `None` where sizes are not tracked;
    /// [`Allocator::allocated_size_slow`] may know the size all the same.
    fn find(&self, address: usize) -> Option<LookupResult> {
        let _ = address;
        None
    }

    /// Whether [`Allocator::find`] answers for every live block.
    fn tracks_sizes(&self) -> bool {
        false
    }

    /// Bytes granted to the live block that begins at `ptr`, where [`Allocator::find`] does not answer too. It may take locks
    /// and visit every thread's cache: for diagnosis, not for serving. `None` where nobody knows: put a
    /// [`Tracking`](crate::adaptor::Tracking) adaptor over such allocators.
    ///
    /// # Safety
    ///
    /// A block of this allocator begins at `ptr`, and it is not returned before the call ends.
    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.find(ptr.as_ptr().addr()).map(|found| found.granted)
    }

    /// Frees the block that begins at `ptr`, where the engine can find its records by address (P4). The
    /// requested size may be told and is not relied on. Returns what was freed.
    ///
    /// # Errors
    ///
    /// [`Error::NoRawDeleter`] where it cannot; [`Error::ForeignPointer`] for an address that is not a live
    /// block's.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`]: nobody uses the bytes any more, and no `Block` or `RawBlock` of
    /// this allocation will be returned later.
    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        let _ = (ptr, requested);
        Err(Error::NoRawDeleter)
    }

    /// Whether [`Allocator::deallocate_raw`] works.
    fn has_raw_deleter(&self) -> bool {
        false
    }

    /// True if pointers are opaque handles, so that even a request for zero bytes must be asked (T17).
    fn opaque_handles(&self) -> bool {
        false
    }

    /// Says that everything freed before `stamp` is safe to use for all (T9).
    fn set_safe_frontier(&self, stamp: u64) {
        let _ = stamp;
    }

    /// Adds what the engine knows to an out-of-memory report.
    fn describe(&self, report: &mut OutOfMemory) {
        report.reserved = self.usage().reserved;
    }

    /// Live bytes by kind and tag, where the engine knows, in no order. Adaptors pass it on.
    fn tag_uses(&self) -> Vec<TagUse> {
        Vec::new()
    }

    /// Whether this hands out the blocks of `other`, as an adaptor over it does: who counts both counts the bytes once.
    /// Adaptors pass it on.
    fn is_over(&self, other: &AllocatorRef) -> bool {
        let _ = other;
        false
    }

    /// From now on notes in `watch` what memory comes from the backing and goes back, beginning with what is held: see
    /// [`RegionWatches`](crate::RegionWatches). Adaptors pass it on. An engine that does not implement it tells nothing of
    /// regions.
    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let _ = watch;
    }

    /// Walks every structure and proves the invariants.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with the rule that does not hold.
    fn verify(&self) -> Result<()> {
        Ok(())
    }
}
