//! The budget of a planner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of buffers that a short budget places, all iterations together.
const SHORT: u64 = 100_000;

/// The minimum of a short budget: the heuristics, and as much again.
const MIN_SHORT: u64 = 60;

/// The number of buffers from which on an iteration takes too long for a short budget.
const MAX_SHORT: usize = 5000;

/// The work of a search that takes as long as placing a span once.
const WORK: u64 = 128;

/// The time that heuristics have before searches have any: in less, no search finds a lower plan.
const MIN_HEURISTICS: Duration = Duration::from_millis(2);

/// The number of times that [`Planner`](crate::Planner) may place all buffers, or do as much work in another
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
    /// Each heuristic once: the default.
    pub const HEURISTICS: Self = Self { iterations: None, time: None };

    /// Creates a budget of `iterations` iterations: first the heuristics, then searches.
    #[must_use]
    pub const fn iterations(iterations: u64) -> Self {
        Self { iterations: Some(iterations), time: None }
    }

    /// Creates a budget for a problem of `buffers` buffers: enough for the graphs of common networks, and
    /// about 20 ms for up to 2,500 buffers. Of more than 5,000, only the heuristics are tried. It does not
    /// depend on the machine.
    #[must_use]
    pub const fn short(buffers: usize) -> Self {
        if buffers > MAX_SHORT {
            return Self::HEURISTICS;
        }
        let iterations = SHORT / (buffers as u64 + 1);
        Self::iterations(if iterations < MIN_SHORT { MIN_SHORT } else { iterations })
    }

    /// Limits the time, of which the first plan may take more. The plan then depends on the machine.
    #[must_use]
    pub const fn within(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }
}

impl Default for SearchBudget {
    fn default() -> Self {
        Self::HEURISTICS
    }
}

/// When to stop, apart from the work: at a time, or when the planner is cancelled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop<'a> {
    until: Option<Instant>,
    cancelled: Option<&'a AtomicBool>,
}

impl Stop<'_> {
    /// Does not stop.
    pub(crate) const NEVER: Self = Self { until: None, cancelled: None };

    /// The number of spans, and of placed neighbours of theirs, at which a heuristic looks from one look at
    /// the clock to the next.
    pub(crate) const INTERVAL: usize = 16;

    /// Stops only when the planner is cancelled.
    pub(crate) const fn without_time(self) -> Self {
        Self { until: None, ..self }
    }

    /// Returns `true` if it is time to stop.
    pub(crate) fn is_due(&self) -> bool {
        self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
            || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The rest of a budget.
#[derive(Debug)]
pub(crate) struct RemainingBudget<'a> {
    /// The work of an iteration.
    iteration: u64,
    work: u64,
    stop: Stop<'a>,
    /// When the heuristics stop: after half of the time, unless that is short.
    heuristics_until: Option<Instant>,
    threads: usize,
}

impl<'a> RemainingBudget<'a> {
    pub(super) fn new(
        budget: SearchBudget,
        (heuristics, spans): (usize, usize),
        threads: usize,
        cancelled: Option<&'a AtomicBool>,
    ) -> Self {
        let iteration = WORK * spans.max(1) as u64;
        // A time too far in the future sets no limit.
        let now = Instant::now();
        let until = budget.time.and_then(|time| now.checked_add(time));
        let share = |time: Duration| (time / 2).max(time.min(MIN_HEURISTICS));
        let heuristics_until = budget.time.and_then(|time| now.checked_add(share(time)));
        let iterations = budget.iterations.unwrap_or(heuristics as u64);
        Self {
            iteration,
            work: iterations.saturating_mul(iteration),
            stop: Stop { until, cancelled },
            heuristics_until,
            threads,
        }
    }

    /// Creates a budget for a part of a problem, on this thread.
    pub(super) fn of_part(work: u64, stop: Stop<'a>) -> Self {
        Self { iteration: 0, work, stop, heuristics_until: stop.until, threads: 1 }
    }

    /// Returns the work that is left.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Takes up to `iterations` iterations. Returns the number taken.
    pub(super) fn take(&mut self, iterations: usize) -> usize {
        let taken = (self.work / self.iteration).min(iterations as u64);
        self.work -= taken * self.iteration;
        usize::try_from(taken).unwrap_or(iterations)
    }

    /// Returns the part of `work` that each of `jobs` jobs may do.
    pub(crate) fn share(&self, work: u64, jobs: usize) -> u64 {
        work.min((self.work / jobs.max(1) as u64).saturating_add(1))
    }

    /// Subtracts work that was done.
    pub(crate) fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    /// Returns `true` if nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.work == 0 || self.stop.is_due()
    }

    /// Returns when the heuristics stop: half of the time is for searches, if it is enough for them.
    pub(super) fn stop_of_heuristics(&self) -> Stop<'a> {
        Stop { until: self.heuristics_until, ..self.stop }
    }

    pub(crate) fn stop(&self) -> Stop<'a> {
        self.stop
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heuristics_have_all_of_a_short_time() {
        let parts = |time: u64| {
            let budget = SearchBudget::iterations(1).within(Duration::from_millis(time));
            let budget = RemainingBudget::new(budget, (1, 1), 1, None);
            let (all, heuristics) = (budget.stop().until, budget.stop_of_heuristics().until);
            all.unwrap().duration_since(heuristics.unwrap()).as_millis()
        };
        assert_eq!([0, 1, 2, 3, 4, 100].map(parts), [0, 0, 0, 1, 2, 50]);
    }
}
