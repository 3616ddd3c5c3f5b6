//! Copies that are put off until somebody writes (P6).
//!
//! A lazy clone is a cell of its own that owns the same block. Reading never copies. Whoever writes first looks whether
//! the block has other owners: if so it gets a copy for itself, if not it takes what there is. The count is the block's
//! (`MemoryBlock`), so the last of any number of clones copies nothing.
//!
//! Which blocks: all that an allocator of this workspace handed out. Not memory from outside, whose deleter may own more
//! than the bytes, and not storages of which somebody has the address to write through: these are copied at once.

use super::Storage;
use super::cell::Cell;
use super::memory::Memory;
use crate::borrows::Flags;
use crate::error::Result;
use crate::shared::Shared;
use orlop_alloc::{Context, MemoryBlock, Place};

impl Storage {
    /// A storage with the same bytes, in constant time: they are copied when one of the two is written first.
    ///
    /// A real copy where that cannot be: of memory from outside, and of a storage whose address was given out for
    /// writing.
    ///
    /// # Errors
    ///
    /// [`Borrowed`](crate::Error::Borrowed) while somebody writes; out of memory where a copy is needed.
    pub fn lazy_clone(&self) -> Result<Self> {
        let clone = self.cell.lazy_clone(copy_of)?;
        Ok(Self { cell: Shared::new(clone), start: self.start, len: self.len })
    }

    /// Whether the bytes may have to be copied before the next write.
    #[must_use]
    pub fn is_copy_on_write(&self) -> bool {
        self.cell.borrows.flags().has(Flags::COPY_ON_WRITE)
    }
}

impl Cell {
    /// A cell that owns the same block, or a copy that `copy` makes.
    pub(crate) fn lazy_clone(
        &self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<Self> {
        let guard = self.read()?;
        let flags = self.borrows.flags();
        let never = Flags::ESCAPED.and(Flags::FOREIGN_PROCESS).and(Flags::IMMUTABLE);
        let (block, flags) = if guard.block().is_simple() && !flags.has(never) {
            // A writer that comes after this reader sees the flag.
            self.borrows.set(Flags::COPY_ON_WRITE);
            (guard.block().clone(), Flags::COPY_ON_WRITE)
        } else {
            (copy(guard.block(), guard.bytes())?, Flags::NONE)
        };
        let fixed = if block.has_allocator() { None } else { self.fixed };
        Ok(Self::new(block, guard.bytes(), flags, fixed))
    }
}

/// A block like this one, with the same first `bytes`.
pub(super) fn copy_of(block: &MemoryBlock, bytes: usize) -> Result<MemoryBlock> {
    let copy = Memory::like(block).allocate(block.requested.max(bytes))?;
    copy_bytes(&copy, block, bytes)?;
    Ok(copy)
}

/// Copies the first bytes of one block to another, which is not read or written by anybody else.
pub(super) fn copy_bytes(to: &MemoryBlock, from: &MemoryBlock, bytes: usize) -> Result<()> {
    debug_assert!(bytes <= to.granted && bytes <= from.granted);
    if bytes == 0 {
        return Ok(());
    }
    if to.device.is_cpu() && from.device.is_cpu() {
        // SAFETY: two blocks, of at least so many bytes each; `to` is ours alone, `from` is not written meanwhile
        // (the caller reads it).
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        return Ok(());
    }
    let worker = if to.device.is_cpu() { from.device } else { to.device };
    Context::with_current(|context| {
        let (ops, stream) = (context.ops(worker)?, context.stream(worker));
        let place = |block: &MemoryBlock| Place { ptr: block.ptr, device: block.device };
        // SAFETY: as above, until the stream has been waited for.
        unsafe { ops.copy(place(to), place(from), bytes, stream) }?;
        ops.synchronize(stream)
    })?;
    Ok(())
}
