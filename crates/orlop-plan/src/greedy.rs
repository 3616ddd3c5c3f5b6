//! The usual simple planner, to compare with: largest first, each into the smallest gap that holds it.
//!
//! Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020; TensorFlow Lite's planner.

use crate::buffer::{alignment_bytes, round_up};
use crate::{Plan, Problem};
use std::cmp::Reverse;

/// Places the buffers by falling size, each into the smallest gap between those that live with it, or on top of them.
///
/// Takes n² steps: for comparison, and for small problems. [`Skyline`](crate::Skyline) is quicker and better.
///
/// ```
/// use orlop_plan::{Buffer, Problem, greedy_by_size, verify};
///
/// let problem = Problem::new([(0..2, 100), (1..3, 50), (2..4, 100)].map(|(life, size)| Buffer::unaligned(life, size)))?;
/// let plan = greedy_by_size(&problem);
/// verify(&problem, &plan)?;
/// assert_eq!(plan.offsets(), [0, 100, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn greedy_by_size(problem: &Problem) -> Plan {
    let buffers = problem.buffers();
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&index| buffers[index].size > 0).collect();
    order.sort_by_key(|&index| Reverse(buffers[index].size));
    let (mut offsets, mut height) = (vec![0_u64; buffers.len()], 0);
    // By offset.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for index in order {
        let buffer = &buffers[index];
        let alignment = alignment_bytes(buffer.alignment);
        // The end of all that was passed, and the smallest gap: how large it is and where.
        let (mut end, mut best) = (0_u64, None);
        for &other in placed.iter().filter(|&&other| buffers[other].lives_with(buffer)) {
            let offset = round_up(end, alignment);
            let gap = offsets[other].checked_sub(offset).filter(|&gap| gap >= buffer.size);
            if let Some(gap) = gap.filter(|&gap| best.is_none_or(|(smallest, _)| gap < smallest)) {
                best = Some((gap, offset));
            }
            end = end.max(offsets[other] + buffers[other].size);
        }
        let offset = best.map_or_else(|| round_up(end, alignment), |(_, offset)| offset);
        offsets[index] = offset;
        height = height.max(offset + buffer.size);
        let place = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(place, index);
    }
    Plan::of_planner(offsets, height, problem.lower_bound())
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
    fn gaps_are_measured_from_where_one_may_begin() {
        let aligned = Buffer::unaligned(0..1, 16).aligned(Alignment::new(16).unwrap());
        let problem =
            Problem::new([Buffer::unaligned(0..1, 20), aligned, Buffer::unaligned(0..1, 12)]).unwrap();
        assert_eq!(greedy_by_size(&problem).offsets(), [0, 32, 20]);
    }
}
