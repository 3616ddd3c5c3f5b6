//! How many bytes a buffer with many parts uses over time, in near-linear time.
//!
//! [`occupied`](super::occupied) says which bytes; where parts contain each other, that takes the square of
//! their number. A tree over the bytes counts the live members of each range, and sums up what is used. The
//! numbers over time become layers: ranges of bytes that are used from one time to another.

use super::members::MemberEvents;
use crate::Problem;
use std::ops::Range;

/// Returns how many bytes the buffer `whole` and its `parts` use, rounded down to multiples of `granule`, as
/// times with bytes that sum up to it.
pub(super) fn used_layers(
    problem: &Problem,
    whole: usize,
    parts: &[(usize, u64)],
    granule: u64,
) -> Vec<(Range<u64>, u64)> {
    let members = MemberEvents::new(problem, whole, parts);
    let mut used = UsedBytes::new(&members.borders);
    let mut layers = Layers::default();
    for (time, events) in members.by_time() {
        for (_, starts, slots) in events {
            used.change(slots, *starts);
        }
        layers.change(time, used.total() - used.total() % granule);
    }
    layers.found
}

/// A tree over the slots between borders: node 1 is all of them, the children of `n` are `2n` and `2n + 1`.
struct UsedBytes<'a> {
    borders: &'a [u64],
    /// By node, the number of live members that have all of its slots, and not all of its parent's.
    members: Vec<u32>,
    /// By node, the bytes of it that are used.
    used: Vec<u64>,
}

impl<'a> UsedBytes<'a> {
    fn new(borders: &'a [u64]) -> Self {
        let nodes = 2 * borders.len().next_power_of_two().max(1);
        Self { borders, members: vec![0; nodes], used: vec![0; nodes] }
    }

    fn total(&self) -> u64 {
        self.used.get(1).copied().unwrap_or(0)
    }

    fn change(&mut self, slots: &Range<usize>, starts: bool) {
        let all = 0..self.members.len() / 2;
        self.change_in(1, &all, slots, starts);
    }

    fn change_in(&mut self, node: usize, of: &Range<usize>, slots: &Range<usize>, starts: bool) {
        if slots.end <= of.start || of.end <= slots.start {
            return;
        }
        if slots.start <= of.start && of.end <= slots.end {
            self.members[node] = if starts { self.members[node] + 1 } else { self.members[node] - 1 };
        } else {
            let middle = of.start + of.len() / 2;
            self.change_in(2 * node, &(of.start..middle), slots, starts);
            self.change_in(2 * node + 1, &(middle..of.end), slots, starts);
        }
        self.used[node] = if self.members[node] > 0 {
            // Only ranges between borders have members.
            self.borders[of.end] - self.borders[of.start]
        } else if of.len() == 1 {
            0
        } else {
            self.used[2 * node] + self.used[2 * node + 1]
        };
    }
}

/// The layers of a number over time.
#[derive(Default)]
struct Layers {
    /// From below: the upper end, and since when.
    open: Vec<(u64, u64)>,
    found: Vec<(Range<u64>, u64)>,
}

impl Layers {
    /// Changes the number at a time.
    fn change(&mut self, time: u64, height: u64) {
        while let Some(&(top, since)) = self.open.last().filter(|layer| layer.0 > height) {
            self.open.pop();
            let bottom = self.open.last().map_or(0, |below| below.0).max(height);
            self.found.push((since..time, top - bottom));
            if bottom == height && self.open.last().is_none_or(|below| below.0 < height) && height > 0 {
                // Its lower part goes on.
                self.open.push((height, since));
            }
        }
        if self.open.last().map_or(0, |top| top.0) < height {
            self.open.push((height, time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::occupied::occupied;
    use crate::{Buffer, ProblemBuilder};
    use proptest::prelude::*;

    proptest! {
        /// Compared with the pieces that are in use.
        #[test]
        fn layers_sum_up_to_what_is_used(
            lifetimes in prop::collection::vec((0..9_u64, 1..9_u64, 0..8_u64, 0..5_u64), 0..7),
        ) {
            let mut builder = ProblemBuilder::new();
            builder.push(Buffer::unaligned(3..5, 8)).unwrap();
            let mut parts = Vec::new();
            for (start, length, offset, size) in lifetimes {
                let part = Buffer::unaligned(start..start + length, size.min(8 - offset));
                let part = builder.push(part).unwrap();
                builder.place_in(part, 0, offset).unwrap();
                parts.push((part, offset));
            }
            let problem = builder.finish();
            let layers = used_layers(&problem, 0, &parts, 1);
            let pieces = occupied(&problem, 0, &parts);
            for time in 0..20 {
                let at = layers.iter().filter(|layer| layer.0.contains(&time)).map(|layer| layer.1);
                let used = pieces.iter().filter(|piece| piece.time.contains(&time));
                let used: u64 = used.map(|piece| piece.bytes.end - piece.bytes.start).sum();
                prop_assert_eq!(at.sum::<u64>(), used, "at {}", time);
            }
            prop_assert!(layers.iter().all(|(time, bytes)| !time.is_empty() && *bytes > 0));
        }
    }
}
