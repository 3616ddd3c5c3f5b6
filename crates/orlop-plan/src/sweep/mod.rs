//! Placement in order of time: a sweep with a list of the holes between live buffers.
//!
//! A buffer is placed when its lifetime begins, into the lowest or the tightest hole, and its bytes become a
//! hole again when it ends. Buffers that begin together are placed by a key, the largest first. For buffers
//! of one size this is the left-edge algorithm of channel routing (Hashimoto and Stevens, 1971), which is
//! optimal. Nothing is compared with buffers that are not live, so that a sweep takes
//! O(n log n) time.

mod holes;

use self::holes::Holes;
use crate::normal::{Normal, Placement, SectionSpan};
use crate::planner::{Fit, Keys, OrderKey, Stop};
use std::cmp::Reverse;
use std::ops::Range;

/// The direction of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forwards,
    Backwards,
}

impl Direction {
    /// Returns the lifetime of a span in this direction, in a problem of `sections` sections.
    pub(crate) fn lifetime(self, span: &SectionSpan, sections: u32) -> Range<u32> {
        match self {
            Self::Forwards => span.first..span.behind,
            Self::Backwards => sections - span.behind..sections - span.first,
        }
    }
}

/// The order of a sweep, and the choice of holes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepRule {
    /// Of buffers that begin together, those of the largest key are placed first.
    pub(crate) key: OrderKey,
    pub(crate) fit: Fit,
}

/// Places all spans in order of time. Returns `None` as soon as one ends above `limit`, or it is stopped.
pub(crate) fn sweep(
    keys: &Keys<'_>,
    normal: &Normal,
    direction: Direction,
    rule: SweepRule,
    limit: u64,
    stop: &Stop<'_>,
) -> Option<Placement> {
    let mut sweep = Sweep::new(keys, normal, rule, limit);
    let all = (0..).take(normal.spans.len()).collect();
    sweep.run(direction, Vec::new(), all, stop)?;
    Some(sweep.placement)
}

/// Places the spans that are live at the peak side by side, those of the largest key `first` first, and then
/// those after it forwards and those before it backwards. So nothing is left free at the peak, and where
/// free bytes are left, the load is lower.
pub(crate) fn sweep_from_peak(
    keys: &Keys<'_>,
    normal: &Normal,
    first: OrderKey,
    rule: SweepRule,
    limit: u64,
    stop: &Stop<'_>,
) -> Option<Placement> {
    let mut sweep = Sweep::new(keys, normal, rule, limit);
    let peak = keys.peak();
    let (mut at_peak, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (number, span) in (0..).zip(&normal.spans) {
        let group = match () {
            () if span.behind <= peak => &mut before,
            () if span.first > peak => &mut after,
            () => &mut at_peak,
        };
        group.push(number);
    }
    at_peak.sort_by_cached_key(|&number| (Reverse(keys.value(first, number as usize)), number));
    let mut holes = Holes::new(rule.fit);
    for (count, &number) in at_peak.iter().enumerate() {
        sweep.place(number, &mut holes)?;
        if count % Stop::INTERVAL == 0 && stop.is_due() {
            return None;
        }
    }
    sweep.run(Direction::Forwards, at_peak.clone(), after, stop)?;
    sweep.run(Direction::Backwards, at_peak, before, stop)?;
    Some(sweep.placement)
}

/// The state of a sweep.
struct Sweep<'a> {
    keys: &'a Keys<'a>,
    normal: &'a Normal,
    rule: SweepRule,
    limit: u64,
    placement: Placement,
}

impl<'a> Sweep<'a> {
    fn new(keys: &'a Keys<'_>, normal: &'a Normal, rule: SweepRule, limit: u64) -> Self {
        let placement = Placement { height: 0, offsets: vec![0; normal.spans.len()] };
        Self { keys, normal, rule, limit, placement }
    }

    /// Places spans in order of time, beside those that are `placed` and live when the first one begins.
    fn run(
        &mut self,
        direction: Direction,
        placed: Vec<u32>,
        mut starting: Vec<u32>,
        stop: &Stop<'_>,
    ) -> Option<()> {
        let (normal, keys, key) = (self.normal, self.keys, self.rule.key);
        // The lifetime in the direction of time.
        let lifetime = |number: u32| direction.lifetime(&normal.spans[number as usize], normal.sections());
        let mut holes = Holes::new(self.rule.fit);
        let mut by_offset = placed.clone();
        by_offset.sort_unstable_by_key(|&number| self.placement.offsets[number as usize]);
        for &number in &by_offset {
            let offset = self.placement.offsets[number as usize];
            holes.remove_range(offset, offset + normal.rounded(&normal.spans[number as usize]));
        }
        let mut ending = placed;
        ending.extend_from_slice(&starting);
        ending.sort_unstable_by_key(|&number| (lifetime(number).end, number));
        // To sort many spans takes long, too.
        if stop.is_due() {
            return None;
        }
        let mut ending = ending.into_iter().peekable();
        starting.sort_by_cached_key(|&number| {
            (lifetime(number).start, Reverse(keys.value(key, number as usize)), number)
        });
        if stop.is_due() {
            return None;
        }
        for (count, number) in starting.into_iter().enumerate() {
            let begin = lifetime(number).start;
            while let Some(ended) = ending.next_if(|&other| lifetime(other).end <= begin) {
                let offset = self.placement.offsets[ended as usize];
                holes.insert(offset, offset + normal.rounded(&normal.spans[ended as usize]));
            }
            self.place(number, &mut holes)?;
            if count % Stop::INTERVAL == 0 && stop.is_due() {
                return None;
            }
        }
        Some(())
    }

    /// Places a span into a hole. Returns `None` if it ends above the limit.
    fn place(&mut self, number: u32, holes: &mut Holes) -> Option<()> {
        let span = &self.normal.spans[number as usize];
        let offset = holes.take(span, self.normal.rounded(span));
        self.placement.offsets[number as usize] = offset;
        self.placement.height = self.placement.height.max(offset + span.size);
        (self.placement.height <= self.limit).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem};

    #[test]
    fn buffers_of_one_size_are_packed_optimally() {
        let buffers = (0..300).map(|number| {
            let start = number * 7 % 83;
            Buffer::new(start..start + 1 + number * 5 % 29, 700)
        });
        let problem = Problem::new(buffers).unwrap();
        let normal = Normal::new(&problem);
        let keys = Keys::new(&problem, &normal);
        for direction in [Direction::Forwards, Direction::Backwards] {
            for fit in [Fit::Lowest, Fit::Tightest] {
                let found = sweep(
                    &keys,
                    &normal,
                    direction,
                    SweepRule { key: OrderKey::Size, fit },
                    u64::MAX,
                    &Stop::NEVER,
                );
                assert_eq!(found.unwrap().height, normal.lower_bound, "{fit:?} {direction:?}");
            }
        }
    }
}
