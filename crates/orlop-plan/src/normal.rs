//! A problem's normal form: what planners compute on.
//!
//! Time is cut into *sections*, and only those stay in which the set of live buffers is largest: a set that
//! is part of its neighbour's says nothing that the neighbour does not. Two buffers share a section if and
//! only if they share a moment, so plans are the same, and there are at most as many sections as buffers.
//! (Moffitt, "MiniMalloc", ASPLOS 2023, splits time the same way.)
//!
//! Sizes are rounded up to the *granule*, the smallest alignment of all: every offset is a multiple of it, so
//! what is above a buffer up to the next multiple is of no use to anyone.

use crate::buffer::{alignment_bytes, round_up};
use crate::{MAX_BUFFERS, Problem};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A buffer of at least one byte, in sections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionSpan {
    /// The first section in which it lives.
    pub(crate) first: u32,
    /// The one behind the last.
    pub(crate) behind: u32,
    /// Its number in the problem.
    pub(crate) index: u32,
    /// Its alignment: two to the power of this.
    alignment_log2: u32,
    /// In bytes, as asked for.
    pub(crate) size: u64,
}

impl SectionSpan {
    /// Where it lies if it may not begin below `level`.
    pub(crate) fn offset_from(&self, level: u64) -> u64 {
        round_up(level, 1 << self.alignment_log2)
    }

    /// The same for any level; `None` if 64 bits do not hold the offset.
    pub(crate) fn checked_offset_from(&self, level: u64) -> Option<u64> {
        let below = (1_u64 << self.alignment_log2) - 1;
        Some(level.checked_add(below)? & !below)
    }
}

/// The normal form.
#[derive(Debug)]
pub(crate) struct Normal {
    /// By first section.
    pub(crate) spans: Vec<SectionSpan>,
    /// By section: the first span that begins there or later; and one number more, of all spans.
    pub(crate) first_span: Vec<u32>,
    /// By section: the sum of the sizes that live there, rounded up to granules.
    pub(crate) load: Vec<u64>,
    /// No plan is lower than that.
    pub(crate) lower_bound: u64,
    /// What all offsets are multiples of.
    granule: u64,
}

/// Numbers of buffers and sections. A problem is checked to have no more than fit.
fn number(value: usize) -> u32 {
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
        // Whether something ended since the last section began: what starts then begins a new one.
        let mut closed = true;
        for (time, index) in starts {
            while let Some((_, ended)) = ends.next_if(|&(end, _)| end <= time) {
                close(&mut spans, &place_of, ended, first_span.len());
                closed = true;
            }
            if closed {
                first_span.push(number(spans.len()));
                closed = false;
            }
            let buffer = &buffers[index as usize];
            place_of[index as usize] = number(spans.len());
            let first = number(first_span.len() - 1);
            let alignment_log2 = buffer.alignment.log2();
            spans.push(SectionSpan { first, behind: first, index, alignment_log2, size: buffer.size });
        }
        for (_, ended) in ends {
            close(&mut spans, &place_of, ended, first_span.len());
        }
        first_span.push(number(spans.len()));
        let mut normal = Self { spans, first_span, load: Vec::new(), lower_bound: 0, granule };
        normal.load = normal.sum();
        normal.lower_bound = normal.bound();
        normal
    }

    /// How many sections there are.
    pub(crate) fn sections(&self) -> u32 {
        number(self.first_span.len() - 1)
    }

    /// What a span takes from those above it.
    pub(crate) fn rounded(&self, span: &SectionSpan) -> u64 {
        round_up(span.size, self.granule)
    }

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

    /// In each section the buffers lie one on top of the other, each with its rounded size but for the top
    /// one. Which that is a plan may choose: at best the one whose rounding adds most.
    fn bound(&self) -> u64 {
        let mut bound = 0;
        // Those that live, by what rounding adds; those that ended leave when they come to the top.
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
            bound = bound.max(load - saved);
        }
        bound
    }

    /// The spans that begin in a section.
    fn begin(&self, section: usize) -> std::ops::Range<usize> {
        self.first_span[section] as usize..self.first_span[section + 1] as usize
    }
}

fn close(spans: &mut [SectionSpan], place_of: &[u32], ended: u32, sections: usize) {
    spans[place_of[ended as usize] as usize].behind = number(sections);
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
    fn only_the_largest_sets_stay() {
        // 0 and 1 start after each other and one ends before the other: one section. 2 takes the place of 0.
        let two =
            normal(&[Buffer::unaligned(0..5, 1), Buffer::unaligned(3..9, 2), Buffer::unaligned(5..7, 4)]);
        assert_eq!(spans(&two), [(0, 0, 1), (1, 0, 2), (2, 1, 2)]);
        assert_eq!((two.first_span, two.load, two.lower_bound), (vec![0, 2, 3], vec![3, 6], 6));
    }

    #[test]
    fn nothing_has_no_sections() {
        for buffers in [&[][..], &[Buffer::unaligned(0..u64::MAX, 0)]] {
            let normal = normal(buffers);
            assert_eq!((normal.sections(), normal.lower_bound, normal.spans.len()), (0, 0, 0));
        }
    }

    #[test]
    fn the_bound_knows_what_rounding_costs() {
        let planned = |range, size| Buffer::new(range, size);
        // The smaller one goes on top: 512 + 1.
        assert_eq!(normal(&[planned(0..1, 257), planned(0..1, 1)]).lower_bound, 513);
        // Not at the same time.
        assert_eq!(normal(&[planned(0..1, 257), planned(1..2, 1)]).lower_bound, 257);
        // What ended cannot be on top: 512 + 256 and 256 + 512 live, then.
        let three = [planned(0..1, 1), planned(0..9, 512), planned(1..9, 256)];
        assert_eq!(normal(&three).lower_bound, 768);
        // One that may lie anywhere, and no rounding is certain.
        assert_eq!(normal(&[planned(0..1, 257), Buffer::unaligned(0..1, 1)]).lower_bound, 258);
    }
}
