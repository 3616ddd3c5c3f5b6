//! How much lives when: the profile of a problem, and the bound that no plan can beat.

use crate::Problem;
use crate::normal::Normal;

/// The load from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadStep {
    /// The first moment.
    pub time: u64,
    /// The sizes of all buffers that live then, in bytes.
    pub bytes: u64,
}

/// The load over time: each step holds until the next one, and before the first nothing lives. The last has 0
/// bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadProfile {
    steps: Vec<LoadStep>,
}

impl LoadProfile {
    /// The steps in order of time, each with another load than the one before.
    #[must_use]
    pub fn steps(&self) -> &[LoadStep] {
        &self.steps
    }

    /// The first step with the greatest load, if anything ever lives.
    #[must_use]
    pub fn peak(&self) -> Option<LoadStep> {
        self.steps.iter().copied().rev().max_by_key(|step| step.bytes)
    }

    /// The load at a moment, in bytes.
    #[must_use]
    pub fn at(&self, time: u64) -> u64 {
        let after = self.steps.partition_point(|step| step.time <= time);
        after.checked_sub(1).and_then(|index| self.steps.get(index)).map_or(0, |step| step.bytes)
    }
}

impl Problem {
    /// How many bytes live when.
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
        let real = || self.buffers().iter().filter(|buffer| buffer.size > 0);
        let mut gains: Vec<(u64, u64)> = real().map(|buffer| (buffer.start, buffer.size)).collect();
        let mut losses: Vec<(u64, u64)> = real().map(|buffer| (buffer.end, buffer.size)).collect();
        gains.sort_unstable();
        losses.sort_unstable();
        let (mut gains, mut losses) = (gains.into_iter().peekable(), losses.into_iter().peekable());
        let (mut steps, mut bytes) = (Vec::new(), 0_u64);
        // The last thing to happen is an end.
        while let Some(&(end, _)) = losses.peek() {
            let time = gains.peek().map_or(end, |&(start, _)| start.min(end));
            let before = bytes;
            // What starts is added first: below zero would be an overflow, above the total it cannot go.
            while let Some((_, size)) = gains.next_if(|&(start, _)| start == time) {
                bytes += size;
            }
            while let Some((_, size)) = losses.next_if(|&(end, _)| end == time) {
                bytes -= size;
            }
            if bytes != before {
                steps.push(LoadStep { time, bytes });
            }
        }
        LoadProfile { steps }
    }

    /// The height in bytes that no plan can be below: the greatest load, with what the smallest alignment
    /// adds to buffers that lie under others. Takes as long as sorting the buffers.
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
        Normal::new(self).lower_bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn loads_near_the_largest_number() {
        let most = u64::MAX / 2;
        let problem =
            Problem::new([Buffer::unaligned(0..1, most), Buffer::unaligned(1..u64::MAX, most + 1)]).unwrap();
        let profile = problem.load_profile();
        let steps: Vec<_> = profile.steps().iter().map(|step| (step.time, step.bytes)).collect();
        assert_eq!(steps, [(0, most), (1, most + 1), (u64::MAX, 0)]);
        assert_eq!((profile.at(u64::MAX), profile.at(u64::MAX - 1)), (0, most + 1));
        assert_eq!(problem.lower_bound(), most + 1);
    }

    #[test]
    fn nothing_ever_lives() {
        let profile = Problem::new([Buffer::unaligned(3..4, 0)]).unwrap().load_profile();
        assert_eq!((profile.peak(), profile.at(3), profile.steps().len()), (None, 0, 0));
    }

    #[test]
    fn the_first_of_equal_peaks() {
        let problem = Problem::new([Buffer::unaligned(1..2, 7), Buffer::unaligned(3..4, 7)]).unwrap();
        assert_eq!(problem.load_profile().peak(), Some(LoadStep { time: 1, bytes: 7 }));
    }
}
