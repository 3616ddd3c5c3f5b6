//! Blocks with several owners: the last owner returns the block.
//!
//! The reference count is in the block's record, so sharing allocates nothing, and a sole owner is dropped
//! without a locked instruction.
//!
//! # Ordering
//!
//! As in `Arc`: a new owner is counted by an owner that is already counted (relaxed). An owner that is
//! dropped releases its writes (`share.leave`), and an owner that finds itself alone (`share.alone`, acquire)
//! sees all of them.

use crate::handle::handle_of;
use crate::{AllocatorRef, Block, RawBlock, Record};
use orlop_sync::{atomic::Ordering, ordering};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A reference-counted handle to a block of memory. It dereferences to the block's [`Record`]; access to the
/// bytes is coordinated by the owners.
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_context::Context;
/// use orlop_core::Device;
///
/// let block = Context::new().allocate(Device::CPU, &Request::new(100))?.share();
/// let other = block.clone();
/// assert_eq!((block.is_unique(), other.requested), (false, 100));
/// drop(other);
/// assert!(block.try_into_block().is_ok());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct MemoryBlock {
    /// Invariant: the record belongs to a block that this handle keeps alive, and its `sharers` field is the
    /// number of handles minus one, with the bit [`READ_ONLY`].
    record: NonNull<Record>,
}

/// The bit of `sharers` for memory that never becomes a [`Block`] again.
const READ_ONLY: u32 = 1 << 31;

/// The maximum number of owners. It can only be exceeded by leaking handles; the process then aborts, as with
/// `Arc`.
const MAX_OWNERS: u32 = READ_ONLY / 2;

impl Block {
    /// Converts the block into one that can have several owners.
    #[inline]
    pub fn share(self) -> MemoryBlock {
        MemoryBlock { record: self.into_raw().record() }
    }
}

impl MemoryBlock {
    /// Returns `true` if this is the only owner, and the memory is not [read-only](Self::mark_read_only).
    /// Everything that other owners did before they were dropped is then visible.
    #[inline]
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.sharers.load(ordering!("share.alone", Acquire)) == 0
    }

    /// Returns the number of owners at some moment during the call.
    #[must_use]
    pub fn owners(&self) -> usize {
        (self.sharers.load(Ordering::Relaxed) & !READ_ONLY) as usize + 1
    }

    /// Marks memory that is not valid for writes, such as a read-only mapping: no handle to it is converted
    /// into a [`Block`] from now on, which would give write access, nor grows in place.
    pub fn mark_read_only(&self) {
        // Relaxed: a handle that is the only owner then is this one, or was passed on from here.
        self.sharers.fetch_or(READ_ONLY, Ordering::Relaxed);
    }

    /// Converts the handle back into a block if this is its only owner.
    ///
    /// # Errors
    ///
    /// The handle itself if there are other owners, or if the memory is
    /// [read-only](Self::mark_read_only).
    #[inline]
    pub fn try_into_block(self) -> Result<Block, Self> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self);
        // SAFETY: the record is of a block that `share` consumed, and this is its only handle, which is not
        // used afterwards.
        Ok(Block::new(unsafe { RawBlock::from_record(handle.record) }))
    }

    /// Grows the block in place if this is its only owner: see [`Block::grow_in_place`].
    #[must_use = "if not, the block is as it was"]
    pub fn grow_in_place(&mut self, bytes: usize) -> bool {
        self.with_block(|block| block.grow_in_place(bytes)).unwrap_or(false)
    }

    /// Removes the streams that used the block, if this is its only owner.
    ///
    /// # Safety
    ///
    /// As for [`Block::forget_stream_uses`].
    pub unsafe fn forget_stream_uses(&mut self) {
        // SAFETY: guaranteed by the caller.
        self.with_block(|block| unsafe { block.forget_stream_uses() });
    }

    /// Runs `f` on the block if this is its only owner. `f` leaves the block in its place: the handle points
    /// to its record.
    fn with_block<R>(&mut self, f: impl FnOnce(&mut Block) -> R) -> Option<R> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: the record is of a block that `share` consumed, and this is its only handle, which is
        // borrowed exclusively. The temporary block is not dropped, also if `f` panics: the handle keeps the
        // ownership.
        let mut block = ManuallyDrop::new(Block::new(unsafe { RawBlock::from_record(self.record) }));
        Some(f(&mut block))
    }

    /// Records that `stream` uses the memory too: see [`Block::record_stream`].
    ///
    /// # Errors
    ///
    /// As for [`Block::record_stream`].
    pub fn record_stream(&self, stream: orlop_core::StreamId) -> crate::Result<()> {
        self.record_use(stream)
    }

    /// Prepares the block for work of `ops` on `stream`: see [`Block::acquire_for`].
    ///
    /// # Errors
    ///
    /// As for [`Block::acquire_for`].
    pub fn acquire_for(
        &self,
        ops: &dyn crate::DeviceOps,
        stream: orlop_core::StreamId,
    ) -> crate::Result<bool> {
        Record::acquire_for(self, ops, stream)
    }

    /// As [`MemoryBlock::acquire_for`], with a function that orders the streams: see
    /// [`Block::acquire_with`].
    ///
    /// # Errors
    ///
    /// That of `wait_for`.
    ///
    /// # Safety
    ///
    /// As for [`Block::acquire_with`].
    pub unsafe fn acquire_with(
        &self,
        stream: orlop_core::StreamId,
        wait_for: impl FnOnce(orlop_core::StreamId) -> crate::Result<()>,
    ) -> crate::Result<bool> {
        // SAFETY: guaranteed by the caller.
        unsafe { Record::acquire_with(self, stream, wait_for) }
    }

    /// Returns `true` if the memory is reused only after the streams that used it: see
    /// [`Block::record_stream`].
    #[must_use]
    pub fn honours_streams(&self) -> bool {
        Record::honours_streams(self)
    }

    /// Returns `true` if the block returns to an allocator, and so may be copied lazily: see
    /// [`Block::has_allocator`].
    #[must_use]
    pub fn has_allocator(&self) -> bool {
        Record::allocator(self).is_some()
    }

    /// Returns a handle of the allocator that the block returns to. Returns `None` for foreign memory, for
    /// empty blocks, and if the allocator's last handle was dropped: the allocator then exists for its
    /// remaining blocks only.
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorRef> {
        // SAFETY: the block is live while it is borrowed here, so the cell of its allocator exists.
        Record::allocator(self).and_then(|owner| unsafe { handle_of(owner) })
    }

    /// Returns the name of the allocator that the block returns to, even if that has no handles any more.
    #[must_use]
    pub fn allocator_name(&self) -> Option<&str> {
        // SAFETY: the cell exists while the block is live, and the block is borrowed for as long as the name.
        Record::allocator(self).map(|owner| unsafe { owner.as_ref() }.allocator().name())
    }

    /// Returns `true` if the block returns to this allocator. Unlike [`MemoryBlock::allocator`], this changes
    /// no reference count.
    #[must_use]
    pub fn is_from(&self, allocator: &AllocatorRef) -> bool {
        self.owner == Some(allocator.owner())
    }

    #[cold]
    #[inline(never)]
    fn leave(&self) {
        if self.sharers.fetch_sub(1, ordering!("share.leave", AcqRel)) & !READ_ONLY == 0 {
            // Read-only memory, or the other owners were dropped since `is_unique` was called.
            self.sharers.store(0, Ordering::Relaxed);
            // SAFETY: the count was zero, so this was the last handle.
            drop(Block::new(unsafe { RawBlock::from_record(self.record) }));
        }
    }
}

impl Deref for MemoryBlock {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        // SAFETY: the block is live while it has owners, and owners only have shared access to its record.
        unsafe { self.record.as_ref() }
    }
}

impl Clone for MemoryBlock {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the new owner is made from one that is counted.
        if self.sharers.fetch_add(1, Ordering::Relaxed) & !READ_ONLY >= MAX_OWNERS {
            std::process::abort();
        }
        Self { record: self.record }
    }
}

impl Drop for MemoryBlock {
    #[inline]
    fn drop(&mut self) {
        if self.is_unique() {
            // SAFETY: this is the last handle.
            drop(Block::new(unsafe { RawBlock::from_record(self.record) }));
        } else {
            self.leave();
        }
    }
}

impl fmt::Debug for MemoryBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlock")
            .field("address", &self.ptr)
            .field("bytes", &self.requested)
            .field("device", &self.device)
            .field("kind", &self.kind)
            .field("owners", &self.owners())
            .finish_non_exhaustive()
    }
}

// SAFETY: a handle gives access to a record, which is `Sync`. The last handle returns the block, which is
// `Send`; the reference count orders that after the use by all other handles.
unsafe impl Send for MemoryBlock {}
// SAFETY: as above.
unsafe impl Sync for MemoryBlock {}

const _: () = assert!(size_of::<Option<MemoryBlock>>() == size_of::<usize>());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;
    use crate::engine::Direct;
    use crate::{Allocator, AllocatorRef, Request};

    fn block(allocator: &AllocatorRef<Direct<System>>) -> MemoryBlock {
        allocator.allocate(&Request::new(64)).expect("memory").share()
    }

    #[test]
    fn the_last_owner_returns_it() {
        let allocator = Direct::new(System::new()).into_ref();
        let first = block(&allocator);
        let others: Vec<_> = (0..10).map(|_| first.clone()).collect();
        assert_eq!((first.owners(), first.is_unique()), (11, false));
        drop(first);
        assert_eq!(allocator.stats().live(), others[0].granted as u64);
        drop(others);
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    fn a_block_again_only_when_alone() {
        let allocator = Direct::new(System::new()).into_ref();
        let first = block(&allocator);
        let second = first.clone();
        let first = first.try_into_block().unwrap_err();
        drop(second);
        drop(first.try_into_block().unwrap());
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    fn a_handle_from_a_block_while_there_is_one() {
        let allocator = Direct::new(System::new()).into_ref();
        let first = block(&allocator);
        let handle = first.allocator().unwrap();
        assert!(handle.same_as(&allocator) && first.is_from(&handle) && !allocator.is_unique());
        drop(allocator);
        let second = first.allocator().unwrap().allocate(&Request::new(64)).unwrap().share();
        assert!(second.is_from(&handle) && handle.is_unique());
        drop(handle);
        assert!(first.allocator().is_none() && second.allocator().is_none());
        assert_eq!(second.allocator_name(), Some("system"));
    }

    #[test]
    fn foreign_memory_has_no_allocator() {
        let record = Record::new(NonNull::dangling(), 0, orlop_core::Device::CPU, crate::Access::Host);
        // SAFETY: no bytes.
        let foreign = unsafe { Block::borrowed(record) }.share();
        assert!(
            foreign.allocator().is_none() && foreign.allocator_name().is_none() && !foreign.has_allocator()
        );
        let empty = Direct::new(System::new()).into_ref().allocate(&Request::new(0)).unwrap();
        assert!(empty.allocator().is_none());
    }

    #[test]
    fn read_only_memory_does_not_become_a_block_again() {
        let allocator = Direct::new(System::new()).into_ref();
        let first = block(&allocator);
        let second = first.clone();
        second.mark_read_only();
        assert_eq!((first.owners(), first.is_unique()), (2, false));
        drop(second);
        let mut first = first.try_into_block().unwrap_err();
        assert!(first.owners() == 1 && !first.grow_in_place(100));
        drop(first);
        assert_eq!(allocator.stats().live(), 0);
        assert!(block(&allocator).try_into_block().is_ok(), "the mark ends with the block");
    }

    #[test]
    fn owners_on_many_threads() {
        let allocator = Direct::new(System::new()).into_ref();
        let first = block(&allocator);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = first.clone();
                scope.spawn(move || (0..if cfg!(miri) { 10 } else { 1000 }).for_each(|_| drop(mine.clone())));
            }
        });
        assert!(first.is_unique());
    }
}
