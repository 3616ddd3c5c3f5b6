//! Ejection search: lower plans for problems that are too large for a search with backtracking.
//!
//! A capacity below the best height is fixed, and the spans that end above it are taken out. One of them at a
//! time is put back: into the tightest hole if one fits, and otherwise where those that are in the way cost
//! the least; they are taken out in turn. The cost of a span is its area times the number of times that it
//! did not fit, so that spans that are hard to place stay where they are. After each ejection a few
//! neighbours move to other holes. (Guided ejection search: Nagata and Bräysy, "A powerful route minimization
//! heuristic for the vehicle routing problem with time windows", Operations Research Letters, 2009.)
//!
//! Spans of distant times do not depend on each other, so what is searched are regions of time ([`region`])
//! around what is too high, alone and in parallel. What crosses their borders does not move; the next attempt
//! has other borders. In two of three attempts a region is placed anew, its peak first ([`from_peak`]). Where
//! a region succeeds and another does not, its spans keep their new offsets: the plan is valid at any time,
//! and only the regions that failed are searched again.

mod attempt;
mod from_peak;
mod region;
mod repack;

use self::attempt::Attempt;
use self::repack::{Repack, RepackData};
use crate::live::LiveIndex;
use crate::normal::{Normal, Placement};
use crate::planner::{Keys, RemainingBudget, rounds};
use orlop_core::SplitMix64;

/// The work of all jobs of a round together.
const ROUND: u64 = 1 << 24;

/// The work of a round for each span, beside that of its jobs.
const OVERHEAD: u64 = 16;

/// The minimum work of a round: what it takes to begin and to end the attempts of a small problem.
const MIN_ROUND: u64 = 1 << 14;

/// The minimum work of a job in a round.
const MIN_JOB: u64 = 1 << 17;

/// The number of spans up to which several capacities are tried at a time. With more, there are enough
/// regions for all threads.
const MAX_SPANS: usize = 1 << 15;

/// The state of the search.
#[derive(Debug)]
pub(crate) struct EjectionSearch<'a> {
    data: RepackData<'a>,
    attempts: Vec<Attempt<'a>>,
    /// The work of the jobs of the last round: it says whether other threads are worth their start.
    last_work: u64,
}

impl<'a> EjectionSearch<'a> {
    /// Creates a search. A problem that is not too large is searched at `width` capacities at a
    /// time.
    pub(crate) fn new(
        normal: &'a Normal,
        live: &'a LiveIndex,
        keys: &Keys<'a>,
        width: usize,
        random: &mut SplitMix64,
    ) -> Self {
        let data = RepackData::new(normal, live, keys);
        let width = if normal.spans.len() > MAX_SPANS { 1 } else { width.max(1) };
        let attempts = (0..width).map(|index| Attempt::new(index, random.next_u64())).collect();
        Self { data, attempts, last_work: u64::MAX }
    }

    /// Continues the search for one round.
    pub(crate) fn round(&mut self, best: &mut Placement, budget: &mut RemainingBudget<'_>) {
        for attempt in &mut self.attempts {
            attempt.start_if_idle(&self.data, best);
        }
        let jobs: Vec<&mut Repack<'a>> = self.attempts.iter_mut().flat_map(Attempt::running).collect();
        let work = (ROUND / jobs.len().max(1) as u64).max(MIN_JOB);
        let work = (budget.share(work, jobs.len()), budget.share(u64::MAX, jobs.len()));
        let stop = budget.stop();
        let data = &self.data;
        let threads = if self.last_work < MIN_JOB { 1 } else { budget.threads() };
        let done = rounds::run(threads, jobs, |repack| repack.run(data, work, &stop), |_| false);
        self.last_work = done.into_iter().flatten().sum();
        // Attempts have a cost of their own: one may find nothing that it can move.
        let attempts = (OVERHEAD * self.data.normal.spans.len() as u64).max(MIN_ROUND);
        budget.spend(attempts.saturating_add(self.last_work));
        for attempt in &mut self.attempts {
            attempt.finish(&self.data, best);
        }
    }
}
