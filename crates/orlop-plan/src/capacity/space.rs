//! What is placed, how low the others can be, and how to undo it.

use super::Neighbors;
use crate::normal::Normal;
use std::ops::Range;

/// The offset of a span that is not placed.
const UNPLACED: u64 = u64::MAX;

/// A change that can be undone.
#[derive(Debug, Clone, Copy)]
enum TrailEntry {
    Placed { span: u32 },
    Lowest { span: u32, before: u64 },
    Support { span: u32, before: u64 },
}

/// The placed spans, and what follows from them for the others.
#[derive(Debug)]
pub(super) struct Space<'a> {
    pub(super) normal: &'a Normal,
    pub(super) neighbors: &'a Neighbors,
    /// By span, its size with the rounding.
    pub(super) sizes: Vec<u64>,
    /// By span.
    offsets: Vec<u64>,
    /// By span, the lowest offset that it can have. Above all placed neighbours.
    lowest: Vec<u64>,
    /// By span, the lowest offset above all placed neighbours. It rests on one of them only at this offset.
    support: Vec<u64>,
    /// By section, the bytes that are not placed.
    left: Vec<u64>,
    /// By section, the number of spans that are not placed and reach into the next section.
    crossing: Vec<u32>,
    trail: Vec<TrailEntry>,
    /// The sections of spans whose lowest offset has changed since the last check.
    changed: Range<usize>,
}

impl<'a> Space<'a> {
    pub(super) fn new(normal: &'a Normal, neighbors: &'a Neighbors) -> Self {
        let spans = normal.spans.len();
        let mut crossing = vec![0; normal.load.len()];
        for span in &normal.spans {
            crossing[span.first as usize..span.behind as usize - 1].iter_mut().for_each(|count| *count += 1);
        }
        Self {
            normal,
            neighbors,
            sizes: normal.spans.iter().map(|span| normal.rounded(span)).collect(),
            offsets: vec![UNPLACED; spans],
            lowest: vec![0; spans],
            support: vec![0; spans],
            left: normal.load.clone(),
            crossing,
            trail: Vec::new(),
            changed: 0..0,
        }
    }

    /// Returns the sections of a span.
    pub(super) fn sections(&self, span: usize) -> Range<usize> {
        let span = &self.normal.spans[span];
        span.first as usize..span.behind as usize
    }

    pub(super) fn is_placed(&self, span: usize) -> bool {
        self.offsets[span] != UNPLACED
    }

    pub(super) fn lowest(&self, span: usize) -> u64 {
        self.lowest[span]
    }

    /// Returns `true` if a span can rest on what is placed, or on the floor.
    pub(super) fn is_supported(&self, span: usize) -> bool {
        self.support[span] == self.lowest[span]
    }

    pub(super) fn left(&self, section: usize) -> u64 {
        self.left[section]
    }

    /// Returns `true` if no span that is not placed reaches from a section into the next.
    pub(super) fn is_border(&self, section: usize) -> bool {
        self.crossing[section] == 0
    }

    /// Returns a mark to which changes can be undone.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Returns the sections to check again.
    pub(super) fn take_changed(&mut self) -> Range<usize> {
        std::mem::replace(&mut self.changed, 0..0)
    }

    /// Marks sections as not checked.
    pub(super) fn change_all(&mut self, sections: Range<usize>) {
        self.changed = sections;
    }

    /// Sets the lowest offset of a span.
    pub(super) fn raise(&mut self, span: usize, lowest: u64) {
        self.trail.push(TrailEntry::Lowest { span: number(span), before: self.lowest[span] });
        self.lowest[span] = lowest;
        let sections = self.sections(span);
        self.changed = if self.changed.is_empty() {
            sections
        } else {
            self.changed.start.min(sections.start)..self.changed.end.max(sections.end)
        };
    }

    /// Places a span at its lowest offset.
    pub(super) fn place(&mut self, span: usize) {
        self.trail.push(TrailEntry::Placed { span: number(span) });
        let offset = self.lowest[span];
        self.offsets[span] = offset;
        let (sections, size) = (self.sections(span), self.sizes[span]);
        self.left[sections.clone()].iter_mut().for_each(|left| *left -= size);
        self.crossing[sections.start..sections.end - 1].iter_mut().for_each(|count| *count -= 1);
        let neighbors = self.neighbors;
        for &other in neighbors.of(span) {
            let other = other as usize;
            if self.is_placed(other) {
                continue;
            }
            let above = self.normal.spans[other].offset_from(offset + size);
            if self.support[other] < above {
                let before = self.support[other];
                self.trail.push(TrailEntry::Support { span: number(other), before });
                self.support[other] = above;
            }
            if self.lowest[other] < above {
                self.raise(other, above);
            }
        }
    }

    /// Returns the lowest offset at which a span can rest on one that is not placed.
    pub(super) fn next_support(&self, span: usize) -> Option<u64> {
        let unplaced = self.neighbors.of(span).iter().map(|&other| other as usize);
        let unplaced = unplaced.filter(|&other| !self.is_placed(other));
        let top = unplaced.map(|other| self.lowest[other].saturating_add(self.sizes[other])).min()?;
        // No capacity is as large: it is refused when it is checked.
        Some(self.normal.spans[span].checked_offset_from(top).unwrap_or(u64::MAX))
    }

    /// Undoes all changes since a mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for entry in self.trail.drain(mark..).rev() {
            match entry {
                TrailEntry::Lowest { span, before } => self.lowest[span as usize] = before,
                TrailEntry::Support { span, before } => self.support[span as usize] = before,
                TrailEntry::Placed { span } => {
                    let span = span as usize;
                    self.offsets[span] = UNPLACED;
                    let (of, size) = (&self.normal.spans[span], self.sizes[span]);
                    let (first, behind) = (of.first as usize, of.behind as usize);
                    self.left[first..behind].iter_mut().for_each(|left| *left += size);
                    self.crossing[first..behind - 1].iter_mut().for_each(|count| *count += 1);
                }
            }
        }
        self.changed = 0..0;
    }

    /// Returns the offsets, once all spans are placed.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }
}

/// Returns the index of a span. There are no more than fit.
fn number(span: usize) -> u32 {
    u32::try_from(span).unwrap_or(u32::MAX)
}
