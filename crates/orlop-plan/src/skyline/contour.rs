//! The skyline: how high the placed buffers reach in each section.
//!
//! Stretches of the same level, each known by its first section. What begins where another ends needs no
//! links: the next stretch begins at the end, and the one before is noted there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is known at a section; it is the first of a stretch if `end` is not 0.
#[derive(Debug, Clone, Copy, Default)]
struct ContourSegment {
    level: u64,
    /// The section behind it; 0 if no stretch begins here.
    end: u32,
    /// Where the stretch that ends here begins.
    before: u32,
}

/// A stretch that is lower than its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Valley {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) level: u64,
}

#[derive(Debug)]
pub(super) struct Contour {
    /// By section, and one more for what ends behind the last.
    stretches: Vec<ContourSegment>,
    sections: u32,
    /// Level and start of every stretch that is not in `lowest`, and of some that no longer are.
    higher: BinaryHeap<Reverse<(u64, u32)>>,
    /// Starts of stretches of the lowest level; the last is the first in time.
    lowest: Vec<u32>,
}

impl Contour {
    pub(super) fn new(sections: u32) -> Self {
        let stretches = vec![ContourSegment::default(); sections as usize + 1];
        Self { stretches, sections, higher: BinaryHeap::new(), lowest: Vec::new() }
    }

    /// Nothing is placed.
    pub(super) fn flatten(&mut self) {
        self.stretches.fill(ContourSegment::default());
        self.higher.clear();
        self.lowest.clear();
        if self.sections > 0 {
            self.set(0, self.sections, 0);
            self.lowest.push(0);
        }
    }

    fn at(&mut self, section: u32) -> &mut ContourSegment {
        &mut self.stretches[section as usize]
    }

    fn set(&mut self, start: u32, end: u32, level: u64) {
        let stretch = self.at(start);
        (stretch.level, stretch.end) = (level, end);
        self.at(end).before = start;
    }

    /// The lowest stretch, of several the first: the walls on both sides are higher.
    pub(super) fn lowest(&mut self) -> Option<Valley> {
        let start = match self.lowest.last() {
            Some(&start) => start,
            None => loop {
                let Reverse((level, start)) = self.higher.pop()?;
                let stretch = *self.at(start);
                if stretch.end > 0 && stretch.level == level {
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

    /// Raises the lowest valley to its lower wall. `false` if it has none: nothing is left that could fit.
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

    /// Makes a stretch, together with neighbours of its level.
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
        // One that grows to the right is known already; asking costs more than a second entry.
        self.higher.push(Reverse((level, start)));
        self.set(start, end, level);
    }
}
