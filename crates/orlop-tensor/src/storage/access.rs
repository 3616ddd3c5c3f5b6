//! Access to the bytes of a storage, and its restrictions.

use super::{Storage, TensorSlice, TensorSliceMut};
use crate::borrows::Flags;
use crate::error::{Error, Result};

impl Storage {
    /// Borrows the bytes for reading.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] during a write; [`Error::AccessRefused`], [`Error::Unbound`];
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible) for memory of other devices.
    pub fn read(&self) -> Result<TensorSlice<'_, u8>> {
        // Otherwise there is no byte, or readers are not counted.
        if self.is_whole()
            && self.cell.last() < usize::MAX
            && let Some(guard) = self.cell.try_read()
            && guard.block().is_host_accessible()
        {
            // SAFETY: a block's bytes in use are initialised (a block's obligations).
            return Ok(unsafe { TensorSlice::new(guard.block().ptr, guard.bytes(), guard) });
        }
        self.read_slowly()
    }

    #[inline(never)]
    fn read_slowly(&self) -> Result<TensorSlice<'_, u8>> {
        let guard = self.cell.read_range(self.range())?;
        let (base, len) = (guard.host()?, self.bytes_of(guard.bytes()));
        let start = if len == 0 { 0 } else { self.start };
        // SAFETY: inside the block: `start + len` is at most the bytes in use.
        let ptr = unsafe { base.add(start) };
        // SAFETY: as above, and as in `read`.
        Ok(unsafe { TensorSlice::new(ptr, len, guard) })
    }

    /// Borrows the bytes for writing. A deferred copy is made first.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] during a read or a write; [`Error::ReadOnly`], [`Error::AccessRefused`],
    /// [`Error::Unbound`]; out of memory if a copy is needed.
    pub fn write(&self) -> Result<TensorSliceMut<'_, u8>> {
        if self.is_whole()
            && let Some(guard) = self.cell.try_write()
            && guard.block().is_host_accessible()
        {
            // SAFETY: as in `read`.
            return Ok(unsafe { TensorSliceMut::new(guard.block().ptr, guard.bytes(), guard) });
        }
        self.write_slowly()
    }

    #[inline(never)]
    fn write_slowly(&self) -> Result<TensorSliceMut<'_, u8>> {
        let guard = self.cell.write_range(self.range())?;
        let (base, len) = (guard.host()?, self.bytes_of(guard.bytes()));
        let start = if len == 0 { 0 } else { self.start };
        // SAFETY: inside the block: `start + len` is at most the bytes in use.
        let ptr = unsafe { base.add(start) };
        // SAFETY: as above, and as in `read`.
        Ok(unsafe { TensorSliceMut::new(ptr, len, guard) })
    }

    /// Returns the address of the bytes. No guard is held: the caller has to ensure that the access is valid.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::read`].
    pub fn as_ptr(&self) -> Result<*const u8> {
        let guard = self.cell.read_range(self.range())?;
        Ok(guard.block().ptr.as_ptr().wrapping_add(self.start))
    }

    /// Returns the address of the bytes for writing, without a guard. A deferred copy is made first, and
    /// later clones are real copies.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::write`].
    pub fn as_mut_ptr(&self) -> Result<*mut u8> {
        let guard = self.cell.write_range(self.range())?;
        self.cell.borrows.set(Flags::ESCAPED);
        Ok(guard.block().ptr.as_ptr().wrapping_add(self.start))
    }

    /// Refuses writes from now on. `message` becomes part of the error.
    pub fn refuse_writes(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::NO_WRITES);
    }

    /// Refuses reads and writes from now on. `message` becomes part of the error.
    pub fn refuse_access(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::NO_ACCESS);
    }

    /// Marks memory that can never be written, such as a read-only mapping or shared memory. Clones are real
    /// copies. Refused for good, with `message` in the error, are writes, and whatever would replace or
    /// release the memory: resizing, [`Storage::swap_data`], [`Storage::clear`], [`Storage::into_block`],
    /// [`Storage::bind`]. It is released with the last handle, and its [block](Storage::block) never becomes
    /// one that could be written, unless the memory is planned.
    ///
    /// So readers need not be counted: a read costs one load, on any number of threads. A writer that holds a
    /// guard at this time completes its access, and readers are refused until then.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::{Error, Tensor};
    ///
    /// let weights = Tensor::ones([64], DType::F32)?;
    /// weights.storage()?.mark_immutable("weights");
    /// assert_eq!(weights.as_slice::<f32>()?[63], 1.0);
    /// assert!(matches!(weights.storage()?.clear(), Err(Error::ReadOnly { .. })));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    pub fn mark_immutable(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.mark_immutable();
    }

    /// Logs a warning with `message` on the next write, once.
    pub fn warn_on_write(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::WARNS);
    }

    /// Reverts [`Storage::refuse_writes`], [`Storage::refuse_access`] and [`Storage::warn_on_write`], but not
    /// [`Storage::mark_immutable`].
    pub fn allow_access(&self) {
        self.cell.borrows.clear(Flags::NO_WRITES.and(Flags::NO_ACCESS).and(Flags::WARNS));
    }

    /// Returns `true` if writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.cell.borrows.flags().has(Flags::NO_WRITES.and(Flags::NO_ACCESS).and(Flags::IMMUTABLE))
    }

    /// Marks the memory as another process's: it can be read and written, but not resized, swapped or
    /// exported.
    pub fn mark_foreign_process(&self) {
        self.cell.borrows.set(Flags::FOREIGN_PROCESS);
    }

    /// Returns `true` if the memory belongs to another process.
    #[must_use]
    pub fn is_foreign_process(&self) -> bool {
        self.cell.borrows.flags().has(Flags::FOREIGN_PROCESS)
    }

    pub(crate) fn check_own_process(&self, operation: &'static str) -> Result<()> {
        if self.is_foreign_process() { Err(Error::ForeignProcess { operation }) } else { Ok(()) }
    }
}
