//! How long a planner may try.

use std::time::{Duration, Instant};

/// How often [`Skyline`](crate::Skyline) may place all buffers anew. Once is always done, and an answer that
/// cannot be improved ends it early.
///
/// ```
/// use orlop_plan::SearchBudget;
/// use std::time::Duration;
///
/// let reproducible = SearchBudget::iterations(1000);
/// let in_a_hurry = SearchBudget::iterations(u64::MAX).within(Duration::from_millis(50));
/// # let _ = (reproducible, in_a_hurry);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBudget {
    iterations: Option<u64>,
    time: Option<Duration>,
}

impl SearchBudget {
    /// Every order once, and nothing more. What planners have if nothing is said.
    pub const ORDERS: Self = Self { iterations: None, time: None };

    /// So often: the orders first, then changes to the best of them.
    #[must_use]
    pub const fn iterations(iterations: u64) -> Self {
        Self { iterations: Some(iterations), time: None }
    }

    /// And no longer than this: no iteration begins later. The answer depends on the machine then.
    #[must_use]
    pub const fn within(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }
}

impl Default for SearchBudget {
    fn default() -> Self {
        Self::ORDERS
    }
}

/// What is left of a budget.
#[derive(Debug)]
pub(super) struct Purse {
    iterations: u64,
    until: Option<Instant>,
}

impl Purse {
    pub(super) fn new(budget: SearchBudget, orders: usize) -> Self {
        // A moment too far away to be told is none.
        let until = budget.time.and_then(|time| Instant::now().checked_add(time));
        Self { iterations: budget.iterations.unwrap_or(orders as u64), until }
    }

    /// Takes one iteration; whether there was one.
    pub(super) fn take(&mut self) -> bool {
        if self.iterations == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        self.iterations -= 1;
        true
    }
}
