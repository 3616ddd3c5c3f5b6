//! Storages that change: size, memory, or both (M1, M8, P3, P25, P26).

use super::cow::copy_bytes;
use super::guard::Former;
use super::memory::Origin;
use super::{Cell, Storage, WHOLE, WriteGuard};
use crate::TensorOptions;
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use std::sync::Arc;

/// What is true of the memory, not of the storage.
const OF_THE_MEMORY: Flags = Flags::COPY_ON_WRITE.and(Flags::ESCAPED).and(Flags::IMMUTABLE);

impl Storage {
    /// Whether [`Storage::resize`] can be.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        self.check_resizable().is_ok()
    }

    fn check_resizable(&self) -> Result<()> {
        // Other memory could be written.
        if self.cell.borrows.flags().has(Flags::IMMUTABLE) {
            return Err(Error::ReadOnly { reason: self.cell.notes().get() });
        }
        match self.cell.fixed() {
            _ if self.len != WHOLE => Err(Error::NotResizable { why: Unresizable::Part }),
            Some(why) => Err(Error::NotResizable { why }),
            None => self.check_own_process("resizing"),
        }
    }

    /// Makes it so many bytes large. What was there stays, as far as there is room; what is new is whatever it is. No
    /// other memory is needed up to [`Storage::capacity`]. Above, the block grows where it is, if there is room behind it: a
    /// budget is charged for the difference only. Else all is copied to a larger block of the same allocator, and for a while
    /// there are both.
    /// With zero bytes the memory is given back, and only the device, the kind and the allocator stay.
    ///
    /// If that allocator is the one that the current context has for the device and the kind, the context is asked, so that
    /// its budgets and retries apply. It is asked too where there is no allocator to return to: if all handles of it are
    /// gone.
    ///
    /// Tensors that look at bytes which are there no more are refused access until they are.
    ///
    /// # Errors
    ///
    /// [`Error::NotResizable`], [`Error::ForeignProcess`]; [`Error::ReadOnly`] after [`Storage::mark_immutable`];
    /// [`Error::Borrowed`] while somebody reads or writes; out of memory, and then nothing has changed.
    pub fn resize(&self, bytes: usize) -> Result<()> {
        self.check_resizable()?;
        let mut guard = self.cell.change()?;
        // Again: the memory may have been swapped just then.
        self.check_resizable()?;
        if self.cell.borrows.flags().has(Flags::UNBOUND) {
            return Err(Error::Unbound);
        }
        let former = self.resize_inside(&mut guard, bytes)?;
        drop(guard);
        drop(former);
        Ok(())
    }

    /// Makes it so many bytes large. What it had, if it has other memory now, is for the caller to drop.
    fn resize_inside(&self, guard: &mut WriteGuard<'_>, bytes: usize) -> Result<Option<Former>> {
        let noted = self.cell.origin();
        if bytes > 0 && (bytes <= guard.block().requested || noted.is_none() && grows(guard, bytes)?) {
            self.cell.set_bytes(bytes);
            self.cell.bump();
            return Ok(None);
        }
        let origin = match noted {
            // Where more is to come from later: an empty block does not know.
            None if bytes == 0 => {
                Some(Origin::of_block(guard.block())).filter(Origin::is_chosen).map(Arc::new)
            }
            noted => noted,
        };
        let block = match &origin {
            Some(origin) => origin.allocate(bytes)?,
            None => Origin::like(guard.block()).allocate(bytes)?,
        };
        copy_bytes(&block, guard.block(), 0, guard.bytes().min(bytes))?;
        let origin = origin.filter(|_| bytes == 0);
        Ok(Some(guard.install(block, bytes, origin)))
    }

    /// Gives the memory back and keeps the device, the kind and the allocator.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::resize`].
    pub fn reset(&self) -> Result<()> {
        self.resize(0)
    }

    /// Exchanges the memory of two storages on one device: all tensors that look at one see the other's bytes.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMismatch`]; [`Error::NotResizable`] for parts of storages; [`Error::ForeignProcess`];
    /// [`Error::Borrowed`] while somebody reads or writes one of them.
    pub fn swap_data(&self, other: &Self) -> Result<()> {
        for storage in [self, other] {
            storage.check_own_process("swapping")?;
            if storage.len != WHOLE {
                return Err(Error::NotResizable { why: Unresizable::Part });
            }
        }
        if self.device() != other.device() {
            return Err(Error::DeviceMismatch { expected: self.device(), actual: other.device() });
        }
        if self.is_alias_of(other) {
            return Ok(());
        }
        let (mine, theirs) = (&*self.cell, &*other.cell);
        let (mut my_guard, mut their_guard) = (mine.change()?, theirs.change()?);
        // What was noted is exchanged, and nothing is left over to be dropped.
        let their_origin = theirs.replace_origin(mine.origin());
        drop(mine.replace_origin(their_origin));
        my_guard.swap(&mut their_guard);
        let (my_bytes, my_kind) = (mine.bytes(), mine.kind());
        mine.set_bytes(theirs.bytes());
        mine.set_kind(theirs.kind());
        theirs.set_bytes(my_bytes);
        theirs.set_kind(my_kind);
        let my_fixed = mine.fixed();
        mine.set_fixed(theirs.fixed());
        theirs.set_fixed(my_fixed);
        // What is true of the memory goes with it.
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

    /// A storage whose size is not known yet (P26). Every access is refused until [`Storage::bind`], which gets the memory
    /// as the options say here: zeroed, from this context or this allocator.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] if the kind cannot be on the device, or nobody serves the device.
    pub fn unbound(options: &TensorOptions<'_>) -> Result<Self> {
        let mut memory = options.memory;
        let nothing = memory.allocate(0)?;
        let origin = Origin::of(&options.memory, nothing.device);
        let cell = Cell::new(nothing, 0, Flags::UNBOUND, None);
        drop(cell.replace_origin(Some(Arc::new(origin))));
        Ok(Self::of_cell(cell))
    }

    /// Whether it waits for its size.
    #[must_use]
    pub fn is_unbound(&self) -> bool {
        self.cell.borrows.flags().has(Flags::UNBOUND)
    }

    /// Gets the memory, now that the size is known.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyBound`]; out of memory.
    pub fn bind(&self, bytes: usize) -> Result<()> {
        let mut guard = self.cell.change()?;
        if !self.is_unbound() {
            return Err(Error::AlreadyBound);
        }
        let former = self.resize_inside(&mut guard, bytes)?;
        self.cell.borrows.clear(Flags::UNBOUND);
        drop(guard);
        drop(former);
        Ok(())
    }
}

/// Whether the block becomes that large where it is.
fn grows(guard: &mut WriteGuard<'_>, bytes: usize) -> Result<bool> {
    let rounded = guard.block().align.round_up(bytes)?;
    Ok(rounded > guard.block().requested && guard.grow(rounded))
}
