//! The free space between live spans.

use crate::normal::SectionSpan;
use crate::planner::Fit;
use std::collections::{BTreeMap, BTreeSet};

/// The holes, found by offset or by size. The last one has no end.
#[derive(Debug)]
pub(super) struct Holes {
    /// The ends by offset.
    ends: BTreeMap<u64, u64>,
    fit: Fit,
    /// For [`Fit::Tightest`]: sizes and offsets.
    by_size: BTreeSet<(u64, u64)>,
    /// For [`Fit::Lowest`]: by the binary logarithm of the size, offsets. All holes of a larger class than
    /// that of a span are large enough, so only one class is searched.
    by_class: Vec<BTreeSet<u64>>,
}

fn class(size: u64) -> usize {
    size.ilog2() as usize
}

impl Holes {
    pub(super) fn new(fit: Fit) -> Self {
        let by_class = vec![BTreeSet::new(); u64::BITS as usize];
        let mut holes = Self { ends: BTreeMap::new(), fit, by_size: BTreeSet::new(), by_class };
        holes.add(0, u64::MAX);
        holes
    }

    fn add(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        self.ends.insert(start, end);
        match self.fit {
            Fit::Lowest => self.by_class[class(end - start)].insert(start),
            Fit::Tightest => self.by_size.insert((end - start, start)),
        };
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.ends.remove(&start);
        match self.fit {
            Fit::Lowest => self.by_class[class(end - start)].remove(&start),
            Fit::Tightest => self.by_size.remove(&(end - start, start)),
        };
    }

    /// Adds a hole and merges it with its neighbours.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        if let Some(&behind) = self.ends.get(&end) {
            self.remove(end, behind);
            end = behind;
        }
        let before = self.ends.range(..start).next_back().map(|(&from, &to)| (from, to));
        if let Some((from, to)) = before.filter(|&(_, to)| to == start) {
            self.remove(from, to);
            start = from;
        }
        self.add(start, end);
    }

    /// Takes a range out of the last hole.
    pub(super) fn remove_range(&mut self, start: u64, end: u64) {
        if let Some((&hole, &behind)) = self.ends.last_key_value() {
            self.remove(hole, behind);
            self.add(hole, start);
            self.add(end, behind);
        }
    }

    /// Takes the space of a span, whose size is `rounded`, out of a hole. Returns its offset.
    pub(super) fn take(&mut self, span: &SectionSpan, rounded: u64) -> u64 {
        let start = match self.fit {
            Fit::Lowest => self.lowest(span, rounded),
            Fit::Tightest => self.tightest(span, rounded),
        };
        let end = self.ends.get(&start).copied().unwrap_or(u64::MAX);
        self.remove(start, end);
        let offset = span.offset_from(start);
        self.add(start, offset);
        self.add(offset + rounded, end);
        offset
    }

    fn fits(span: &SectionSpan, rounded: u64, start: u64, end: u64) -> bool {
        let offset = span.checked_offset_from(start);
        offset.and_then(|offset| end.checked_sub(offset)).is_some_and(|size| size >= rounded)
    }

    fn lowest(&self, span: &SectionSpan, rounded: u64) -> u64 {
        let mut lowest = u64::MAX;
        for holes in &self.by_class[class(rounded)..] {
            let below = holes.range(..lowest);
            let fits = |start: &&u64| Self::fits(span, rounded, **start, self.ends[*start]);
            lowest = below.into_iter().find(fits).copied().unwrap_or(lowest);
        }
        lowest
    }

    fn tightest(&self, span: &SectionSpan, rounded: u64) -> u64 {
        let large = self.by_size.range((rounded, 0)..);
        let mut fitting = large.filter(|&&(size, start)| Self::fits(span, rounded, start, start + size));
        fitting.next().map_or(u64::MAX, |&(_, start)| start)
    }
}
