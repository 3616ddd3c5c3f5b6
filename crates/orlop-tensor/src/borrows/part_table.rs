//! The table of borrowed parts, and the search for those in the way of an access.
//!
//! A storage has few accesses at a time, but a pool has a writer for each storage that is bound to a part of
//! it. So the accesses are also listed by their starts, readers and writers apart. Writers have no byte in
//! common: a search by halves finds the first one in the way of an access. Changing a list moves the indices
//! behind the entry, which are few or, in a large pool, one copy of memory.

use super::{PARTS_READ, PARTS_WRITTEN};
use crate::error::{Borrower, Result};
use crate::host;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartAccess {
    Read,
    Write,
}

#[derive(Debug, Clone)]
struct BorrowedPart {
    /// Of an entry that is free, the start is the index of the next one, if there is one.
    range: Range<usize>,
    /// `None` for an entry that is free.
    access: Option<PartAccess>,
}

#[derive(Debug, Default)]
pub(super) struct PartTable {
    parts: Vec<BorrowedPart>,
    /// The index of the first free entry, or the length.
    free: usize,
    /// The indices of readers by their starts.
    readers: Vec<usize>,
    /// The indices of writers by their starts, and thus by their ends.
    writers: Vec<usize>,
    /// The entries that searches have looked at.
    #[cfg(test)]
    pub(super) seen: std::cell::Cell<usize>,
}

impl PartTable {
    /// Returns an empty table with room for this number of entries.
    pub(super) fn with_room(entries: usize) -> Result<Self> {
        let (readers, writers) = (host::room(entries)?, host::room(entries)?);
        Ok(Self { parts: host::room(entries)?, readers, writers, ..Self::default() })
    }

    /// Returns `true` if there is no room for another entry.
    pub(super) fn is_full(&self) -> bool {
        self.readers.len() + self.writers.len() >= self.room()
    }

    /// Returns the number of entries for which there is room.
    pub(super) fn room(&self) -> usize {
        self.parts.capacity().min(self.readers.capacity()).min(self.writers.capacity())
    }

    /// Returns the access that excludes this one.
    pub(super) fn conflict(&self, range: &Range<usize>, access: PartAccess) -> Option<Borrower> {
        let range_of = |&index: &usize| {
            #[cfg(test)]
            self.seen.update(|seen| seen + 1);
            &self.parts[index].range
        };
        if !self.writers.is_empty() {
            let first = self.writers.partition_point(|writer| range_of(writer).end <= range.start);
            if self.writers.get(first).is_some_and(|writer| range_of(writer).start < range.end) {
                return Some(Borrower::Writer);
            }
        }
        if access == PartAccess::Read || self.readers.is_empty() {
            return None;
        }
        let begun = self.readers.partition_point(|reader| range_of(reader).start < range.end);
        let is_read = self.readers[..begun].iter().any(|reader| range_of(reader).end > range.start);
        is_read.then_some(Borrower::Readers)
    }

    /// Adds an entry, for which there is room, and returns its index.
    pub(super) fn add(&mut self, range: Range<usize>, access: PartAccess) -> u32 {
        let (index, start) = (self.free, range.start);
        let part = BorrowedPart { range, access: Some(access) };
        match self.parts.get_mut(index) {
            Some(free) => self.free = std::mem::replace(free, part).range.start,
            None => {
                self.parts.push(part);
                self.free = self.parts.len();
            }
        }
        let (order, parts) = self.order(access);
        let at = order.partition_point(|&other| parts[other].range.start < start);
        order.insert(at, index);
        // At most twice `MAX_PARTS`.
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Returns the indices of the entries with this access by their starts, and all entries.
    fn order(&mut self, access: PartAccess) -> (&mut Vec<usize>, &[BorrowedPart]) {
        match access {
            PartAccess::Read => (&mut self.readers, &self.parts),
            PartAccess::Write => (&mut self.writers, &self.parts),
        }
    }

    /// Removes an entry, and calls `clear` with the bit of its kind of access if it was the last.
    pub(super) fn remove(&mut self, index: u32, clear: impl FnOnce(u64)) -> bool {
        let Ok(index) = usize::try_from(index) else { return false };
        let Some(BorrowedPart { range, access: Some(access) }) = self.parts.get(index) else { return false };
        let (start, access) = (range.start, *access);
        let (order, parts) = self.order(access);
        let mut at = order.partition_point(|&other| parts[other].range.start < start);
        // Readers of the same part have the same start.
        while order.get(at).is_some_and(|&other| other != index) {
            at += 1;
        }
        order.remove(at);
        if order.is_empty() {
            clear(if access == PartAccess::Read { PARTS_READ } else { PARTS_WRITTEN });
        }
        self.parts[index] = BorrowedPart { range: self.free..self.free, access: None };
        self.free = index;
        true
    }

    /// Moves the entries to a larger table, unless another thread did, and leaves the smaller one.
    pub(super) fn move_to(&mut self, larger: &mut Self) {
        if larger.room() > self.room() {
            larger.parts.append(&mut self.parts);
            larger.readers.append(&mut self.readers);
            larger.writers.append(&mut self.writers);
            larger.free = self.free;
            std::mem::swap(self, larger);
        }
    }
}
