//! The planner: heuristics, and then searches.
//!
//! No heuristic is best for all problems, so each of [`heuristics`] is tried once. The first plan at the
//! bound ends the search; a heuristic is abandoned when it reaches the height of the best plan so far. What is
//! left of the budget goes to searches, which lower the best plan in rounds:
//!
//! | problem | search |
//! |---|---|
//! | few buffers are live together | with backtracking at fixed capacities ([`capacity`](crate::capacity)) |
//! | the load is the bound at all times | for a packing without free bytes ([`chain`](crate::chain)) |
//! | any | ejection ([`ejection`](crate::ejection)) |
//!
//! A round is a number of jobs that depends only on the problem. Threads execute them in any order, and their
//! results are taken over in the order of the jobs, so that the plan does not depend on the number of
//! threads. Only a budget of time ends a round early.

mod budget;
mod heuristics;
mod orders;
pub(crate) mod rounds;

use self::heuristics::{HEURISTICS, Heuristic, ORDERS, Shared};
use crate::capacity::{CapacitySearch, Neighbors};
use crate::chain;
use crate::ejection::EjectionSearch;
use crate::normal::{Normal, Placement};
use crate::{Plan, Problem};
use orlop_core::SplitMix64;

pub use self::budget::SearchBudget;
pub(crate) use self::budget::{RemainingBudget, Stop};
pub(crate) use self::heuristics::Fit;
pub(crate) use self::orders::{Keys, OrderKey};

/// The number of buffers up to which capacities are searched with backtracking.
const MAX_BACKTRACKING: usize = 1000;

/// The number of capacities at which ejection is tried at a time.
const EJECTIONS: usize = 2;

/// The number of packings without free bytes that are tried in a round.
const PACKINGS: usize = 2;

/// The planner with its settings.
///
/// The same problem and settings give the same plan, unless the budget is a time.
///
/// ```
/// use orlop_plan::{Buffer, Planner, Problem, SearchBudget, Verdict, verify};
///
/// let lifetimes = [0..3, 3..9, 0..9, 9..21, 0..21];
/// let problem = Problem::new(lifetimes.map(|lifetime| Buffer::unaligned(lifetime, 4)))?;
/// let plan = Planner::new().budget(SearchBudget::iterations(100)).plan(&problem);
/// assert_eq!((plan.height(), plan.verdict()), (12, Verdict::Optimal));
/// verify(&problem, &plan)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Planner {
    budget: SearchBudget,
    seed: u64,
    threads: Option<usize>,
}

impl Planner {
    /// Creates a planner that tries each heuristic once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the budget.
    #[must_use]
    pub fn budget(mut self, budget: SearchBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the seed of the searches. It matters only if the budget exceeds the heuristics.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of threads, this one included; by default, that of the processors. The plan does not
    /// depend on it, unless the budget is a time.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Plans the problem. Each iteration takes O(n log n) time; about 100 bytes of memory are used per
    /// buffer. If the budget exceeds the heuristics, up to 32 MiB are used for the pairs of buffers that are
    /// live at the same time.
    #[must_use]
    pub fn plan(&self, problem: &Problem) -> Plan {
        let normal = Normal::new(problem);
        let threads = self.threads.unwrap_or_else(default_threads);
        let mut budget =
            RemainingBudget::new(self.budget, (HEURISTICS.len(), normal.spans.len()), threads, None);
        let shared = Shared::new(&normal, Keys::new(problem, &normal));
        let mut best = heuristics(&shared, &mut budget);
        let lower_bound = self.search(&shared, &mut best, &mut budget);
        let mut offsets = vec![0; problem.len()];
        for (span, &offset) in normal.spans.iter().zip(&best.offsets) {
            offsets[span.index as usize] = offset;
        }
        Plan::of_planner(offsets, best.height, lower_bound)
    }

    /// Lowers a plan until it is optimal or the budget is spent. Returns the lower bound of all plans.
    fn search(&self, shared: &Shared<'_>, best: &mut Placement, budget: &mut RemainingBudget<'_>) -> u64 {
        let normal = shared.normal;
        let mut lower_bound = normal.lower_bound;
        if best.height == lower_bound || budget.is_spent() {
            return lower_bound;
        }
        let mut random = SplitMix64::new(self.seed);
        let is_perfect = chain::is_perfect(normal);
        let is_small = normal.spans.len() <= MAX_BACKTRACKING;
        let neighbors = if is_small { Neighbors::new(&normal.spans) } else { None };
        let mut capacities = neighbors.as_ref().map(|neighbors| {
            let orders = ORDERS.iter().map(|order| shared.keys.sorted(order)).collect();
            CapacitySearch::new(normal, neighbors, orders, random.next_u64())
        });
        let mut ejections = EjectionSearch::new(normal, shared.live(), &shared.keys, EJECTIONS, &mut random);
        for round in 0.. {
            if best.height == lower_bound || budget.is_spent() {
                break;
            }
            if is_perfect {
                packings(shared, round, best, budget, &mut random);
            }
            match &mut capacities {
                Some(capacities) => {
                    capacities.round(best, budget);
                    lower_bound = capacities.lower_bound();
                }
                None if best.height > lower_bound => {
                    ejections.round(best, budget);
                }
                None => {}
            }
        }
        lower_bound.min(best.height)
    }
}

/// Tries the heuristics, at least one.
fn heuristics(shared: &Shared<'_>, budget: &mut RemainingBudget<'_>) -> Placement {
    let bound = shared.normal.lower_bound;
    let mut best = Placement { height: u64::MAX, offsets: Vec::new() };
    for group in Heuristic::groups(shared.normal.spans.len()) {
        let is_first = best.offsets.is_empty() && best.height == u64::MAX;
        let taken = budget.take(group.len()).max(usize::from(is_first));
        if !is_first && (taken == 0 || best.height == bound || budget.is_out_of_time()) {
            break;
        }
        let stop = if is_first { Stop::NEVER } else { budget.stop() };
        let limit = best.height - 1;
        let place = |heuristic: &Heuristic| heuristic.place(shared, limit, &stop);
        let is_final = |found: &Option<Placement>| found.as_ref().is_some_and(|found| found.height == bound);
        let found = rounds::run(budget.threads(), group[..taken].iter().collect(), place, is_final);
        for placement in found.into_iter().flatten().flatten() {
            if placement.height < best.height {
                best = placement;
            }
        }
    }
    best
}

/// Tries packings without free bytes.
fn packings(
    shared: &Shared<'_>,
    round: usize,
    best: &mut Placement,
    budget: &mut RemainingBudget<'_>,
    random: &mut SplitMix64,
) {
    let bound = shared.normal.lower_bound;
    let jobs = (0..PACKINGS).map(|index| (round * PACKINGS + index, random.next_u64())).collect();
    let stop = budget.stop();
    let pack = |(round, seed)| chain::pack(shared.normal, &shared.keys, round, seed, &stop);
    let is_final =
        |(found, _): &(Option<Placement>, u64)| found.as_ref().is_some_and(|found| found.height == bound);
    for (found, work) in rounds::run(budget.threads(), jobs, pack, is_final).into_iter().flatten() {
        budget.spend(work);
        if let Some(found) = found.filter(|found| found.height < best.height) {
            *best = found;
        }
    }
}

/// Returns the number of processors.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
