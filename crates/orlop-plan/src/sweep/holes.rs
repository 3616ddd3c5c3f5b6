//! The free space between live spans.
//!
//! A search looks at a limited number of holes that may be too small, and then takes one that is certainly
//! large enough: a span is placed in logarithmic time whatever the sizes and alignments of the others.

use crate::normal::SectionSpan;
use crate::planner::Fit;
use std::collections::{BTreeMap, BTreeSet};

/// The number of holes that may be too small at which a search looks.
const MAX_TRIED: usize = 128;

/// The holes, found by offset or by size. The last one has no end.
#[derive(Debug)]
pub(super) struct Holes {
    /// The ends by offset.
    ends: BTreeMap<u64, u64>,
    fit: Fit,
    /// For [`Fit::Tightest`]: sizes and offsets.
    by_size: BTreeSet<(u64, u64)>,
    /// For [`Fit::Lowest`]: by the binary logarithm of the size, ends by offset. All holes of a larger class
    /// than that of a span are large enough, so only one class is searched.
    by_class: Vec<BTreeMap<u64, u64>>,
}

fn class(size: u64) -> usize {
    size.ilog2() as usize
}

impl Holes {
    pub(super) fn new(fit: Fit) -> Self {
        let by_class = vec![BTreeMap::new(); u64::BITS as usize];
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
            Fit::Lowest => drop(self.by_class[class(end - start)].insert(start, end)),
            Fit::Tightest => drop(self.by_size.insert((end - start, start))),
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.ends.remove(&start);
        match self.fit {
            Fit::Lowest => drop(self.by_class[class(end - start)].remove(&start)),
            Fit::Tightest => drop(self.by_size.remove(&(end - start, start))),
        }
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

    /// Returns the lowest hole that fits, of those that were tried and of all that are certainly large
    /// enough.
    fn lowest(&self, span: &SectionSpan, rounded: u64) -> u64 {
        let certain = span.max_space(rounded);
        let (mut lowest, mut untried) = (u64::MAX, MAX_TRIED);
        for (class, holes) in self.by_class.iter().enumerate().skip(class(rounded)) {
            // Of holes that are certainly large enough, the first is one.
            let is_certain = 1 << class >= certain;
            let mut tried = 0;
            let fits = |&(&start, &end): &(&u64, &u64)| {
                tried += 1;
                Self::fits(span, rounded, start, end)
            };
            let found = holes.range(..lowest).take(if is_certain { 1 } else { untried }).find(fits);
            lowest = found.map_or(lowest, |(&start, _)| start);
            untried -= if is_certain { 0 } else { tried };
        }
        lowest.min(self.last())
    }

    /// Returns the tightest hole that fits: one of those that were tried, or the smallest in which the span
    /// fits wherever it begins.
    fn tightest(&self, span: &SectionSpan, rounded: u64) -> u64 {
        let fits = |&&(size, start): &&(u64, u64)| Self::fits(span, rounded, start, start + size);
        let tried = self.by_size.range((rounded, 0)..).take(MAX_TRIED).find(fits);
        let certain = || self.by_size.range((span.max_space(rounded), 0)..).find(fits);
        tried.or_else(certain).map_or(self.last(), |&(_, start)| start)
    }

    /// Returns the hole above all live spans, in which each fits.
    fn last(&self) -> u64 {
        self.ends.last_key_value().map_or(u64::MAX, |(&start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::Normal;
    use crate::{Buffer, Problem};
    use orlop_core::Alignment;

    #[test]
    fn a_search_ends_at_a_hole_that_is_certainly_large_enough() {
        let aligned = Buffer::unaligned(0..1, 64).aligned(Alignment::new(64).unwrap());
        let normal = Normal::new(&Problem::new([aligned]).unwrap());
        for fit in [Fit::Tightest, Fit::Lowest] {
            let mut holes = Holes::new(fit);
            holes.remove_range(0, 1 << 21);
            // No offset in these is aligned but in the last, which is not looked at.
            for number in 0..=MAX_TRIED as u64 {
                holes.insert(1 + 128 * number, 65 + 128 * number);
            }
            let last = 128 * (MAX_TRIED as u64 + 1);
            holes.insert(last, last + 64);
            holes.insert(1 << 20, (1 << 20) + 128);
            assert_eq!(holes.take(&normal.spans[0], 64), 1 << 20, "{fit:?}");
        }
    }
}
