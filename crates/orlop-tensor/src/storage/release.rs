//! Memory that leaves a storage before the storage goes (P2): dropped early, or given to somebody else.

use super::memory::Origin;
use super::{Storage, WHOLE};
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use orlop_alloc::{Block, MemoryBlock, Record};
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that may not be handed on as memory that its new owner can read and write.
const KEPT: Flags = Flags::IMMUTABLE
    .and(Flags::NO_ACCESS)
    .and(Flags::NO_WRITES)
    .and(Flags::UNBOUND)
    .and(Flags::FOREIGN_PROCESS);

impl Storage {
    /// Gives the memory up now, memory from outside too: its owner is dropped, or its deleter called, unless a lazy clone or
    /// an export has a share of it. The storage has no bytes afterwards. One that [can be resized](Storage::is_resizable)
    /// gets memory of the same allocator when it is resized; one of memory from outside stays as it is then.
    ///
    /// ```
    /// use orlop_alloc::Deleter;
    /// use orlop_core::MemoryKind;
    /// use orlop_tensor::Storage;
    /// use std::{ptr::NonNull, sync::Arc};
    ///
    /// let owner = Arc::new(vec![7u8; 64]);
    /// let ptr = NonNull::from(owner.as_slice()).cast();
    /// // SAFETY: the vector lives as long as its owner, and nobody writes it.
    /// let storage = unsafe { Storage::foreign(ptr, 64, MemoryKind::Default, Arc::clone(&owner)) };
    /// storage.clear()?;
    /// assert_eq!((Arc::strong_count(&owner), storage.nbytes()), (1, 0));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotResizable`] for parts of storages; [`Error::Borrowed`] while somebody reads or writes.
    pub fn clear(&self) -> Result<()> {
        if self.len != WHOLE {
            return Err(Error::NotResizable { why: Unresizable::Part });
        }
        let mut guard = self.cell.change()?;
        if self.is_unbound() {
            return Ok(());
        }
        let origin = match guard.bytes() > 0 && self.cell.fixed().is_none() {
            true => Some(Arc::new(Origin::of_block(guard.block()))),
            false => self.cell.origin(),
        };
        let nothing = nothing_like(guard.block());
        let former = guard.install(nothing, 0, origin);
        // Whatever the owner does when it goes: nobody holds the storage then.
        drop(guard);
        drop(former);
        Ok(())
    }

    /// Gives the memory to the caller: the block, with its allocator or its deleter. What [`Block::into_foreign`] and
    /// [`Block::into_raw_ptr`] make of it is PyTorch's `release`.
    ///
    /// # Errors
    ///
    /// The storage itself, if the memory is not its own alone (other handles, parts, lazy clones, exports), if somebody has
    /// leaked a guard, or if a block, which anybody may read and write who has it, would say too much: of memory that
    /// refuses writes or access, of another process's, and where there is none yet.
    pub fn into_block(self) -> Result<Block, Self> {
        self.take_block().ok_or(self)
    }

    fn take_block(&self) -> Option<Block> {
        let mut guard = self.cell.change().ok()?;
        let alone = self.len == WHOLE && self.is_unique() && guard.block().is_unique();
        if !alone || self.cell.borrows.flags().has(KEPT) {
            return None;
        }
        let nothing = nothing_like(guard.block());
        match guard.replace(nothing).try_into_block() {
            Ok(block) => {
                self.cell.set_bytes(0);
                Some(block)
            }
            Err(block) => {
                drop(guard.replace(block));
                None
            }
        }
    }
}

/// A block of no bytes, which asks nobody.
fn nothing_like(block: &MemoryBlock) -> MemoryBlock {
    let align = block.align.max(Alignment::CPU);
    // An alignment is not null.
    let ptr = NonNull::new(std::ptr::without_provenance_mut(align.bytes())).unwrap_or(NonNull::dangling());
    let mut record = Record::new(ptr, 0, block.device, block.access);
    (record.kind, record.align, record.tag, record.stream) = (block.kind, align, block.tag, block.stream);
    // SAFETY: no bytes, which anybody may read and write.
    unsafe { Block::borrowed(record) }.share()
}
