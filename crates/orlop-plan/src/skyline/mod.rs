//! The skyline planner: low valleys first.
//!
//! A buffer is a box: its width is its lifetime, its height its size. Boxes are placed one after the other;
//! the skyline is their height at each time. The planner takes the lowest valley of the skyline and places
//! the best buffer whose lifetime lies inside it. If there is none, the valley cannot be used at this level
//! and is raised to its lower neighbour. So buffers are never compared with each other: there is no conflict
//! graph, which is most of the cost of other planners for large problems. Each step is a query of a tree.
//! (Burke, Kendall and Whitwell, 2004, pack stock sheets by the same principle.)
//!
//! "Best" is a [`BufferOrder`]. No order is best for all problems, so several are tried. The first plan at
//! the bound ends the search; an order is abandoned when it reaches the height of the best plan so far.
//! Reversing time would add nothing: two valleys do not share buffers, so their order in time does not
//! matter. What is left of the budget goes to searches with backtracking, below lower and lower heights
//! (`capacity`), or, where too many buffers are live together for that, to changes of the best order
//! (`improve`).

mod budget;
mod contour;
mod decode;
mod improve;
mod orders;
mod unplaced;

use self::budget::RemainingBudget;
use self::decode::Decoder;
use self::improve::{Candidate, improve};
use self::orders::{Keys, ranks};
use crate::capacity::{self, Neighbors, Placement};
use crate::normal::Normal;
use crate::{Plan, Problem};
use orlop_core::SplitMix64;

pub use self::budget::SearchBudget;
pub use self::orders::{BufferOrder, ORDERS, OrderKey};

/// The work of a search at a capacity that takes as long as placing a span once.
const WORK: u64 = 128;

/// The skyline planner with its settings.
///
/// The same problem and settings give the same plan, unless the budget is a time.
///
/// ```
/// use orlop_plan::{Buffer, Problem, SearchBudget, Skyline, Verdict, verify};
///
/// let lifetimes = [0..3, 3..9, 0..9, 9..21, 0..21];
/// let problem = Problem::new(lifetimes.map(|lifetime| Buffer::unaligned(lifetime, 4)))?;
/// let plan = Skyline::new().budget(SearchBudget::iterations(100)).plan(&problem);
/// assert_eq!((plan.height(), plan.verdict()), (12, Verdict::Optimal));
/// verify(&problem, &plan)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Skyline {
    orders: Vec<BufferOrder>,
    budget: SearchBudget,
    seed: u64,
}

impl Default for Skyline {
    fn default() -> Self {
        Self { orders: ORDERS.to_vec(), budget: SearchBudget::default(), seed: 0 }
    }
}

impl Skyline {
    /// Creates a planner that tries each of [`ORDERS`] once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the orders to try, in sequence. Without any, the first of [`ORDERS`] is used.
    #[must_use]
    pub fn orders(mut self, orders: impl IntoIterator<Item = BufferOrder>) -> Self {
        self.orders = orders.into_iter().collect();
        self
    }

    /// Sets the budget.
    #[must_use]
    pub fn budget(mut self, budget: SearchBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the seed of the searches' changes to orders. It matters only if the budget exceeds the orders.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Plans the problem. Each iteration takes O(n log n) time; about 100 bytes of memory are used per
    /// buffer. If the budget exceeds the orders, up to 32 MiB are used for the pairs of buffers that are live
    /// at the same time.
    #[must_use]
    pub fn plan(&self, problem: &Problem) -> Plan {
        let normal = Normal::new(problem);
        let keys = Keys::new(problem, &normal);
        let mut decoder = Decoder::new(&normal);
        let (first, others) = self.all_orders().split_at(1);
        let mut remaining = RemainingBudget::new(self.budget, 1 + others.len());
        // The first order is tried with any budget.
        remaining.take();
        let nothing = Placement { height: u64::MAX, offsets: Vec::new() };
        let mut found = Candidate { placement: nothing, sorted: Vec::new() };
        let mut try_order = |order: &BufferOrder, limit: u64, found: &mut Candidate| {
            let sorted = keys.sorted(order);
            if let Some(height) = decoder.decode(&ranks(&sorted), limit) {
                let placement = Placement { height, offsets: decoder.offsets().to_vec() };
                *found = Candidate { placement, sorted };
            }
        };
        try_order(&first[0], u64::MAX, &mut found);
        for order in others {
            if found.placement.height == normal.lower_bound || !remaining.take() {
                break;
            }
            try_order(order, found.placement.height - 1, &mut found);
        }
        let mut best = found.placement.clone();
        if best.height > normal.lower_bound && remaining.take() {
            let mut random = SplitMix64::new(self.seed);
            if let Some(neighbors) = Neighbors::new(&normal.spans) {
                let orders: Vec<Vec<u32>> =
                    self.all_orders().iter().map(|order| keys.sorted(order)).collect();
                let iteration = WORK * normal.spans.len() as u64;
                let mut work = 0;
                let may_continue = |more: u64| {
                    work += more;
                    let iterations = work / iteration;
                    work %= iteration;
                    (0..iterations).all(|_| remaining.take())
                };
                capacity::lower(&normal, &neighbors, &orders, &mut best, &mut random, may_continue);
            } else {
                improve(&mut decoder, &normal, &mut found, &mut random, || remaining.take());
                best = found.placement;
            }
        }

        let mut offsets = vec![0; problem.len()];
        for (span, &offset) in normal.spans.iter().zip(&best.offsets) {
            offsets[span.index as usize] = offset;
        }
        Plan::of_planner(offsets, best.height, normal.lower_bound)
    }

    /// Returns the orders, at least one.
    fn all_orders(&self) -> &[BufferOrder] {
        if self.orders.is_empty() { &ORDERS[..1] } else { &self.orders }
    }
}
