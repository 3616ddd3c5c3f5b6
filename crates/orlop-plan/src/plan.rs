//! A plan: the offset of each buffer, and a verdict on the height.

use crate::normal::{Normal, Placement};
use crate::{PlanError, Problem};
use std::fmt;

/// An offset for each buffer of a [`Problem`].
///
/// Plans of this crate's planners are valid. [`Plan::new`] takes offsets from any source;
/// [`verify`](crate::verify) checks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    offsets: Vec<u64>,
    height: u64,
    lower_bound: u64,
}

/// The quality of a plan, as far as it is proven.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// No plan is lower.
    Optimal,
    /// A lower plan may exist: the height is at most this factor times the optimum.
    Within(f64),
}

impl Verdict {
    /// Returns the verdict on a plan of `height` bytes where no plan is below `lower_bound` bytes.
    #[must_use]
    pub fn of(height: u64, lower_bound: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for display; the verdict compares exactly")]
        let ratio = height as f64 / lower_bound.max(1) as f64;
        if height == lower_bound { Self::Optimal } else { Self::Within(ratio) }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optimal => f.write_str("optimal"),
            // Rounded up, and never to zero: that would mean optimal.
            Self::Within(ratio) => {
                let hundredths = ((ratio - 1.0) * 10_000.0).ceil().max(1.0);
                write!(f, "within {:.2} %", hundredths / 100.0)
            }
        }
    }
}

/// The answer to whether a problem fits in a capacity, as far as a plan proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapacityVerdict {
    /// The plan fits.
    Fits,
    /// No plan fits: the lower bound is above the capacity.
    Infeasible {
        /// The bytes by which the bound exceeds the capacity.
        missing: u64,
    },
    /// This plan does not fit, and a lower one may.
    Unproven {
        /// The bytes by which the plan exceeds the capacity.
        missing: u64,
    },
}

impl fmt::Display for CapacityVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits => f.write_str("fits"),
            Self::Infeasible { missing } => write!(f, "infeasible: at least {missing} bytes are missing"),
            Self::Unproven { missing } => {
                write!(f, "unproven: this plan is {missing} bytes too high, and a lower one may exist")
            }
        }
    }
}

impl Plan {
    /// Creates a plan from offsets in bytes, by index of the buffer. It does not check for overlaps: see
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

    /// Creates a plan of a planner, which knows its height and bound.
    pub(crate) fn of_planner(offsets: Vec<u64>, height: u64, lower_bound: u64) -> Self {
        Self { offsets, height, lower_bound }
    }

    /// Creates a plan from one in normal form.
    pub(crate) fn of_normal(problem: &Problem, normal: &Normal, placement: &Placement, bound: u64) -> Self {
        let mut offsets = normal.offsets(placement, problem.len());
        // First: a buffer without bytes, which the normal form does not have, may have parts.
        for (&index, &offset) in &problem.constraints.fixed {
            offsets[index] = offset;
        }
        for (&part, &(whole, offset)) in &problem.constraints.parts {
            offsets[part] = offsets[whole] + offset;
        }
        Self::of_planner(offsets, placement.height, bound)
    }

    /// Returns the offset of each buffer in bytes, by index.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the offset of a buffer in bytes, or `None` if there is no such buffer.
    #[must_use]
    pub fn offset(&self, index: usize) -> Option<u64> {
        self.offsets.get(index).copied()
    }

    /// Returns the bytes that all buffers need: the end of the highest one.
    #[must_use]
    pub fn height(&self) -> u64 {
        self.height
    }

    /// Returns the lower bound of the height of all plans, in bytes: that of the load
    /// ([`Problem::lower_bound`]), or a larger one that a complete search has proven.
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// Returns the height over the lower bound: 1 is optimal. It is 1 if no buffer has bytes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for display; the verdict compares exactly")]
        let ratio = self.height as f64 / self.lower_bound as f64;
        if self.lower_bound == 0 { 1.0 } else { ratio }
    }

    /// Returns the verdict. [`Optimal`](Verdict::Optimal) compares bytes, not the ratio.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.height, self.lower_bound)
    }

    /// Returns whether the problem fits in `capacity` bytes: a plan that fits is the proof that it does, and
    /// a [lower bound](Self::lower_bound) above the capacity that no plan does.
    ///
    /// ```
    /// use orlop_plan::{Buffer, CapacityVerdict, Problem, Planner};
    ///
    /// let problem = Problem::new([Buffer::unaligned(0..2, 8), Buffer::unaligned(1..3, 4)])?;
    /// let plan = Planner::new().plan(&problem);
    /// assert_eq!(plan.verdict_in(12), CapacityVerdict::Fits);
    /// assert_eq!(plan.verdict_in(10), CapacityVerdict::Infeasible { missing: 2 });
    /// # Ok::<(), orlop_plan::ProblemError>(())
    /// ```
    #[must_use]
    pub fn verdict_in(&self, capacity: u64) -> CapacityVerdict {
        if self.height <= capacity {
            CapacityVerdict::Fits
        } else if self.lower_bound > capacity {
            CapacityVerdict::Infeasible { missing: self.lower_bound - capacity }
        } else {
            CapacityVerdict::Unproven { missing: self.height - capacity }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn the_verdict_is_exact_where_the_ratio_is_not() {
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
    fn a_plan_without_bytes_is_optimal() {
        let problem = Problem::new([Buffer::unaligned(0..1, 0)]).unwrap();
        let plan = Plan::new(&problem, vec![7]).unwrap();
        assert_eq!((plan.height(), plan.ratio(), plan.verdict()), (0, 1.0, Verdict::Optimal));
    }

    #[test]
    fn invalid_offsets_are_refused() {
        let problem = Problem::new([Buffer::unaligned(0..1, 2)]).unwrap();
        assert_eq!(Plan::new(&problem, vec![]), Err(PlanError::Count { offsets: 0, buffers: 1 }));
        let error = Plan::new(&problem, vec![u64::MAX - 1]).unwrap_err();
        assert_eq!(error.to_string(), "buffer 0: 2 bytes at 18446744073709551614 end beyond 2^64");
    }
}
