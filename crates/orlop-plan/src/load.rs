//! The live bytes over time, and the lower bound of all plans.

use crate::Problem;
use crate::constraint::FlatProblem;
use crate::normal::Normal;

/// The load from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadStep {
    /// The start of the step.
    pub time: u64,
    /// The sum of the sizes of all live buffers, in bytes.
    pub bytes: u64,
}

/// The load over time. A step lasts until the next one; before the first step no buffer is live, and the last
/// step has 0 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadProfile {
    steps: Vec<LoadStep>,
}

impl LoadProfile {
    /// Returns the steps in order of time. Consecutive steps have different loads.
    #[must_use]
    pub fn steps(&self) -> &[LoadStep] {
        &self.steps
    }

    /// Returns the first step with the maximum load, or `None` if no buffer is ever live.
    #[must_use]
    pub fn peak(&self) -> Option<LoadStep> {
        self.steps.iter().copied().rev().max_by_key(|step| step.bytes)
    }

    /// Returns the load at a time, in bytes.
    #[must_use]
    pub fn at(&self, time: u64) -> u64 {
        let after = self.steps.partition_point(|step| step.time <= time);
        after.checked_sub(1).and_then(|index| self.steps.get(index)).map_or(0, |step| step.bytes)
    }
}

impl Problem {
    /// Returns the live bytes over time. Bytes that a part and the whole have in common count once, and
    /// reserved ranges do not.
    ///
    /// ```
    /// use orlop_plan::{Buffer, LoadStep, Problem};
    ///
    /// let buffers = [(0..4, 10), (2..3, 5), (3..4, 5)];
    /// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
    /// let profile = problem.load_profile();
    /// let step = |time, bytes| LoadStep { time, bytes };
    /// assert_eq!(profile.steps(), [step(0, 10), step(2, 15), step(4, 0)]);
    /// assert_eq!((profile.peak(), profile.at(3)), (Some(step(2, 15)), 15));
    /// # Ok::<(), orlop_plan::ProblemError>(())
    /// ```
    #[must_use]
    pub fn load_profile(&self) -> LoadProfile {
        let flat = FlatProblem::live(self);
        let real = || flat.problem.buffers()[..flat.real].iter().filter(|buffer| buffer.size > 0);
        let mut starts: Vec<(u64, u64)> = real().map(|buffer| (buffer.start, buffer.size)).collect();
        let mut ends: Vec<(u64, u64)> = real().map(|buffer| (buffer.end, buffer.size)).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
        let (mut steps, mut bytes) = (Vec::new(), 0_u64);
        // The last event is an end.
        while let Some(&(end, _)) = ends.peek() {
            let time = starts.peek().map_or(end, |&(start, _)| start.min(end));
            let before = bytes;
            // Starts are added first, so that the sum is never negative; it cannot exceed the total.
            while let Some((_, size)) = starts.next_if(|&(start, _)| start == time) {
                bytes += size;
            }
            while let Some((_, size)) = ends.next_if(|&(end, _)| end == time) {
                bytes -= size;
            }
            if bytes != before {
                steps.push(LoadStep { time, bytes });
            }
        }
        LoadProfile { steps }
    }

    /// Returns the lower bound of the height of all plans, in bytes: the maximum load, with the bytes that
    /// the smallest alignment adds to buffers below others. Takes as long as sorting the buffers.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Problem};
    ///
    /// let lifetimes = [0..2, 1..3, 2..4];
    /// let anywhere = lifetimes.clone().map(|lifetime| Buffer::unaligned(lifetime, 100));
    /// assert_eq!(Problem::new(anywhere)?.lower_bound(), 200);
    /// let aligned = lifetimes.map(|lifetime| Buffer::new(lifetime, 100));
    /// assert_eq!(Problem::new(aligned)?.lower_bound(), 256 + 100);
    /// # Ok::<(), orlop_plan::ProblemError>(())
    /// ```
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        Normal::of_flat(&FlatProblem::relaxed(self)).lower_bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn loads_near_the_largest_number() {
        let half = u64::MAX / 2;
        let problem =
            Problem::new([Buffer::unaligned(0..1, half), Buffer::unaligned(1..u64::MAX, half + 1)]).unwrap();
        let profile = problem.load_profile();
        let steps: Vec<_> = profile.steps().iter().map(|step| (step.time, step.bytes)).collect();
        assert_eq!(steps, [(0, half), (1, half + 1), (u64::MAX, 0)]);
        assert_eq!((profile.at(u64::MAX), profile.at(u64::MAX - 1)), (0, half + 1));
        assert_eq!(problem.lower_bound(), half + 1);
    }

    #[test]
    fn a_problem_without_bytes_has_no_steps() {
        let profile = Problem::new([Buffer::unaligned(3..4, 0)]).unwrap().load_profile();
        assert_eq!((profile.peak(), profile.at(3), profile.steps().len()), (None, 0, 0));
    }

    #[test]
    fn the_first_of_equal_peaks() {
        let problem = Problem::new([Buffer::unaligned(1..2, 7), Buffer::unaligned(3..4, 7)]).unwrap();
        assert_eq!(problem.load_profile().peak(), Some(LoadStep { time: 1, bytes: 7 }));
    }
}
