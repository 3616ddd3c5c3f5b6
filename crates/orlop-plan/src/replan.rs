//! Plans after a small change: offsets are kept where they are still valid.

use crate::constraint::FlatProblem;
use crate::first_fit::{UNPLACED, collect_placed, find_hole};
use crate::live::LiveIndex;
use crate::normal::{Normal, Placement, SectionSpan};
use crate::planner::{Fit, Stop};
use crate::{Plan, Problem};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Plans a problem of which most offsets are known, such as one of a plan to which a buffer was added.
///
/// `offsets` has the offset in bytes of each buffer, by index; buffers beyond it have none. An offset is kept
/// if it is a multiple of the buffer's alignment and in one block, no buffer with a lower index keeps the
/// same bytes at the same time, and all other buffers would fit above it. The other buffers are placed
/// afterwards, the largest
/// first, each in the tightest hole. Takes O(n log n) time, and for each of the other buffers as long as it
/// takes to sort those that are live with it; where given offsets overlap, for each buffer. No search
/// follows, for which there is [`Planner::plan_from`](crate::Planner::plan_from).
///
/// ```
/// use orlop_plan::{Buffer, Problem, replan, verify};
///
/// let buffers = [(0..4, 100), (1..3, 50), (2..4, 20)];
/// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// let plan = replan(&problem, &[Some(50), Some(0)]);
/// verify(&problem, &plan)?;
/// assert_eq!(plan.offsets(), [50, 0, 150]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn replan(problem: &Problem, offsets: &[Option<u64>]) -> Plan {
    let (normal, bound) = FlatProblem::restricted(problem).normal(problem);
    let mut effort = Effort { visits: usize::MAX, stop: Stop::NEVER };
    let placement = replace(&normal, offsets, &mut effort).unwrap_or_else(|| normal.stacked());
    Plan::of_normal(problem, &normal, &placement, bound)
}

/// How much [`replace`] may do.
#[derive(Debug)]
pub(crate) struct Effort<'a> {
    /// The number of visits of spans that are live with another one.
    pub(crate) visits: usize,
    pub(crate) stop: Stop<'a>,
}

impl Effort<'_> {
    /// Counts visits. `None` if there were too many, or if it is time to stop.
    fn spend(&mut self, visits: usize) -> Option<()> {
        self.visits = self.visits.checked_sub(visits)?;
        (!self.stop.is_due()).then_some(())
    }
}

/// Places spans as [`replan`] does, with the offsets by buffer. `None` if that takes more than the effort.
pub(crate) fn replace(
    normal: &Normal,
    offsets: &[Option<u64>],
    effort: &mut Effort<'_>,
) -> Option<Placement> {
    effort.spend(0)?;
    let live = LiveIndex::new(normal);
    let known = |number: usize| offsets.get(normal.spans[number].index as usize).copied().flatten();
    // Whatever is kept, all buffers fit above it.
    let space = |span: &SectionSpan| span.offset_from(1).saturating_add(normal.rounded(span));
    let space = normal.spans.iter().map(space).fold(0, u64::saturating_add);
    let limit = u64::MAX - normal.block_limit.space_for(space);
    let end = |number: usize, offset: u64| {
        offset.checked_add(normal.rounded(&normal.spans[number])).filter(|&end| end <= limit)
    };
    let mut kept = normal.fixed.clone();
    kept.resize(normal.spans.len(), UNPLACED);
    for (number, kept) in kept.iter_mut().enumerate() {
        let span = &normal.spans[number];
        let is_aligned = |&offset: &u64| span.offset_below(offset) == offset;
        let offset = known(number).filter(is_aligned).filter(|&offset| end(number, offset).is_some());
        let offset = offset.filter(|&offset| !normal.block_limit.divides(offset, span.size));
        if !normal.is_fixed(number) {
            *kept = offset.unwrap_or(UNPLACED);
        }
    }
    if normal.conflicts.is_some() || !are_apart(normal, &kept) {
        drop_overlapping(normal, &live, &mut kept, effort)?;
    }
    let unplaced = (0..).zip(&kept).filter(|(_, offset)| **offset == UNPLACED);
    let mut later: Vec<u32> = unplaced.map(|(number, _)| number).collect();
    later.sort_by_key(|&number| (Reverse(normal.spans[number as usize].size), number));
    let mut placed = Vec::new();
    let all = (u64::MAX, normal.block_limit);
    for number in later {
        effort.spend(collect_placed(normal, &live, number as usize, |other| kept[other], &mut placed))?;
        let hole = find_hole(&normal.spans[number as usize], &placed, all, Fit::Tightest);
        kept[number as usize] = hole.unwrap_or(0);
    }
    Some(normal.placed(kept))
}

/// Returns `true` if no two placed spans share bytes while both are live.
fn are_apart(normal: &Normal, offsets: &[u64]) -> bool {
    let mut ending: Vec<u32> = (0..).take(normal.spans.len()).collect();
    ending.sort_unstable_by_key(|&number| normal.spans[number as usize].behind);
    let mut ending = ending.into_iter().map(|number| number as usize).peekable();
    // The ends of live spans by offset.
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for (span, &offset) in normal.spans.iter().zip(offsets).filter(|(_, offset)| **offset != UNPLACED) {
        while let Some(ended) = ending.next_if(|&ended| normal.spans[ended].behind <= span.first) {
            live.remove(&offsets[ended]);
        }
        let end = offset + span.size;
        let below = live.range(..end).next_back();
        if below.is_some_and(|(_, &other_end)| other_end > offset) {
            return false;
        }
        live.insert(offset, end);
    }
    true
}

/// Takes out spans that share bytes with another one that is live with them: of both, that of the higher
/// index in the problem. `None` if that takes more than the effort.
fn drop_overlapping(
    normal: &Normal,
    live: &LiveIndex,
    offsets: &mut [u64],
    effort: &mut Effort<'_>,
) -> Option<()> {
    let mut order: Vec<usize> = (0..normal.spans.len()).collect();
    order.sort_unstable_by_key(|&number| (!normal.is_fixed(number), normal.spans[number].index));
    let wanted = offsets.to_vec();
    offsets.fill(UNPLACED);
    let mut placed = Vec::new();
    for number in order.into_iter().filter(|&number| wanted[number] != UNPLACED) {
        let (offset, span) = (wanted[number], &normal.spans[number]);
        effort.spend(collect_placed(normal, live, number, |other| offsets[other], &mut placed))?;
        let end = offset + span.size;
        let is_free = || placed.iter().all(|other| other.offset >= end || offset >= other.end);
        if normal.is_fixed(number) || is_free() {
            offsets[number] = offset;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Planner, verify};
    use orlop_core::Alignment;

    #[test]
    fn valid_offsets_are_kept_and_others_are_not() {
        let buffers = [(0..4, 256), (1..5, 256), (4..6, 256), (5..6, 100)];
        let buffers = buffers.map(|(lifetime, size)| Buffer::new(lifetime, size));
        let problem = Problem::new(buffers).unwrap();
        // The second overlaps the first, the third is not aligned, the fourth ends beyond 2^64.
        let plan = replan(&problem, &[Some(512), Some(600), Some(7), Some(u64::MAX - 255)]);
        verify(&problem, &plan).unwrap();
        assert_eq!(plan.offsets(), [512, 0, 256, 0]);
        assert_eq!(replan(&problem, &[Some(512), Some(0), Some(512), Some(0)]).offsets(), [512, 0, 512, 0]);
    }

    #[test]
    fn offsets_above_which_others_do_not_fit_are_not_kept() {
        let halves = [1, (1 << 63) + 1].map(|size| Buffer::unaligned(0..1, size));
        let aligned = Buffer::new(0..2, 1).aligned(Alignment::new(4096).unwrap());
        for (buffers, offsets) in [
            (halves.to_vec(), [Some(1 << 63), None]),
            (vec![Buffer::new(0..2, 256), aligned], [Some(u64::MAX - 511), None]),
        ] {
            let problem = Problem::new(buffers).unwrap();
            verify(&problem, &replan(&problem, &offsets)).unwrap();
        }
    }

    #[test]
    fn a_plan_is_its_own_replan_and_a_longer_buffer_moves_alone() {
        let lifetimes =
            (0..200).map(|number| (number * 13 % 400, 1 + number * 7 % 40, 256 * (1 + number % 9)));
        let mut buffers: Vec<Buffer> =
            lifetimes.map(|(start, length, size)| Buffer::new(start..start + length, size)).collect();
        let problem = Problem::new(buffers.clone()).unwrap();
        let plan = Planner::new().plan(&problem);
        let offsets: Vec<Option<u64>> = plan.offsets().iter().copied().map(Some).collect();
        assert_eq!(replan(&problem, &offsets).offsets(), plan.offsets());
        buffers[77].end += 30;
        let changed = Problem::new(buffers).unwrap();
        let mut offsets = offsets;
        offsets[77] = None;
        let again = replan(&changed, &offsets);
        verify(&changed, &again).unwrap();
        let moved = (0..200).filter(|&number| again.offset(number) != plan.offset(number));
        assert!(moved.eq([77]) || again.offsets() == plan.offsets());
    }
}
