//! Search for plans below a capacity.
//!
//! The skyline decoder never undoes a decision, so an order has to be right everywhere at once. Where the
//! load is near the bound in many places (a network's layers, one after the other), that is unlikely. Here,
//! the height is fixed and buffers are placed level by level, from offset 0 up, with backtracking. As soon as
//! the buffers that are left cannot fit above their lowest possible offsets, the last decision is undone.
//!
//! * A buffer rests on the floor or on another one. One that is not placed at a level goes on to the next at
//!   which a neighbour can end.
//! * A decision is about the section with the smallest slack or the fewest candidates, not about the buffer
//!   that is next in an order.
//! * Where no buffer crosses from a section to the next any more, the parts are searched one after the other,
//!   and a failure in one does not undo the others.
//! * After a number of steps a search is given up, and another begins, with other ranks. Capacities are tried
//!   from the lower bound upwards, each halving the distance to the best plan.
//!
//! Levels, supports and sections are those of Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023; the sequence of limits is that of Luby, Sinclair and
//! Zuckerman, 1993. The search finds plans only. That there is none is never claimed: the verdict compares
//! with the lower bound.

mod descent;
mod neighbors;
mod space;

use self::descent::{Descent, DescentOutcome};
use crate::normal::Normal;
use orlop_core::SplitMix64;

pub(crate) use self::neighbors::Neighbors;

/// The first search is given up after this many steps for each span.
const STEPS: u64 = 2;

/// In a round, capacities closer to each other than this part of the bound are not told apart.
const RESOLUTION: u64 = 512;

/// A plan: its height, and the offsets by span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) height: u64,
    pub(crate) offsets: Vec<u64>,
}

/// Searches plans that are lower than `best`, until one is at the bound, rounded up to granules, or
/// `may_continue`, which gets the work of each step, returns `false`. In each of `orders` the spans to be
/// placed first come first.
pub(crate) fn lower(
    normal: &Normal,
    neighbors: &Neighbors,
    orders: &[Vec<u32>],
    best: &mut Placement,
    random: &mut SplitMix64,
    mut may_continue: impl FnMut(u64) -> bool,
) {
    let bound = normal.lower_bound;
    // At this height and below there seems to be no plan.
    let mut floor = bound - 1;
    let mut searches = 0;
    // Each round begins with the smallest capacity.
    loop {
        let (mut failed, mut capacity) = (floor, (floor + 1).max(bound));
        loop {
            let ranks = ranks(orders, searches, random);
            searches += 1;
            let mut steps = STEPS * luby(searches as u64) * normal.spans.len() as u64;
            let mut is_over = false;
            let outcome = Descent::new(normal, neighbors, &ranks, capacity).run(|work| {
                steps -= 1;
                is_over = !may_continue(work);
                !is_over && steps > 0
            });
            match outcome {
                DescentOutcome::Found(offsets) => {
                    let ends = normal.spans.iter().zip(&offsets).map(|(span, offset)| offset + span.size);
                    *best = Placement { height: ends.max().unwrap_or(0), offsets };
                }
                DescentOutcome::Exhausted => (floor, failed) = (floor.max(capacity), capacity),
                DescentOutcome::GivenUp => failed = capacity,
            }
            let distance = best.height.saturating_sub(failed);
            if is_over || best.height == bound {
                return;
            }
            if distance <= (bound / RESOLUTION).max(1) {
                break;
            }
            // Only the topmost spans can end between two granules.
            let granules = normal.rounded_up(failed);
            let is_next = failed < granules && granules < best.height;
            capacity = if is_next { granules } else { failed + distance / 2 };
        }
        if best.height <= normal.rounded_up(bound).max(floor + 1) {
            return;
        }
    }
}

/// Returns the ranks of a search: those of an order, and later with changes.
fn ranks(orders: &[Vec<u32>], search: usize, random: &mut SplitMix64) -> Vec<u32> {
    let sorted = &orders[search % orders.len()];
    let spans = sorted.len();
    let max_shift = if search < orders.len() { 0 } else { random.below(spans / 2 + 1) };
    let mut keyed: Vec<(usize, u32)> =
        sorted.iter().enumerate().map(|(place, &span)| (place + random.below(max_shift + 1), span)).collect();
    keyed.sort_unstable();
    let mut ranks = vec![0; spans];
    for (rank, (_, span)) in (0..).zip(keyed) {
        ranks[span as usize] = rank;
    }
    ranks
}

/// Returns an element of the sequence 1, 1, 2, 1, 1, 2, 4, …, whose first is number 1.
fn luby(mut number: u64) -> u64 {
    loop {
        let bits = u64::BITS - number.leading_zeros();
        if number == (1 << bits) - 1 {
            return 1 << (bits - 1);
        }
        number -= (1 << (bits - 1)) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem};

    #[test]
    fn limits_grow_like_lubys_sequence() {
        assert_eq!((1..16).map(luby).collect::<Vec<_>>(), [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }

    fn search(buffers: &[Buffer], capacity: u64) -> DescentOutcome {
        let normal = Normal::new(&Problem::new(buffers.iter().copied()).unwrap());
        let neighbors = Neighbors::new(&normal.spans).unwrap();
        let ranks: Vec<u32> = (0..).take(normal.spans.len()).collect();
        Descent::new(&normal, &neighbors, &ranks, capacity).run(|_| true)
    }

    #[test]
    fn a_decision_is_undone() {
        // The first span is placed first, and then has to be on top of the second.
        let buffers = [
            Buffer::unaligned(0..2, 1),
            Buffer::unaligned(0..1, 2),
            Buffer::unaligned(1..3, 2),
            Buffer::unaligned(2..3, 1),
        ];
        let DescentOutcome::Found(offsets) = search(&buffers, 3) else { panic!("there is a plan") };
        assert!(buffers.iter().zip(&offsets).all(|(buffer, offset)| offset + buffer.size <= 3));
        assert_eq!(search(&buffers, 2), DescentOutcome::Exhausted);
    }

    #[test]
    fn only_the_topmost_ends_between_granules() {
        let buffers = [Buffer::new(0..1, 257), Buffer::new(0..1, 1)];
        assert_eq!(search(&buffers, 513), DescentOutcome::Found(vec![0, 512]));
        assert_eq!(search(&buffers, 512), DescentOutcome::Exhausted);
    }
}
