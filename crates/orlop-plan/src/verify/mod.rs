//! The check of plans, independent of the planners.
//!
//! A sweep over time keeps the bytes that are in use, in *slots*: from a border of a buffer to the next
//! one. A buffer and its parts, a group, may share slots. Only the types are shared with the planners.

mod groups;

use self::groups::OccupiedSlots;
use crate::buffer::alignment_bytes;
use crate::normal::to_index;
use crate::{Plan, PlanError, Problem};
use std::ops::Range;

/// Checks a plan: it has one offset for each buffer, a multiple of its alignment; no two buffers share a byte
/// while both are live, but parts of one buffer; the height is the end of the highest buffer, and not below
/// the bound. Fixed buffers and parts are where they have to be, and no buffer is in a reserved range or in
/// two blocks of limited size. Takes O(n log n) time.
///
/// ```
/// use orlop_plan::{Buffer, Plan, PlanError, Problem, verify};
///
/// let buffers = [(0..2, 100), (1..3, 50), (2..4, 100)];
/// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// verify(&problem, &Plan::new(&problem, vec![0, 100, 0])?)?;
/// let error = verify(&problem, &Plan::new(&problem, vec![0, 100, 120])?).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "buffer 1 and buffer 2 are both live at 2 and share the bytes 120..150"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`PlanError`]: the first fault; of overlaps, the first in time.
pub fn verify(problem: &Problem, plan: &Plan) -> Result<(), PlanError> {
    let (buffers, offsets) = (problem.buffers(), plan.offsets());
    if offsets.len() != buffers.len() {
        return Err(PlanError::Count { offsets: offsets.len(), buffers: buffers.len() });
    }
    let mut highest_end = 0;
    for (index, (buffer, &offset)) in buffers.iter().zip(offsets).enumerate() {
        let alignment = alignment_bytes(buffer.alignment);
        if !offset.is_multiple_of(alignment) {
            return Err(PlanError::Misaligned { buffer: problem.buffer_ref(index), offset, alignment });
        }
        let size = buffer.size;
        let Some(end) = offset.checked_add(size) else {
            return Err(PlanError::Overflow { buffer: problem.buffer_ref(index), offset, size });
        };
        if size > 0 {
            highest_end = highest_end.max(end);
        }
        check_place(problem, plan, index)?;
    }
    let height = plan.height();
    if height != highest_end {
        return Err(PlanError::Height { height, highest_end });
    }
    check_overlaps(problem, plan)?;
    check_exclusions(problem, plan)?;
    // Last: a plan below the bound usually has overlaps, which say more.
    if plan.lower_bound() > height {
        return Err(PlanError::Bound { lower_bound: plan.lower_bound(), height });
    }
    Ok(())
}

/// Checks the place of a buffer that is fixed or a part, and that it is not in a reserved range.
fn check_place(problem: &Problem, plan: &Plan, index: usize) -> Result<(), PlanError> {
    let (offset, size) = (plan.offsets()[index], problem.buffers()[index].size);
    let buffer = || problem.buffer_ref(index);
    if let Some(fixed) = problem.fixed_offset(index).filter(|&fixed| fixed != offset) {
        return Err(PlanError::NotFixed { buffer: buffer(), offset, fixed });
    }
    if let Some((whole, within)) = problem.part_of(index) {
        let expected = plan.offsets()[whole].saturating_add(within);
        if offset != expected {
            let (part, whole) = (buffer(), problem.buffer_ref(whole));
            return Err(PlanError::NotInPlace { part, whole, offset, expected });
        }
    }
    if let Some(limit) = problem.block_limit().filter(|limit| offset % limit + size > *limit) {
        return Err(PlanError::Divided { buffer: buffer(), offset, limit });
    }
    // The ranges are in order and do not overlap.
    let reserved = problem.reserved();
    let next = reserved.get(reserved.partition_point(|range| range.end <= offset));
    match next.filter(|range| size > 0 && range.start < offset + size) {
        Some(range) => {
            Err(PlanError::Reserved { buffer: buffer(), offset, start: range.start, end: range.end })
        }
        None => Ok(()),
    }
}

/// Checks that buffers share no bytes if they may not whenever they are live.
fn check_exclusions(problem: &Problem, plan: &Plan) -> Result<(), PlanError> {
    for (first, second) in problem.exclusions() {
        let (one, other) = (bytes_of(problem, plan, first), bytes_of(problem, plan, second));
        let (from, to) = (one.start.max(other.start), one.end.min(other.end));
        if from < to {
            let (first, second) = (problem.buffer_ref(first), problem.buffer_ref(second));
            return Err(PlanError::Excluded { first, second, from, to });
        }
    }
    Ok(())
}

/// Checks that no two groups use the same bytes at the same time.
fn check_overlaps(problem: &Problem, plan: &Plan) -> Result<(), PlanError> {
    let with_bytes = || (0..problem.len()).filter(|&index| problem.buffers()[index].size > 0);
    let bytes = with_bytes().map(|index| bytes_of(problem, plan, index));
    let mut borders: Vec<u64> = bytes.flat_map(|bytes| [bytes.start, bytes.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let slot = |byte: u64| borders.partition_point(|&border| border < byte);
    let mut events = Vec::with_capacity(2 * problem.len());
    for index in with_bytes() {
        for lifetime in problem.lifetimes(index) {
            // At the same time, ends come before starts.
            events.push((lifetime.end, false, index));
            events.push((lifetime.start, true, index));
        }
    }
    events.sort_unstable();
    let mut occupied = OccupiedSlots::new(borders.len());
    for (time, starts, index) in events {
        let bytes = bytes_of(problem, plan, index);
        let slots = slot(bytes.start)..slot(bytes.end);
        if !starts {
            occupied.remove(&slots);
        } else if !occupied.add(&slots, to_index(group_of(problem, index))) {
            return Err(overlap(problem, plan, time, index));
        }
    }
    Ok(())
}

fn group_of(problem: &Problem, index: usize) -> usize {
    problem.part_of(index).map_or(index, |(whole, _)| whole)
}

fn bytes_of(problem: &Problem, plan: &Plan, index: usize) -> Range<u64> {
    let offset = plan.offsets()[index];
    offset..offset + problem.buffers()[index].size
}

/// Returns the error about a buffer that starts where another group has bytes: with that of the lowest of
/// these bytes.
fn overlap(problem: &Problem, plan: &Plan, time: u64, second: usize) -> PlanError {
    let bytes = bytes_of(problem, plan, second);
    let shared = |index: usize| {
        let other = bytes_of(problem, plan, index);
        (bytes.start.max(other.start), bytes.end.min(other.end))
    };
    let is_live = |&index: &usize| {
        let mut lifetimes = problem.lifetimes(index).filter(|lifetime| lifetime.contains(&time));
        let is_before = lifetimes.any(|lifetime| (lifetime.start, index) < (time, second));
        is_before && group_of(problem, index) != group_of(problem, second)
    };
    let overlapping = (0..problem.len()).filter(|&index| shared(index).0 < shared(index).1);
    let first = overlapping.filter(is_live).min_by_key(|&index| shared(index)).unwrap_or(second);
    let (from, to) = shared(first);
    let (first, second) = (problem.buffer_ref(first), problem.buffer_ref(second));
    PlanError::Overlap { first, second, time, from, to }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, ProblemBuilder};
    use orlop_core::Alignment;

    fn check(buffers: &[Buffer], offsets: &[u64]) -> Result<(), PlanError> {
        let problem = Problem::new(buffers.iter().copied()).unwrap();
        verify(&problem, &Plan::new(&problem, offsets.to_vec()).unwrap())
    }

    fn found(result: Result<(), PlanError>) -> Option<(usize, usize, u64, u64, u64)> {
        match result {
            Ok(()) => None,
            Err(PlanError::Overlap { first, second, time, from, to }) => {
                Some((first.index, second.index, time, from, to))
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn neighbours_in_time_or_space_do_not_overlap() {
        let two = |one, other, offsets: [u64; 2]| {
            found(check(&[Buffer::unaligned(one, 10), Buffer::unaligned(other, 10)], &offsets))
        };
        assert_eq!(two(0..5, 5..9, [0, 0]), None);
        assert_eq!(two(5..9, 0..5, [0, 0]), None);
        assert_eq!(two(0..5, 4..9, [0, 10]), None);
        assert_eq!(two(0..5, 4..9, [10, 0]), None);
        assert_eq!(two(0..5, 4..9, [0, 9]), Some((0, 1, 4, 9, 10)));
        assert_eq!(two(4..9, 0..5, [0, 9]), Some((1, 0, 4, 9, 10)));
        assert_eq!(two(4..9, 4..9, [3, 3]), Some((0, 1, 4, 3, 13)));
    }

    #[test]
    fn a_large_buffer_over_small_ones_and_the_reverse() {
        let (small, large) = (Buffer::unaligned(0..9, 1), Buffer::unaligned(1..2, 100));
        assert_eq!(found(check(&[small, small, large], &[7, 50, 0])), Some((0, 2, 1, 7, 8)));
        assert_eq!(found(check(&[large, small], &[0, 50])), Some((1, 0, 1, 50, 51)));
    }

    /// The part of a buffer that is in its gap has the bytes, not the buffer.
    #[test]
    fn a_buffer_in_its_gap_is_not_the_first_of_an_overlap() {
        let mut builder = ProblemBuilder::new();
        for (lifetime, size) in [(0..10, 10), (3..6, 5), (4..5, 5)] {
            builder.push(Buffer::unaligned(lifetime, size)).unwrap();
        }
        builder.gap(0, 3..6).unwrap();
        builder.place_in(1, 0, 0).unwrap();
        let problem = builder.finish();
        let plan = Plan::new(&problem, vec![0; 3]).unwrap();
        assert_eq!(found(verify(&problem, &plan)), Some((1, 2, 4, 0, 5)));
    }

    #[test]
    fn a_buffer_without_bytes_overlaps_nothing() {
        let none = Buffer::unaligned(0..9, 0);
        assert_eq!(check(&[Buffer::unaligned(0..9, 4), none, none], &[0, 2, 2]), Ok(()));
    }

    #[test]
    fn other_faults_are_found() {
        let mut builder = ProblemBuilder::new();
        builder.push_named("x", Buffer::unaligned(0..1, 8).aligned(Alignment::new(4).unwrap())).unwrap();
        let problem = builder.finish();
        let error = verify(&problem, &Plan::new(&problem, vec![6]).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "buffer 0 (\"x\"): the offset 6 is not a multiple of 4");
        let wrong = |height, bound| verify(&problem, &Plan::of_planner(vec![0], height, bound)).unwrap_err();
        assert_eq!(wrong(7, 7), PlanError::Height { height: 7, highest_end: 8 });
        assert_eq!(wrong(8, 9), PlanError::Bound { lower_bound: 9, height: 8 });
        let count = verify(&problem, &Plan::of_planner(vec![], 0, 0)).unwrap_err();
        assert_eq!(count, PlanError::Count { offsets: 0, buffers: 1 });
    }
}
