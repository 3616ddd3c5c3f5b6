//! The planner: heuristics, and then searches.
//!
//! No heuristic is best for all problems, so each of [`heuristics`] is tried once. The first plan at the
//! bound ends the search; a heuristic is abandoned when it reaches the height of the best plan so far. What
//! is left of the budget goes to searches, which lower the best plan in rounds:
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
mod part;
pub(crate) mod rounds;

use self::heuristics::{HEURISTICS, Heuristic, Shared};
use crate::capacity::{CapacitySearch, Neighbors};
use crate::chain;
use crate::constraint::FlatProblem;
use crate::ejection::EjectionSearch;
use crate::normal::{Normal, Placement};
use crate::replan::{Effort, replace};
use crate::{Plan, PlanError, Problem, verify};
use orlop_core::SplitMix64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use self::budget::SearchBudget;
pub(crate) use self::budget::{RemainingBudget, Stop};
pub(crate) use self::heuristics::Fit;
pub(crate) use self::orders::{Keys, OrderKey, ranks};
pub(crate) use self::part::plan_part;

/// The number of buffers up to which capacities are searched with backtracking.
const MAX_BACKTRACKING: usize = 1000;

/// The number of capacities at which ejection is tried at a time.
const EJECTIONS: usize = 2;

/// The number of packings without free bytes that are tried in a round.
const PACKINGS: usize = 2;

/// The number of visits of spans after which the plan with the hints takes too long.
const MAX_VISITS: usize = 1 << 24;

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
    capacity: u64,
    cancelled: Option<Arc<AtomicBool>>,
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

    /// Sets a height in bytes that is low enough: the first plan that is not higher is returned. The search
    /// also ends when it is proven that there is none. [`Plan::verdict_in`] says which.
    #[must_use]
    pub fn capacity(mut self, capacity: u64) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets a flag that ends the search when another thread sets it. The best plan so far is returned; before
    /// the first one is complete, a plan in which nothing shares memory.
    #[must_use]
    pub fn cancel(mut self, cancelled: Arc<AtomicBool>) -> Self {
        self.cancelled = Some(cancelled);
        self
    }

    /// Plans the problem. Most iterations take O(n log n) time; about 100 bytes of memory are used per
    /// buffer. If the budget exceeds the heuristics, up to 32 MiB are used for the pairs of buffers that are
    /// live at the same time.
    #[must_use]
    pub fn plan(&self, problem: &Problem) -> Plan {
        self.plan_with(problem, |_| ControlFlow::Continue(()))
    }

    /// Plans the problem, and calls `observe` with the state of the search after the first plan, after each
    /// group of heuristics and after each round, until it breaks.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, Problem};
    /// use std::ops::ControlFlow;
    ///
    /// let problem = Problem::new([Buffer::unaligned(0..2, 8), Buffer::unaligned(1..3, 4)])?;
    /// let mut heights = Vec::new();
    /// let plan = Planner::new().plan_with(&problem, |progress| {
    ///     heights.push(progress.height);
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(heights.last(), Some(&plan.height()));
    /// # Ok::<(), orlop_plan::ProblemError>(())
    /// ```
    #[must_use]
    pub fn plan_with(
        &self,
        problem: &Problem,
        observe: impl FnMut(&SearchProgress) -> ControlFlow<()>,
    ) -> Plan {
        self.run(problem, None, observe)
    }

    /// Searches a lower plan than `start`, which may be of any source. The result is not higher.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if `start` is not a valid plan for the problem.
    pub fn plan_from(&self, problem: &Problem, start: &Plan) -> Result<Plan, PlanError> {
        verify(problem, start)?;
        Ok(self.run(problem, Some(start), |_| ControlFlow::Continue(())))
    }

    fn run(
        &self,
        problem: &Problem,
        start: Option<&Plan>,
        observe: impl FnMut(&SearchProgress) -> ControlFlow<()>,
    ) -> Plan {
        let flat = FlatProblem::restricted(problem);
        let (normal, bound) = flat.normal(problem);
        let proven = (!flat.is_exact).then_some(bound);
        let threads = self.threads.unwrap_or_else(default_threads);
        let size = (HEURISTICS.len(), normal.spans.len());
        let budget = RemainingBudget::new(self.budget, size, threads, self.cancelled.as_deref());
        let best = match start {
            Some(start) => Some(normal.placement(start.offsets())),
            None => hinted(problem, &normal, budget.stop()),
        };
        let shared = Shared::new(&normal, Keys::new(&flat.problem, &normal));
        let mut search = PlanSearch {
            shared: &shared,
            has_plan: best.is_some(),
            best: best.unwrap_or(Placement { height: u64::MAX, offsets: Vec::new() }),
            lower_bound: normal.lower_bound,
            proven,
            capacity: self.capacity,
            budget,
            is_broken: false,
            observe,
        };
        search.heuristics();
        search.rounds(self.seed);
        let lower_bound = search.proven_bound();
        Plan::of_normal(problem, &normal, &search.best, lower_bound)
    }
}

/// Returns the plan with the hints of a problem, if it has some, and if the plan does not take too long.
fn hinted(problem: &Problem, normal: &Normal, stop: Stop<'_>) -> Option<Placement> {
    let &last = problem.hints.keys().next_back()?;
    let offsets: Vec<Option<u64>> = (0..=last).map(|index| problem.hint(index)).collect();
    replace(normal, &offsets, &mut Effort { visits: MAX_VISITS, stop })
}

/// The state of a search, while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// The height of the best plan so far, in bytes.
    pub height: u64,
    /// The lower bound of the height of all plans, as far as it is proven.
    pub lower_bound: u64,
}

/// A search.
struct PlanSearch<'a, F> {
    shared: &'a Shared<'a>,
    best: Placement,
    has_plan: bool,
    lower_bound: u64,
    /// The lower bound of the problem, if that which is searched is more restricted.
    proven: Option<u64>,
    capacity: u64,
    budget: RemainingBudget<'a>,
    is_broken: bool,
    observe: F,
}

impl<F: FnMut(&SearchProgress) -> ControlFlow<()>> PlanSearch<'_, F> {
    /// Returns `true` if the plan is low enough, if none can be, or if the search was broken off.
    fn is_over(&self) -> bool {
        let is_low = self.best.height <= self.lower_bound.max(self.capacity);
        is_low || (self.capacity > 0 && self.lower_bound > self.capacity) || self.is_broken
    }

    /// Returns the lower bound of all plans, as far as it is proven.
    fn proven_bound(&self) -> u64 {
        self.proven.unwrap_or(self.lower_bound)
    }

    /// Calls the observer.
    fn report(&mut self, lower_bound: u64) {
        self.lower_bound = lower_bound.min(self.best.height);
        let progress = SearchProgress { height: self.best.height, lower_bound: self.proven_bound() };
        self.is_broken |= (self.observe)(&progress).is_break();
    }

    /// Tries the heuristics, at least one without a plan.
    fn heuristics(&mut self) {
        let shared = self.shared;
        let bound = shared.normal.lower_bound;
        for group in Heuristic::groups(shared.normal) {
            let taken = self.budget.take(group.len()).max(usize::from(!self.has_plan));
            if self.has_plan && (taken == 0 || self.is_over() || self.budget.stop_of_heuristics().is_due()) {
                break;
            }
            // Around fixed offsets, the first plan may take the square of the number of buffers.
            let has_time = self.has_plan || !shared.normal.is_free();
            let stop = self.budget.stop_of_heuristics();
            let stop = if has_time { stop } else { stop.without_time() };
            let limit = if self.has_plan { self.best.height - 1 } else { u64::MAX };
            let place = |heuristic: &Heuristic| heuristic.place(shared, limit, &stop);
            let is_final =
                |found: &Option<Placement>| found.as_ref().is_some_and(|found| found.height == bound);
            let found = rounds::run(self.budget.threads(), group[..taken].iter().collect(), place, is_final);
            for placement in found.into_iter().flatten().flatten() {
                if !self.has_plan || placement.height < self.best.height {
                    self.best = placement;
                    self.has_plan = true;
                }
            }
            if !self.has_plan {
                self.best = shared.normal.stacked();
                self.has_plan = true;
            }
            self.report(bound);
        }
    }

    /// Lowers the plan in rounds until the search is over or the budget is spent.
    fn rounds(&mut self, seed: u64) {
        if self.is_over() || self.budget.is_spent() {
            return;
        }
        let shared = self.shared;
        let (normal, keys) = (shared.normal, &shared.keys);
        let mut random = SplitMix64::new(seed);
        // Only first fit and ejection see gaps.
        let is_free = normal.is_free() && !normal.has_gaps();
        let is_perfect = is_free && chain::is_perfect(normal);
        let is_small = is_free && normal.spans.len() <= MAX_BACKTRACKING;
        let neighbors = if is_small { Neighbors::new(&normal.spans) } else { None };
        let mut search = match &neighbors {
            Some(neighbors) => Search::Backtracking(
                CapacitySearch::new(normal, neighbors, shared.ranking(), &mut random).down_to(self.capacity),
            ),
            None => {
                let live = shared.live();
                Search::Ejection(EjectionSearch::new(normal, live, keys, EJECTIONS, &mut random))
            }
        };
        // The work of both searches of a perfect packing: each has half of it.
        let (mut packed, mut searched) = (0, 0);
        let mut packings = 0;
        loop {
            if self.is_over() || self.budget.is_spent() {
                return;
            }
            let (best, budget) = (&mut self.best, &mut self.budget);
            let mut lower_bound = self.lower_bound;
            let before = budget.work();
            if is_perfect && packed <= searched {
                try_packings(shared, packings, best, budget, &mut random);
                packings += 1;
                packed += before - budget.work();
            } else {
                match &mut search {
                    Search::Backtracking(search) => {
                        search.round(best, budget);
                        lower_bound = search.lower_bound();
                    }
                    Search::Ejection(search) => search.round(best, budget),
                }
                searched += before - budget.work();
            }
            self.report(lower_bound);
        }
    }
}

/// How plans are lowered in rounds.
enum Search<'a> {
    Backtracking(CapacitySearch<'a>),
    Ejection(EjectionSearch<'a>),
}

/// Tries packings without free bytes.
fn try_packings(
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
