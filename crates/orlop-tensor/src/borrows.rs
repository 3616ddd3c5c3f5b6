//! A storage's borrow state, packed into one atomic word.
//!
//! Handles to a storage alias, on one thread and on several, so a `&mut` handle says nothing about its bytes.
//! The word works like `RefCell`, but across threads: any number of readers or one writer, and a conflicting
//! access fails at once. Nothing blocks, so nothing can deadlock.
//!
//! ```text
//!  31                  23   22       21        20                     0
//! ┌─────────────────────┬────────┬──────────┬────────────────────────┐
//! │ flags               │ writer │ too many │ readers                │
//! └─────────────────────┴────────┴──────────┴────────────────────────┘
//! ```
//!
//! Flags are the other conditions of an access: reads refused, writes refused, a copy to make first. They
//! share the word so that one load checks everything.
//!
//! # Ordering
//!
//! - `borrows.end_write` (release) pairs with `borrows.read` and `borrows.write` (acquire): an access to
//!   the bytes after a writer sees what it wrote;
//! - `borrows.end_read` (release) pairs with `borrows.write`: a reader's loads happen before the next
//!   writer's stores.

use crate::error::{Borrower, Error, Result};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::ordering;

/// The state word; see the module documentation.
#[derive(Debug)]
pub(crate) struct Borrows(AtomicU32);

const READERS: u32 = (1 << 21) - 1;
const TOO_MANY: u32 = 1 << 21;
const WRITER: u32 = 1 << 22;

/// The conditions that an access has to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// Streams may still read the memory, which is the host's. A writer waits for them.
    pub(crate) const DEVICE_READS: Self = Self(1 << 23);
    /// The memory cannot be written. This flag is never cleared.
    pub(crate) const IMMUTABLE: Self = Self(1 << 24);
    /// Reads and writes are refused.
    pub(crate) const NO_ACCESS: Self = Self(1 << 25);
    pub(crate) const NO_WRITES: Self = Self(1 << 26);
    /// The first write is logged as a warning.
    pub(crate) const WARNS: Self = Self(1 << 27);
    /// The block may have other owners, which must not see writes.
    pub(crate) const COPY_ON_WRITE: Self = Self(1 << 28);
    /// A writable address was handed out, so writes may happen at any time.
    pub(crate) const ESCAPED: Self = Self(1 << 29);
    /// There is no memory yet.
    pub(crate) const UNBOUND: Self = Self(1 << 30);
    /// The memory belongs to another process.
    pub(crate) const FOREIGN_PROCESS: Self = Self(1 << 31);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn only(self, those: Self) -> Self {
        Self(self.0 & those.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

const NO_READS: u32 = TOO_MANY | WRITER | Flags::NO_ACCESS.0 | Flags::UNBOUND.0;
const NOT_WRITTEN: Flags = Flags::NO_WRITES.and(Flags::IMMUTABLE).and(Flags::NO_ACCESS).and(Flags::UNBOUND);
const BUSY: u32 = READERS | TOO_MANY | WRITER;

impl Borrows {
    pub(crate) fn new(flags: Flags) -> Self {
        Self(AtomicU32::new(flags.0))
    }

    /// Registers a reader.
    #[inline]
    pub(crate) fn read(&self) -> Result<()> {
        let before = self.0.fetch_add(1, ordering!("borrows.read", Acquire));
        if before & NO_READS == 0 { Ok(()) } else { self.refuse_read(before) }
    }

    #[cold]
    #[inline(never)]
    fn refuse_read(&self, before: u32) -> Result<()> {
        // Relaxed: this reader was refused, so it did not access anything.
        self.0.fetch_sub(1, Ordering::Relaxed);
        Err(match before {
            _ if before & Flags::UNBOUND.0 != 0 => Error::Unbound,
            _ if before & Flags::NO_ACCESS.0 != 0 => Error::AccessRefused { reason: None },
            _ if before & WRITER != 0 => Error::Borrowed { by: Borrower::Writer },
            _ => Error::Borrowed { by: Borrower::Readers },
        })
    }

    /// Unregisters a reader.
    #[inline]
    pub(crate) fn end_read(&self) {
        self.0.fetch_sub(1, ordering!("borrows.end_read", Release));
    }

    /// Registers the writer. The returned flags say what it has to do first.
    #[inline]
    pub(crate) fn write(&self) -> Result<Flags> {
        match self.0.compare_exchange(0, WRITER, ordering!("borrows.write", Acquire), Ordering::Relaxed) {
            Ok(_) => Ok(Flags::NONE),
            Err(word) => self.write_with(word, NOT_WRITTEN),
        }
    }

    /// Registers the writer of the storage itself, whatever the flags say about its bytes.
    #[inline]
    pub(crate) fn write_anyway(&self) -> Result<Flags> {
        self.write_with(self.0.load(Ordering::Relaxed), Flags::NONE)
    }

    #[cold]
    #[inline(never)]
    fn write_with(&self, mut word: u32, refused: Flags) -> Result<Flags> {
        loop {
            match word {
                _ if word & WRITER != 0 => return Err(Error::Borrowed { by: Borrower::Writer }),
                _ if word & BUSY != 0 => return Err(Error::Borrowed { by: Borrower::Readers }),
                _ if word & refused.0 & Flags::UNBOUND.0 != 0 => return Err(Error::Unbound),
                _ if word & refused.0 & Flags::NO_ACCESS.0 != 0 => {
                    return Err(Error::AccessRefused { reason: None });
                }
                _ if word & refused.0 != 0 => return Err(Error::ReadOnly { reason: None }),
                _ => {}
            }
            let acquire = ordering!("borrows.write_slowly", Acquire);
            match self.0.compare_exchange(word, word | WRITER, acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Flags(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Unregisters the writer.
    #[inline]
    pub(crate) fn end_write(&self) {
        self.0.fetch_sub(WRITER, ordering!("borrows.end_write", Release));
    }

    /// Sets flags, and returns those that were set. The caller is a reader or the writer. Relaxed: the next
    /// access reads the same word.
    pub(crate) fn set(&self, flags: Flags) -> Flags {
        Flags(self.0.fetch_or(flags.0, Ordering::Relaxed) & !BUSY)
    }

    /// Clears flags.
    pub(crate) fn clear(&self, flags: Flags) {
        self.0.fetch_and(!flags.0, Ordering::Relaxed);
    }

    pub(crate) fn flags(&self) -> Flags {
        Flags(self.0.load(Ordering::Relaxed) & !BUSY)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_or_a_writer() {
        let borrows = Borrows::new(Flags::NONE);
        borrows.read().unwrap();
        borrows.read().unwrap();
        assert!(matches!(borrows.write(), Err(Error::Borrowed { by: Borrower::Readers })));
        borrows.end_read();
        borrows.end_read();
        assert_eq!(borrows.write().unwrap(), Flags::NONE);
        assert!(matches!(borrows.read(), Err(Error::Borrowed { by: Borrower::Writer })));
        assert!(matches!(borrows.write(), Err(Error::Borrowed { by: Borrower::Writer })));
        borrows.end_write();
        borrows.read().unwrap();
    }

    #[test]
    fn flags_stand_in_the_way() {
        let borrows = Borrows::new(Flags::NO_WRITES.and(Flags::COPY_ON_WRITE));
        borrows.read().unwrap();
        borrows.end_read();
        assert!(matches!(borrows.write(), Err(Error::ReadOnly { .. })));
        borrows.clear(Flags::NO_WRITES);
        assert!(borrows.write().unwrap().has(Flags::COPY_ON_WRITE));
        borrows.end_write();
        borrows.set(Flags::NO_ACCESS);
        assert!(matches!(borrows.read(), Err(Error::AccessRefused { .. })));
        assert!(matches!(borrows.write(), Err(Error::AccessRefused { .. })));
        assert!(borrows.write_anyway().is_ok());
    }

    #[test]
    fn leaked_readers_are_refused_before_they_overflow() {
        let borrows = Borrows::new(Flags::NONE);
        borrows.0.store(READERS, Ordering::Relaxed);
        borrows.read().unwrap();
        assert!(matches!(borrows.read(), Err(Error::Borrowed { by: Borrower::Readers })));
        assert!(borrows.write().is_err());
    }
}
