//! The smallest memory in which a workload runs.
//!
//! Whether it runs is not monotone in the memory: with less, an allocator releases cached memory earlier, and
//! may succeed where it fails with slightly more. So there are two figures, both from replays: a size that
//! works, and a smaller one that does not. At the limit an allocator releases all cached memory again and
//! again, and waits for the device each time; to run well, a program needs the memory in which it never has
//! to.

use crate::simulate::{Rules, Simulation, SimulationOutcome};
use serde::Serialize;

/// The granularity of device memory.
const STEP: u64 = 2 << 20;

/// The granularity of the search is this fraction of the memory, if that is more than a step.
const SHARE: u64 = 1024;

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
    /// Searches between the peaks of live and of reserved bytes in the replay `plenty`, which had enough
    /// memory. `None` if it does not run even in the latter.
    pub(super) fn search(
        simulation: &Simulation<'_>,
        rules: &Rules,
        plenty: &SimulationOutcome,
    ) -> Option<Self> {
        let mut tried = 0;
        let mut retries_in = |memory: u64| {
            tried += 1;
            simulation.retries_in(rules, memory)
        };
        let least = steps(plenty.peak_live).max(STEP);
        let enough = steps(plenty.peak_reserved).max(least);
        let fine = STEP.max(plenty.peak_live / SHARE);
        let mut good = enough;
        // In exactly the peak of the replay nothing changes, except limits that are fractions of the memory.
        let mut retries = match retries_in(good) {
            Some(retries) => retries,
            None => {
                good += steps(good / 8);
                retries_in(good)?
            }
        };
        let mut calm = (retries == 0).then_some(good);
        if calm.is_none() {
            // A limit of the process counts a request as a whole, even if a part of it is reserved already.
            let mut bad = good;
            calm = Some(good.saturating_mul(2)).filter(|&more| retries_in(more) == Some(0));
            while let Some((middle, calm)) =
                calm.as_mut().and_then(|calm| Some((middle(bad, *calm, fine)?, calm)))
            {
                if retries_in(middle) == Some(0) { *calm = middle } else { bad = middle }
            }
        }
        let mut fails = None;
        if let Some(retries_there) = retries_in(least) {
            (good, retries) = (least, retries_there);
        } else {
            let mut bad = least;
            while let Some(middle) = middle(bad, good, fine) {
                match retries_in(middle) {
                    Some(retries_there) => (good, retries) = (middle, retries_there),
                    None => bad = middle,
                }
            }
            fails = Some(bad);
        }
        if retries == 0 {
            calm = Some(good);
        } else if let Some(calm) = calm.as_mut().filter(|_| !rules.hold_their_peak()) {
            let mut bad = good;
            while let Some(middle) = middle(bad, *calm, fine) {
                if retries_in(middle) == Some(0) { *calm = middle } else { bad = middle }
            }
        }
        Some(Self { runs: good, retries, fails, without_retry: calm, tried })
    }
}

/// Rounds up to whole steps.
fn steps(bytes: u64) -> u64 {
    bytes.div_ceil(STEP).saturating_mul(STEP)
}

/// Returns the next candidate between two sizes that are further apart than `fine`.
fn middle(bad: u64, good: u64, fine: u64) -> Option<u64> {
    let middle = steps(bad + good.saturating_sub(bad) / 2);
    (good.saturating_sub(bad) > fine && middle < good).then_some(middle)
}
