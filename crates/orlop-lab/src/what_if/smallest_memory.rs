//! The smallest memory in which a workload runs.
//!
//! Whether it runs is not monotone in the memory: with less, an allocator releases cached memory earlier, and
//! may succeed where it fails with slightly more. So there are two figures, both from replays: a size that
//! works, and a smaller one that does not. At the limit an allocator releases all cached memory again and
//! again, and waits for the device each time; to run well, a program needs the memory in which it never has
//! to.

use crate::simulate::{AllocatorRules, Simulation, SimulationOutcome};
use orlop_trace::history::{WorkStep, Workload};
use serde::Serialize;

/// The granularity of device memory.
const STEP: u64 = 2 << 20;

/// The granularity of the search is this fraction of the memory, if that is more than a step.
const SEARCH_FRACTION: u64 = 1024;

/// The smallest memory in which a workload runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SmallestMemory {
    /// A size in bytes in which it runs.
    pub runs: u64,
    /// The number of retries in that memory.
    pub retries: u64,
    /// A size in bytes in which it does not run; `None` if it runs in its peak of live bytes.
    pub fails: Option<u64>,
    /// A size in bytes in which it runs without a retry; `None` if it has retries even in twice its peak of
    /// reserved bytes.
    pub without_retry: Option<u64>,
    /// The number of sizes tried.
    pub tried: u32,
}

impl SmallestMemory {
    /// Searches between the peak of live bytes and the peak of reserved bytes in the replay `plenty`, which
    /// had enough memory. `None` if the workload does not run even in the peak of reserved bytes.
    pub(super) fn search(
        simulation: &Simulation<'_>,
        rules: &AllocatorRules,
        plenty: &SimulationOutcome,
    ) -> Option<Self> {
        let mut search = MemorySearch::new(simulation, rules, plenty);
        let (mut good, mut retries) = search.enough(plenty.peak_reserved)?;
        let mut without_retry = search.without_retry(good, retries);
        let (min, fine) = (search.min, search.fine);
        let mut fails = None;
        if let Some(retries_in_min) = search.retries_in(min) {
            (good, retries) = (min, retries_in_min);
        } else {
            let (bad, smallest) = bisect(min, good, fine, |bytes| {
                let found = search.retries_in(bytes);
                retries = found.unwrap_or(retries);
                found.is_some()
            });
            (good, fails) = (smallest, Some(bad));
        }
        if retries == 0 {
            without_retry = Some(good);
        } else if let Some(bytes) = without_retry.filter(|_| !rules.keeps_cache()) {
            without_retry = Some(bisect(good, bytes, fine, |bytes| search.retries_in(bytes) == Some(0)).1);
        }
        Some(Self { runs: good, retries, fails, without_retry, tried: search.tried })
    }

    /// Finds [`without_retry`](Self::without_retry) alone. An allocator that keeps its cache needs its peak
    /// of reserved bytes; of others the smallest memory bounds the search.
    pub(super) fn search_without_retry(
        simulation: &Simulation<'_>,
        rules: &AllocatorRules,
        plenty: &SimulationOutcome,
    ) -> Option<u64> {
        if !rules.keeps_cache() {
            return Self::search(simulation, rules, plenty)?.without_retry;
        }
        let mut search = MemorySearch::new(simulation, rules, plenty);
        let (enough, retries) = search.enough(plenty.peak_reserved)?;
        search.without_retry(enough, retries)
    }
}

/// Returns the peak of live bytes with requests that failed, from the one without them.
pub(super) fn needed(work: &Workload, peak_live: u64) -> u64 {
    let failed = work.steps.iter().enumerate().filter_map(|(step, action)| match *action {
        WorkStep::Failed(bytes, _) => Some(work.live_before(step).saturating_add(bytes)),
        _ => None,
    });
    failed.fold(peak_live, u64::max)
}

/// A search over sizes of memory.
struct MemorySearch<'a> {
    simulation: &'a Simulation<'a>,
    rules: &'a AllocatorRules,
    /// The smallest size that can work.
    min: u64,
    /// The granularity of the search.
    fine: u64,
    tried: u32,
}

impl<'a> MemorySearch<'a> {
    fn new(simulation: &'a Simulation<'a>, rules: &'a AllocatorRules, plenty: &SimulationOutcome) -> Self {
        let fine = STEP.max(plenty.peak_live / SEARCH_FRACTION);
        Self { simulation, rules, min: steps(plenty.peak_live).max(STEP), fine, tried: 0 }
    }

    fn retries_in(&mut self, memory: u64) -> Option<u64> {
        self.tried += 1;
        self.simulation.retries_in(self.rules, memory)
    }

    /// Returns a size that works, with the retries there.
    fn enough(&mut self, peak_reserved: u64) -> Option<(u64, u64)> {
        let enough = steps(peak_reserved).max(self.min);
        // In exactly the peak of the replay nothing changes, except limits that are fractions of the memory.
        if let Some(retries) = self.retries_in(enough) {
            return Some((enough, retries));
        }
        let more = enough + steps(enough / 8);
        self.retries_in(more).map(|retries| (more, retries))
    }

    /// Returns a size that works without a retry, from one that works with `retries` retries.
    fn without_retry(&mut self, good: u64, retries: u64) -> Option<u64> {
        if retries == 0 {
            return Some(good);
        }
        // A limit of the process counts a request as a whole, even if a part of it is reserved already.
        let (double, fine) = (good.saturating_mul(2), self.fine);
        let fits = self.retries_in(double) == Some(0);
        fits.then(|| bisect(good, double, fine, |bytes| self.retries_in(bytes) == Some(0)).1)
    }
}

/// Rounds up to whole steps.
fn steps(bytes: u64) -> u64 {
    bytes.div_ceil(STEP).saturating_mul(STEP)
}

/// Narrows the range between a size that fails and one that works to `fine` bytes.
fn bisect(mut bad: u64, mut good: u64, fine: u64, mut works: impl FnMut(u64) -> bool) -> (u64, u64) {
    loop {
        let middle = steps(bad + good.saturating_sub(bad) / 2);
        if good.saturating_sub(bad) <= fine || middle >= good {
            return (bad, good);
        }
        if works(middle) { good = middle } else { bad = middle }
    }
}
