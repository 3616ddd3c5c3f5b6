//! Rings: plans for spans that end in the order in which they begin.
//!
//! Where all buffers live equally long (sliding windows, the stages of a pipeline), what is live is at any
//! time a run of the spans in order of time. Placed one behind the other, and from the start again where the
//! end is reached, they free what the next ones need: bytes are lost only at the end, where the next span
//! does not fit any more. Spans with the same lifetime have no order, so those are placed there that fill it
//! best. The ring begins where the load is the highest, without a free byte, and continues from there in both
//! directions of time.

use crate::normal::{Normal, Placement, SectionSpan, to_index};
use crate::planner::Stop;
use crate::sweep::Direction;
use std::cmp::Reverse;
use std::ops::Range;

/// The number of times that the distance between a capacity that is too low and one that is not is halved.
const HALVINGS: u32 = 10;

/// The first capacity above the bound is higher by this part of it; the next ones by twice as much each.
const FIRST_STEP: u64 = 1 << 14;

/// The number of sums that are tried to fill the end of the ring.
const SUMS: usize = 1 << 12;

/// Spans in the order of their ends, which is that of their beginnings.
struct Ring<'a> {
    normal: &'a Normal,
    /// The spans that are not always live.
    order: Vec<u32>,
    /// Those of them that are live at the peak.
    at_peak: Range<usize>,
    /// The first byte behind the spans that are always live, which are at the bottom.
    base: u64,
    /// The first byte behind those that are live at the peak, which are above them.
    top: u64,
    offsets: Vec<u64>,
}

/// Returns a plan of at most `limit` bytes; `None` if there is none, if it is stopped, or if the spans do not
/// end in the order in which they begin.
pub(crate) fn ring(normal: &Normal, limit: u64, stop: &Stop<'_>) -> Option<Placement> {
    let mut ring = Ring::new(normal)?;
    let (bound, limit) = (normal.lower_bound, limit.min(normal.stacked().height));
    let mut step = normal.rounded_up((bound / FIRST_STEP).max(1));
    // One that is too low, and one that is not.
    let (mut low, mut found) = (bound, ring.place(bound));
    while found.is_none() && !stop.is_due() {
        let capacity = bound.saturating_add(step).min(limit);
        if capacity <= low {
            return None;
        }
        found = ring.place(capacity);
        if found.is_none() {
            (low, step) = (capacity, step.saturating_mul(2));
        }
    }
    let mut best = found?;
    for _ in 0..HALVINGS {
        let capacity = low + (best.height.saturating_sub(low)) / 2;
        if capacity <= low || stop.is_due() {
            break;
        }
        match ring.place(capacity) {
            Some(lower) => best = lower,
            None => low = capacity,
        }
    }
    (best.height <= limit).then_some(best)
}

impl<'a> Ring<'a> {
    /// `None` if a span begins after another one and ends before it.
    fn new(normal: &'a Normal) -> Option<Self> {
        let sections = normal.sections();
        let is_always = |span: &SectionSpan| span.first == 0 && span.behind == sections;
        let span = |number: u32| &normal.spans[number as usize];
        let (always, mut order): (Vec<u32>, Vec<u32>) =
            (0..to_index(normal.spans.len())).partition(|&number| is_always(span(number)));
        order.sort_by_key(|&number| (span(number).first, span(number).behind));
        if order.is_empty() || !order.is_sorted_by_key(|&number| span(number).behind) {
            return None;
        }
        let peak = normal.bound_section;
        let ended = order.partition_point(|&number| span(number).behind <= peak);
        let begun = order.partition_point(|&number| span(number).first <= peak);
        let mut offsets = vec![0; normal.spans.len()];
        let mut stack = |numbers: &[u32], bottom| {
            numbers.iter().fold(bottom, |top, &number| {
                let offset = span(number).offset_from(top);
                offsets[number as usize] = offset;
                offset + normal.rounded(span(number))
            })
        };
        let base = stack(&always, 0);
        let top = stack(&order[ended..begun], base);
        Some(Self { normal, order, at_peak: ended..begun, base, top, offsets })
    }

    /// Places all spans below a capacity, if they fit there.
    fn place(&mut self, capacity: u64) -> Option<Placement> {
        let end = self.normal.rounded_up(capacity);
        if end < self.top {
            return None;
        }
        let (room, peak) = (end - self.base, self.at_peak.clone());
        let forwards = self.order[peak.start..].to_vec();
        let backwards = self.order[..peak.end].iter().rev().copied().collect();
        self.pass(Direction::Forwards, room, forwards, peak.len())?;
        self.pass(Direction::Backwards, room, backwards, peak.len())?;
        let placement = self.normal.placed(self.offsets.clone());
        (placement.height <= capacity).then_some(placement)
    }

    /// Places the spans of `sequence` behind the first `placed` ones, which are live together. `None` if one
    /// does not fit.
    fn pass(&mut self, direction: Direction, room: u64, sequence: Vec<u32>, placed: usize) -> Option<()> {
        let mut pass = RingPass { ring: self, direction, room, sequence, oldest: 0, cursor: 0 };
        if let Some(last) = placed.checked_sub(1) {
            pass.cursor = pass.depth(last).end;
        }
        let mut next = placed;
        while next < pass.sequence.len() {
            let lifetime = pass.lifetime(next);
            let same = (next..pass.sequence.len()).take_while(|&at| pass.lifetime(at) == lifetime).count();
            pass.advance(lifetime.start, next);
            pass.sort_to_fill(next..next + same);
            for at in next..next + same {
                pass.place(at)?;
            }
            next += same;
        }
        Some(())
    }
}

/// Returns, of numbers in falling order, the indices of some whose sum is at most `room`, and as large as a
/// few attempts find.
fn fullest(sizes: &[u64], room: u64) -> Vec<usize> {
    let (mut chosen, mut sum, mut next) = (Vec::new(), 0, 0);
    let mut best = (0, Vec::new());
    for _ in 0..SUMS {
        for (index, &size) in sizes.iter().enumerate().skip(next) {
            if size <= room - sum {
                chosen.push(index);
                sum += size;
            }
        }
        if sum > best.0 {
            best = (sum, chosen.clone());
        }
        let Some(last) = chosen.pop().filter(|_| best.0 < room) else { break };
        sum -= sizes[last];
        next = last + 1;
    }
    best.1
}

/// Where a pass is. Bytes are counted in its direction.
struct RingPass<'r, 'a> {
    ring: &'r mut Ring<'a>,
    /// What is later goes up forwards, and down backwards.
    direction: Direction,
    /// The bytes above the base.
    room: u64,
    sequence: Vec<u32>,
    /// The index of the oldest live span.
    oldest: usize,
    /// Where the last span ends.
    cursor: u64,
}

impl RingPass<'_, '_> {
    fn span(&self, at: usize) -> &SectionSpan {
        &self.ring.normal.spans[self.sequence[at] as usize]
    }

    /// Returns the lifetime of a span in the direction of the pass.
    fn lifetime(&self, at: usize) -> Range<u32> {
        self.direction.lifetime(self.span(at), self.ring.normal.sections())
    }

    /// Returns the bytes of a placed span.
    fn depth(&self, at: usize) -> Range<u64> {
        let Ring { normal, base, offsets, .. } = &*self.ring;
        let start = offsets[self.sequence[at] as usize] - base;
        let end = start + normal.rounded(self.span(at));
        match self.direction {
            Direction::Forwards => start..end,
            Direction::Backwards => self.room - end..self.room - start,
        }
    }

    /// Removes the spans that ended up to `time` from those that are live before the span `next`.
    fn advance(&mut self, time: u32, next: usize) {
        while self.oldest < next && self.lifetime(self.oldest).end <= time {
            self.oldest += 1;
        }
        if self.oldest == next {
            self.cursor = 0;
        }
    }

    /// Returns where the free bytes behind the cursor end, and whether that is the end of the ring.
    fn free_end(&self, next: usize) -> (u64, bool) {
        let start = (self.oldest < next).then(|| self.depth(self.oldest).start);
        match start.filter(|&start| start >= self.cursor) {
            Some(start) => (start, false),
            None => (self.room, true),
        }
    }

    /// Sorts spans with the same lifetime, which are next, so that the first ones fill the end of the ring,
    /// unless all fit before it.
    fn sort_to_fill(&mut self, same: Range<usize>) {
        let size = |&number: &u32| self.ring.normal.rounded(&self.ring.normal.spans[number as usize]);
        let (end, is_last) = self.free_end(same.start);
        let room = end - self.cursor;
        let numbers = &self.sequence[same.clone()];
        if !is_last || numbers.iter().map(size).sum::<u64>() <= room {
            return;
        }
        let mut numbers = numbers.to_vec();
        numbers.sort_by_key(|number| Reverse(size(number)));
        let sizes: Vec<u64> = numbers.iter().map(size).collect();
        let mut is_behind = vec![true; numbers.len()];
        fullest(&sizes, room).into_iter().for_each(|index| is_behind[index] = false);
        let mut order: Vec<(bool, u32)> = is_behind.into_iter().zip(numbers).collect();
        order.sort_by_key(|&(is_behind, _)| is_behind);
        for (at, (_, number)) in same.zip(order) {
            self.sequence[at] = number;
        }
    }

    /// Places a span behind the cursor, or at the start of the ring. `None` if it does not fit.
    fn place(&mut self, at: usize) -> Option<()> {
        let (end, is_last) = self.free_end(at);
        let behind = self.offset(at, end);
        if behind.is_none() && is_last {
            self.cursor = 0;
        }
        let offset = behind.or_else(|| self.offset(at, self.free_end(at).0))?;
        self.ring.offsets[self.sequence[at] as usize] = offset;
        self.cursor = self.depth(at).end;
        Some(())
    }

    /// Returns the offset of a span behind the cursor, if it ends at `end` or before.
    fn offset(&self, at: usize, end: u64) -> Option<u64> {
        let (span, base) = (self.span(at), self.ring.base);
        let rounded = self.ring.normal.rounded(span);
        match self.direction {
            Direction::Forwards => {
                let offset = span.offset_from(base + self.cursor);
                (offset + rounded <= base + end).then_some(offset)
            }
            Direction::Backwards => {
                let top = base + (self.room - self.cursor);
                let offset = span.offset_below(top.checked_sub(rounded)?);
                (offset >= base + (self.room - end)).then_some(offset)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Plan, Problem, verify};
    use orlop_core::{Alignment, SplitMix64};

    fn planned(buffers: Vec<Buffer>, limit: impl Fn(u64) -> u64) -> Option<(Plan, u64)> {
        let problem = Problem::new(buffers).unwrap();
        let normal = Normal::new(&problem);
        let bound = normal.lower_bound;
        let placed = ring(&normal, limit(bound), &Stop::NEVER)?;
        let plan = Plan::new(&problem, normal.offsets(&placed, problem.len())).unwrap();
        verify(&problem, &plan).unwrap();
        assert_eq!(plan.height(), placed.height);
        Some((plan, bound))
    }

    #[test]
    fn one_lifetime_of_any_sizes_needs_the_load() {
        for (lifetime, count) in [(10, 20_000), (100, 20_000), (1000, 60_000)] {
            let mut random = SplitMix64::new(lifetime);
            let buffers = (0..count).map(|_| {
                let start = random.below(5000) as u64;
                Buffer::unaligned(start..start + lifetime, 1 + random.below(1 << 20) as u64)
            });
            let (plan, bound) = planned(buffers.collect(), |_| u64::MAX).unwrap();
            // Where few begin together, their sums are few.
            let most = if lifetime == 10 { bound + bound / 1000 } else { bound };
            assert!(plan.height() <= most, "a lifetime of {lifetime}: {} of {bound}", plan.height());
        }
    }

    /// Ends rise with beginnings, but by any steps; some buffers are always live, alignments differ.
    #[test]
    fn plans_of_random_rings_are_valid() {
        let mut found = 0;
        for seed in 0..2000 {
            let mut random = SplitMix64::new(seed);
            let (count, step) = (1 + random.below(60), 1 + random.below(4));
            let (mut start, mut end) = (0, 1);
            let mut buffers: Vec<Buffer> = (0..count)
                .map(|_| {
                    start += random.below(step) as u64;
                    end = (end + random.below(step) as u64).max(start + 1);
                    let alignment = Alignment::new(1 << random.below(5)).unwrap();
                    Buffer::new(start..end, random.below(100) as u64).aligned(alignment)
                })
                .collect();
            for _ in 0..random.below(3) {
                buffers.push(Buffer::unaligned(0..end, random.below(50) as u64));
            }
            let (total, slack) =
                (buffers.iter().map(|buffer| buffer.size + 16).sum::<u64>(), random.below(3));
            let limit = |bound: u64| [total, bound + bound / 20, bound][slack];
            if let Some((plan, bound)) = planned(buffers, limit) {
                assert!(plan.height() <= limit(bound), "seed {seed}");
                found += 1;
            }
        }
        assert!(found > 700, "{found}");
    }

    #[test]
    fn sizes_and_alignments_may_be_huge() {
        for (count, size, alignment) in [(3, 1 << 62, 1), (7, 1 << 61, 1 << 40), (40, 1 << 20, 1 << 57)] {
            let alignment = Alignment::new(alignment).unwrap();
            let buffer = |start| Buffer::new(start..start + 2, size + start).aligned(alignment);
            let found = planned((0..count).map(buffer).collect(), |_| u64::MAX);
            assert!(found.is_some(), "{count} of {size}");
        }
    }

    #[test]
    fn what_ends_earlier_than_what_began_before_is_no_ring() {
        let buffers = [0..9, 1..4, 3..10].map(|lifetime| Buffer::unaligned(lifetime, 4));
        assert!(planned(buffers.to_vec(), |_| u64::MAX).is_none());
    }
}
