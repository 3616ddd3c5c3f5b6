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
//! * After a number of steps a search is given up, and another begins, with other ranks. Half of the
//!   searches try the smallest capacity, the others step down from the best plan.
//!
//! Levels, supports and sections are those of Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023; the sequence of limits is that of Luby, Sinclair and
//! Zuckerman, 1993.
//!
//! A search that ends without a plan and is not given up is a proof that there is none below its capacity,
//! because it leaves out nothing:
//!
//! * In any plan, buffers can be moved down until each is on the floor, or at the end of a neighbour, rounded
//!   up to its alignment. Only these plans are searched, in order of offset, so that all that is placed later
//!   is not lower than the current level, which is the smallest offset that any buffer can still have.
//! * A buffer that is a candidate at the level is placed there, or it is higher. Then it rests on a buffer
//!   that
//!   is not placed yet, because those that are placed end at the level or below where it is concerned: its
//!   next offset is the smallest end that any such neighbour can have.
//! * Buffers of equal lifetime, size and alignment can be exchanged: if one is not placed at the level,
//!   neither
//!   are the others.
//! * A part is undone only if the parts beside it, with which it shares no buffer that is left, cannot help.
//! * The check at a level counts, in a section, bytes that have to be above an offset and below the capacity.

mod descent;
mod neighbors;
mod space;

use self::descent::{Descent, DescentOutcome};
use crate::normal::{Normal, Placement};
use crate::planner::{RemainingBudget, rounds};
use orlop_core::SplitMix64;

pub(crate) use self::neighbors::Neighbors;

/// The first search is given up after this many steps for each span.
const STEPS: u64 = 2;

/// The part of an order by which a span is moved in it.
const MAX_SHIFT: usize = 6;

/// The part of the distance to the floor by which a search goes below the best height: at first, and the
/// maximum.
const FIRST_PART: f64 = 0.5;
const MAX_PART: f64 = 0.75;

/// The factors of the part after a success, and after a failure.
const SUCCESS: f64 = 1.5;
const FAILURE: f64 = 0.8;

/// The state of the search.
#[derive(Debug)]
pub(crate) struct CapacitySearch<'a> {
    normal: &'a Normal,
    neighbors: &'a Neighbors,
    /// In each, the spans to be placed first come first.
    orders: Vec<Vec<u32>>,
    random: SplitMix64,
    /// At this height and below there is no plan.
    floor: u64,
    /// All heights that matter are multiples of this.
    unit: u64,
    part: f64,
    rounds: u64,
    searches: usize,
}

/// A search at a capacity, with the ranks of the spans.
#[derive(Debug)]
struct CapacityJob {
    capacity: u64,
    ranks: Vec<u32>,
}

impl<'a> CapacitySearch<'a> {
    pub(crate) fn new(
        normal: &'a Normal,
        neighbors: &'a Neighbors,
        orders: Vec<Vec<u32>>,
        seed: u64,
    ) -> Self {
        Self {
            normal,
            neighbors,
            orders,
            random: SplitMix64::new(seed),
            floor: normal.lower_bound.saturating_sub(1),
            unit: normal.exact_unit(),
            part: FIRST_PART,
            rounds: 0,
            searches: 0,
        }
    }

    /// Returns the lower bound of the height of all plans, as far as it is proven.
    pub(crate) fn lower_bound(&self) -> u64 {
        self.floor + 1
    }

    /// Continues the search for one round.
    pub(crate) fn round(&mut self, best: &mut Placement, budget: &mut RemainingBudget<'_>) {
        self.rounds += 1;
        let capacities = self.capacities(best.height);
        let jobs: Vec<CapacityJob> = capacities
            .map(|capacity| {
                let ranks = ranks(&self.orders, self.searches, &mut self.random);
                self.searches += 1;
                CapacityJob { capacity, ranks }
            })
            .into();
        let max_steps = STEPS * luby(self.rounds) * self.normal.spans.len() as u64;
        let (normal, neighbors, stop) = (self.normal, self.neighbors, budget.stop());
        let max_work = budget.share(u64::MAX, jobs.len());
        let search = |job: CapacityJob| {
            let (mut steps, mut total) = (max_steps, 0);
            let descent = Descent::new(normal, neighbors, &job.ranks, job.capacity);
            let outcome = descent.run(|work| {
                steps -= 1;
                total += work;
                steps > 0 && total < max_work && !stop.is_due()
            });
            (job.capacity, outcome, total)
        };
        let is_final = |(capacity, outcome, _): &(u64, DescentOutcome, u64)| {
            *capacity == capacities[0] && matches!(outcome, DescentOutcome::Found(_))
        };
        let results = rounds::run(budget.threads(), jobs, search, is_final);
        for (index, (capacity, outcome, work)) in results.into_iter().enumerate().filter_map(flatten) {
            budget.spend(work);
            let mut is_lower = false;
            match outcome {
                DescentOutcome::Found(offsets) => {
                    let found = normal.placed(offsets);
                    is_lower = found.height < best.height;
                    if is_lower {
                        *best = found;
                    }
                }
                // Up to the next multiple there is no plan, either.
                DescentOutcome::Exhausted => self.floor = self.floor.max(capacity + (self.unit - 1)),
                DescentOutcome::GivenUp => {}
            }
            if index == STEP_DOWN {
                self.part = (self.part * if is_lower { SUCCESS } else { FAILURE }).min(MAX_PART);
            }
        }
    }

    /// Returns the capacities of a round: the smallest, twice; one between it and the height of the best
    /// plan; and the largest below that height.
    fn capacities(&self, height: u64) -> [u64; SEARCHES] {
        let lowest = self.floor + 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a step of any size serves"
        )]
        let step = ((height - self.floor) as f64 * self.part) as u64;
        let rounded = |capacity: u64| (capacity - capacity % self.unit).max(lowest);
        [lowest, lowest, rounded(height - step.max(1)), rounded(height - 1)]
    }
}

/// The searches of a round, and which of them goes down by a part of the distance.
const SEARCHES: usize = 4;
const STEP_DOWN: usize = 2;

fn flatten<T>((index, value): (usize, Option<T>)) -> Option<(usize, T)> {
    Some((index, value?))
}

/// Returns the ranks of a search: those of an order, and later with changes.
fn ranks(orders: &[Vec<u32>], search: usize, random: &mut SplitMix64) -> Vec<u32> {
    let sorted = &orders[search % orders.len()];
    let spans = sorted.len();
    let max_shift = if search < orders.len() { 0 } else { random.below(spans / MAX_SHIFT + 1) };
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
