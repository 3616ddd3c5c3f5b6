//! Accesses to parts of a storage: a table of byte ranges.
//!
//! The lock is held for a few instructions that call nothing: the table grows outside of it.
//!
//! # Empty ranges
//!
//! They have no byte in common with anything, and are not in the table: the bits of the word exclude accesses
//! to the whole. A guard of one is an inspection, because it has the block, and its address may point into
//! it.

use super::part_table::{PartAccess, PartTable};
use super::{Borrows, Flags, INSPECTION, NOT_WRITTEN, PARTS_READ, PARTS_WRITTEN, READERS, TOO_MANY, WRITER};
use super::{check_readable, check_writable};
use crate::error::{Borrower, Error, Result};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard, ordering};
use std::fmt;
use std::ops::Range;

/// The parts of a storage that are borrowed.
#[derive(Default)]
pub(crate) struct Parts(Mutex<PartTable>);

/// The result of a request to write a part.
#[derive(Debug)]
pub(crate) enum PartWrite {
    /// It is registered at this index. A warning may be due.
    Granted(u32, Flags),
    /// The whole has to be written first: its flags say why.
    NeedsWhole,
}

/// More parts than can be borrowed without leaking their guards.
const MAX_PARTS: usize = 1 << 21;

/// What has to be done with the whole storage before a part is written.
const NEEDS_WHOLE: Flags = Flags::COPY_ON_WRITE.and(Flags::DEVICE_READS);

impl Parts {
    /// Registers a reader of a part, which is not empty. Returns its index.
    pub(crate) fn read(&self, borrows: &Borrows, range: Range<usize>) -> Result<u32> {
        let mut table = self.with_room()?;
        borrows.read_part(table.conflict(&range, PartAccess::Read))?;
        Ok(table.add(range, PartAccess::Read))
    }

    /// Registers a writer of a part, which is not empty.
    pub(crate) fn write(&self, borrows: &Borrows, range: Range<usize>) -> Result<PartWrite> {
        let mut table = self.with_room()?;
        let flags = borrows.write_part(table.conflict(&range, PartAccess::Write))?;
        if flags.has(NEEDS_WHOLE) {
            return Ok(PartWrite::NeedsWhole);
        }
        Ok(PartWrite::Granted(table.add(range, PartAccess::Write), flags))
    }

    /// Turns the writer of the whole, which the caller is, into a writer of a part, which is not empty.
    pub(crate) fn narrow(&self, borrows: &Borrows, range: Range<usize>) -> Result<u32> {
        let mut table = self.with_room()?;
        // Accesses to parts see the writer's stores by the lock, and those to the whole are refused until the
        // part's end.
        borrows.narrow_to(PARTS_WRITTEN);
        Ok(table.add(range, PartAccess::Write))
    }

    /// Unregisters the access at this index.
    pub(crate) fn end(&self, borrows: &Borrows, index: u32) {
        let ended = self.0.lock().remove(index, |bit| {
            borrows.0.fetch_and(!bit, ordering!("parts.end", Release));
        });
        debug_assert!(ended, "a guard ends once");
    }

    /// Locks the table, which has room for an entry.
    #[inline]
    fn with_room(&self) -> Result<MutexGuard<'_, PartTable>> {
        loop {
            let table = self.0.lock();
            if !table.is_full() {
                return Ok(table);
            }
            let room = table.room();
            drop(table);
            self.grow(room)?;
        }
    }

    /// Makes a table of `room` entries larger.
    #[cold]
    #[inline(never)]
    fn grow(&self, room: usize) -> Result<()> {
        if room >= MAX_PARTS {
            return Err(Error::Borrowed { by: Borrower::Readers });
        }
        let mut larger = PartTable::with_room(room.saturating_mul(2).max(8))?;
        // The smaller table is dropped after the lock.
        self.0.lock().move_to(&mut larger);
        Ok(())
    }
}

impl Borrows {
    /// Sets the bit of parts that are read, under the lock of the table, unless the table has this conflict.
    fn read_part(&self, conflict: Option<Borrower>) -> Result<()> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            check_readable(word)?;
            let writer = (word & WRITER != 0).then_some(Borrower::Writer);
            if let Some(by) = writer.or(conflict) {
                return Err(Error::Borrowed { by });
            }
            if word & PARTS_READ != 0 {
                return Ok(());
            }
            let acquire = ordering!("parts.read", Acquire);
            match self.0.compare_exchange(word, word | PARTS_READ, acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Sets the bit of parts that are written, under the lock of the table, unless the table has this
    /// conflict or the returned flags require the whole.
    fn write_part(&self, conflict: Option<Borrower>) -> Result<Flags> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let is_set = word & PARTS_WRITTEN != 0;
            let whole = match word {
                _ if word & WRITER != 0 => Some(Borrower::Writer),
                // Beside the bit, those that are about to be refused.
                _ if word & (READERS | TOO_MANY) != 0 && !is_set => Some(Borrower::Readers),
                _ => None,
            };
            if let Some(by) = whole.or(conflict) {
                return Err(Error::Borrowed { by });
            }
            check_writable(word, NOT_WRITTEN)?;
            let flags = Flags(word).only(NEEDS_WHOLE.and(Flags::WARNS));
            if is_set || flags.has(NEEDS_WHOLE) {
                return Ok(flags);
            }
            let acquire = ordering!("parts.write", Acquire);
            match self.0.compare_exchange(word, word | PARTS_WRITTEN, acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(flags),
                Err(now) => word = now,
            }
        }
    }
}

impl Borrows {
    /// Registers an inspection by a reader of an empty range.
    pub(crate) fn read_nothing(&self) -> Result<()> {
        self.inspect()?;
        check_readable(self.0.load(Ordering::Relaxed)).inspect_err(|_| self.end_inspection())
    }

    /// Registers an inspection by a writer of an empty range, or returns `false` if the whole has to be
    /// written first.
    pub(crate) fn write_nothing(&self) -> Result<bool> {
        self.inspect()?;
        let word = self.0.load(Ordering::Relaxed);
        let checked = check_writable(word, NOT_WRITTEN).map(|()| !Flags(word).has(NEEDS_WHOLE));
        if !matches!(checked, Ok(true)) {
            self.end_inspection();
        }
        checked
    }

    /// Turns the writer of the whole, which the caller is, into an inspection.
    pub(crate) fn narrow_to_nothing(&self) {
        self.narrow_to(INSPECTION);
    }

    /// Turns the writer of the whole, which the caller is, into another access, of a greater bit.
    fn narrow_to(&self, access: u64) {
        // Release: to inspections, and to accesses that are possible from then on.
        self.0.fetch_add(access - WRITER, ordering!("parts.narrow", Release));
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn read(parts: &Parts, borrows: &Borrows, range: Range<usize>) -> Result<u32> {
        parts.read(borrows, range)
    }

    fn write(parts: &Parts, borrows: &Borrows, range: Range<usize>) -> Result<u32> {
        match parts.write(borrows, range)? {
            PartWrite::Granted(index, _) => Ok(index),
            PartWrite::NeedsWhole => Err(Error::Undefined),
        }
    }

    fn by<T>(result: Result<T>) -> Option<Borrower> {
        match result {
            Err(Error::Borrowed { by }) => Some(by),
            _ => None,
        }
    }

    #[test]
    fn only_overlapping_parts_conflict() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        let first = write(&parts, &borrows, 0..10).unwrap();
        let second = write(&parts, &borrows, 10..20).unwrap();
        assert_eq!(by(write(&parts, &borrows, 9..10)), Some(Borrower::Writer));
        assert_eq!(by(read(&parts, &borrows, 19..30)), Some(Borrower::Writer));
        let third = read(&parts, &borrows, 20..30).unwrap();
        let fourth = read(&parts, &borrows, 25..usize::MAX).unwrap();
        assert_eq!(by(write(&parts, &borrows, 29..31)), Some(Borrower::Readers));
        assert_eq!(by(write(&parts, &borrows, 5..31)), Some(Borrower::Writer));
        for index in [first, third, fourth, second] {
            parts.end(&borrows, index);
        }
        assert_eq!(borrows.write().unwrap(), Flags::NONE);
    }

    #[test]
    fn the_whole_and_its_parts_exclude_each_other() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        borrows.read().unwrap();
        let part = read(&parts, &borrows, 0..1).unwrap();
        assert_eq!(by(write(&parts, &borrows, 4..5)), Some(Borrower::Readers));
        borrows.end_read();
        assert_eq!(by(borrows.write()), Some(Borrower::Readers));
        assert_eq!(by(borrows.change()), Some(Borrower::Readers));
        let other = write(&parts, &borrows, 4..5).unwrap();
        parts.end(&borrows, part);
        assert_eq!(by(borrows.read()), Some(Borrower::Writer));
        assert_eq!(by(borrows.write()), Some(Borrower::Writer));
        // The block of a storage whose parts are written does not change.
        borrows.inspect().unwrap();
        parts.end(&borrows, other);
        assert_eq!(by(borrows.change()), Some(Borrower::Readers));
        borrows.end_inspection();
        borrows.write().unwrap();
        assert_eq!(by(read(&parts, &borrows, 0..1)), Some(Borrower::Writer));
        assert_eq!(by(write(&parts, &borrows, 0..1)), Some(Borrower::Writer));
        assert_eq!(by(borrows.inspect()), Some(Borrower::Writer));
        let part = parts.narrow(&borrows, 0..1).unwrap();
        let other = write(&parts, &borrows, 1..2).unwrap();
        parts.end(&borrows, part);
        assert!(borrows.read().is_err());
        parts.end(&borrows, other);
        borrows.read().unwrap();
    }

    #[test]
    fn flags_hold_for_parts() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::COPY_ON_WRITE));
        assert!(matches!(parts.write(&borrows, 0..1), Ok(PartWrite::NeedsWhole)));
        borrows.clear(Flags::COPY_ON_WRITE);
        let part = write(&parts, &borrows, 0..1).unwrap();
        borrows.set(Flags::NO_WRITES);
        assert!(matches!(parts.write(&borrows, 1..2), Err(Error::ReadOnly { .. })));
        borrows.set(Flags::NO_ACCESS);
        assert!(matches!(parts.write(&borrows, 1..2), Err(Error::AccessRefused { .. })));
        assert!(matches!(parts.read(&borrows, 1..2), Err(Error::AccessRefused { .. })));
        parts.end(&borrows, part);
    }

    #[test]
    fn the_table_grows_and_reuses_its_entries() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        let indices: Vec<u32> = (0..100).map(|at| write(&parts, &borrows, at..at + 1).unwrap()).collect();
        assert_eq!(indices, (0..100).collect::<Vec<u32>>());
        for at in [3, 50, 98] {
            parts.end(&borrows, at);
        }
        assert_eq!(write(&parts, &borrows, 3..4).unwrap(), 98);
        assert!(write(&parts, &borrows, 3..4).is_err());
        assert_eq!(write(&parts, &borrows, 98..99).unwrap(), 50);
        assert_eq!(write(&parts, &borrows, 50..51).unwrap(), 3);
        assert_eq!(write(&parts, &borrows, 100..101).unwrap(), 100);
    }

    /// As a pool has, each of whose parts is bound to a storage.
    #[test]
    fn many_writers_are_not_all_searched() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        let count = if cfg!(miri) { 100 } else { 4000 };
        // Not in order.
        for at in (0..count).map(|number| number * 37 % count) {
            parts.0.lock().seen.set(0);
            write(&parts, &borrows, 64 * at..64 * at + 64).unwrap();
            let seen = parts.0.lock().seen.get();
            assert!(seen <= 16, "{seen} of {count}");
        }
        assert_eq!(by(read(&parts, &borrows, 640..641)), Some(Borrower::Writer));
        let seen = parts.0.lock().seen.get();
        assert!(seen <= 32, "{seen} of {count}");
    }

    /// Against a list that is searched from end to end.
    #[test]
    fn conflicts_are_those_of_all_accesses() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        let mut live: Vec<(u32, Range<usize>, bool)> = Vec::new();
        let mut state = 1_usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
            if random(3) == 0 && !live.is_empty() {
                let (index, ..) = live.swap_remove(random(live.len()));
                parts.end(&borrows, index);
                continue;
            }
            let (start, is_write) = (random(200), random(2) == 0);
            let range = start..start + 1 + random(20);
            let overlaps = |other: &Range<usize>| other.start.max(range.start) < other.end.min(range.end);
            let mut conflicts = live.iter().filter(|(_, other, _)| overlaps(other));
            let expected = match conflicts.clone().any(|&(.., writes)| writes) {
                true => Some(Borrower::Writer),
                false => (is_write && conflicts.next().is_some()).then_some(Borrower::Readers),
            };
            let access = if is_write { write } else { read };
            match access(&parts, &borrows, range.clone()) {
                Ok(index) => {
                    assert_eq!(expected, None);
                    live.push((index, range, is_write));
                }
                refused => assert_eq!(by(refused), expected),
            }
        }
    }

    #[test]
    fn constants_are_read_without_a_trace() {
        let (parts, borrows) = (Parts::default(), Borrows::new(Flags::NONE));
        assert!(!borrows.is_constant());
        let part = write(&parts, &borrows, 0..1).unwrap();
        borrows.set(Flags::IMMUTABLE);
        assert!(!borrows.is_constant(), "a writer is left");
        assert!(matches!(parts.write(&borrows, 1..2), Err(Error::ReadOnly { .. })));
        parts.end(&borrows, part);
        assert!(borrows.is_constant());
        assert!(matches!(borrows.change(), Err(Error::ReadOnly { .. })));
        borrows.set(Flags::NO_ACCESS);
        assert!(!borrows.is_constant() && borrows.read().is_err());
    }
}
