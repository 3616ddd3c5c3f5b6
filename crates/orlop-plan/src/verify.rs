//! The check of plans, independent of the planners.
//!
//! A sweep over time keeps the live buffers by offset. A buffer that starts is compared with its two
//! neighbours there: if it overlaps neither, it overlaps none. A buffer with parts is divided, at the times
//! at which one of them starts or ends, into what all of them together have. Only the types are shared with
//! the planners.

use crate::buffer::alignment_bytes;
use crate::{Plan, PlanError, Problem};
use std::collections::BTreeMap;
use std::ops::Range;

/// Checks a plan: it has one offset for each buffer, a multiple of its alignment; no two buffers share a byte
/// while both are live, but parts of one buffer; the height is the end of the highest buffer, and not below
/// the bound. Fixed buffers and parts are where they have to be, and no buffer is in a reserved range. Takes
/// O(n log n) time, and O(k² log k) for a buffer with k parts.
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
    check_overlaps(problem, &used_bytes(problem, plan))?;
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

/// Bytes that a buffer, or one of its parts, has for a time.
struct UsedBytes {
    index: usize,
    time: Range<u64>,
    bytes: Range<u64>,
}

/// Returns the bytes of all buffers. Those of a buffer with its parts do not overlap.
fn used_bytes(problem: &Problem, plan: &Plan) -> Vec<UsedBytes> {
    let of_buffer = |index: usize| {
        let (buffer, offset) = (&problem.buffers()[index], plan.offsets()[index]);
        UsedBytes { index, time: buffer.start..buffer.end, bytes: offset..offset + buffer.size }
    };
    let mut groups: BTreeMap<usize, Vec<UsedBytes>> = BTreeMap::new();
    for index in 0..problem.len() {
        if let Some((whole, _)) = problem.part_of(index) {
            groups.entry(whole).or_insert_with(|| vec![of_buffer(whole)]).push(of_buffer(index));
        }
    }
    let alone = (0..problem.len()).filter(|index| {
        problem.buffers()[*index].size > 0 && problem.part_of(*index).is_none() && !groups.contains_key(index)
    });
    let mut used: Vec<UsedBytes> = alone.map(of_buffer).collect();
    for mut members in groups.into_values() {
        let mut times: Vec<u64> = members.iter().flat_map(|it| [it.time.start, it.time.end]).collect();
        times.sort_unstable();
        times.dedup();
        members.sort_unstable_by_key(|member| member.bytes.start);
        for time in times.windows(2).map(|pair| pair[0]..pair[1]) {
            let mut end = 0;
            let live = |member: &&UsedBytes| member.time.start <= time.start && time.end <= member.time.end;
            for member in members.iter().filter(live).filter(|member| !member.bytes.is_empty()) {
                let bytes = member.bytes.start.max(end)..member.bytes.end;
                if !bytes.is_empty() {
                    end = bytes.end;
                    used.push(UsedBytes { index: member.index, time: time.clone(), bytes });
                }
            }
        }
    }
    used
}

/// Checks that no bytes are used twice at the same time.
fn check_overlaps(problem: &Problem, used: &[UsedBytes]) -> Result<(), PlanError> {
    let mut events = Vec::with_capacity(2 * used.len());
    for (number, used) in used.iter().enumerate() {
        // At the same time, ends come before starts.
        events.push((used.time.end, false, number));
        events.push((used.time.start, true, number));
    }
    events.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (time, starts, number) in events {
        let Range { start: offset, end } = used[number].bytes;
        if !starts {
            live.remove(&offset);
            continue;
        }
        let below = live.range(..=offset).next_back().filter(|&(_, &other)| used[other].bytes.end > offset);
        let above = || live.range(offset..).next().filter(|&(&other, _)| other < end);
        if let Some((&other_offset, &other)) = below.or_else(above) {
            let (from, to) = (offset.max(other_offset), end.min(used[other].bytes.end));
            let (first, second) = (used[other].index, used[number].index);
            let (first, second) = (problem.buffer_ref(first), problem.buffer_ref(second));
            return Err(PlanError::Overlap { first, second, time, from, to });
        }
        live.insert(offset, number);
    }
    Ok(())
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

    fn overlap(result: Result<(), PlanError>) -> Option<(usize, usize, u64, u64, u64)> {
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
            overlap(check(&[Buffer::unaligned(one, 10), Buffer::unaligned(other, 10)], &offsets))
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
        assert_eq!(overlap(check(&[small, small, large], &[7, 50, 0])), Some((0, 2, 1, 7, 8)));
        assert_eq!(overlap(check(&[large, small], &[0, 50])), Some((1, 0, 1, 50, 51)));
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
