//! The bytes of a storage, and who may touch them (P24, P27).

use super::{ReadGuard, Storage, WriteGuard};
use crate::borrows::Flags;
use crate::error::{Error, Result};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// The bytes of a storage, for as long as nobody may write them.
#[derive(Debug)]
pub struct StorageBytes<'a> {
    ptr: NonNull<u8>,
    len: usize,
    _guard: ReadGuard<'a>,
}

/// The bytes of a storage, for as long as nobody else may read or write them.
#[derive(Debug)]
pub struct StorageBytesMut<'a> {
    ptr: NonNull<u8>,
    len: usize,
    _guard: WriteGuard<'a>,
}

impl Storage {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody writes; [`Error::AccessRefused`], [`Error::Unbound`];
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible) for memory of other devices.
    pub fn read(&self) -> Result<StorageBytes<'_>> {
        let guard = self.cell.read()?;
        let (base, len) = (guard.host()?, self.bytes_of(guard.bytes()));
        let start = if len == 0 { 0 } else { self.start };
        // SAFETY: inside the block: `start + len` is at most the bytes in use.
        Ok(StorageBytes { ptr: unsafe { base.add(start) }, len, _guard: guard })
    }

    /// The bytes, to be written. A copy that was put off is made first.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody reads or writes; [`Error::ReadOnly`], [`Error::AccessRefused`],
    /// [`Error::Unbound`]; out of memory if a copy is needed.
    pub fn write(&self) -> Result<StorageBytesMut<'_>> {
        let guard = self.cell.write()?;
        let (base, len) = (guard.host()?, self.bytes_of(guard.bytes()));
        let start = if len == 0 { 0 } else { self.start };
        // SAFETY: inside the block: `start + len` is at most the bytes in use.
        Ok(StorageBytesMut { ptr: unsafe { base.add(start) }, len, _guard: guard })
    }

    /// Where the bytes begin. What may be done with the address is for the caller to know: nothing keeps others away.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::read`].
    pub fn as_ptr(&self) -> Result<*const u8> {
        let guard = self.cell.read()?;
        Ok(guard.block().ptr.as_ptr().wrapping_add(self.start))
    }

    /// Where the bytes begin, to be written through by who knows what they do. A copy that was put off is made first, and
    /// from now on clones are real copies.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::write`].
    pub fn as_mut_ptr(&self) -> Result<*mut u8> {
        let guard = self.cell.write()?;
        self.cell.borrows.set(Flags::ESCAPED);
        Ok(guard.block().ptr.as_ptr().wrapping_add(self.start))
    }

    /// Refuses writes from now on, with this message.
    pub fn refuse_writes(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::NO_WRITES);
    }

    /// Refuses reads and writes from now on, with this message.
    pub fn refuse_access(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::NO_ACCESS);
    }

    /// Says that the memory cannot be written at all, such as a mapped file's or somebody else's: writes are refused with
    /// this message, for good, and so is resizing. Clones are real copies. With [`Storage::swap_data`] the memory takes that
    /// along.
    pub fn mark_immutable(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::IMMUTABLE);
    }

    /// Warns of the next write, once, with this message.
    pub fn warn_on_write(&self, message: &str) {
        self.cell.notes().set(message);
        self.cell.borrows.set(Flags::WARNS);
    }

    /// Takes back what [`Storage::refuse_writes`], [`Storage::refuse_access`] and [`Storage::warn_on_write`] did; not
    /// [`Storage::mark_immutable`].
    pub fn allow_access(&self) {
        self.cell.borrows.clear(Flags::NO_WRITES.and(Flags::NO_ACCESS).and(Flags::WARNS));
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.cell.borrows.flags().has(Flags::NO_WRITES.and(Flags::NO_ACCESS).and(Flags::IMMUTABLE))
    }

    /// Marks the memory as another process's (P27): it can be read and written, but not resized, swapped, or shared on.
    pub fn mark_foreign_process(&self) {
        self.cell.borrows.set(Flags::FOREIGN_PROCESS);
    }

    /// Whether the memory is another process's.
    #[must_use]
    pub fn is_foreign_process(&self) -> bool {
        self.cell.borrows.flags().has(Flags::FOREIGN_PROCESS)
    }

    pub(crate) fn check_own_process(&self, operation: &'static str) -> Result<()> {
        if self.is_foreign_process() { Err(Error::ForeignProcess { operation }) } else { Ok(()) }
    }
}

impl Deref for StorageBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid and initialised (a block's obligations), and nobody writes while the guard lives.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl Deref for StorageBytesMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid and initialised (a block's obligations), and nobody else writes while the guard lives.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for StorageBytesMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; nobody else has the bytes, and the guard is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

// SAFETY: shared access to bytes that nobody writes.
unsafe impl Send for StorageBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for StorageBytes<'_> {}
// SAFETY: the only access to the bytes, given out as references are.
unsafe impl Send for StorageBytesMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for StorageBytesMut<'_> {}
