//! The skyline: the height of the placed buffers in each section.
//!
//! It consists of segments of equal level, each identified by its first section. Segments need no links: the
//! next one begins at the end, and the start of the previous one is stored there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An entry of a section; a segment begins there if `end` is not 0.
#[derive(Debug, Clone, Copy, Default)]
struct ContourSegment {
    level: u64,
    /// The section after it; 0 if no segment begins here.
    end: u32,
    /// The start of the segment that ends here.
    before: u32,
}

/// A segment that is lower than its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Valley {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) level: u64,
}

#[derive(Debug)]
pub(super) struct Contour {
    /// By section, and one more for the end of the last segment.
    segments: Vec<ContourSegment>,
    sections: u32,
    /// Level and start of every segment that is not in `lowest`, and of some that no longer exist.
    higher: BinaryHeap<Reverse<(u64, u32)>>,
    /// Starts of the segments of the lowest level; the last entry is the first in time.
    lowest: Vec<u32>,
}

impl Contour {
    pub(super) fn new(sections: u32) -> Self {
        let segments = vec![ContourSegment::default(); sections as usize + 1];
        Self { segments, sections, higher: BinaryHeap::new(), lowest: Vec::new() }
    }

    /// Resets the skyline to level 0.
    pub(super) fn flatten(&mut self) {
        self.segments.fill(ContourSegment::default());
        self.higher.clear();
        self.lowest.clear();
        if self.sections > 0 {
            self.set(0, self.sections, 0);
            self.lowest.push(0);
        }
    }

    fn at(&mut self, section: u32) -> &mut ContourSegment {
        &mut self.segments[section as usize]
    }

    fn set(&mut self, start: u32, end: u32, level: u64) {
        let segment = self.at(start);
        (segment.level, segment.end) = (level, end);
        self.at(end).before = start;
    }

    /// Returns the lowest segment, or the first of several. Its neighbours are higher.
    pub(super) fn lowest(&mut self) -> Option<Valley> {
        let start = match self.lowest.last() {
            Some(&start) => start,
            None => loop {
                let Reverse((level, start)) = self.higher.pop()?;
                let segment = *self.at(start);
                if segment.end > 0 && segment.level == level {
                    self.lowest.push(start);
                    break start;
                }
            },
        };
        let ContourSegment { level, end, .. } = *self.at(start);
        Some(Valley { start, end, level })
    }

    /// Raises `first..behind`, a part of the lowest valley, to `level`, which is above it.
    pub(super) fn cover(&mut self, valley: Valley, first: u32, behind: u32, level: u64) {
        self.lowest.pop();
        if behind < valley.end {
            self.set(behind, valley.end, valley.level);
            self.lowest.push(behind);
        }
        if valley.start < first {
            self.set(valley.start, first, valley.level);
            self.lowest.push(valley.start);
        } else {
            self.at(first).end = 0;
        }
        self.join(first, behind, level);
    }

    /// Raises the lowest valley to the level of its lower neighbour. Returns `false` if it has none: no
    /// buffer fits.
    pub(super) fn fill(&mut self, valley: Valley) -> bool {
        let left = (valley.start > 0).then(|| {
            let before = self.at(valley.start).before;
            self.at(before).level
        });
        let right = (valley.end < self.sections).then(|| self.at(valley.end).level);
        let Some(wall) = left.into_iter().chain(right).min() else { return false };
        self.lowest.pop();
        self.at(valley.start).end = 0;
        self.join(valley.start, valley.end, wall);
        true
    }

    /// Creates a segment and merges it with neighbours of its level.
    fn join(&mut self, mut start: u32, mut end: u32, level: u64) {
        if end < self.sections && self.at(end).level == level {
            let right = end;
            end = self.at(right).end;
            self.at(right).end = 0;
        }
        if start > 0 {
            let before = self.at(start).before;
            if self.at(before).level == level {
                start = before;
            }
        }
        // A segment that grows to the right has an entry already; to check that costs more than a second
        // entry.
        self.higher.push(Reverse((level, start)));
        self.set(start, end, level);
    }
}
