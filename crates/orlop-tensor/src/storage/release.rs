//! Releasing a storage's memory before the storage is dropped.

use super::memory::Origin;
use super::{Storage, WHOLE};
use crate::borrows::Flags;
use crate::error::Result;
use orlop_alloc::{Block, MemoryBlock, engine_support::Record};
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::Arc;

/// Flags of memory that must not be handed on as readable and writable memory.
const KEPT: Flags = Flags::IMMUTABLE
    .and(Flags::NO_ACCESS)
    .and(Flags::NO_WRITES)
    .and(Flags::UNBOUND)
    .and(Flags::FOREIGN_PROCESS);

impl Storage {
    /// Releases the memory now, including foreign memory: its owner is dropped, or its deleter called, unless
    /// a lazy clone or an export shares it. The storage then has no bytes. If it [can be
    /// resized](Storage::is_resizable), resizing gets memory from the same allocator; a storage of foreign
    /// memory stays empty.
    ///
    /// ```
    /// use orlop_alloc::Deleter;
    /// use orlop_core::MemoryKind;
    /// use orlop_tensor::Storage;
    /// use std::{ptr::NonNull, sync::Arc};
    ///
    /// let owner = Arc::new(vec![7u8; 64]);
    /// let ptr = NonNull::from(owner.as_slice()).cast();
    /// // SAFETY: the vector is valid as long as its owner, and is not written.
    /// let storage = unsafe { Storage::foreign(ptr, 64, MemoryKind::Default, Arc::clone(&owner)) };
    /// storage.clear()?;
    /// assert_eq!((Arc::strong_count(&owner), storage.nbytes()), (1, 0));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotResizable`] for parts of storages and planned memory; [`Error::ReadOnly`] after
    /// [`Storage::mark_immutable`], as for mapped files; [`Error::Borrowed`] during a read or a write.
    ///
    /// [`Error::NotResizable`]: crate::Error::NotResizable
    /// [`Error::ReadOnly`]: crate::Error::ReadOnly
    /// [`Error::Borrowed`]: crate::Error::Borrowed
    pub fn clear(&self) -> Result<()> {
        self.check_whole()?;
        let mut guard = self.cell.change()?;
        if self.is_unbound() {
            return Ok(());
        }
        self.cell.check_not_planned()?;
        let origin = match guard.bytes() > 0 && self.cell.fixed().is_none() {
            true => Some(Arc::new(Origin::of_block(guard.block()))),
            false => self.cell.origin(),
        };
        let nothing = nothing_like(guard.block());
        let former = guard.install(nothing, 0, origin);
        // The owner's drop may use the storage, so the guard is released first.
        drop(guard);
        drop(former);
        Ok(())
    }

    /// Moves the memory out of the storage: the block, with its allocator or its deleter. Followed by
    /// [`Block::into_foreign`] or [`Block::into_raw_ptr`], this is PyTorch's `release`.
    ///
    /// # Errors
    ///
    /// The storage itself, if the memory is shared (other handles, parts, lazy clones, exports), if a guard
    /// was leaked, or if a block, which gives full access to its memory, would bypass a restriction: refused
    /// writes or accesses, memory of another process, or an unbound storage.
    pub fn into_block(self) -> Result<Block, Self> {
        self.take_block().ok_or(self)
    }

    fn take_block(&self) -> Option<Block> {
        let mut guard = self.cell.change().ok()?;
        let alone = self.len == WHOLE && self.is_unique() && guard.block().is_unique();
        if !alone || self.cell.borrows.flags().has(KEPT) {
            return None;
        }
        guard.take_block()
    }
}

/// Returns a block of no bytes, without an allocation.
pub(super) fn nothing_like(block: &MemoryBlock) -> MemoryBlock {
    let align = block.align.max(Alignment::CPU);
    // An alignment is not null.
    let ptr = NonNull::new(std::ptr::without_provenance_mut(align.bytes())).unwrap_or(NonNull::dangling());
    let mut record = Record::new(ptr, 0, block.device, block.access);
    (record.kind, record.align, record.tag, record.stream) = (block.kind, align, block.tag, block.stream);
    // SAFETY: no bytes, so any access is valid.
    unsafe { Block::borrowed(record) }.share()
}
