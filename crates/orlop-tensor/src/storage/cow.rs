//! Copy-on-write.
//!
//! A lazy clone is a cell of its own that owns the same block. Reading never copies. The first writer checks
//! whether the block has other owners: if so it gets a copy, if not it uses the block. The count of owners is
//! the block's (`MemoryBlock`), so the last of any number of clones copies nothing.
//!
//! All blocks from allocators of this workspace can be shared this way. Foreign memory is not shared: its
//! deleter may own more than the bytes, or the owner of borrowed memory expects to see writes and to get it
//! back. A storage whose writable address was handed out is not shared, either. These are copied at once, and
//! only the part that the handle covers.

use super::cell::StorageCell;
use super::memory::Origin;
use super::transfer::{ByteRun, transfer};
use super::{Storage, WHOLE};
use crate::borrows::Flags;
use crate::error::Result;
use orlop_alloc::MemoryBlock;

impl Storage {
    /// Creates a storage with the same bytes in constant time: they are copied at the first write to one of
    /// the two.
    ///
    /// The copy, whenever it is made, is memory of the storage's context, whichever is current then.
    ///
    /// Foreign memory, a storage whose address was handed out for writing, and host memory that another
    /// thread is sending to a device are copied at once.
    ///
    /// # Errors
    ///
    /// [`Borrowed`](crate::Error::Borrowed) during a write; if a copy is needed: out of memory, and
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible) for address space without memory.
    pub fn lazy_clone(&self) -> Result<Self> {
        let (start, len) = (self.start, self.len);
        // For a part of a storage that has to be copied, only that part, as a new storage. A mapped file is
        // one storage of which each tensor has a part.
        let part = |block: &MemoryBlock, bytes| match len {
            WHOLE => Ok((copy_of(block, bytes)?, bytes)),
            _ => copy_part(block, start, self.bytes_of(bytes)),
        };
        let clone = self.cell.in_context(|| self.cell.lazy_clone(MemoryBlock::has_allocator, part))?;
        let clone = Self::of_cell(clone);
        Ok(if clone.is_copy_on_write() { Self { start, len, ..clone } } else { clone })
    }

    /// Ensures that the memory has no other owner, by a copy if a lazy clone shares it. Returns `false` if it
    /// has other users or must stay as it is: other handles, immutable memory, memory of another process.
    pub(crate) fn make_unique(&self) -> Result<bool> {
        if !self.is_unique() || self.cell.borrows.flags().has(Flags::IMMUTABLE.and(Flags::FOREIGN_PROCESS)) {
            return Ok(false);
        }
        let mut guard = self.cell.change()?;
        self.cell.in_context(|| guard.make_sole_owner(copy_if_shared))?;
        // The handles again, under the guard: user code may have made some.
        drop(guard);
        Ok(self.is_unique())
    }

    /// Returns `true` if the next write may have to copy the bytes.
    #[must_use]
    pub fn is_copy_on_write(&self) -> bool {
        self.cell.borrows.flags().has(Flags::COPY_ON_WRITE)
    }
}

impl StorageCell {
    /// Creates a cell that shares the block copy-on-write, if `may` allows it; otherwise a cell with the copy
    /// and its size from `copy`.
    pub(crate) fn lazy_clone(
        &self,
        may: impl FnOnce(&MemoryBlock) -> bool,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<(MemoryBlock, usize)>,
    ) -> Result<Self> {
        let guard = self.read()?;
        if self.borrows.flags().has(Flags::DEVICE_READS) {
            // A writer of the clone would not know of the streams.
            self.wait_for_readers()?;
        }
        let flags = self.borrows.flags();
        // A thread that sends the memory meanwhile sees this flag, or this thread sees that one's.
        let never = Flags::ESCAPED.and(Flags::FOREIGN_PROCESS).and(Flags::IMMUTABLE).and(Flags::DEVICE_READS);
        if may(guard.block())
            && !flags.has(never)
            // A writer that comes after this reader sees the flag.
            && !self.borrows.set(Flags::COPY_ON_WRITE).has(Flags::DEVICE_READS.and(Flags::IMMUTABLE))
        {
            let block = guard.block().clone();
            let (bytes, fixed, context) = (guard.bytes(), self.fixed(), self.context());
            return Ok(self.with_origin(Self::new(block, bytes, Flags::COPY_ON_WRITE, fixed, context)));
        }
        let (block, bytes) = copy(guard.block(), guard.bytes())?;
        Ok(self.with_origin(Self::new(block, bytes, Flags::NONE, None, self.context())))
    }

    /// Gives a clone without memory the origin of this storage, if one is set.
    fn with_origin(&self, clone: Self) -> Self {
        if let Some(origin) = self.origin() {
            drop(clone.replace_origin(Some(origin)));
        }
        clone
    }
}

/// Returns a block like this one, with the same first `bytes` bytes.
pub(super) fn copy_of(block: &MemoryBlock, bytes: usize) -> Result<MemoryBlock> {
    let copy = Origin::like(block).allocate(block.requested.max(bytes))?;
    copy_bytes(&copy, block, 0, bytes)?;
    Ok(copy)
}

/// [`copy_of`] for a block that has other owners. If these are gone when memory was found, or not found, the
/// copy is of no use: its bytes are arbitrary.
pub(super) fn copy_if_shared(block: &MemoryBlock, bytes: usize) -> Result<MemoryBlock> {
    let is_shared = || !block.is_unique();
    let copy = Origin::like(block).allocate_while(block.requested.max(bytes), &is_shared)?;
    if is_shared() {
        copy_bytes(&copy, block, 0, bytes)?;
    }
    Ok(copy)
}

/// Returns a block with `bytes` bytes of this one, from `start`.
fn copy_part(block: &MemoryBlock, start: usize, bytes: usize) -> Result<(MemoryBlock, usize)> {
    let copy = Origin::like(block).allocate(bytes)?;
    copy_bytes(&copy, block, start, bytes)?;
    Ok((copy, bytes))
}

/// Copies `bytes` bytes of a block, from `start`, to the start of another, which nothing else accesses.
pub(super) fn copy_bytes(to: &MemoryBlock, from: &MemoryBlock, start: usize, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    debug_assert!(bytes <= to.granted && start.checked_add(bytes).is_some_and(|end| end <= from.granted));
    // SAFETY: the blocks are distinct, and have `bytes` bytes from there on; `to` is not shared, and `from`
    // is not written meanwhile (the caller reads it).
    unsafe { transfer(ByteRun::Block(to, 0), ByteRun::Block(from, start), bytes) }
}
