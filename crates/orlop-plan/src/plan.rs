//! The answer: where each buffer lies, and how good that is.

use crate::{PlanError, Problem};
use std::fmt;

/// An offset for each buffer of a [`Problem`].
///
/// Planners of this crate make plans that are right; [`Plan::new`] takes offsets from anywhere, and
/// [`verify`](crate::verify) says whether they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    offsets: Vec<u64>,
    height: u64,
    lower_bound: u64,
}

/// How good a plan is, as far as whoever made it can tell.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// No plan is lower: this is proven.
    Optimal,
    /// Some plan may be lower, but none by more than this: the height is so many times what no plan can be
    /// below.
    Within(f64),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optimal => f.write_str("optimal"),
            // Rounded up: it is a promise, and not the one that is made above.
            Self::Within(ratio) => {
                let hundredths = ((ratio - 1.0) * 10_000.0).ceil().max(1.0);
                write!(f, "within {:.2} %", hundredths / 100.0)
            }
        }
    }
}

impl Plan {
    /// Offsets in bytes, by number of the buffer, from wherever. That they do not overlap is not checked: see
    /// [`verify`](crate::verify).
    ///
    /// # Errors
    ///
    /// [`PlanError::Count`] and [`PlanError::Overflow`].
    pub fn new(problem: &Problem, offsets: Vec<u64>) -> Result<Self, PlanError> {
        let buffers = problem.buffers();
        if offsets.len() != buffers.len() {
            return Err(PlanError::Count { offsets: offsets.len(), buffers: buffers.len() });
        }
        let mut height = 0;
        for (index, (buffer, &offset)) in buffers.iter().zip(&offsets).enumerate() {
            let Some(end) = offset.checked_add(buffer.size) else {
                let size = buffer.size;
                return Err(PlanError::Overflow { buffer: problem.buffer_ref(index), offset, size });
            };
            if buffer.size > 0 {
                height = height.max(end);
            }
        }
        Ok(Self { offsets, height, lower_bound: problem.lower_bound() })
    }

    /// For planners, which know the rest.
    pub(crate) fn of_planner(offsets: Vec<u64>, height: u64, lower_bound: u64) -> Self {
        Self { offsets, height, lower_bound }
    }

    /// Where each buffer begins, in bytes, by number.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Where a buffer begins, in bytes; nothing if there is no such buffer.
    #[must_use]
    pub fn offset(&self, index: usize) -> Option<u64> {
        self.offsets.get(index).copied()
    }

    /// The bytes that hold all buffers: where the highest one ends.
    #[must_use]
    pub fn height(&self) -> u64 {
        self.height
    }

    /// Bytes that no plan for the problem can be below, as far as whoever made this one can prove.
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// Height over bound: 1 is perfect. 1 too if nothing has any bytes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people; the verdict compares exactly")]
        let ratio = self.height as f64 / self.lower_bound as f64;
        if self.lower_bound == 0 { 1.0 } else { ratio }
    }

    /// How good that is. [`Optimal`](Verdict::Optimal) rests on equal bytes, not on the ratio.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.height == self.lower_bound { Verdict::Optimal } else { Verdict::Within(self.ratio()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn a_verdict_is_exact_where_a_ratio_is_not() {
        let half = u64::MAX / 2;
        let problem = Problem::new([Buffer::unaligned(0..1, half), Buffer::unaligned(1..2, half)]).unwrap();
        let plan = Plan::new(&problem, vec![0, 0]).unwrap();
        assert_eq!((plan.verdict(), plan.verdict().to_string()), (Verdict::Optimal, "optimal".into()));
        let plan = Plan::new(&problem, vec![1, 0]).unwrap();
        assert_eq!(
            (plan.verdict(), plan.height(), plan.lower_bound()),
            (Verdict::Within(1.0), half + 1, half)
        );
        assert_eq!(plan.verdict().to_string(), "within 0.01 %");
        let words = [1.25, 1.007_581, 2.0].map(|ratio| Verdict::Within(ratio).to_string());
        assert_eq!(words, ["within 25.00 %", "within 0.76 %", "within 100.00 %"]);
    }

    #[test]
    fn no_bytes_are_optimal_anywhere() {
        let problem = Problem::new([Buffer::unaligned(0..1, 0)]).unwrap();
        let plan = Plan::new(&problem, vec![7]).unwrap();
        assert_eq!((plan.height(), plan.ratio(), plan.verdict()), (0, 1.0, Verdict::Optimal));
    }

    #[test]
    fn offsets_that_are_none() {
        let problem = Problem::new([Buffer::unaligned(0..1, 2)]).unwrap();
        assert_eq!(Plan::new(&problem, vec![]), Err(PlanError::Count { offsets: 0, buffers: 1 }));
        let error = Plan::new(&problem, vec![u64::MAX - 1]).unwrap_err();
        assert_eq!(error.to_string(), "buffer 0: 2 bytes at 18446744073709551614 pass 2^64");
    }
}
