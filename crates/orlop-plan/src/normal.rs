//! The normal form of a problem, which planners compute on.
//!
//! Time is divided into *sections*, of which only those with a maximal set of live buffers are kept: a set
//! that is a subset of its neighbour's adds no constraint. Two buffers share a section if and only if their
//! lifetimes overlap, so the plans are the same, and there are at most as many sections as buffers. (Moffitt,
//! "MiniMalloc", ASPLOS 2023, splits time the same way.)
//!
//! Sizes are rounded up to the *granule*, the smallest alignment of all buffers: every offset is a multiple
//! of it, so the bytes above a buffer up to the next multiple cannot be used.

use crate::buffer::{alignment_bytes, round_up};
use crate::conflicts::Conflicts;
use crate::constraint::{BlockLimit, FlatProblem};
use crate::first_fit::UNPLACED;
use crate::{MAX_BUFFERS, Problem};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A buffer of at least one byte, in sections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionSpan {
    /// The first section in which it is live.
    pub(crate) first: u32,
    /// The section after the last.
    pub(crate) behind: u32,
    /// Its index in the problem.
    pub(crate) index: u32,
    /// The binary logarithm of its alignment.
    alignment_log2: u32,
    /// Its size in bytes, not rounded.
    pub(crate) size: u64,
}

impl SectionSpan {
    /// Returns its lowest offset at or above `level`.
    pub(crate) fn offset_from(&self, level: u64) -> u64 {
        round_up(level, 1 << self.alignment_log2)
    }

    /// Returns the size of the smallest free space in which it fits wherever that begins, where its own size
    /// is `rounded`.
    pub(crate) fn max_space(&self, rounded: u64) -> u64 {
        rounded.saturating_add((1 << self.alignment_log2) - 1)
    }

    /// Returns `true` if both have the same lifetime, size and alignment.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key = |span: &Self| (span.first, span.behind, span.size, span.alignment_log2);
        key(self) == key(other)
    }

    /// Returns its highest offset at or below `level`.
    pub(crate) fn offset_below(&self, level: u64) -> u64 {
        level & !((1 << self.alignment_log2) - 1)
    }

    /// Returns its lowest offset at or above any `level`. `None` if the offset does not fit into 64 bits.
    pub(crate) fn checked_offset_from(&self, level: u64) -> Option<u64> {
        let below = (1_u64 << self.alignment_log2) - 1;
        Some(level.checked_add(below)? & !below)
    }
}

/// A plan in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) height: u64,
    /// By span.
    pub(crate) offsets: Vec<u64>,
}

/// A problem in normal form.
#[derive(Debug)]
pub(crate) struct Normal {
    /// The buffers, by first section.
    pub(crate) spans: Vec<SectionSpan>,
    /// By section, the index of the first span that begins there or later; at the end, the number of spans.
    pub(crate) first_span: Vec<u32>,
    /// By section, the sum of the live sizes, rounded up to granules.
    pub(crate) load: Vec<u64>,
    /// The lower bound of the height of all plans.
    pub(crate) lower_bound: u64,
    /// The first section whose spans need that height.
    pub(crate) bound_section: u32,
    /// All offsets are multiples of this.
    granule: u64,
    /// By span, its fixed offset, or [`UNPLACED`]. Empty if none is fixed.
    pub(crate) fixed: Vec<u64>,
    /// The index from which on buffers are reserved ranges, which have no height.
    pub(crate) reserved_from: u32,
    /// `None` if spans may share bytes exactly if they share no section.
    pub(crate) conflicts: Option<Conflicts>,
    pub(crate) block_limit: BlockLimit,
}

/// Returns an index of a buffer or a section. A problem is checked to have no more than fit.
pub(crate) fn to_index(value: usize) -> u32 {
    debug_assert!(value <= MAX_BUFFERS);
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Normal {
    pub(crate) fn new(problem: &Problem) -> Self {
        let buffers = problem.buffers();
        let real = || (0..).zip(buffers).filter(|(_, buffer)| buffer.size > 0);
        let mut starts: Vec<(u64, u32)> = real().map(|(index, buffer)| (buffer.start, index)).collect();
        let mut ends: Vec<(u64, u32)> = real().map(|(index, buffer)| (buffer.end, index)).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let granule = real().map(|(_, buffer)| alignment_bytes(buffer.alignment)).min().unwrap_or(1);

        let mut spans = Vec::with_capacity(starts.len());
        let mut place_of = vec![0_u32; buffers.len()];
        let mut first_span = Vec::new();
        let mut ends = ends.into_iter().peekable();
        // Whether a buffer ended since the last section began: the next start then begins a new section.
        let mut closed = true;
        for (time, index) in starts {
            while let Some((_, ended)) = ends.next_if(|&(end, _)| end <= time) {
                close(&mut spans, &place_of, ended, first_span.len());
                closed = true;
            }
            if closed {
                first_span.push(to_index(spans.len()));
                closed = false;
            }
            let buffer = &buffers[index as usize];
            place_of[index as usize] = to_index(spans.len());
            let first = to_index(first_span.len() - 1);
            let alignment_log2 = buffer.alignment.log2();
            spans.push(SectionSpan { first, behind: first, index, alignment_log2, size: buffer.size });
        }
        for (_, ended) in ends {
            close(&mut spans, &place_of, ended, first_span.len());
        }
        first_span.push(to_index(spans.len()));
        let (fixed, reserved_from) = (Vec::new(), u32::MAX);
        let mut normal = Self {
            spans,
            first_span,
            load: Vec::new(),
            lower_bound: 0,
            bound_section: 0,
            granule,
            fixed,
            reserved_from,
            conflicts: None,
            block_limit: BlockLimit::NONE,
        };
        normal.load = normal.sum();
        (normal.lower_bound, normal.bound_section) = normal.bound();
        normal
    }

    /// Returns the normal form of a problem with fixed offsets and other constraints.
    pub(crate) fn of_flat(flat: &FlatProblem<'_>) -> Self {
        let mut normal = Self::new(&flat.problem);
        normal.block_limit = flat.block_limit;
        if !(flat.interrupted.0.is_empty() && flat.exclusions.is_empty()) {
            let buffers = flat.problem.buffers();
            let lifetime = |index: usize| buffers[index].start..buffers[index].end;
            let conflicts = Conflicts::new(&normal.spans, lifetime, &flat.interrupted.0, &flat.exclusions);
            normal.conflicts = Some(conflicts);
        }
        if !flat.fixed.is_empty() {
            normal.fixed = normal.spans.iter().map(|span| flat.fixed[span.index as usize]).collect();
            normal.reserved_from = to_index(flat.real);
            (normal.lower_bound, normal.bound_section) = normal.fixed_bound();
        }
        normal
    }

    /// Returns a plan in normal form from offsets by buffer.
    pub(crate) fn placement(&self, offsets: &[u64]) -> Placement {
        let offset = |span: &SectionSpan| offsets.get(span.index as usize).copied();
        let mut placed: Vec<u64> = self.spans.iter().map(|span| offset(span).unwrap_or(UNPLACED)).collect();
        // Reserved ranges are not in a plan.
        for (offset, fixed) in placed.iter_mut().zip(&self.fixed).filter(|(offset, _)| **offset == UNPLACED) {
            *offset = *fixed;
        }
        self.placed(placed)
    }

    /// Returns `true` if spans may be anywhere, and if those that share no section may share bytes.
    pub(crate) fn is_free(&self) -> bool {
        let has_exclusions = self.conflicts.as_ref().is_some_and(Conflicts::has_exclusions);
        self.fixed.is_empty() && !has_exclusions && !self.block_limit.is_some()
    }

    /// Returns `true` if spans that share a section may share bytes.
    pub(crate) fn has_gaps(&self) -> bool {
        self.conflicts.as_ref().is_some_and(Conflicts::has_gaps)
    }

    /// Returns `true` if the offset of a span is fixed.
    pub(crate) fn is_fixed(&self, number: usize) -> bool {
        self.fixed.get(number).is_some_and(|&offset| offset != UNPLACED)
    }

    /// Returns a plan with its height from offsets by span.
    pub(crate) fn placed(&self, offsets: Vec<u64>) -> Placement {
        let ends = self.spans.iter().zip(&offsets).map(|(span, &offset)| self.end(span, offset));
        Placement { height: ends.max().unwrap_or(0), offsets }
    }

    /// Returns a plan with all spans that may move above each other, and above what is fixed: there is room,
    /// and it takes no search.
    pub(crate) fn stacked(&self) -> Placement {
        let fixed = self.spans.iter().zip(&self.fixed).filter(|(_, offset)| **offset != UNPLACED);
        let mut top = fixed.map(|(span, offset)| offset + span.size).max().unwrap_or(0);
        let place = |(number, span): (usize, &SectionSpan)| {
            if self.is_fixed(number) {
                return self.fixed[number];
            }
            let offset = self.block_limit.offset_from(span.offset_from(top), span.size);
            top = offset + span.size;
            offset
        };
        let offsets = self.spans.iter().enumerate().map(place).collect();
        self.placed(offsets)
    }

    /// Returns the height that a plan has at least with a span at an offset.
    pub(crate) fn end(&self, span: &SectionSpan, offset: u64) -> u64 {
        if span.index < self.reserved_from { offset + span.size } else { 0 }
    }

    /// Returns the offsets of a plan by buffer, of which there are `buffers`.
    pub(crate) fn offsets(&self, placement: &Placement, buffers: usize) -> Vec<u64> {
        let mut offsets = vec![0; buffers];
        for (span, &offset) in self.spans.iter().zip(&placement.offsets) {
            if let Some(of_buffer) = offsets.get_mut(span.index as usize) {
                *of_buffer = offset;
            }
        }
        offsets
    }

    /// Returns the number of sections.
    pub(crate) fn sections(&self) -> u32 {
        to_index(self.first_span.len() - 1)
    }

    /// Returns the size of a span with its rounding, which spans above it cannot use.
    pub(crate) fn rounded(&self, span: &SectionSpan) -> u64 {
        round_up(span.size, self.granule)
    }

    /// Rounds a height up to granules.
    pub(crate) fn rounded_up(&self, height: u64) -> u64 {
        round_up(height, self.granule)
    }

    /// Returns the number of pairs of spans that are live together.
    pub(crate) fn pairs(&self) -> u64 {
        let begun = |section: u32| u64::from(self.first_span[section as usize]);
        let later = self.spans.iter().zip(1..).map(|(span, next)| begun(span.behind) - next);
        later.sum()
    }

    /// Returns a number of which all offsets are multiples where no span can be moved down.
    pub(crate) fn unit(&self) -> u64 {
        let wider = |span: &&SectionSpan| 1 << span.alignment_log2 > self.granule;
        let alignments = self.spans.iter().filter(wider).map(|span| 1 << span.alignment_log2);
        let sizes = self.spans.iter().map(|span| self.rounded(span));
        sizes.chain(alignments).fold(0, greatest_common_divisor).max(1)
    }

    /// Returns the load of each section.
    fn sum(&self) -> Vec<u64> {
        let sections = self.sections() as usize;
        let mut ending = vec![0_u64; sections + 1];
        let mut load = Vec::with_capacity(sections);
        let mut live = 0;
        for section in 0..sections {
            live -= ending[section];
            for span in &self.spans[self.begin(section)] {
                live += self.rounded(span);
                ending[span.behind as usize] += self.rounded(span);
            }
            load.push(live);
        }
        load
    }

    /// Returns the lower bound and its section. In each section, all buffers but the top one take their
    /// rounded size; at best, the top one is that whose rounding adds most.
    pub(crate) fn bound(&self) -> (u64, u32) {
        let mut bound = (0, 0);
        // The live buffers by the bytes that rounding adds. Those that have ended are removed when they reach
        // the top.
        let mut added: BinaryHeap<(u64, Reverse<u32>)> = BinaryHeap::new();
        for (section, &load) in self.load.iter().enumerate() {
            if self.granule > 1 {
                let spans = self.spans[self.begin(section)].iter();
                added.extend(spans.map(|span| (self.rounded(span) - span.size, Reverse(span.behind))));
                while added.peek().is_some_and(|&(_, Reverse(behind))| behind as usize <= section) {
                    added.pop();
                }
            }
            let saved = added.peek().map_or(0, |&(bytes, _)| bytes);
            if load - saved > bound.0 {
                bound = (load - saved, to_index(section));
            }
        }
        bound
    }

    /// Returns the indices of the spans that begin in a section.
    fn begin(&self, section: usize) -> Range<usize> {
        self.first_span[section] as usize..self.first_span[section + 1] as usize
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

fn close(spans: &mut [SectionSpan], place_of: &[u32], ended: u32, sections: usize) {
    spans[place_of[ended as usize] as usize].behind = to_index(sections);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    fn normal(buffers: &[Buffer]) -> Normal {
        Normal::new(&Problem::new(buffers.iter().copied()).unwrap())
    }

    fn spans(normal: &Normal) -> Vec<(u32, u32, u32)> {
        normal.spans.iter().map(|span| (span.index, span.first, span.behind)).collect()
    }

    #[test]
    fn only_maximal_sets_are_kept() {
        // 0 and 1 are live together: one section. 2 starts when 0 ends.
        let two =
            normal(&[Buffer::unaligned(0..5, 1), Buffer::unaligned(3..9, 2), Buffer::unaligned(5..7, 4)]);
        assert_eq!(spans(&two), [(0, 0, 1), (1, 0, 2), (2, 1, 2)]);
        assert_eq!((two.first_span, two.load, two.lower_bound), (vec![0, 2, 3], vec![3, 6], 6));
    }

    #[test]
    fn a_problem_without_bytes_has_no_sections() {
        for buffers in [&[][..], &[Buffer::unaligned(0..u64::MAX, 0)]] {
            let normal = normal(buffers);
            assert_eq!((normal.sections(), normal.lower_bound, normal.spans.len()), (0, 0, 0));
        }
    }

    #[test]
    fn the_bound_includes_rounding() {
        let planned = |range, size| Buffer::new(range, size);
        // The smaller one is on top: 512 + 1.
        assert_eq!(normal(&[planned(0..1, 257), planned(0..1, 1)]).lower_bound, 513);
        // Not live at the same time.
        assert_eq!(normal(&[planned(0..1, 257), planned(1..2, 1)]).lower_bound, 257);
        // A buffer that has ended cannot be on top: 512 + 256.
        let three = [planned(0..1, 1), planned(0..9, 512), planned(1..9, 256)];
        assert_eq!(normal(&three).lower_bound, 768);
        // One of them is not aligned, so nothing is rounded.
        assert_eq!(normal(&[planned(0..1, 257), Buffer::unaligned(0..1, 1)]).lower_bound, 258);
    }
}
