//! The owned block: memory that returns to its allocator when the block is dropped.

use super::copying::leak_unfinished;
use super::raw::Record;
use super::records::{box_record, recycle_record};
use super::source::MemorySource;
use crate::handle::{grow_block, handle_of, return_block};
use crate::{Access, AllocationId, AllocatorRef, Deleter, RawBlock, Result, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use std::ptr::NonNull;
use std::{fmt, mem, slice};

/// A block of memory with one owner. It is a single pointer to a [`Record`] with the details.
///
/// Dropping a block passes the streams that used it to its allocator, which decides when the memory may be
/// reused. A block may outlive every handle of its allocator.
#[must_use = "dropping a block frees its memory"]
#[repr(transparent)]
pub struct Block {
    pub(super) raw: mem::ManuallyDrop<RawBlock>,
}

impl Block {
    /// Creates a block from a raw block whose record names its allocator.
    #[inline]
    pub(crate) fn new(raw: RawBlock) -> Self {
        Self { raw: mem::ManuallyDrop::new(raw) }
    }

    /// Converts the block into a raw block without returning it to the allocator.
    pub(crate) fn into_raw(self) -> RawBlock {
        let mut block = mem::ManuallyDrop::new(self);
        // SAFETY: `self` is neither used nor dropped afterwards.
        unsafe { mem::ManuallyDrop::take(&mut block.raw) }
    }

    /// Wraps foreign memory. `deleter` runs exactly once, when the block is dropped.
    ///
    /// The block is in no statistics until a context adopts it (`Context::adopt` of `orlop-context`). The
    /// address may be in the middle of the memory that the deleter's context owns.
    ///
    /// # Safety
    ///
    /// 1. `record.ptr .. record.ptr + record.granted` stays valid, as `record.access` says, until `deleter`
    ///    runs, and `record.requested <= record.granted`;
    /// 2. until then no other code writes there, or reads there while this block is written;
    /// 3. with [`Access::Host`] the bytes are initialised.
    ///
    /// Only the description of the memory and its purpose are taken from the record. Owner, id and stream
    /// uses of a block that it described before are reset.
    pub unsafe fn foreign(record: Record, deleter: Deleter) -> Self {
        Self::with_deleter(record, deleter, MemorySource::Foreign)
    }

    /// Wraps a part of memory that is counted as a whole: [`Block::foreign`] for a block that is in no
    /// statistics of its own, also if a context is asked to adopt it.
    ///
    /// # Safety
    ///
    /// As for [`Block::foreign`].
    pub unsafe fn foreign_part(record: Record, deleter: Deleter) -> Self {
        Self::with_deleter(record, deleter, MemorySource::Part)
    }

    fn with_deleter(record: Record, deleter: Deleter, source: MemorySource) -> Self {
        let record = Record { deleter: Some(deleter), source, ..record.without_owner() };
        Self::new(RawBlock::new(box_record(record)))
    }

    /// Wraps borrowed foreign memory: dropping the block frees nothing.
    ///
    /// # Safety
    ///
    /// As for [`Block::foreign`], until the block is dropped.
    pub unsafe fn borrowed(record: Record) -> Self {
        let record = Record { source: MemorySource::Foreign, ..record.without_owner() };
        Self::new(RawBlock::new(box_record(record)))
    }

    /// Returns the address of the first byte. Valid for [`Block::capacity`] bytes.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.raw.ptr
    }

    /// Returns the address of the first byte with its device, for the operations of devices.
    #[inline]
    #[must_use]
    pub fn device_ptr(&self) -> crate::DevicePtr {
        crate::DevicePtr::new(self.raw.ptr, self.raw.device)
    }

    /// Returns the requested size in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.requested
    }

    /// Returns `true` if the requested size is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.requested == 0
    }

    /// Returns the usable size in bytes: at least [`Block::len`].
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.raw.granted
    }

    /// Returns the device that the memory is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.raw.device
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.raw.kind
    }

    /// Returns the requested alignment.
    #[must_use]
    pub fn align(&self) -> Alignment {
        self.raw.align
    }

    /// Returns the id of the allocation. It is [`AllocationId::NONE`] for empty blocks and for foreign memory
    /// that no context has adopted.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.raw.id
    }

    /// Returns the tag of the request.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.raw.tag
    }

    /// Returns which processors can access the bytes.
    #[must_use]
    pub fn access(&self) -> Access {
        self.raw.access
    }

    /// Returns the stream that the block was allocated for.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.raw.stream
    }

    /// Grows the block in place to at least `bytes` bytes. Returns `false` if that is not possible; the block
    /// is then unchanged, and a larger block has to be allocated instead. The contents of the additional
    /// bytes are unspecified.
    ///
    /// The engine's own limit applies. To apply the budgets of a context too, call
    /// `Context::grow_in_place` of `orlop-context`.
    ///
    /// ```
    /// use orlop_alloc::{Allocator, Request, backing::System, engine::Arena};
    ///
    /// let arena = Arena::new(System::new(), 4096).into_ref();
    /// let mut block = arena.allocate(&Request::new(100))?;
    /// assert!(block.grow_in_place(1000) && block.len() == 1000);
    /// let last = arena.allocate(&Request::new(100))?;
    /// assert!(!block.grow_in_place(2000) && block.len() == 1000);
    /// # drop(last);
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[must_use = "if not, the block is as it was"]
    pub fn grow_in_place(&mut self, bytes: usize) -> bool {
        if bytes <= self.raw.requested {
            return true;
        }
        // SAFETY: `owner` is the cell that the block returns to, and the block is live.
        self.raw.allocator().is_some_and(|owner| unsafe { grow_block(owner, &mut self.raw, bytes) })
    }

    /// Returns `true` if the block returns to an allocator. The lifetime of its bytes then depends on the
    /// block alone, as copy-on-write requires: foreign memory's deleter may own more than the bytes, and
    /// borrowed memory has an owner that expects to see writes.
    #[must_use]
    pub fn has_allocator(&self) -> bool {
        self.raw.allocator().is_some()
    }

    /// Returns a handle of the allocator that the block returns to: see
    /// [`MemoryBlock::allocator`](crate::MemoryBlock::allocator).
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorRef> {
        // SAFETY: the block is live while it is borrowed here, so the cell of its allocator exists.
        self.raw.allocator().and_then(|owner| unsafe { handle_of(owner) })
    }

    /// Returns `true` if the block's pages are locked for DMA: see
    /// [`Semantics::pinned`](crate::Semantics::pinned). A block of kind
    /// [`HostPinned`](MemoryKind::HostPinned) is not pinned if the process has no pinner; foreign memory is
    /// never known to be pinned.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        // SAFETY: the cell exists while the block is live.
        self.raw.owner.is_some_and(|owner| unsafe { owner.as_ref() }.allocator().semantics().pinned)
    }

    /// Returns the bytes, [`Block::len`] of them.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`](crate::Error::NotHostAccessible) for device memory and for address space
    /// without memory.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.raw.check_host()?;
        // SAFETY: host-accessible blocks are valid and initialised for `granted >= requested` bytes
        // (`Allocator`, obligations 1 and 2; `foreign`, obligations 1 and 3), and writing requires `&mut
        // self`.
        Ok(unsafe { slice::from_raw_parts(self.raw.ptr.as_ptr(), self.raw.requested) })
    }

    /// Returns the bytes for writing, [`Block::len`] of them.
    ///
    /// # Errors
    ///
    /// As for [`Block::bytes`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.raw.check_host()?;
        // SAFETY: as in `bytes`; `&mut self` gives exclusive access for the lifetime of the slice.
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.ptr.as_ptr(), self.raw.requested) })
    }

    /// Converts a block made by [`Block::foreign`] back into its address and its deleter, which has not been
    /// called. Dropping the deleter calls it with a null address.
    ///
    /// # Errors
    ///
    /// The block itself if it has no deleter (an allocator's, a part, empty or borrowed), or if a device
    /// may still use it: see [`Block::copy_by`].
    pub fn into_foreign(mut self) -> Result<(NonNull<u8>, Deleter), Self> {
        if self.raw.uses.is_unfinished() {
            return Err(self);
        }
        // Only foreign memory has a deleter. Dropping the rest of the block removes it from the statistics.
        // SAFETY: only the deleter changes, which is the block's own: no engine relies on it.
        match unsafe { self.raw.record_mut() }.deleter.take() {
            Some(deleter) => Ok((self.raw.ptr, deleter)),
            None => Err(self),
        }
    }

    /// Returns `true` if the block is foreign memory that is in no statistics. A part is counted with its
    /// whole.
    #[must_use]
    pub fn is_uncounted(&self) -> bool {
        self.raw.source == MemorySource::Foreign && self.raw.owner.is_none()
    }

    pub(crate) fn raw(&self) -> &RawBlock {
        &self.raw
    }

    /// Converts the block into a bare address, which is freed with
    /// [`AllocatorRef::free`](crate::AllocatorRef::free). The allocator stays alive until then.
    ///
    /// # Errors
    ///
    /// The block itself if its allocator cannot free a bare address, or if a device may still use it: see
    /// [`Block::copy_by`].
    pub fn into_raw_ptr(self) -> Result<NonNull<u8>, Self> {
        let Some(owner) = self.raw.allocator() else { return Err(self) };
        // SAFETY: the cell exists while the block is live.
        if !unsafe { owner.as_ref() }.allocator().has_raw_deleter() || self.raw.uses.is_unfinished() {
            return Err(self);
        }
        let ptr = self.raw.ptr;
        mem::forget(self);
        Ok(ptr)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `raw` is taken out once, here; `self` is not used afterwards.
        let raw = unsafe { mem::ManuallyDrop::take(&mut self.raw) };
        if let Some(owner) = raw.owner {
            // SAFETY: the cell counted the block when it was made, the block is returned once, and its bytes
            // can no longer be accessed through it.
            unsafe { return_block(owner, raw) };
        } else {
            // SAFETY: a block without an owner has a record of its own (`foreign`, `borrowed`, `empty`).
            unsafe { drop_without_owner(raw) };
        }
    }
}

/// Drops a block without an owner: calls its deleter, if any, and recycles its record. If it is the last
/// owner of the block that it is a part of, that is dropped too: in a loop, because that may be a part as
/// well.
///
/// # Safety
///
/// The record belongs to the block and to no engine.
#[cold]
unsafe fn drop_without_owner(raw: RawBlock) {
    let mut next = Some(raw);
    while let Some(raw) = next {
        if raw.uses.is_unfinished() {
            return leak_unfinished(raw);
        }
        // SAFETY: guaranteed by the caller, and so is the record of every other block without an owner.
        let mut record = unsafe { raw.into_record() };
        let whole = record.whole.take();
        if let Some(whole) = &whole {
            record.uses.iter().for_each(|stream| whole.note_use_of_part(stream));
        }
        if let Some(deleter) = record.deleter.take() {
            deleter.run(record.ptr);
        }
        recycle_record(record);
        let last = whole.and_then(|whole| whole.try_into_block().ok());
        next = last.filter(|whole| whole.raw.owner.is_none()).map(Block::into_raw);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("address", &self.raw.ptr)
            .field("requested", &self.raw.requested)
            .field("granted", &self.raw.granted)
            .field("device", &self.raw.device)
            .field("kind", &self.raw.kind)
            .field("pinned", &self.is_pinned())
            .field("id", &self.raw.id)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Option<Block>>() == size_of::<usize>());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Allocator;
    use crate::backing::System;
    use crate::engine::Direct;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A record that was used for another block is reset.
    #[test]
    fn foreign_memory_has_no_owner_whatever_its_record_was() {
        let allocator = Direct::new(System::new()).into_ref();
        let mut bytes = vec![7u8; 64];
        let (ptr, freed) = (NonNull::from(bytes.as_mut_slice()).cast(), Arc::new(AtomicU64::new(0)));
        let used = || {
            let mut record = Record::new(ptr, 64, Device::CPU, Access::Host);
            (record.requested, record.id, record.token) = (64, AllocationId::next(), 5);
            record.add_stream_use(StreamId::from_raw(3));
            let mut raw = RawBlock::new(Box::new(record));
            raw.set_owner(allocator.owner());
            // SAFETY: the box passed to `RawBlock::new` above.
            *unsafe { raw.into_record() }
        };
        let count = Arc::clone(&freed);
        let deleter = Deleter::from_closure(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        // SAFETY: the bytes outlive the block and are not accessed while it exists.
        let block = unsafe { Block::foreign(used(), deleter) };
        assert!(
            !block.has_allocator()
                && block.id() == AllocationId::NONE
                && block.stream_uses().next().is_none()
        );
        assert_eq!(block.bytes().unwrap(), [7; 64]);
        drop(block);
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        // SAFETY: as above.
        let block = unsafe { Block::borrowed(used()) };
        assert!(!block.has_allocator() && block.into_raw_ptr().is_err());
        assert_eq!(allocator.stats().refused_frees, 0);
    }
}
