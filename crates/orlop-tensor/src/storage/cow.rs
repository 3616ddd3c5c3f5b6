//! Copies that are put off until somebody writes (P6).
//!
//! A lazy clone is a cell of its own that owns the same block. Reading never copies. Whoever writes first looks whether
//! the block has other owners: if so it gets a copy for itself, if not it takes what there is. The count is the block's
//! (`MemoryBlock`), so the last of any number of clones copies nothing.
//!
//! Which blocks: all that an allocator of this workspace handed out. Not memory from outside, whose deleter may own more
//! than the bytes, or whose owner, where it is borrowed, expects to see what is written and to have it back; and not
//! storages of which somebody has the address to write through. These are copied at once: no more of them than the handle
//! looks at.

use super::cell::Cell;
use super::memory::Origin;
use super::{Storage, WHOLE};
use crate::borrows::Flags;
use crate::error::Result;
use crate::transfer::{Run, transfer};
use orlop_alloc::MemoryBlock;

impl Storage {
    /// A storage with the same bytes, in constant time: they are copied when one of the two is written first.
    ///
    /// A real copy where that cannot be: of memory from outside, and of a storage whose address was given out for
    /// writing.
    ///
    /// # Errors
    ///
    /// [`Borrowed`](crate::Error::Borrowed) while somebody writes; where a copy is needed: out of memory, and
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible) for address space without memory.
    pub fn lazy_clone(&self) -> Result<Self> {
        let (start, len) = (self.start, self.len);
        // A part of what would have to be copied: that, as a storage of its own. A mapped file is one storage of which each
        // tensor has a part.
        let part = |block: &MemoryBlock, bytes| match len {
            WHOLE => Ok((copy_of(block, bytes)?, bytes)),
            _ => copy_part(block, start, self.bytes_of(bytes)),
        };
        let clone = Self::of_cell(self.cell.lazy_clone(MemoryBlock::is_simple, part)?);
        Ok(if clone.is_copy_on_write() { Self { start, len, ..clone } } else { clone })
    }

    /// Whether the bytes may have to be copied before the next write.
    #[must_use]
    pub fn is_copy_on_write(&self) -> bool {
        self.cell.borrows.flags().has(Flags::COPY_ON_WRITE)
    }
}

impl Cell {
    /// A cell that owns the same block, to be copied on write, if that is one which `may` be shared; else a cell with the
    /// copy and its bytes that `copy` makes.
    pub(crate) fn lazy_clone(
        &self,
        may: impl FnOnce(&MemoryBlock) -> bool,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<(MemoryBlock, usize)>,
    ) -> Result<Self> {
        let guard = self.read()?;
        let flags = self.borrows.flags();
        let never = Flags::ESCAPED.and(Flags::FOREIGN_PROCESS).and(Flags::IMMUTABLE);
        if may(guard.block()) && !flags.has(never) {
            // A writer that comes after this reader sees the flag.
            self.borrows.set(Flags::COPY_ON_WRITE);
            let block = guard.block().clone();
            return Ok(self.with_origin(Self::new(block, guard.bytes(), Flags::COPY_ON_WRITE, self.fixed())));
        }
        let (block, bytes) = copy(guard.block(), guard.bytes())?;
        Ok(self.with_origin(Self::new(block, bytes, Flags::NONE, None)))
    }

    /// A clone gets its memory where this storage does, if that is noted: while it has none.
    fn with_origin(&self, clone: Self) -> Self {
        if let Some(origin) = self.origin() {
            drop(clone.replace_origin(Some(origin)));
        }
        clone
    }
}

/// A block like this one, with the same first `bytes`.
pub(super) fn copy_of(block: &MemoryBlock, bytes: usize) -> Result<MemoryBlock> {
    let copy = Origin::like(block).allocate(block.requested.max(bytes))?;
    copy_bytes(&copy, block, 0, bytes)?;
    Ok(copy)
}

/// A block with these `bytes` of one, from `start` on.
fn copy_part(block: &MemoryBlock, start: usize, bytes: usize) -> Result<(MemoryBlock, usize)> {
    let copy = Origin::like(block).allocate(bytes)?;
    copy_bytes(&copy, block, start, bytes)?;
    Ok((copy, bytes))
}

/// Copies `bytes` of a block, from `start` on, to the beginning of another, which is not read or written by anybody else.
pub(super) fn copy_bytes(to: &MemoryBlock, from: &MemoryBlock, start: usize, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    debug_assert!(bytes <= to.granted && start.checked_add(bytes).is_some_and(|end| end <= from.granted));
    // SAFETY: two blocks, of at least so many bytes each from there on; `to` is ours alone, `from` is not written meanwhile
    // (the caller reads it).
    unsafe { transfer(Run::Block(to, 0), Run::Block(from, start), bytes) }
}
