//! [`AccessMap`]: the last accesses to each byte of memory, and the check of new ones against them.
//!
//! For each range it keeps the last write, and the reads and atomic updates since then, one for each queue.
//! That suffices to report every race on a byte whose earlier accesses were free of races: an access that is
//! ordered after the last write is ordered after everything before that write.

use crate::{WorkId, WorkOrder};
use std::collections::BTreeMap;
use std::ops::Range;

/// Whether an access changes the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Conflicts with writes and atomic updates.
    Read,
    /// Conflicts with reads, writes and atomic updates.
    Write,
    /// Reads and writes so that no other atomic update comes between: conflicts with reads and writes.
    Atomic,
}

#[derive(Debug, Clone)]
struct PastAccess<T> {
    work: WorkId,
    tag: T,
}

#[derive(Debug, Clone)]
struct Segment<T> {
    end: usize,
    write: Option<PastAccess<T>>,
    reads: Vec<PastAccess<T>>,
    atomics: Vec<PastAccess<T>>,
}

/// The past accesses to memory, each with a tag that a report names it by.
#[derive(Debug, Clone)]
pub struct AccessMap<T> {
    /// By start; segments do not overlap.
    segments: BTreeMap<usize, Segment<T>>,
}

impl<T> Default for AccessMap<T> {
    fn default() -> Self {
        Self { segments: BTreeMap::new() }
    }
}

impl<T: Clone> AccessMap<T> {
    /// Records an access by work that was just submitted. Returns an earlier conflicting access that is not
    /// ordered before it: its range within `bytes`, its kind and its tag.
    pub fn access(
        &mut self,
        order: &WorkOrder,
        bytes: Range<usize>,
        kind: AccessKind,
        work: WorkId,
        tag: T,
    ) -> Option<(Range<usize>, AccessKind, T)> {
        let conflict = self.conflict(order, bytes.clone(), kind, work.queue);
        self.split(bytes.start);
        self.split(bytes.end);
        match kind {
            AccessKind::Write => self.write(bytes, PastAccess { work, tag }),
            AccessKind::Read => {
                self.add(order, bytes, &PastAccess { work, tag }, |segment| &mut segment.reads);
            }
            AccessKind::Atomic => {
                self.add(order, bytes, &PastAccess { work, tag }, |segment| &mut segment.atomics);
            }
        }
        conflict
    }

    /// Returns an earlier access that conflicts with an access of this kind by the next work of `queue` and
    /// is not ordered before it.
    #[must_use]
    pub fn conflict(
        &self,
        order: &WorkOrder,
        bytes: Range<usize>,
        kind: AccessKind,
        queue: usize,
    ) -> Option<(Range<usize>, AccessKind, T)> {
        if bytes.is_empty() {
            return None;
        }
        let unordered = |past: &&PastAccess<T>| !order.is_ordered(past.work, queue);
        self.overlapping(&bytes).find_map(|(start, segment)| {
            let write = segment.write.as_ref().filter(unordered).map(|past| (AccessKind::Write, past));
            let reads = || segment.reads.iter().find(unordered).map(|past| (AccessKind::Read, past));
            let atomics = || segment.atomics.iter().find(unordered).map(|past| (AccessKind::Atomic, past));
            let found = match kind {
                AccessKind::Read => write.or_else(atomics),
                AccessKind::Write => write.or_else(atomics).or_else(reads),
                AccessKind::Atomic => write.or_else(reads),
            };
            let range = start.max(bytes.start)..segment.end.min(bytes.end);
            found.map(|(kind, past)| (range, kind, past.tag.clone()))
        })
    }

    /// Forgets the accesses to memory that was given back.
    pub fn forget(&mut self, bytes: Range<usize>) {
        self.split(bytes.start);
        self.split(bytes.end);
        while let Some((&start, _)) = self.segments.range(bytes.clone()).next() {
            self.segments.remove(&start);
        }
    }

    /// Returns the number of separately kept ranges.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    fn overlapping<'a>(&'a self, bytes: &Range<usize>) -> impl Iterator<Item = (usize, &'a Segment<T>)> {
        let before = self.segments.range(..bytes.start).next_back();
        let start = bytes.start;
        let before = before.filter(move |(_, segment)| segment.end > start);
        before.into_iter().chain(self.segments.range(bytes.clone())).map(|(&start, segment)| (start, segment))
    }

    /// Makes `at` a boundary between segments.
    fn split(&mut self, at: usize) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else { return };
        if segment.end > at {
            let upper = segment.clone();
            segment.end = at;
            self.segments.insert(at, upper);
        }
    }

    fn write(&mut self, bytes: Range<usize>, past: PastAccess<T>) {
        if bytes.is_empty() {
            return;
        }
        while let Some((&start, _)) = self.segments.range(bytes.clone()).next() {
            self.segments.remove(&start);
        }
        let (reads, atomics) = (Vec::new(), Vec::new());
        self.segments.insert(bytes.start, Segment { end: bytes.end, write: Some(past), reads, atomics });
    }

    /// Adds an access to one of the lists of each segment.
    fn add(
        &mut self,
        order: &WorkOrder,
        bytes: Range<usize>,
        past: &PastAccess<T>,
        list: fn(&mut Segment<T>) -> &mut Vec<PastAccess<T>>,
    ) {
        let mut at = bytes.start;
        while at < bytes.end {
            let next = self.segments.range_mut(at..bytes.end).next();
            match next {
                Some((&start, segment)) if start == at => {
                    at = segment.end;
                    let list = list(segment);
                    // An earlier one that is ordered before this one adds nothing to later checks.
                    list.retain(|earlier| !order.is_ordered(earlier.work, past.work.queue));
                    list.push(past.clone());
                }
                next => {
                    let end = next.map_or(bytes.end, |(&start, _)| start);
                    let mut segment = Segment { end, write: None, reads: Vec::new(), atomics: Vec::new() };
                    list(&mut segment).push(past.clone());
                    self.segments.insert(at, segment);
                    at = end;
                }
            }
        }
    }
}
