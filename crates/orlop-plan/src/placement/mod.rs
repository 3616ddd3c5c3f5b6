//! Placement of buffers with known lifetimes into the holes of an address space.
//!
//! [`Planner`](crate::Planner) and [`greedy_by_size`](crate::greedy_by_size) plan one block of memory from
//! offset 0 up. An allocator that plans for a running program has no such block: it has free memory between
//! live blocks. [`place`] finds addresses there.
//!
//! Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the
//! largest buffer first, each at the lowest address where it overlaps no placed buffer that is live at the
//! same time. If the buffers do not fit into the holes, other orders are tried: by size times duration, by
//! duration, and by start.
//!
//! [`greedy_by_size`](crate::greedy_by_size) takes the *smallest* gap, as TensorFlow Lite does; this takes
//! the
//! *lowest*, which ends a search early.

mod overlaps;
mod placed;

pub use self::overlaps::next_overlaps;
use self::placed::PlacedSpans;

use crate::normal::Normal;
use crate::{Buffer, Problem};
use std::cmp::Reverse;
use std::ops::Range;

/// Returns an address in `holes` for each buffer, by its index in the problem; `None` if no order of
/// placement fits.
///
/// The holes are in order of address and do not overlap. No buffer crosses from a hole into an adjacent one.
/// Takes up to O(n²) time for each order.
///
/// ```
/// use orlop_plan::{Buffer, Problem, placement};
///
/// let lifetimes = [(0..2, 100), (1..3, 50), (2..4, 100)];
/// let problem = Problem::new(lifetimes.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// assert_eq!(placement::place(&problem, &[1000..1060, 2000..2100]), Some(vec![2000, 1000, 2000]));
/// assert_eq!(placement::place(&problem, &[1000..1060, 2000..2090]), None);
/// # Ok::<(), orlop_plan::ProblemError>(())
/// ```
#[must_use]
pub fn place(problem: &Problem, holes: &[Range<u64>]) -> Option<Vec<u64>> {
    placements(problem, holes).next()
}

/// Returns the addresses as [`place`] does, for each order of placement that fits. Of a problem with
/// constraints, such as fixed offsets, there are none.
pub fn placements(problem: &Problem, holes: &[Range<u64>]) -> impl Iterator<Item = Vec<u64>> {
    let buffers = problem.buffers();
    let mut spans = Normal::new(problem).spans;
    let orders = if problem.constraints.is_empty() { &ORDERS[..] } else { &[] };
    orders.iter().filter_map(move |key| {
        spans.sort_unstable_by_key(|span| (Reverse(key(&buffers[span.index as usize])), span.index));
        // Buffers without bytes have no span. Their address is 0, as in a plan.
        let mut addresses = vec![0; buffers.len()];
        let mut placed = PlacedSpans::new(holes, spans.len());
        for span in &spans {
            let gap = placed.lowest_gap(span)?;
            addresses[span.index as usize] = placed.insert(span, gap);
        }
        Some(addresses)
    })
}

/// The buffer with the largest key is placed first.
type PlacementKey = fn(&Buffer) -> (u64, u64);

const ORDERS: [PlacementKey; 4] = [
    |buffer| (buffer.size, duration(buffer)),
    |buffer| (buffer.size.saturating_mul(duration(buffer)), buffer.size),
    |buffer| (duration(buffer), buffer.size),
    |buffer| (u64::MAX - buffer.start, buffer.size),
];

fn duration(buffer: &Buffer) -> u64 {
    buffer.end - buffer.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::alignment_bytes;
    use orlop_core::Alignment;
    use proptest::prelude::*;

    fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
        a.start < b.end && b.start < a.end
    }

    fn buffers(alignments_log2: Range<u32>) -> impl Strategy<Value = Vec<Buffer>> {
        let buffer = (0u64..100, 1u64..40, 0u64..50, alignments_log2);
        let buffer = buffer.prop_map(|(start, duration, size, alignment_log2)| {
            let alignment = Alignment::new(1 << alignment_log2).expect("a power of two");
            Buffer::unaligned(start..start + duration, 64 * size).aligned(alignment)
        });
        prop::collection::vec(buffer, 1..60)
    }

    fn holes() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((1u64..40, 1u64..90), 1..8).prop_map(|holes| {
            let mut end = 0;
            let holes = holes.into_iter().map(|(gap, size)| {
                let start = end + 64 * gap;
                end = start + 64 * size;
                start..end
            });
            holes.collect()
        })
    }

    proptest! {
        #[test]
        fn buffers_that_are_live_together_do_not_overlap(buffers in buffers(0..10), holes in holes()) {
            let problem = Problem::new(buffers.clone()).unwrap();
            for addresses in placements(&problem, &holes) {
                let blocks: Vec<_> =
                    addresses.iter().zip(&buffers).map(|(&at, buffer)| at..at + buffer.size).collect();
                for (index, (block, buffer)) in blocks.iter().zip(&buffers).enumerate() {
                    let inside = |hole: &Range<u64>| hole.start <= block.start && block.end <= hole.end;
                    prop_assert!(block.is_empty() || holes.iter().any(inside));
                    prop_assert!(block.start.is_multiple_of(alignment_bytes(buffer.alignment)));
                    for (other, block_before) in buffers[..index].iter().zip(&blocks) {
                        prop_assert!(!(buffer.lives_with(other) && overlap(block, block_before)));
                    }
                }
            }
        }

        #[test]
        fn a_hole_for_the_sum_of_all_sizes_fits(buffers in buffers(0..1), holes in holes()) {
            let all = buffers.iter().map(|buffer| buffer.size).sum();
            let problem = Problem::new(buffers).unwrap();
            prop_assert!(place(&problem, std::slice::from_ref(&(0..all))).is_some());
            if place(&problem, &holes).is_none() {
                prop_assert!(holes.iter().all(|hole| hole.end - hole.start < all));
            }
        }
    }

    #[test]
    fn without_holes_only_buffers_without_bytes_fit() {
        let one = Problem::new([Buffer::unaligned(0..1, 1)]).unwrap();
        let empty = Problem::new([Buffer::unaligned(0..1, 0)]).unwrap();
        assert_eq!((place(&one, &[]), place(&empty, &[])), (None, Some(vec![0])));
    }

    #[test]
    fn no_buffer_crosses_the_border_of_two_holes() {
        let problem = Problem::new([3, 2, 1].map(|size| Buffer::unaligned(0..1, size))).unwrap();
        assert_eq!(place(&problem, &[0..3, 3..6]), Some(vec![0, 3, 5]));
        assert_eq!(place(&problem, &[0..2, 2..4, 4..6]), None);
    }

    #[test]
    fn holes_at_the_end_of_the_address_space() {
        let last = u64::MAX - 10;
        let problem = |buffer: Buffer| Problem::new([buffer, buffer]).unwrap();
        let holes = [0..4, last..u64::MAX];
        let five = Buffer::unaligned(0..1, 5);
        assert_eq!(place(&problem(five), &holes), Some(vec![last, last + 5]));
        assert_eq!(place(&problem(Buffer::unaligned(0..1, 6)), &holes), None);
        assert_eq!(place(&problem(five.aligned(Alignment::new(16).unwrap())), &holes), None);
    }
}
