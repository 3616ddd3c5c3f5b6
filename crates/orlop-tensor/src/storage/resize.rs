//! Changing a storage's size or memory.

use super::cow::copy_bytes;
use super::guard::{ChangeGuard, ReplacedMemory};
use super::memory::Origin;
use super::{Storage, StorageCell, TensorOptions};
use crate::borrows::Flags;
use crate::error::{Error, Result};
use std::sync::Arc;

/// The flags that belong to the memory, not to the storage. Immutable memory stays with its storage.
const OF_THE_MEMORY: Flags = Flags::COPY_ON_WRITE.and(Flags::ESCAPED);

impl Storage {
    /// Returns `true` if [`Storage::resize`] is possible.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        self.check_resizable().is_ok()
    }

    fn check_resizable(&self) -> Result<()> {
        // New memory would be writable.
        if self.cell.borrows.flags().has(Flags::IMMUTABLE) {
            return Err(Error::ReadOnly { reason: self.cell.notes().get() });
        }
        self.check_whole()?;
        match self.cell.fixed() {
            Some(why) => Err(Error::NotResizable { why }),
            None => self.check_own_process("resizing"),
        }
    }

    /// Resizes the storage to `bytes` bytes. Existing contents are kept up to the new size; new bytes are
    /// arbitrary. No allocation happens up to [`Storage::capacity`]. Above it, the block grows in place if
    /// its allocator can, and a budget is charged for the difference only. Otherwise the contents are copied
    /// to a larger block of the same allocator, and both blocks exist during the copy. With 0 bytes, the
    /// memory is freed, and the device, the kind and the allocator are kept.
    ///
    /// Growth is within the budgets of the context that allocated the memory, whichever context is current.
    /// If that context has the allocator for the device and the kind, the allocation goes through it, with
    /// its reclaim ladder. It also does if the allocator is gone because all of its handles were dropped. If
    /// the context is gone, the current one takes its place.
    ///
    /// Tensors with elements beyond the new size cannot be accessed until it is large enough again.
    ///
    /// # Errors
    ///
    /// [`Error::NotResizable`], [`Error::ForeignProcess`]; [`Error::ReadOnly`] after
    /// [`Storage::mark_immutable`]; [`Error::Borrowed`] during a read or a write; out of memory. The storage
    /// is then unchanged.
    pub fn resize(&self, bytes: usize) -> Result<()> {
        self.check_resizable()?;
        let mut guard = self.cell.change()?;
        // Again under the guard: the memory may have been swapped.
        self.check_resizable()?;
        if self.cell.borrows.flags().has(Flags::UNBOUND) {
            return Err(self.cell.unbound());
        }
        let former = self.cell.in_context(|| self.resize_inside(&mut guard, bytes))?;
        drop(guard);
        drop(former);
        Ok(())
    }

    /// Resizes under a write guard. The caller drops the previous memory, if it was replaced.
    fn resize_inside(&self, guard: &mut ChangeGuard<'_>, bytes: usize) -> Result<Option<ReplacedMemory>> {
        let noted = self.cell.origin();
        if bytes > 0 && (bytes <= guard.block().requested || noted.is_none() && grows(guard, bytes)?) {
            self.cell.set_bytes(bytes);
            self.cell.bump();
            return Ok(None);
        }
        let origin = match noted {
            // An empty block does not know its allocator, so the origin is kept.
            None if bytes == 0 => {
                Some(Origin::of_block(guard.block())).filter(Origin::is_chosen).map(Arc::new)
            }
            noted => noted,
        };
        let was_shared = !guard.block().is_unique();
        let allocated = match &origin {
            Some(origin) => origin.allocate(bytes),
            None => {
                let block = guard.block();
                Origin::like(block).allocate_while(bytes, &|| !(was_shared && block.is_unique()))
            }
        };
        // Allocating runs user code, which may have dropped the other owners of a lazy copy.
        let lost_owners = origin.is_none() && was_shared && guard.block().is_unique();
        if lost_owners && grows(guard, bytes)? {
            self.cell.set_bytes(bytes);
            self.cell.bump();
            return Ok(allocated.ok().map(ReplacedMemory::of_block));
        }
        let block = match allocated {
            Err(_) if lost_owners => Origin::like(guard.block()).allocate(bytes)?,
            allocated => allocated?,
        };
        copy_bytes(&block, guard.block(), 0, guard.bytes().min(bytes))?;
        let origin = origin.filter(|_| bytes == 0);
        Ok(Some(guard.install(block, bytes, origin)))
    }

    /// Frees the memory and keeps the device, the kind and the allocator.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::resize`].
    pub fn reset(&self) -> Result<()> {
        self.resize(0)
    }

    /// Swaps the memory of two storages on one device: all tensors over one see the other's bytes.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMismatch`]; [`Error::NotResizable`] for parts of storages and planned memory;
    /// [`Error::ForeignProcess`]; [`Error::ReadOnly`] if one is [immutable](Storage::mark_immutable);
    /// [`Error::Borrowed`] during a read or a write of one of them.
    pub fn swap_data(&self, other: &Self) -> Result<()> {
        for storage in [self, other] {
            storage.check_own_process("swapping")?;
            storage.check_whole()?;
        }
        self.check_device(other.device())?;
        if self.is_alias_of(other) {
            return Ok(());
        }
        let (mine, theirs) = (&*self.cell, &*other.cell);
        let (mut my_guard, mut their_guard) = (mine.change()?, theirs.change()?);
        mine.check_not_planned()?;
        theirs.check_not_planned()?;
        // The origins are swapped, so none is dropped here.
        let their_origin = theirs.replace_origin(mine.origin());
        drop(mine.replace_origin(their_origin));
        drop(mine.replace_revoked(theirs.replace_revoked(mine.replace_revoked(None))));
        my_guard.swap(&mut their_guard);
        let (my_bytes, my_kind) = (mine.bytes(), mine.kind());
        mine.set_bytes(theirs.bytes());
        mine.set_kind(theirs.kind());
        theirs.set_bytes(my_bytes);
        theirs.set_kind(my_kind);
        let my_context = mine.context();
        mine.set_context(theirs.context());
        theirs.set_context(my_context);
        let my_fixed = mine.fixed();
        mine.set_fixed(theirs.fixed());
        theirs.set_fixed(my_fixed);
        // Flags of the memory move with it.
        let moves = OF_THE_MEMORY.and(Flags::UNBOUND);
        let (my_flags, their_flags) = (mine.borrows.flags(), theirs.borrows.flags());
        mine.borrows.clear(moves);
        mine.borrows.set(their_flags.only(moves));
        theirs.borrows.clear(moves);
        theirs.borrows.set(my_flags.only(moves));
        mine.bump();
        theirs.bump();
        Ok(())
    }

    /// Creates a storage whose size is not known yet. Every access fails until [`Storage::bind`], which
    /// allocates the memory with these options: zeroed, context, allocator.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] if the kind cannot be on the device, or the device has no allocator.
    pub fn unbound(options: &TensorOptions<'_>) -> Result<Self> {
        let (nothing, context) = options.memory.allocate_slowly(0)?;
        let origin = Origin::of(&options.memory, nothing.device);
        let cell = StorageCell::new(nothing, 0, Flags::UNBOUND, None, context);
        drop(cell.replace_origin(Some(Arc::new(origin))));
        Ok(Self::of_cell(cell))
    }

    /// Returns `true` for a storage that is not bound to memory yet.
    #[must_use]
    pub fn is_unbound(&self) -> bool {
        self.cell.borrows.flags().has(Flags::UNBOUND)
    }

    /// Allocates the memory of an unbound storage.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyBound`]; out of memory.
    pub fn bind(&self, bytes: usize) -> Result<()> {
        let mut guard = self.cell.change()?;
        if !self.is_unbound() {
            return Err(Error::AlreadyBound);
        }
        let former = self.cell.in_context(|| self.resize_inside(&mut guard, bytes))?;
        self.cell.borrows.clear(Flags::UNBOUND);
        drop(guard);
        drop(former);
        Ok(())
    }
}

/// Grows the block in place to this size. Returns whether that succeeded.
fn grows(guard: &mut ChangeGuard<'_>, bytes: usize) -> Result<bool> {
    let rounded = guard.block().align.round_up(bytes)?;
    Ok(rounded > guard.block().requested && guard.grow(rounded))
}
