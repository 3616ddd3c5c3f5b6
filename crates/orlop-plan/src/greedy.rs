//! The common simple planner, for comparison: the largest buffer first, each in the smallest gap that fits.
//!
//! [`placement`](crate::placement) is its counterpart for allocators.
//!
//! Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020; TensorFlow Lite's
//! planner.

use crate::constraint::FlatProblem;
use crate::first_fit::first_fit;
use crate::live::LiveIndex;
use crate::planner::{Fit, Stop};
use crate::{Plan, Problem};
use std::cmp::Reverse;

/// Places the buffers in order of descending size, each in the smallest gap between the buffers that are live
/// at the same time, or above them.
///
/// For comparison: [`Planner`](crate::Planner) finds lower plans.
///
/// ```
/// use orlop_plan::{Buffer, Problem, greedy_by_size, verify};
///
/// let buffers = [(0..2, 100), (1..3, 50), (2..4, 100)];
/// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// let plan = greedy_by_size(&problem);
/// verify(&problem, &plan)?;
/// assert_eq!(plan.offsets(), [0, 100, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn greedy_by_size(problem: &Problem) -> Plan {
    let (normal, bound) = FlatProblem::restricted(problem).normal(problem);
    let mut sorted: Vec<u32> = (0..).take(normal.spans.len()).collect();
    sorted.sort_unstable_by_key(|&number| {
        let span = &normal.spans[number as usize];
        (Reverse(span.size), span.index)
    });
    let live = LiveIndex::new(&normal);
    let placed = first_fit(&normal, &live, &sorted, Fit::Tightest, u64::MAX, &Stop::NEVER);
    let placement = placed.unwrap_or_else(|| normal.placed(vec![0; normal.spans.len()]));
    Plan::of_normal(problem, &normal, &placement, bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;
    use orlop_core::Alignment;

    #[test]
    fn the_smallest_gap_wins() {
        // At 3 there are gaps of 10 at 30 and of 5 at 60.
        let buffers = [
            Buffer::unaligned(0..9, 30),
            Buffer::unaligned(0..2, 29),
            Buffer::unaligned(0..9, 20),
            Buffer::unaligned(2..3, 6),
            Buffer::unaligned(3..4, 5),
        ];
        let problem = Problem::new(buffers).unwrap();
        let plan = greedy_by_size(&problem);
        assert_eq!(plan.offsets(), [0, 30, 59, 30, 30]);
        assert_eq!((plan.height(), plan.lower_bound()), (79, 79));
    }

    #[test]
    fn gaps_are_measured_from_the_aligned_offset() {
        let aligned = Buffer::unaligned(0..1, 16).aligned(Alignment::new(16).unwrap());
        let problem =
            Problem::new([Buffer::unaligned(0..1, 20), aligned, Buffer::unaligned(0..1, 12)]).unwrap();
        assert_eq!(greedy_by_size(&problem).offsets(), [0, 32, 20]);
    }
}
