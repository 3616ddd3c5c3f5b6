//! Storages that change: size, memory, or both (M1, M8, P3, P25, P26).

use super::cow::copy_bytes;
use super::memory::Origin;
use super::{Cell, Storage, WHOLE, WriteGuard};
use crate::TensorOptions;
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};

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
        self.resize_inside(&mut guard, bytes)
    }

    fn resize_inside(&self, guard: &mut WriteGuard<'_>, bytes: usize) -> Result<()> {
        if bytes == 0 || bytes > guard.block().requested {
            let noted = self.cell.take_origin();
            match self.move_to(guard, noted.as_ref(), bytes) {
                Ok(later) => self.cell.set_origin(if bytes == 0 { noted.or(later) } else { None }),
                Err(error) => {
                    self.cell.set_origin(noted);
                    return Err(error);
                }
            }
        }
        self.cell.set_bytes(bytes);
        self.cell.bump();
        Ok(())
    }

    /// Puts the bytes into a block of another size, from where they are to come. Where more are to come from when there are
    /// none: an empty block does not know.
    fn move_to(
        &self,
        guard: &mut WriteGuard<'_>,
        noted: Option<&Origin>,
        bytes: usize,
    ) -> Result<Option<Origin>> {
        if bytes > 0 && noted.is_none() {
            let rounded = guard.block().align.round_up(bytes)?;
            if rounded > guard.block().requested && guard.grow(rounded) {
                return Ok(None);
            }
        }
        let later = (bytes == 0 && noted.is_none()).then(|| Origin::of_block(guard.block()));
        let later = later.filter(Origin::is_chosen);
        let other = match noted.or(later.as_ref()) {
            Some(origin) => origin.allocate(bytes)?,
            None => Origin::like(guard.block()).allocate(bytes)?,
        };
        copy_bytes(&other, guard.block(), 0, guard.bytes().min(bytes))?;
        drop(guard.replace(other));
        // The new memory is nobody else's. What must not be written is not written there either.
        self.cell.borrows.clear(Flags::COPY_ON_WRITE.and(Flags::ESCAPED));
        Ok(later)
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
        let block = my_guard.replace(their_guard.block().clone());
        drop(their_guard.replace(block));
        let (my_bytes, my_kind) = (mine.bytes(), mine.kind());
        mine.set_bytes(theirs.bytes());
        mine.set_kind(theirs.kind());
        theirs.set_bytes(my_bytes);
        theirs.set_kind(my_kind);
        let my_fixed = mine.fixed();
        mine.set_fixed(theirs.fixed());
        theirs.set_fixed(my_fixed);
        let my_origin = mine.take_origin();
        mine.set_origin(theirs.take_origin());
        theirs.set_origin(my_origin);
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
        cell.set_origin(Some(origin));
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
        self.resize_inside(&mut guard, bytes)?;
        self.cell.borrows.clear(Flags::UNBOUND);
        Ok(())
    }
}
