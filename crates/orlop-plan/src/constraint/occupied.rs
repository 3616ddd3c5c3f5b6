//! The bytes that a buffer with parts occupies over time.
//!
//! A sweep over time counts the live members in each of the [slots](MemberEvents). Where that changes, the
//! pieces around end, and those that are there instead begin.

use super::members::MemberEvents;
use super::merged;
use crate::Problem;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that are in use for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OccupiedBytes {
    pub(crate) time: Range<u64>,
    /// From the start of the whole.
    pub(crate) bytes: Range<u64>,
}

/// Returns what the buffer `whole` and its `parts` occupy, without overlaps, in order of time. What does not
/// change is one piece.
pub(crate) fn occupied(problem: &Problem, whole: usize, parts: &[(usize, u64)]) -> Vec<OccupiedBytes> {
    let members = MemberEvents::new(problem, whole, parts);
    let borders = &members.borders;
    let mut sweep = Sweep { live: vec![0; borders.len()], open: BTreeMap::new(), found: Vec::new() };
    for (time, events) in members.by_time() {
        for (_, starts, slots) in events {
            for live in &mut sweep.live[slots.clone()] {
                *live = if *starts { *live + 1 } else { *live - 1 };
            }
        }
        for changed in merged(events.iter().map(|(.., slots)| slots.clone()).collect()) {
            sweep.change(time, &changed);
        }
    }
    let mut found = sweep.found;
    found.sort_unstable_by_key(|(time, slots)| (time.start, slots.start));
    let bytes = |slots: Range<usize>| borders[slots.start]..borders[slots.end];
    found.into_iter().map(|(time, slots)| OccupiedBytes { time, bytes: bytes(slots) }).collect()
}

/// The state of the sweep at a time.
struct Sweep {
    /// By slot, the number of live members.
    live: Vec<usize>,
    /// The pieces that go on, by first slot: the slot behind, and since when.
    open: BTreeMap<usize, (usize, u64)>,
    /// The times and the slots of the pieces that have ended.
    found: Vec<(Range<u64>, Range<usize>)>,
}

impl Sweep {
    /// Replaces the pieces in changed slots, and those that touch them.
    fn change(&mut self, time: u64, changed: &Range<usize>) {
        let touching = self.open.range(..=changed.end).rev();
        let touching = touching.take_while(|&(_, &(end, _))| end >= changed.start);
        let before: BTreeMap<usize, (usize, u64)> = touching.map(|(&start, &piece)| (start, piece)).collect();
        for start in before.keys() {
            self.open.remove(start);
        }
        let outside = |slots: Range<usize>| (!slots.is_empty()).then_some(slots);
        let first = before.keys().next().and_then(|&start| outside(start..changed.start));
        let last = before.values().next_back().and_then(|&(end, _)| outside(changed.end..end));
        let used = changed.clone().filter(|&slot| self.live[slot] > 0).map(|slot| slot..slot + 1);
        let pieces = merged(first.into_iter().chain(used).chain(last).collect());
        for piece in &pieces {
            let unchanged = before.get(&piece.start).filter(|&&(end, _)| end == piece.end);
            let since = unchanged.map_or(time, |&(_, since)| since);
            self.open.insert(piece.start, (piece.end, since));
        }
        for (start, (end, since)) in before {
            let goes_on = self.open.get(&start).is_some_and(|&piece| piece == (end, since));
            if !goes_on && since < time {
                self.found.push((since..time, start..end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, ProblemBuilder};
    use proptest::prelude::*;

    /// Returns a buffer of 8 bytes with parts.
    fn divided(lifetimes: &[(u64, u64, u64, u64)]) -> (Problem, Vec<(usize, u64)>) {
        let mut builder = ProblemBuilder::new();
        let whole = builder.push(Buffer::unaligned(3..5, 8)).unwrap();
        let mut parts = Vec::new();
        for &(start, length, offset, size) in lifetimes {
            let part = builder.push(Buffer::unaligned(start..start + length, size.min(8 - offset))).unwrap();
            builder.place_in(part, whole, offset).unwrap();
            parts.push((part, offset));
        }
        (builder.finish(), parts)
    }

    proptest! {
        /// Compared with all bytes at all times.
        #[test]
        fn each_used_byte_is_in_one_piece(
            lifetimes in prop::collection::vec((0..9_u64, 1..9_u64, 0..8_u64, 0..5_u64), 0..7),
        ) {
            let (problem, parts) = divided(&lifetimes);
            let found = occupied(&problem, 0, &parts);
            for time in 0..20 {
                let used = parts.iter().copied().chain([(0, 0)]).filter_map(|(index, offset)| {
                    let buffer = problem.buffers()[index];
                    (buffer.start..buffer.end).contains(&time).then_some(offset..offset + buffer.size)
                });
                let live = found.iter().filter(|piece| piece.time.contains(&time));
                let mut live: Vec<_> = live.map(|piece| piece.bytes.clone()).collect();
                live.sort_unstable_by_key(|bytes| bytes.start);
                prop_assert_eq!(live, merged(used.collect()), "at {}", time);
            }
            let goes_on = |one: &OccupiedBytes| {
                found.iter().any(|other| other.time.start == one.time.end && other.bytes == one.bytes)
            };
            prop_assert!(!found.iter().any(goes_on), "{:?}", found);
        }
    }
}
