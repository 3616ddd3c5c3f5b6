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
//!   from the smallest upwards, each halving the distance to the best plan.
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
//!   that is not placed yet, because those that are placed end at the level or below where it is concerned:
//!   its next offset is the smallest end that any such neighbour can have.
//! * Buffers of equal lifetime, size and alignment can be exchanged: if one is not placed at the level,
//!   neither are the others.
//! * A part is undone only if the parts beside it, with which it shares no buffer that is left, cannot help.
//! * The check at a level counts, in a section, bytes that have to be above an offset and below the capacity.

mod descent;
mod neighbors;
mod space;

use self::descent::{Descent, DescentOutcome};
use crate::heights::Heights;
use crate::normal::{Normal, Placement};
use crate::planner::{RemainingBudget, Stop, rounds};
use orlop_core::SplitMix64;

pub(crate) use self::neighbors::Neighbors;

/// The first search is given up after this many steps for each span.
const STEPS: u64 = 2;

/// The part of an order by which a span is moved in it.
const MAX_SHIFT: usize = 2;

/// Capacities closer to each other than this part of the bound are not told apart in a round.
const RESOLUTION: u64 = 512;

/// The number of searches for which every second searcher stays at the smallest capacity: plans as low as the
/// bound are common, and take about as many searches as that.
const AT_BOUND: usize = 255;

/// The number of searchers. It does not depend on the machine.
const SEARCHERS: usize = 2;

/// The work of a searcher in the first round; in each of the next ones it is twice as much, up to the
/// maximum.
const FIRST_ROUND: u64 = 1 << 16;
const MAX_ROUND: u64 = 1 << 24;

/// The state of the search.
#[derive(Debug)]
pub(crate) struct CapacitySearch<'a> {
    data: SearchData<'a>,
    searchers: Vec<Searcher>,
    /// At this height and below there is no plan.
    floor: u64,
    work: u64,
}

/// What all searchers read.
#[derive(Debug)]
struct SearchData<'a> {
    normal: &'a Normal,
    neighbors: &'a Neighbors,
    /// In each, the spans to be placed first come first.
    orders: Vec<Vec<u32>>,
    /// All heights that matter.
    heights: Heights,
    /// The distance of heights that are not told apart while capacities go up.
    resolution: u64,
}

/// One search after the other, at capacities that go up, each halving the distance to the best plan. After
/// the last the smallest is next.
#[derive(Debug)]
struct Searcher {
    random: SplitMix64,
    searches: usize,
    /// The capacity that failed last; `None` if the smallest is next.
    failed: Option<u64>,
    /// The number of searches for which the capacity stays the smallest.
    at_bound: usize,
    /// At this height and below there is no plan.
    floor: u64,
    /// The best height.
    height: u64,
    /// What this searcher found, if it is the best.
    found: Option<Placement>,
}

impl<'a> CapacitySearch<'a> {
    pub(crate) fn new(
        normal: &'a Normal,
        neighbors: &'a Neighbors,
        orders: Vec<Vec<u32>>,
        random: &mut SplitMix64,
    ) -> Self {
        let (heights, floor) = (normal.heights(), normal.lower_bound.saturating_sub(1));
        // The first begins with the orders as they are.
        let searcher = |index: usize| Searcher {
            random: SplitMix64::new(random.next_u64()),
            searches: index * orders.len(),
            failed: None,
            at_bound: if index.is_multiple_of(2) { 0 } else { AT_BOUND },
            floor,
            height: u64::MAX,
            found: None,
        };
        let searchers = (0..SEARCHERS).map(searcher).collect();
        let resolution = (normal.lower_bound / RESOLUTION).max(heights.unit());
        let data = SearchData { normal, neighbors, orders, heights, resolution };
        Self { data, searchers, floor, work: FIRST_ROUND }
    }

    /// Tries no other capacity than the lowest, which is the lower bound of the problem.
    pub(crate) fn at_bound(mut self) -> Self {
        self.data.resolution = u64::MAX;
        self
    }

    /// Returns the lower bound of the height of all plans, as far as it is proven.
    pub(crate) fn lower_bound(&self) -> u64 {
        self.floor + 1
    }

    /// Continues the search for one round.
    pub(crate) fn round(&mut self, best: &mut Placement, budget: &mut RemainingBudget<'_>) {
        for searcher in &mut self.searchers {
            (searcher.floor, searcher.height) = (self.floor, best.height);
        }
        let work = budget.share(self.work, self.searchers.len());
        let (data, stop) = (&self.data, budget.stop());
        let jobs = self.searchers.iter_mut().collect();
        let done =
            rounds::run(budget.threads(), jobs, |it: &mut Searcher| it.run(data, work, &stop), |_| false);
        budget.spend(done.into_iter().flatten().sum());
        for searcher in &mut self.searchers {
            self.floor = self.floor.max(searcher.floor);
            if let Some(found) = searcher.found.take().filter(|found| found.height < best.height) {
                *best = found;
            }
        }
        self.work = (2 * self.work).min(MAX_ROUND);
    }
}

impl Searcher {
    /// Searches until a plan is as low as can be, or so much work is done. Returns the work.
    fn run(&mut self, data: &SearchData<'_>, max_work: u64, stop: &Stop<'_>) -> u64 {
        let mut done = 0;
        while self.height > self.floor + 1 && done < max_work && !stop.is_due() {
            let ranks = ranks(&data.orders, self.searches, &mut self.random);
            self.searches += 1;
            let mut steps = STEPS * luby(self.searches as u64) * data.normal.spans.len() as u64;
            let capacity = self.capacity(data);
            self.at_bound = self.at_bound.saturating_sub(1);
            let outcome = Descent::new(data.normal, data.neighbors, &ranks, capacity).run(|work| {
                steps -= 1;
                done += work;
                steps > 0 && done < max_work && !stop.is_due()
            });
            match outcome {
                DescentOutcome::Found(offsets) => {
                    let found = data.normal.placed(offsets);
                    self.height = found.height;
                    self.found = Some(found);
                }
                DescentOutcome::Exhausted => {
                    // Below the next height that a plan can have there is none, either.
                    self.floor = self.floor.max(data.heights.at_least(capacity + 1) - 1);
                    self.failed = Some(capacity);
                }
                DescentOutcome::GivenUp => self.failed = Some(capacity),
            }
            self.failed = self.failed.filter(|failed| self.height.saturating_sub(*failed) > data.resolution);
        }
        done
    }

    /// Returns the next capacity, which is below the best height. Above the floor is a possible height.
    fn capacity(&self, data: &SearchData<'_>) -> u64 {
        let lowest = self.floor + 1;
        let distance = |failed: u64| self.height.saturating_sub(failed) / 2;
        let failed = self.failed.filter(|_| self.at_bound == 0);
        let halfway = failed.map_or(lowest, |failed| failed + distance(failed));
        data.heights.at_most(halfway).max(lowest)
    }
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
    fn sums_of_rounded_units_neither_miss_a_plan_nor_find_one_that_is_too_high() {
        // Odd and wide: sums cannot be in whole units.
        let unit = (1 << 45) + 1;
        let spans = [(0..2, 1), (0..1, 2), (1..3, 2), (2..3, 1), (0..3, 5)];
        let buffers = spans.map(|(lifetime, units)| Buffer::unaligned(lifetime, units * unit));
        assert!(matches!(search(&buffers, 8 * unit), DescentOutcome::Found(_)));
        assert_eq!(search(&buffers, 8 * unit - 1), DescentOutcome::Exhausted);
    }

    #[test]
    fn only_the_topmost_ends_between_granules() {
        let buffers = [Buffer::new(0..1, 257), Buffer::new(0..1, 1)];
        assert_eq!(search(&buffers, 513), DescentOutcome::Found(vec![0, 512]));
        assert_eq!(search(&buffers, 512), DescentOutcome::Exhausted);
    }
}
