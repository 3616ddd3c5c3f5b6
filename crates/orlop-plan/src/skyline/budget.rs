//! The budget of a planner.

use std::time::{Duration, Instant};

/// The number of buffers that a short budget places, all iterations together.
const SHORT: u64 = 75_000;

/// The minimum of a short budget: two searches of a chain of layers.
const MIN_SHORT: u64 = 30;

/// The number of buffers from which on an iteration takes too long for a short budget.
const MAX_SHORT: usize = 5000;

/// The number of times that [`Skyline`](crate::Skyline) may place all buffers, or do as much work in another
/// way. It does so at least once, and stops when the plan is optimal.
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
    /// Each order once: the default.
    pub const ORDERS: Self = Self { iterations: None, time: None };

    /// Creates a budget of `iterations` iterations: first the orders, then searches with backtracking.
    #[must_use]
    pub const fn iterations(iterations: u64) -> Self {
        Self { iterations: Some(iterations), time: None }
    }

    /// Creates a budget for a problem of `buffers` buffers: enough for the graphs of common networks, and
    /// about 20 ms for up to 2,500 buffers. Of more than 5,000, only the orders are tried. It does not depend
    /// on the machine.
    #[must_use]
    pub const fn short(buffers: usize) -> Self {
        if buffers > MAX_SHORT {
            return Self::ORDERS;
        }
        let iterations = SHORT / (buffers as u64 + 1);
        Self::iterations(if iterations < MIN_SHORT { MIN_SHORT } else { iterations })
    }

    /// Limits the time: no iteration begins after `time`. The plan then depends on the machine.
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

/// The rest of a budget.
#[derive(Debug)]
pub(super) struct RemainingBudget {
    iterations: u64,
    until: Option<Instant>,
}

impl RemainingBudget {
    pub(super) fn new(budget: SearchBudget, orders: usize) -> Self {
        // A time too far in the future sets no limit.
        let until = budget.time.and_then(|time| Instant::now().checked_add(time));
        Self { iterations: budget.iterations.unwrap_or(orders as u64), until }
    }

    /// Takes one iteration. Returns `false` if there was none.
    pub(super) fn take(&mut self) -> bool {
        if self.iterations == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        self.iterations -= 1;
        true
    }
}
