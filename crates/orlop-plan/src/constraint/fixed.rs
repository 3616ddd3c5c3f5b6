//! Many fixed offsets at once.

use super::{InterruptedLifetimes, overlap};
use crate::{ProblemBuilder, ProblemError};
use std::collections::BTreeMap;

impl ProblemBuilder {
    /// Fixes the offsets of buffers, given by index, of a problem in which none is fixed, in O(n log n) time.
    ///
    /// # Errors
    ///
    /// As for [`fix`](Self::fix), with the position of the buffer among `offsets`. Some are fixed then.
    pub fn fix_all(&mut self, offsets: &[(usize, u64)]) -> Result<(), (usize, ProblemError)> {
        self.flatten_parts();
        let mut events = Vec::with_capacity(2 * offsets.len());
        for (number, &(index, offset)) in offsets.iter().enumerate() {
            let fixed = self.existing(index).and_then(|()| self.fix_alone(index, offset));
            fixed.map_err(|error| (number, error))?;
        }
        let (problem, interrupted) = (&self.problem, InterruptedLifetimes::new(&self.problem));
        for (number, &(index, _)) in offsets.iter().enumerate() {
            if problem.buffers()[index].size == 0 {
                continue;
            }
            for lifetime in interrupted.of(problem, index).iter() {
                // At the same time, ends come before starts.
                events.push((lifetime.end, false, number));
                events.push((lifetime.start, true, number));
            }
        }
        events.sort_unstable();
        let bytes = |number: usize| {
            let (index, offset) = offsets[number];
            offset..offset + problem.buffers()[index].size
        };
        let mut live: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, starts, number) in events {
            let range = bytes(number);
            if !starts {
                live.remove(&range.start);
                continue;
            }
            let below = live.range(..range.end).next_back();
            if let Some((_, &other)) = below.filter(|&(_, &other)| overlap(&bytes(other), &range)) {
                let (index, other) = (offsets[number].0, offsets[other].0);
                return Err((number, ProblemError::FixedOverlap { index, other }));
            }
            live.insert(range.start, number);
        }
        problem.constraints.check_exclusions(problem).map_err(|error| {
            let fixed_last = |error: &ProblemError| match *error {
                ProblemError::Excluded { index, other } => {
                    offsets.iter().rposition(|&(fixed, _)| fixed == index || fixed == other)
                }
                _ => None,
            };
            (fixed_last(&error).unwrap_or(0), error)
        })
    }
}
