//! A skyline of which the last changes can be undone.

use std::ops::Range;

/// Consecutive sections of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) level: u64,
}

/// The steps that a change replaced.
#[derive(Debug)]
pub(super) struct SkylineChange {
    index: usize,
    before: Vec<Step>,
    /// The number of steps that are there instead.
    after: usize,
}

/// The steps, in order of time. Neighbours have different levels.
#[derive(Debug)]
pub(super) struct PackingSkyline {
    steps: Vec<Step>,
}

impl PackingSkyline {
    pub(super) fn new(sections: u32) -> Self {
        Self { steps: vec![Step { start: 0, end: sections, level: 0 }] }
    }

    /// Returns the lowest step, the first of several, and its index.
    pub(super) fn lowest(&self) -> (usize, Step) {
        let indexed = self.steps.iter().copied().enumerate();
        indexed.min_by_key(|(_, step)| step.level).unwrap_or((0, Step { start: 0, end: 0, level: 0 }))
    }

    /// Returns the levels before and behind a step.
    pub(super) fn walls(&self, index: usize) -> [Option<u64>; 2] {
        let level = |step: &Step| step.level;
        let before = index.checked_sub(1).and_then(|before| self.steps.get(before));
        [before.map(level), self.steps.get(index + 1).map(level)]
    }

    /// Raises a part of a step to `level`.
    pub(super) fn place(&mut self, index: usize, part: Range<u32>, level: u64) -> SkylineChange {
        let Step { start, end, level: low } = self.steps[index];
        let pieces = [(start..part.start, low), (part.clone(), level), (part.end..end, low)];
        let pieces = pieces.into_iter().filter(|(sections, _)| !sections.is_empty());
        self.replace(index, pieces.map(|(at, level)| Step { start: at.start, end: at.end, level }).collect())
    }

    /// Raises a step to its lower neighbour.
    pub(super) fn raise(&mut self, index: usize) {
        let wall = self.walls(index).into_iter().flatten().min();
        let step = Step { level: wall.unwrap_or(self.steps[index].level), ..self.steps[index] };
        self.replace(index, vec![step]);
    }

    /// Replaces a step, and merges the new ones with neighbours of their level.
    fn replace(&mut self, index: usize, mut steps: Vec<Step>) -> SkylineChange {
        let mut range = index..index + 1;
        if let Some(before) =
            index.checked_sub(1).filter(|&before| self.steps[before].level == steps[0].level)
        {
            steps[0].start = self.steps[before].start;
            range.start = before;
        }
        let last = steps.len() - 1;
        if let Some(behind) = self.steps.get(index + 1).filter(|step| step.level == steps[last].level) {
            steps[last].end = behind.end;
            range.end += 1;
        }
        let after = steps.len();
        let before = self.steps.splice(range.clone(), steps).collect();
        SkylineChange { index: range.start, before, after }
    }

    /// Undoes the last change.
    pub(super) fn undo(&mut self, change: SkylineChange) {
        self.steps.splice(change.index..change.index + change.after, change.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_undone_in_reverse_order() {
        let mut skyline = PackingSkyline::new(10);
        let mut states = Vec::new();
        for part in [0..3, 3..6, 8..10, 6..8] {
            let (index, step) = skyline.lowest();
            states.push((skyline.steps.clone(), skyline.place(index, part, step.level + 5)));
        }
        assert_eq!(skyline.steps, [Step { start: 0, end: 10, level: 5 }]);
        while let Some((before, change)) = states.pop() {
            skyline.undo(change);
            assert_eq!(skyline.steps, before);
        }
    }

    #[test]
    fn a_raised_step_becomes_part_of_its_lower_neighbour() {
        let mut skyline = PackingSkyline::new(10);
        skyline.place(0, 0..3, 5);
        skyline.place(1, 6..10, 7);
        skyline.raise(1);
        let steps = [Step { start: 0, end: 6, level: 5 }, Step { start: 6, end: 10, level: 7 }];
        assert_eq!(skyline.steps, steps);
    }
}
