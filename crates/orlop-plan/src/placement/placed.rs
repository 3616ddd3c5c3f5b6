//! What is placed so far, in order of offset, and the search for the next offset in it.
//!
//! Both greedy planners place one span after the other and never move one. They differ in the choice of the
//! gap: the lowest ([`PlacedSpans::lowest_gap`]) or the tightest ([`PlacedSpans::tightest_gap`]).

use crate::normal::SectionSpan;
use std::ops::Range;

/// A span that is placed, or what lies between two holes. Apart from its [`SectionSpan`] and small, because a
/// search reads them all in order.
#[derive(Debug, Clone, Copy)]
struct PlacedSpan {
    offset: u64,
    end: u64,
    /// The first section in which it lives.
    first: u32,
    /// The one behind the last.
    behind: u32,
}

impl PlacedSpan {
    #[inline(always)]
    fn lives_with(&self, span: &SectionSpan) -> bool {
        self.first < span.behind && span.first < self.behind
    }
}

/// Where a span has room: its offset, and its index among the placed ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanPosition {
    offset: u64,
    index: usize,
}

/// The spans that are placed so far.
#[derive(Debug)]
pub(crate) struct PlacedSpans {
    /// In order of offset.
    placed: Vec<PlacedSpan>,
    /// From the first hole's start to the last one's end.
    space: Range<u64>,
}

impl PlacedSpans {
    /// Creates an empty arrangement in `holes`, which are in order and do not overlap, with room for `spans`
    /// spans.
    pub(crate) fn new(holes: &[Range<u64>], spans: usize) -> Self {
        debug_assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start), "holes in order");
        let mut placed = Vec::with_capacity(spans + holes.len());
        for pair in holes.windows(2) {
            // What lies between two holes is always in use. If that is nothing, it still is a border.
            placed.push(PlacedSpan { offset: pair[0].end, end: pair[1].start, first: 0, behind: u32::MAX });
        }
        let start = holes.first().map_or(0, |hole| hole.start);
        Self { placed, space: start..holes.last().map_or(start, |hole| hole.end) }
    }

    /// Returns the lowest offset at which `span` overlaps nothing that is placed and lives with it; `None` if
    /// it would pass the end of the last hole.
    pub(crate) fn lowest_gap(&self, span: &SectionSpan) -> Option<SpanPosition> {
        let highest = self.space.end.checked_sub(span.size)?;
        // Nothing placed ends higher, so no offset below is rounded up past 64 bits.
        span.checked_offset_from(self.space.end)?;
        let (mut offset, mut index) = (span.offset_from(self.space.start), self.placed.len());
        for (other_index, other) in self.placed.iter().enumerate() {
            // Wraps around only from an offset above `highest`, which is no answer.
            if other.offset >= offset.wrapping_add(span.size) {
                index = other_index;
                break;
            }
            if other.lives_with(span) {
                offset = offset.max(span.offset_from(other.end));
            }
        }
        // From there it is a few steps back. A binary search takes longer: 10 % of the whole for 1000 spans.
        index -= self.placed[..index].iter().rev().take_while(|other| other.offset > offset).count();
        (offset <= highest).then_some(SpanPosition { offset, index })
    }

    /// Returns the offset of the smallest gap that holds `span` between placed spans that live with it, or
    /// the lowest offset above all of these.
    ///
    /// For a single hole from 0 that has room for everything: the sum of a problem's claims fits into 64
    /// bits.
    pub(crate) fn tightest_gap(&self, span: &SectionSpan) -> SpanPosition {
        // The lowest offset above all that was passed, and the smallest gap: its size and its offset.
        let (mut above, mut best) = (0_u64, None);
        for other in self.placed.iter().filter(|other| other.lives_with(span)) {
            let gap = other.offset.checked_sub(above).filter(|&gap| gap >= span.size);
            if let Some(gap) = gap.filter(|&gap| best.is_none_or(|(smallest, _)| gap < smallest)) {
                best = Some((gap, above));
            }
            above = above.max(span.offset_from(other.end));
        }
        let offset = best.map_or(above, |(_, offset)| offset);
        SpanPosition { offset, index: self.placed.partition_point(|other| other.offset <= offset) }
    }

    /// Places `span` where a search has found room for it. Returns its offset.
    pub(crate) fn insert(&mut self, span: &SectionSpan, position: SpanPosition) -> u64 {
        let SpanPosition { offset, index } = position;
        let &SectionSpan { first, behind, size, .. } = span;
        self.placed.insert(index, PlacedSpan { offset, end: offset + size, first, behind });
        offset
    }
}
