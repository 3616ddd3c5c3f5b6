//! Acquiring guards: of the whole storage, of a range of its bytes, and of the block.
//!
//! Accesses to the whole try a fast path first, which has no error and no conditions. Everything else is out
//! of line.

use super::cell::StorageCell;
use super::guard::{ChangeGuard, InspectGuard, ReadGuard, Registration, WriteGuard};
use crate::borrows::{Flags, PartWrite};
use crate::error::Result;
use orlop_alloc::MemoryBlock;
use orlop_host::shield::report;
use std::ops::Range;

impl StorageCell {
    /// Acquires a read guard of the whole, if that is possible without conditions. For a storage that may be
    /// immutable, compare with [`StorageCell::last`] first: this counts the reader.
    #[inline]
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_>> {
        self.borrows.try_read().then(|| ReadGuard::new(self, Registration::WHOLE))
    }

    /// Returns a guard of a storage that is constant.
    #[inline]
    pub(crate) fn try_read_constant(&self) -> Option<ReadGuard<'_>> {
        self.borrows.is_constant().then(|| ReadGuard::new(self, Registration::NONE))
    }

    /// Acquires a read guard of the whole.
    pub(crate) fn read(&self) -> Result<ReadGuard<'_>> {
        self.read_range(0..usize::MAX)
    }

    /// Acquires a read guard of a range of bytes.
    #[inline]
    pub(crate) fn read_range(&self, range: Range<usize>) -> Result<ReadGuard<'_>> {
        if let Some(guard) = self.try_read_constant() {
            return Ok(guard);
        }
        match self.read_slowly(range) {
            Ok(registration) => Ok(ReadGuard::new(self, registration)),
            Err(error) => Err(error),
        }
    }

    #[inline(never)]
    fn read_slowly(&self, range: Range<usize>) -> Result<Registration> {
        let registered = if range.start == 0 && range.end >= self.bytes() {
            self.borrows.read().map(|()| Registration::WHOLE)
        } else if range.is_empty() {
            self.borrows.read_nothing().map(|()| Registration::EMPTY)
        } else {
            self.notes().parts().read(&self.borrows, range).map(Registration::part)
        };
        registered.map_err(|error| self.explain(error))
    }

    /// Acquires a write guard of the whole, if that is possible without conditions.
    #[inline]
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_>> {
        self.borrows.try_write().then(|| {
            self.bump();
            WriteGuard::whole(self)
        })
    }

    /// Acquires a write guard of a range of bytes, which are exclusive: a deferred copy is made now.
    #[inline(never)]
    pub(crate) fn write_range(&self, range: Range<usize>) -> Result<WriteGuard<'_>> {
        self.write_by(range, super::cow::copy_if_shared)
    }

    /// Acquires a write guard of a range of bytes. A deferred copy is made by `copy`.
    pub(super) fn write_by(
        &self,
        range: Range<usize>,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<WriteGuard<'_>> {
        if range.start == 0 && range.end >= self.bytes() {
            return self.write_whole(copy);
        }
        if range.is_empty() {
            return self.write_nothing(copy);
        }
        let parts = self.notes().parts();
        let granted = parts.write(&self.borrows, range.clone()).map_err(|error| self.explain(error))?;
        match granted {
            PartWrite::Granted(index, flags) => {
                let guard = WriteGuard::special(self, Registration::part(index));
                if flags.has(Flags::WARNS) {
                    self.warn();
                }
                self.bump_shared();
                Ok(guard)
            }
            PartWrite::NeedsWhole => {
                let guard = self.write_whole(copy)?;
                let index = parts.narrow(&self.borrows, range)?;
                Ok(guard.narrowed(Registration::part(index)))
            }
        }
    }

    /// Acquires a write guard of an empty range. The block has no other owner under it, as under every write
    /// guard.
    fn write_nothing(
        &self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<WriteGuard<'_>> {
        if self.borrows.write_nothing().map_err(|error| self.explain(error))? {
            return Ok(WriteGuard::special(self, Registration::EMPTY));
        }
        let guard = self.write_whole(copy)?;
        self.borrows.narrow_to_nothing();
        Ok(guard.narrowed(Registration::EMPTY))
    }

    fn write_whole(
        &self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<WriteGuard<'_>> {
        let flags = self.borrows.write().map_err(|error| self.explain(error))?;
        let guard = self.before_write(ChangeGuard::new(self), flags, copy)?;
        self.bump();
        Ok(guard)
    }

    fn before_write<'a>(
        &self,
        mut guard: ChangeGuard<'a>,
        flags: Flags,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<WriteGuard<'a>> {
        if flags.has(Flags::WARNS) {
            self.warn();
        }
        if flags.has(Flags::DEVICE_READS) {
            self.wait_for_readers()?;
        }
        if flags.has(Flags::COPY_ON_WRITE) {
            self.in_context(|| guard.make_sole_owner(copy))?;
        }
        Ok(guard.into_write())
    }

    /// Unregisters the part at this index.
    #[inline(never)]
    pub(super) fn end_part(&self, index: u32) {
        self.notes().parts().end(&self.borrows, index);
    }

    /// Acquires a guard of the block and not of its bytes, whatever the flags say about these.
    pub(crate) fn inspect(&self) -> Result<InspectGuard<'_>> {
        self.borrows.inspect().map(|()| InspectGuard::new(self))
    }

    /// Acquires the guard to change the storage itself, whatever the flags say about its bytes. Immutable
    /// storages are refused.
    pub(super) fn change(&self) -> Result<ChangeGuard<'_>> {
        let flags = self.borrows.change().map_err(|error| self.explain(error))?;
        let guard = ChangeGuard::new(self);
        if flags.has(Flags::DEVICE_READS) {
            self.wait_for_readers()?;
        }
        Ok(guard)
    }

    #[cold]
    fn warn(&self) {
        if !self.borrows.clear(Flags::WARNS).has(Flags::WARNS) {
            return;
        }
        let note = self.notes().get();
        let (bytes, note) = (self.bytes(), note.as_deref());
        report(|| tracing::warn!(device = %self.device, bytes, note, "write to a guarded storage"));
    }
}
