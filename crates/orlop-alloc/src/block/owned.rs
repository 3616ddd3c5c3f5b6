//! The owned block: memory that returns to where it came from when dropped.

use super::raw::Record;
use super::records::{box_record, recycle_record};
use crate::handle::{grow_block, handle_of, return_block};
use crate::{Access, AllocationId, AllocatorRef, Deleter, RawBlock, Result, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use std::ptr::NonNull;
use std::{fmt, mem, slice};

/// A block of memory with its owner: one pointer, to a record that holds the rest.
///
/// Dropping it tells the owner which streams used it; the owner decides when the memory may be reused. A
/// block may outlive every handle of its allocator.
#[must_use = "dropping a block frees its memory"]
#[repr(transparent)]
pub struct Block {
    raw: mem::ManuallyDrop<RawBlock>,
}

impl Block {
    /// A block whose record says who its owner is.
    #[inline]
    pub(crate) fn new(raw: RawBlock) -> Self {
        Self { raw: mem::ManuallyDrop::new(raw) }
    }

    /// Gives the block up without returning it.
    pub(crate) fn into_raw(self) -> RawBlock {
        let mut block = mem::ManuallyDrop::new(self);
        // SAFETY: `self` is not used afterwards, and not dropped.
        unsafe { mem::ManuallyDrop::take(&mut block.raw) }
    }

    /// Takes in memory from outside. `deleter` runs exactly once, when the block goes.
    ///
    /// Nobody counts it before a context takes it in ([`Context::adopt`](crate::Context::adopt)).
    ///
    /// The data pointer and the deleter's context are distinct (P2): `record.ptr` may point into the middle
    /// of what the context owns.
    ///
    /// # Safety
    ///
    /// 1. `record.ptr .. record.ptr + record.granted` stays valid, as `record.access` says, until `deleter`
    ///    runs, and `record.requested <= record.granted`;
    /// 2. nobody else writes there meanwhile, nor reads while this block is written;
    /// 3. with [`Access::Host`] the bytes are initialised.
    ///
    /// Of the record only what it says of the memory and for what it is counts: whose block it was before, if any's, does
    /// not matter.
    pub unsafe fn foreign(record: Record, deleter: Deleter) -> Self {
        let record = Record { deleter: Some(deleter), is_foreign: true, ..record.without_owner() };
        Self::new(RawBlock::new(box_record(record)))
    }

    /// Borrows memory from outside: nothing happens when the block goes.
    ///
    /// # Safety
    ///
    /// As for [`Block::foreign`], until the block is gone.
    pub unsafe fn borrowed(record: Record) -> Self {
        let record = Record { is_foreign: true, ..record.without_owner() };
        Self::new(RawBlock::new(box_record(record)))
    }

    /// Where it begins. Valid for [`Block::capacity`] bytes.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.raw.ptr
    }

    /// Bytes asked for.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.requested
    }

    /// Whether no bytes were asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.requested == 0
    }

    /// Bytes that may be used: at least [`Block::len`].
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.raw.granted
    }

    /// Where it is.
    #[must_use]
    pub fn device(&self) -> Device {
        self.raw.device
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.raw.kind
    }

    /// What its address is a multiple of, as asked for.
    #[must_use]
    pub fn align(&self) -> Alignment {
        self.raw.align
    }

    /// Its name; [`AllocationId::NONE`] for empty blocks, and for memory from outside that no context counts.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.raw.id
    }

    /// Who asked for it.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.raw.tag
    }

    /// Who can reach the bytes.
    #[must_use]
    pub fn access(&self) -> Access {
        self.raw.access
    }

    /// The stream it was allocated for.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.raw.stream
    }

    /// Other streams that used it, latest first.
    pub fn stream_uses(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.raw.uses.iter()
    }

    /// Makes the block larger without moving it, so that it has at least `bytes`; whether that could be. If not, nothing has
    /// changed, and a larger block is to be had elsewhere. The bytes beyond are whatever they are.
    ///
    /// The engine's own limit holds; for the budgets of a context ask [`Context::grow_in_place`](crate::Context::grow_in_place).
    ///
    /// ```
    /// use orlop_alloc::{Request, backing::System, engine::Arena};
    ///
    /// let arena = Arena::new(System::new(), 4096);
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
        // SAFETY: the block's own cell, and it has not come back.
        self.raw.allocator().is_some_and(|owner| unsafe { grow_block(owner, &mut self.raw, bytes) })
    }

    /// Notes that `stream` uses the memory too: it will not be reused before that stream is done.
    ///
    /// # Errors
    ///
    /// [`Error::StreamsNotHonoured`](crate::Error::StreamsNotHonoured) where nobody would wait: the allocator's
    /// [`Semantics`](crate::Semantics) are not ordered by streams, as those of every CPU engine, or the memory is from
    /// outside. Nothing is recorded then: synchronize with the stream before the block goes.
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        self.raw.record_use(stream)
    }

    /// Whether dropping it returns memory to an allocator of this crate.
    #[must_use]
    pub fn has_allocator(&self) -> bool {
        self.raw.allocator().is_some()
    }

    /// The allocator that it returns to: see [`MemoryBlock::allocator`](crate::MemoryBlock::allocator).
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorRef> {
        // SAFETY: a block that lives, and does while it is borrowed here, returns to its owner.
        self.raw.allocator().and_then(|owner| unsafe { handle_of(owner) })
    }

    /// Whether its pages are locked for DMA: see [`Semantics::pinned`](crate::Semantics::pinned). A block of kind
    /// [`HostPinned`](MemoryKind::HostPinned) is not where the process has nobody who pins, and memory from outside is not
    /// known to be.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        // SAFETY: the cell lives while this block does.
        self.raw.owner.is_some_and(|owner| unsafe { owner.as_ref() }.allocator().semantics().pinned)
    }

    /// Whether the block alone decides how long its bytes live, as copy-on-write needs (P6). True for blocks of our
    /// allocators, whose data pointer is the whole context; false for memory from outside: a deleter's context may own
    /// more than the bytes, and borrowed memory has an owner that expects to see what is written.
    #[must_use]
    pub fn is_simple(&self) -> bool {
        self.has_allocator()
    }

    /// The bytes, as many as were asked for.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`](crate::Error::NotHostAccessible) for device memory and address space.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.raw.check_host()?;
        // SAFETY: host-accessible blocks are valid and initialised for `granted >= requested` bytes
        // (`Allocator`, obligations 1 and 2; `foreign`, 1 and 3), and only `&mut self` writes.
        Ok(unsafe { slice::from_raw_parts(self.raw.ptr.as_ptr(), self.raw.requested) })
    }

    /// The bytes, to be written.
    ///
    /// # Errors
    ///
    /// As for [`Block::bytes`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.raw.check_host()?;
        // SAFETY: as in `bytes`, and `&mut self` is the only way to the memory for as long as it lasts.
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.ptr.as_ptr(), self.raw.requested) })
    }

    /// Gives memory from outside away, as it came in by [`Block::foreign`]: the address and the deleter, which was not
    /// called (P2 `release`). Who drops the deleter has it called, without the address.
    ///
    /// # Errors
    ///
    /// The block itself, if it has no deleter: an allocator's, an empty or a borrowed one.
    pub fn into_foreign(mut self) -> Result<(NonNull<u8>, Deleter), Self> {
        // Only memory from outside has one. What is left of the block is counted out.
        // SAFETY: the deleter is the block's own, and nothing else of the record changes.
        match unsafe { self.raw.record_mut() }.deleter.take() {
            Some(deleter) => Ok((self.raw.ptr, deleter)),
            None => Err(self),
        }
    }

    /// Whether it is memory from outside that nobody counts.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.raw.is_foreign && self.raw.owner.is_none()
    }

    pub(crate) fn raw(&self) -> &RawBlock {
        &self.raw
    }

    /// Gives the memory away: nothing is returned until someone frees the address with
    /// [`AllocatorRef::free`](crate::AllocatorRef::free) (P2 `release`). The allocator stays alive for it.
    ///
    /// # Errors
    ///
    /// The block itself, if its owner could not free a bare pointer later.
    pub fn into_raw_ptr(self) -> Result<NonNull<u8>, Self> {
        let Some(owner) = self.raw.allocator() else { return Err(self) };
        // SAFETY: the cell lives while this block does.
        if !unsafe { owner.as_ref() }.allocator().has_raw_deleter() {
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
            // SAFETY: the block was counted in this cell when made, comes back once, and nobody can reach
            // the bytes through it any more.
            unsafe { return_block(owner, raw) };
        } else {
            // SAFETY: without an allocator the record is the block's own (`foreign`, `borrowed`, `empty`).
            unsafe { end(raw) };
        }
    }
}

/// Ends a block without an allocator.
///
/// # Safety
///
/// The record is the block's own.
#[cold]
unsafe fn end(raw: RawBlock) {
    // SAFETY: the caller's promise.
    let mut record = unsafe { raw.into_record() };
    if let Some(deleter) = record.deleter.take() {
        deleter.run(record.ptr);
    }
    recycle_record(record);
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
    use crate::backing::System;
    use crate::engine::Direct;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The record of another block, which returns to an allocator, is as good as a fresh one.
    #[test]
    fn foreign_memory_is_nobodys_whatever_its_record_was() {
        let allocator = Direct::new(System::new());
        let mut bytes = vec![7u8; 64];
        let (ptr, freed) = (NonNull::from(bytes.as_mut_slice()).cast(), Arc::new(AtomicU64::new(0)));
        let used = || {
            let mut record = Record::new(ptr, 64, Device::CPU, Access::Host);
            (record.requested, record.id, record.token) = (64, AllocationId::next(), 5);
            let mut raw = RawBlock::new(Box::new(record));
            raw.set_owner(allocator.owner());
            // SAFETY: the box of `new`.
            *unsafe { raw.into_record() }
        };
        let count = Arc::clone(&freed);
        let deleter = Deleter::from_closure(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        // SAFETY: the bytes live longer, and nobody uses them meanwhile.
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
