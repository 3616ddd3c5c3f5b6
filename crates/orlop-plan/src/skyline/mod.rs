//! The skyline planner: low valleys first.
//!
//! Imagine the buffers as boxes, as wide as they live and as high as they are large, that are put down one
//! after the other; the skyline is how high they reach at each moment. The planner looks at the lowest
//! valley, and puts into it the best buffer of those whose whole life is inside. If there is none the valley
//! can never be used at this level; it is raised to the lower of its walls. So no buffer ever needs to be
//! compared with another: there is no graph of who lives with whom, which for large problems is most of the
//! cost of other planners. Each step is a question to a tree. (Burke, Kendall and Whitwell, 2004, pack stock
//! sheets by the same principle.)
//!
//! "Best" is a [`BufferOrder`]. No order is best for all problems, so several are tried; the first that meets
//! the bound ends it, and one that comes as high as the best before is given up. Running time backwards would
//! add nothing: two valleys do not share buffers, so their order in time does not matter.

mod budget;
mod contour;
mod decode;
mod improve;
mod orders;
mod unplaced;

use self::budget::Purse;
use self::decode::Decoder;
use self::improve::{Candidate, SplitMix64, improve};
use self::orders::{Keys, ranks};
use crate::normal::Normal;
use crate::{Plan, Problem};

pub use self::budget::SearchBudget;
pub use self::orders::{BufferOrder, ORDERS, OrderKey};

/// The planner and its settings.
///
/// The same problem and settings give the same plan, unless the budget is of time.
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
    /// All [`ORDERS`], once each.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Other orders, the first one first. With none it is the first of [`ORDERS`].
    #[must_use]
    pub fn orders(mut self, orders: impl IntoIterator<Item = BufferOrder>) -> Self {
        self.orders = orders.into_iter().collect();
        self
    }

    /// How often it may try.
    #[must_use]
    pub fn budget(mut self, budget: SearchBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Another seed gives other changes to the best order: of use only with a budget for more than the
    /// orders.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Plans. Takes about n log n steps for each iteration, and memory for some 100 bytes a buffer.
    #[must_use]
    pub fn plan(&self, problem: &Problem) -> Plan {
        let normal = Normal::new(problem);
        let keys = Keys::new(problem, &normal);
        let mut decoder = Decoder::new(&normal);
        let (&first, others) = self.orders.split_first().unwrap_or((&ORDERS[0], &[]));
        let mut purse = Purse::new(self.budget, 1 + others.len());
        // The first is done whatever the budget.
        purse.take();
        let mut found = Candidate { height: u64::MAX, offsets: Vec::new(), sorted: Vec::new() };
        let mut try_order = |order: &BufferOrder, limit: u64, found: &mut Candidate| {
            let sorted = keys.sorted(order);
            if let Some(height) = decoder.decode(&ranks(&sorted), limit) {
                *found = Candidate { height, offsets: decoder.offsets().to_vec(), sorted };
            }
        };
        try_order(&first, u64::MAX, &mut found);
        for order in others {
            if found.height == normal.lower_bound || !purse.take() {
                break;
            }
            try_order(order, found.height - 1, &mut found);
        }
        improve(&mut decoder, &normal, &mut found, &mut SplitMix64::new(self.seed), || purse.take());

        let mut offsets = vec![0; problem.len()];
        for (span, &offset) in normal.spans.iter().zip(&found.offsets) {
            offsets[span.index as usize] = offset;
        }
        Plan::of_planner(offsets, found.height, normal.lower_bound)
    }
}
