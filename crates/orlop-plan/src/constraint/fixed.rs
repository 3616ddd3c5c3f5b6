//! Many fixed offsets at once.

use super::overlap;
use crate::{ProblemBuilder, ProblemError};
use std::collections::BTreeMap;

impl ProblemBuilder {
    /// Fixes the offsets of buffers, given by index, of a problem in which none is fixed, in O(n log n) time.
    ///
    /// # Errors
    ///
    /// As for [`fix`](Self::fix), with the position of the buffer among `offsets`. Some are fixed then.
    pub fn fix_all(&mut self, offsets: &[(usize, u64)]) -> Result<(), (usize, ProblemError)> {
        let mut events = Vec::with_capacity(2 * offsets.len());
        for (number, &(index, offset)) in offsets.iter().enumerate() {
            let fixed = self.existing(index).and_then(|()| self.fix_alone(index, offset));
            fixed.map_err(|error| (number, error))?;
            let buffer = self.problem.constraints.whole(&self.problem, index);
            if buffer.size > 0 {
                // At the same time, ends come before starts.
                events.push((buffer.end, false, number));
                events.push((buffer.start, true, number));
            }
        }
        events.sort_unstable();
        let bytes = |number: usize| {
            let (index, offset) = offsets[number];
            offset..offset + self.problem.buffers()[index].size
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
        Ok(())
    }
}
