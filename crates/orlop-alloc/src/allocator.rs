//! The trait that every engine and adaptor implements.

use crate::handle::Counting;
use crate::{AllocatorRef, DeviceMemory, Error, OutOfMemory, RawBlock, RegionWatch, Request, Result};
use orlop_core::{Device, MemoryKind};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// Properties of an allocator's blocks: when a returned block may be reused, and whether devices can access
/// it by DMA. They are the same on every thread, and whichever device is current there: see [`Allocator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Semantics {
    /// True if a returned block is reused only after the streams that used it have finished. False if it is
    /// reused at once, which is right for memory that only the host accesses; recording a stream on such a
    /// block is an error ([`Block::record_stream`](crate::Block::record_stream)), and the code that submits
    /// work on it waits for the stream before the block is dropped
    /// ([`Block::acquire_for`](crate::Block::acquire_for)), also if that is the stream of its request.
    pub stream_ordered: bool,
    /// True if the pages of every block are locked for DMA. False for other memory, and for an allocator of
    /// pinned memory in a process without a pinner: its blocks are plain host memory, and copies from them
    /// are slower. See [`Pinned`](crate::backing::Pinned).
    pub pinned: bool,
    /// True if the allocator itself takes [`Alignment::UNSPECIFIED`](orlop_core::Alignment::UNSPECIFIED) for
    /// the alignment of its device, in placing blocks and in their records. Otherwise the handle completes
    /// requests for a device, which copies them.
    pub completes_alignment: bool,
}

/// The memory that an engine holds from its backing, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes reserved now.
    pub reserved: u64,
    /// Peak of the reserved bytes since the last reset.
    pub peak_reserved: u64,
    /// Number of regions reserved now.
    pub regions: u64,
    /// Bytes in returned blocks that wait for a stream.
    pub deferred: u64,
    /// Bytes of the engine's own metadata.
    pub metadata: u64,
}

/// The result of looking up a live block by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupResult {
    /// Requested size in bytes.
    pub requested: usize,
    /// Size in bytes, after rounding.
    pub granted: usize,
    /// The id of the allocation.
    pub id: crate::AllocationId,
    /// The kind of memory.
    pub kind: MemoryKind,
}

/// Live bytes of one kind under one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagUse {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The tag of the requests.
    pub tag: crate::Tag,
    /// Live bytes, after rounding.
    pub bytes: u64,
}

/// Allocates and frees blocks.
///
/// Users hold an [`AllocatorRef`](crate::AllocatorRef) and see [`Block`](crate::Block)s. This trait is the
/// interface below, where a block is a [`RawBlock`] and adaptors can be stacked.
///
/// # Threads and the current device
///
/// Every method can be called from any thread. When a block can be reused is in [`Allocator::semantics`].
///
/// No method changes the current device of the calling thread, nor depends on it: the memory is on
/// [`Allocator::device`]. An engine whose driver has a current device (CUDA: the current context) makes its
/// own device current for the calls of the driver, and restores the previous one before it returns, also
/// after an error. Engines of the host's memory switch nothing.
///
/// # Safety
///
/// An implementation guarantees, for every block from `allocate`:
///
/// 1. `granted >= requested`, `ptr` is a multiple of `align`, and until the block is returned no other live
///    block overlaps `ptr .. ptr + granted`;
/// 2. with [`Access::Host`](crate::Access::Host) those bytes are valid for reads and writes and are
///    initialised;
/// 3. if the request is `zeroed`, the requested bytes read as zero;
/// 4. the block may be returned from any thread;
/// 5. the above holds as long as `self` exists, also if `self` is moved.
pub unsafe trait Allocator: Debug + Send + Sync + 'static {
    /// Allocates a block. `request.bytes` is not zero, except with [`Allocator::has_opaque_handles`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a report; other errors depend on the engine. After an error all invariants
    /// hold and the allocator works.
    fn allocate(&self, request: &Request) -> Result<RawBlock>;

    /// Frees a block.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignPointer`] and [`Error::DoubleFree`] if the engine detects them; nothing has changed
    /// then.
    ///
    /// # Safety
    ///
    /// 1. `block` came from `allocate` of this allocator and has not been returned before;
    /// 2. its bytes are no longer in use on the host; streams in `block.stream_uses()` may still use them;
    /// 3. with [`Access::Host`](crate::Access::Host) they are initialised: the next user may read them.
    unsafe fn deallocate(&self, block: RawBlock) -> Result<()>;

    /// Grows a block in place to `bytes` requested bytes, which is more than it has now. Returns `false` if
    /// that is not possible; the block is then unchanged. The additional bytes are in the same condition as
    /// those of a new block. An engine that [counts its own blocks](Allocator::counting) counts
    /// the additional bytes.
    ///
    /// # Safety
    ///
    /// `block` came from `allocate` of this allocator and has not been returned.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let _ = (block, bytes);
        false
    }

    /// Returns the device that the memory is on.
    fn device(&self) -> Device;

    /// Returns how a handle uses an engine that counts its own blocks: see
    /// [`CountingEngine`](crate::engine_support::CountingEngine). The default is `None`: the handle counts.
    fn counting() -> Option<Counting<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Switches the byte statistics of an engine that [counts its own blocks](Allocator::counting) on or off.
    /// Called before the first block: see
    /// [`AllocatorRef::with_statistics`](crate::AllocatorRef::with_statistics). Other engines ignore it.
    fn set_statistics(&mut self, on: bool) {
        let _ = on;
    }

    /// Returns the size of the device's memory and how much is free, if the engine's backing reports it.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// Returns the name to show to users.
    fn name(&self) -> &str;

    /// Returns the memory held from the backing.
    fn usage(&self) -> Usage;

    /// Resets `peak_reserved` to `reserved`.
    fn reset_peak(&self) {}

    /// Returns the properties of the allocator's blocks.
    fn semantics(&self) -> Semantics {
        Semantics::default()
    }

    /// Releases cached memory until `reserved` is at most `target`, as far as live blocks allow. Returns the
    /// number of bytes released.
    fn trim(&self, target: u64) -> u64 {
        let _ = target;
        0
    }

    /// Looks up the live block at `address`. Returns `None` if the engine does not track sizes;
    /// [`Allocator::allocated_size_slow`] may still know the size.
    fn find(&self, address: usize) -> Option<LookupResult> {
        let _ = address;
        None
    }

    /// Returns `true` if [`Allocator::find`] finds every live block.
    fn has_tracked_sizes(&self) -> bool {
        false
    }

    /// Returns the size, after rounding, of the live block that begins at `ptr`, also for engines without
    /// [`Allocator::find`]. It may take locks and visit every thread's cache: for diagnosis, not for the hot
    /// path. Returns `None` if the size is not recorded anywhere: put a
    /// [`Tracking`](crate::adaptor::Tracking) adaptor over such allocators.
    ///
    /// # Safety
    ///
    /// A block of this allocator begins at `ptr` and is not returned during the call.
    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.find(ptr.as_ptr().addr()).map(|found| found.granted)
    }

    /// Frees the block that begins at `ptr` and returns its description. Engines support this if they find
    /// their metadata by address; they do not rely on `requested`, the requested size if the caller knows it.
    ///
    /// # Errors
    ///
    /// [`Error::NoRawDeleter`] if the engine cannot; [`Error::ForeignPointer`] if no live block begins at the
    /// address.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`]: the bytes are initialised and no longer in use, and no `Block` or
    /// `RawBlock` of this allocation is returned later.
    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        let _ = (ptr, requested);
        Err(Error::NoRawDeleter)
    }

    /// Returns `true` if [`Allocator::deallocate_raw`] is supported.
    fn has_raw_deleter(&self) -> bool {
        false
    }

    /// Returns `true` if pointers are opaque handles, so that requests for zero bytes must reach the engine
    /// too.
    fn has_opaque_handles(&self) -> bool {
        false
    }

    /// Declares that all chunks freed before `stamp` are safe to reuse for every request.
    fn set_safe_frontier(&self, stamp: u64) {
        let _ = stamp;
    }

    /// Adds the engine's figures to an out-of-memory report.
    fn describe(&self, report: &mut OutOfMemory) {
        report.reserved = self.usage().reserved;
    }

    /// Returns the live bytes by kind and tag, if the engine knows them, in no particular order. Adaptors
    /// forward it.
    fn tag_uses(&self) -> Vec<TagUse> {
        Vec::new()
    }

    /// Returns `true` if this allocator hands out the blocks of `other`, as an adaptor over it does, so that
    /// a sum over both counts the bytes once. Adaptors forward it.
    fn wraps(&self, other: &AllocatorRef) -> bool {
        let _ = other;
        false
    }

    /// Starts to record in `watch` which regions are reserved and released, beginning with the current ones:
    /// see [`RegionWatches`](crate::RegionWatches). Adaptors forward it. An engine that does not implement it
    /// reports no regions.
    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let _ = watch;
    }

    /// Called once, when a handle to the allocator, or to an adaptor over it, has been created. An engine
    /// that shares its memory with others can keep a [weak](AllocatorRef::downgrade) one, for them to trim it
    /// by.
    fn on_shared(&self, handle: &AllocatorRef) {
        let _ = handle;
    }

    /// Checks the invariants of every data structure.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with the invariant that does not hold.
    fn verify(&self) -> Result<()> {
        Ok(())
    }

    /// Puts the allocator behind a handle, with statistics: [`AllocatorRef::new`] as a method.
    #[must_use]
    fn into_ref(self) -> AllocatorRef<Self>
    where
        Self: Sized,
    {
        AllocatorRef::new(self)
    }
}
