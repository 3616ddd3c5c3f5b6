//! A storage's borrow state: one atomic word, and a table of the parts that are borrowed.
//!
//! Handles to a storage alias, on one thread and on several, so a `&mut` handle says nothing about its bytes.
//! The word works like `RefCell`, but across threads: any number of readers or one writer, and a conflicting
//! access fails at once. Nothing blocks, so nothing can deadlock.
//!
//! ```text
//!  63         34 33    25   24        23     22       21        20     0
//! ┌─────────────┬────────┬────────┬────────┬────────┬──────────┬─────────┐
//! │ inspections │ flags  │ parts  │ parts  │ writer │ too many │ readers │
//! │             │        │ written│ read   │        │          │         │
//! └─────────────┴────────┴────────┴────────┴────────┴──────────┴─────────┘
//! ```
//!
//! Flags are the other conditions of an access: reads refused, writes refused, a copy to make first. They
//! share the word so that one load checks everything.
//!
//! # Parts
//!
//! Readers and the writer are those of the whole storage. An access to fewer bytes is in a table
//! ([`Parts`]), behind a lock, and only conflicts with accesses to the same bytes. Two bits of the word say
//! that the table has readers or writers, so accesses to the whole pay nothing for it: a set bit excludes
//! them as a reader or a writer of the whole would. The bits change under the lock only, and a part is
//! written only while its bit is set.
//!
//! # Constants
//!
//! [`Flags::IMMUTABLE`] is never cleared, and excludes new writers and every change of the storage. Once it
//! is set and the earlier writers are gone, there is nothing left to exclude, and readers are not counted.
//! Readers that were counted before still end as they began: a guard knows how it was registered.
//!
//! # Inspections
//!
//! An inspection reads the description of the block and not its bytes. Only the writer excludes it, who may
//! replace the block. A guard of an empty range is one, too.
//!
//! # Ordering
//!
//! - `borrows.end_write` (release) pairs with `borrows.read`, `borrows.write`, `borrows.constant`,
//!   `parts.read` and `parts.write` (acquire): an access to the bytes after a writer sees what it wrote. The
//!   word is only changed by read-modify-writes, so a later value of it carries every earlier release;
//! - `borrows.end_read` (release) pairs with `borrows.write` and `parts.write`: a reader's loads happen
//!   before the next writer's stores;
//! - `parts.end` (release) pairs with `borrows.read`, `borrows.write` and `borrows.constant`; the accesses
//!   that ended before it did so under the lock. Parts among themselves are ordered by the lock;
//! - `borrows.end_inspection` (release) pairs with `borrows.write_slowly`: the block was read before it is
//!   replaced. `borrows.end_write` and `parts.narrow` (release) pair with `borrows.inspect`: it is read after
//!   it was replaced.

mod part_table;
mod parts;

pub(crate) use self::parts::{PartWrite, Parts};

use crate::error::{Borrower, Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::ordering;

/// The state word; see the module documentation.
#[derive(Debug)]
pub(crate) struct Borrows(AtomicU64);

const READERS: u64 = (1 << 21) - 1;
const TOO_MANY: u64 = 1 << 21;
const WRITER: u64 = 1 << 22;
/// Parts are read, and none of the accesses to the whole is a writer.
const PARTS_READ: u64 = 1 << 23;
/// Parts are written, and there is no access to the whole.
const PARTS_WRITTEN: u64 = 1 << 24;
const INSPECTION: u64 = 1 << 34;
/// All inspections.
const INSPECTIONS: u64 = !(INSPECTION - 1);
/// More inspections than there can be without leaking their guards: it leaves one per thread.
const TOO_MANY_INSPECTIONS: u64 = 1 << 63;

/// The conditions that an access has to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u64);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// There is no memory yet.
    pub(crate) const UNBOUND: Self = Self(1 << 25);
    /// Reads and writes are refused.
    pub(crate) const NO_ACCESS: Self = Self(1 << 26);
    /// The memory is never written, replaced or released while there is a handle. This flag is never cleared.
    pub(crate) const IMMUTABLE: Self = Self(1 << 27);
    pub(crate) const NO_WRITES: Self = Self(1 << 28);
    /// The first write is logged as a warning.
    pub(crate) const WARNS: Self = Self(1 << 29);
    /// The block may have other owners, which must not see writes.
    pub(crate) const COPY_ON_WRITE: Self = Self(1 << 30);
    /// Streams may still read the memory, which is the host's. A writer waits for them.
    pub(crate) const DEVICE_READS: Self = Self(1 << 31);
    /// A writable address was handed out, so writes may happen at any time.
    pub(crate) const ESCAPED: Self = Self(1 << 32);
    /// The memory belongs to another process.
    pub(crate) const FOREIGN_PROCESS: Self = Self(1 << 33);

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

const NO_READS: u64 = TOO_MANY | WRITER | PARTS_WRITTEN | Flags::NO_ACCESS.0 | Flags::UNBOUND.0;
const NOT_WRITTEN: Flags = Flags::NO_WRITES.and(Flags::IMMUTABLE).and(Flags::NO_ACCESS).and(Flags::UNBOUND);
const BUSY: u64 = READERS | TOO_MANY | WRITER | PARTS_READ | PARTS_WRITTEN | INSPECTIONS;

impl Borrows {
    pub(crate) fn new(flags: Flags) -> Self {
        Self(AtomicU64::new(flags.0))
    }

    /// Returns `true` if the bytes can be read and nothing ever changes them or the block again, so that
    /// readers need not be registered.
    #[inline]
    pub(crate) fn is_constant(&self) -> bool {
        let word = self.0.load(ordering!("borrows.constant", Acquire));
        word & Flags::IMMUTABLE.0 != 0 && word & NO_READS == 0
    }

    /// Registers a reader of the whole, or returns `false`: the fast path, without an error.
    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        let is_granted = self.add_reader() & NO_READS == 0;
        if !is_granted {
            self.remove_refused_reader();
        }
        is_granted
    }

    #[inline]
    fn add_reader(&self) -> u64 {
        self.0.fetch_add(1, ordering!("borrows.read", Acquire))
    }

    #[inline]
    fn remove_refused_reader(&self) {
        // Relaxed: this reader was refused, so it did not access anything.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Registers a reader of the whole.
    pub(crate) fn read(&self) -> Result<()> {
        let before = self.add_reader();
        if before & NO_READS == 0 {
            return Ok(());
        }
        self.remove_refused_reader();
        check_readable(before)?;
        Err(match before {
            _ if before & (WRITER | PARTS_WRITTEN) != 0 => Error::Borrowed { by: Borrower::Writer },
            _ => Error::Borrowed { by: Borrower::Readers },
        })
    }

    /// Unregisters a reader of the whole.
    #[inline]
    pub(crate) fn end_read(&self) {
        self.0.fetch_sub(1, ordering!("borrows.end_read", Release));
    }

    /// Registers the writer of the whole if the word is zero: the fast path, without an error.
    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        let acquire = ordering!("borrows.write", Acquire);
        self.0.compare_exchange(0, WRITER, acquire, Ordering::Relaxed).is_ok()
    }

    /// Registers the writer of the whole. The returned flags say what it has to do first.
    pub(crate) fn write(&self) -> Result<Flags> {
        self.write_with(NOT_WRITTEN)
    }

    /// Registers the writer of the storage itself, whatever the other flags say about its bytes: only an
    /// immutable storage does not change.
    pub(crate) fn change(&self) -> Result<Flags> {
        self.write_with(Flags::IMMUTABLE)
    }

    fn write_with(&self, refused: Flags) -> Result<Flags> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & (WRITER | PARTS_WRITTEN) != 0 {
                return Err(Error::Borrowed { by: Borrower::Writer });
            }
            if word & BUSY != 0 {
                return Err(Error::Borrowed { by: Borrower::Readers });
            }
            check_writable(word, refused)?;
            let acquire = ordering!("borrows.write_slowly", Acquire);
            match self.0.compare_exchange(word, word | WRITER, acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Flags(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Unregisters the writer of the whole.
    #[inline]
    pub(crate) fn end_write(&self) {
        self.0.fetch_sub(WRITER, ordering!("borrows.end_write", Release));
    }

    /// Registers an inspection of the block, whatever the flags say about its bytes.
    pub(crate) fn inspect(&self) -> Result<()> {
        let before = self.0.fetch_add(INSPECTION, ordering!("borrows.inspect", Acquire));
        if before & (WRITER | TOO_MANY_INSPECTIONS) == 0 {
            return Ok(());
        }
        // Relaxed: it was refused, so it did not access anything.
        self.0.fetch_sub(INSPECTION, Ordering::Relaxed);
        let by = if before & WRITER == 0 { Borrower::Readers } else { Borrower::Writer };
        Err(Error::Borrowed { by })
    }

    /// Unregisters an inspection.
    pub(crate) fn end_inspection(&self) {
        self.0.fetch_sub(INSPECTION, ordering!("borrows.end_inspection", Release));
    }

    /// Sets flags, and returns those that were set. The caller is a reader or the writer. Relaxed: the next
    /// access reads the same word.
    pub(crate) fn set(&self, flags: Flags) -> Flags {
        Flags(self.0.fetch_or(flags.0, Ordering::Relaxed) & !BUSY)
    }

    /// Clears flags, and returns those that were set.
    pub(crate) fn clear(&self, flags: Flags) -> Flags {
        Flags(self.0.fetch_and(!flags.0, Ordering::Relaxed) & !BUSY)
    }

    pub(crate) fn flags(&self) -> Flags {
        Flags(self.0.load(Ordering::Relaxed) & !BUSY)
    }
}

fn check_readable(word: u64) -> Result<()> {
    match word {
        _ if word & Flags::UNBOUND.0 != 0 => Err(Error::Unbound { revoked: None }),
        _ if word & Flags::NO_ACCESS.0 != 0 => Err(Error::AccessRefused { reason: None }),
        _ => Ok(()),
    }
}

fn check_writable(word: u64, refused: Flags) -> Result<()> {
    check_readable(word & refused.0)?;
    if word & refused.0 == 0 { Ok(()) } else { Err(Error::ReadOnly { reason: None }) }
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
        assert!(borrows.change().is_ok());
    }

    #[test]
    fn leaked_readers_are_refused_before_they_overflow() {
        let borrows = Borrows::new(Flags::NONE);
        borrows.0.store(READERS, Ordering::Relaxed);
        borrows.read().unwrap();
        assert!(matches!(borrows.read(), Err(Error::Borrowed { by: Borrower::Readers })));
        assert!(borrows.write().is_err());
        borrows.0.store(TOO_MANY_INSPECTIONS, Ordering::Relaxed);
        assert!(matches!(borrows.inspect(), Err(Error::Borrowed { by: Borrower::Readers })));
    }
}
