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
//! matter.

mod budget;
mod contour;
mod decode;
mod improve;
mod orders;
mod unplaced;

use self::budget::RemainingBudget;
use self::decode::Decoder;
use self::improve::{Candidate, SplitMix64, improve};
use self::orders::{Keys, ranks};
use crate::normal::Normal;
use crate::{Plan, Problem};

pub use self::budget::SearchBudget;
pub use self::orders::{BufferOrder, ORDERS, OrderKey};

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

    /// Sets the seed of the changes to the best order. It matters only if the budget exceeds the orders.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Plans the problem. Each iteration takes O(n log n) time; about 100 bytes of memory are used per
    /// buffer.
    #[must_use]
    pub fn plan(&self, problem: &Problem) -> Plan {
        let normal = Normal::new(problem);
        let keys = Keys::new(problem, &normal);
        let mut decoder = Decoder::new(&normal);
        let (&first, others) = self.orders.split_first().unwrap_or((&ORDERS[0], &[]));
        let mut remaining = RemainingBudget::new(self.budget, 1 + others.len());
        // The first order is tried with any budget.
        remaining.take();
        let mut found = Candidate { height: u64::MAX, offsets: Vec::new(), sorted: Vec::new() };
        let mut try_order = |order: &BufferOrder, limit: u64, found: &mut Candidate| {
            let sorted = keys.sorted(order);
            if let Some(height) = decoder.decode(&ranks(&sorted), limit) {
                *found = Candidate { height, offsets: decoder.offsets().to_vec(), sorted };
            }
        };
        try_order(&first, u64::MAX, &mut found);
        for order in others {
            if found.height == normal.lower_bound || !remaining.take() {
                break;
            }
            try_order(order, found.height - 1, &mut found);
        }
        improve(&mut decoder, &normal, &mut found, &mut SplitMix64::new(self.seed), || remaining.take());

        let mut offsets = vec![0; problem.len()];
        for (span, &offset) in normal.spans.iter().zip(&found.offsets) {
            offsets[span.index as usize] = offset;
        }
        Plan::of_planner(offsets, found.height, normal.lower_bound)
    }
}
