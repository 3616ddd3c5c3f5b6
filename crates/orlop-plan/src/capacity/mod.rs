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
//! * After a number of steps a search is given up, and another begins, with other ranks. Where searches
//!   failed weighs more in the next ones (`weights.rs`).
//! * Searches are at the lower bound, which often is the optimum, or between it and the best plan. None of
//!   the ways to select a section is best everywhere: they take turns.
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
mod ranks;
mod space;
mod weights;

use self::descent::{Descent, DescentOutcome, Selection};
use self::weights::ConflictWeights;
use crate::heights::Heights;
use crate::normal::{Normal, Placement};
use crate::planner::{RemainingBudget, Stop, rounds};
use orlop_core::SplitMix64;

pub(crate) use self::neighbors::Neighbors;
pub(crate) use self::ranks::Ranking;

/// The first search is given up after this many steps for each span.
const STEPS: u64 = 2;

/// The work after which a search is given up, even if it has steps left.
const MAX_SEARCH: u64 = 1 << 25;

/// The number of searches of a searcher at the lower bound before it seldom returns there: plans as low as
/// the bound are common, and take about as many searches as that. Until then the second does nothing else,
/// and the first one search in four. At a height that is low enough, above the bound, all are but one search
/// in four of the first.
const AT_BOUND: u64 = 40;
const OFTEN: u64 = 4;

/// One search in so many is at the lower bound later.
const RARELY: u64 = 8;

/// The capacities of searches above the bound: parts of the way from there to the best plan, in eighths, by
/// searcher. The first stays at what succeeds, and fails once before it tries the next. The second begins
/// anew with each better plan, and tries each capacity twice as often as in the turn before.
const LEVELS: [(&[u64], u64); SEARCHERS] = [(&[7, 6, 4], 1), (&[6, 4], 2)];

/// The number of searchers. It does not depend on the machine.
const SEARCHERS: usize = 2;

/// The numbers in Luby's sequence with which the searchers begin.
const FIRST_SEARCH: [u64; SEARCHERS] = [0, 6];

/// The work of a searcher in the first round; in each of the next ones it is twice as much, up to the
/// maximum.
const FIRST_ROUND: u64 = 1 << 16;
const MAX_ROUND: u64 = 1 << 24;

/// The state of the search.
#[derive(Debug)]
pub(crate) struct CapacitySearch<'a> {
    data: SearchData<'a>,
    searchers: Vec<Searcher<'a>>,
    /// At this height and below there is no plan.
    floor: u64,
    work: u64,
}

/// What all searchers read.
#[derive(Debug)]
struct SearchData<'a> {
    normal: &'a Normal,
    ranking: Ranking,
    /// All heights that matter.
    heights: Heights,
    /// No other capacity than the lowest is tried.
    is_at_bound: bool,
    /// A plan of this height is low enough.
    enough: u64,
}

/// One search after the other.
#[derive(Debug)]
struct Searcher<'a> {
    index: usize,
    random: SplitMix64,
    searches: u64,
    /// What is at the lowest capacity, and what is above it; and which of them the search is.
    aims: [Aim; 2],
    aim: usize,
    level: Level,
    descent: Descent<'a>,
    /// The capacity of the search, and the steps and the work that are left. An ended search has no steps.
    capacity: u64,
    steps: u64,
    work: u64,
    /// At this height and below there is no plan.
    floor: u64,
    /// The best height.
    height: u64,
    /// What this searcher found, if it is the best.
    found: Option<Placement>,
}

/// What searches at the lowest capacity, or those above it, have in common.
#[derive(Debug)]
struct Aim {
    weights: ConflictWeights,
    /// How many there were, and how many of them had the ranks of an order, and of a score.
    searches: u64,
    ordered: usize,
    scored: usize,
}

/// The next capacity above the lower bound.
#[derive(Debug)]
struct Level {
    /// The height of the best plan for which it was chosen.
    height: u64,
    index: usize,
    /// The number of searches that are left at it, and that a level has in this turn.
    left: u64,
    patience: u64,
}

impl<'a> CapacitySearch<'a> {
    pub(crate) fn new(
        normal: &'a Normal,
        neighbors: &'a Neighbors,
        ranking: Ranking,
        random: &mut SplitMix64,
    ) -> Self {
        let floor = normal.lower_bound.saturating_sub(1);
        let aim = |index| Aim {
            weights: ConflictWeights::new(normal.load.len(), normal.spans.len()),
            searches: 0,
            // No two searchers begin with the same ranks.
            ordered: index * ranking.orders() / SEARCHERS,
            scored: 2 * index,
        };
        let searcher = |index: usize| Searcher {
            index,
            random: SplitMix64::new(random.next_u64()),
            // The first searches of the second may take longer than those of the first.
            searches: FIRST_SEARCH[index],
            aims: [aim(index), aim(index)],
            aim: 0,
            level: Level { height: u64::MAX, index: 0, left: 0, patience: 1 },
            descent: Descent::new(normal, neighbors),
            capacity: 0,
            steps: 0,
            work: 0,
            floor,
            height: u64::MAX,
            found: None,
        };
        let searchers = (0..SEARCHERS).map(searcher).collect();
        let data = SearchData { normal, ranking, heights: normal.heights(), is_at_bound: false, enough: 0 };
        Self { data, searchers, floor, work: FIRST_ROUND }
    }

    /// Tries no other capacity than the lowest, which is the lower bound of the problem.
    pub(crate) fn at_bound(mut self) -> Self {
        self.data.is_at_bound = true;
        self
    }

    /// Searches nothing lower than `height`, which is low enough.
    pub(crate) fn down_to(mut self, height: u64) -> Self {
        self.data.enough = height;
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
            rounds::run(budget.threads(), jobs, |it: &mut Searcher<'_>| it.run(data, work, &stop), |_| false);
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

impl Searcher<'_> {
    /// Searches until a plan is as low as can be, or so much work is done. Returns the work.
    fn run(&mut self, data: &SearchData<'_>, max_work: u64, stop: &Stop<'_>) -> u64 {
        let mut done = 0;
        while self.height > self.lowest(data) && done < max_work && !stop.is_due() {
            if self.steps == 0 || !(self.lowest(data)..self.height).contains(&self.capacity) {
                self.begin(data);
            }
            let weights = &mut self.aims[self.aim].weights;
            let (steps, left) = (&mut self.steps, &mut self.work);
            let outcome = self.descent.run(weights, |work| {
                *steps -= 1;
                *left = left.saturating_sub(work);
                done += work;
                *steps > 0 && *left > 0 && done < max_work && !stop.is_due()
            });
            match outcome {
                DescentOutcome::Interrupted if self.steps > 0 && self.work > 0 => break,
                DescentOutcome::Interrupted => {}
                DescentOutcome::Found(offsets) => {
                    let found = data.normal.placed(offsets);
                    self.height = found.height;
                    self.found = Some(found);
                }
                // Below the next height that a plan can have there is none, either.
                DescentOutcome::Exhausted => {
                    self.floor = self.floor.max(data.heights.at_least(self.capacity + 1) - 1);
                }
            }
            self.steps = 0;
        }
        done
    }

    /// Begins the next search.
    fn begin(&mut self, data: &SearchData<'_>) {
        self.capacity = self.next_capacity(data);
        self.searches += 1;
        (self.steps, self.work) = (STEPS * luby(self.searches) * data.normal.spans.len() as u64, MAX_SEARCH);
        let is_above = self.capacity > self.lowest(data);
        self.aim = usize::from(is_above);
        let aim = &mut self.aims[self.aim];
        aim.searches += 1;
        aim.weights.fade();
        let is_first = self.index == 0;
        // At the lowest capacity searchers take turns, one ahead of the other.
        let is_ordered = if is_above { is_first } else { (aim.searches % 2 == 1) == is_first };
        let selection = match is_ordered {
            // Of a plan as low as the bound, many sections have no slack.
            _ if self.capacity == self.floor + 1 => Selection::WeightedCandidates,
            true => Selection::Candidates,
            false => Selection::WeightedSlack,
        };
        let (ranking, random) = (&data.ranking, &mut self.random);
        let ranks = if is_ordered {
            aim.ordered += 1;
            ranking.ordered(aim.ordered - 1, random)
        } else {
            aim.scored += 1;
            ranking.scored(aim.scored - 1, &aim.weights, random)
        };
        self.descent.begin(ranks, selection, self.capacity);
    }

    /// Returns the lowest capacity to search at.
    fn lowest(&self, data: &SearchData<'_>) -> u64 {
        data.enough.max(self.floor + 1)
    }

    /// Returns the next capacity, which is below the best height. Above the floor is a possible height.
    fn next_capacity(&mut self, data: &SearchData<'_>) -> u64 {
        let lowest = self.lowest(data);
        let is_lowest = if lowest > self.floor + 1 {
            self.index > 0 || !self.searches.is_multiple_of(OFTEN)
        } else if self.aims[0].searches < AT_BOUND {
            self.index > 0 || self.searches % OFTEN == OFTEN - 1
        } else {
            self.searches.is_multiple_of(RARELY)
        };
        if is_lowest || data.is_at_bound {
            return lowest;
        }
        let (levels, growth) = LEVELS[self.index];
        let level = &mut self.level;
        if level.height != self.height {
            (level.height, level.left) = (self.height, level.patience);
            level.index *= usize::from(growth == 1);
        }
        if level.left == 0 {
            level.index = (level.index + 1) % levels.len();
            level.patience *= if level.index == 0 { growth } else { 1 };
            level.left = level.patience;
        }
        level.left -= 1;
        let way = u128::from(self.height - 1 - lowest) * u128::from(levels[level.index]) / 8;
        let above = u64::try_from(way).unwrap_or(u64::MAX);
        data.heights.at_most(lowest.saturating_add(above)).max(lowest)
    }
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
        let mut weights = ConflictWeights::new(normal.load.len(), normal.spans.len());
        let mut descent = Descent::new(&normal, &neighbors);
        descent.begin(ranks, Selection::Candidates, capacity);
        descent.run(&mut weights, |_| true)
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
