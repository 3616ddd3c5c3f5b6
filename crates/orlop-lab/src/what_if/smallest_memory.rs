//! The smallest memory in which a workload runs.
//!
//! Whether it runs is not monotone in the memory: with less, an allocator gives cached memory back earlier,
//! and now and then comes through where it fails with a little more. So there are two figures, both of
//! replays that were made: so much works, and so much, less, does not. At the edge an allocator gives all
//! cached memory back again and again, and each time waits for the device; a program that is to run well
//! needs the memory in which it never has to.

use crate::simulate::{Rules, Simulation, SimulationOutcome};
use serde::Serialize;

/// The step in which devices give memory.
const STEP: u64 = 2 << 20;

/// The search is as fine as this share of the memory, where that is more than a step.
const SHARE: u64 = 1024;

/// How little memory is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SmallestMemory {
    /// It runs in so many bytes.
    pub runs: u64,
    /// Times that all cached memory has to go back there.
    pub retries: u64,
    /// It does not run in so many bytes; `None` if it runs in as little as what lives at once.
    pub fails: Option<u64>,
    /// It runs without a retry in so many bytes; `None` if it has retries in twice what it holds, too.
    pub without_retry: Option<u64>,
    /// How many sizes were tried.
    pub tried: u32,
}

impl SmallestMemory {
    /// Between what lives at once and what was held when there was enough. `None` if it does not even run in
    /// that.
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
        // With exactly what it held before, nothing changes; limits as shares of the memory may still.
        let mut retries = match retries_in(good) {
            Some(retries) => retries,
            None => {
                good += steps(good / 8);
                retries_in(good)?
            }
        };
        let mut calm = (retries == 0).then_some(good);
        if calm.is_none() {
            // A limit of the process counts a request as a whole, though a part of it is there already.
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

/// In whole steps.
fn steps(bytes: u64) -> u64 {
    bytes.div_ceil(STEP).saturating_mul(STEP)
}

/// What to try between two sizes that are further apart than this.
fn middle(bad: u64, good: u64, fine: u64) -> Option<u64> {
    let middle = steps(bad + good.saturating_sub(bad) / 2);
    (good.saturating_sub(bad) > fine && middle < good).then_some(middle)
}
