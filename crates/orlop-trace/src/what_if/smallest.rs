//! The smallest memory in which a workload runs.
//!
//! Whether it runs is not monotone in the memory: with less, an allocator gives cached memory back earlier, and now and
//! then comes through where it fails with a little more. So there are two figures, both of replays that were made: so
//! much works, and so much, less, does not.

use super::rules::Rules;
use super::simulation::Simulation;
use serde::Serialize;

/// The step in which devices give memory.
const STEP: u64 = 2 << 20;

/// The search is as fine as this share of the memory, where that is more than a step.
const SHARE: u64 = 1024;

/// How little memory is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Smallest {
    /// It runs in so many bytes.
    pub runs: u64,
    /// It does not in so many; `None` if it runs in as little as what lives at once.
    pub fails: Option<u64>,
    /// How many sizes were tried.
    pub tried: u32,
}

impl Smallest {
    /// Between what lives at once and what was held when there was enough. `None` if it does not even run in that.
    pub(super) fn search(
        simulation: &Simulation<'_>,
        rules: &Rules,
        peak_live: u64,
        enough: u64,
    ) -> Option<Self> {
        let mut tried = 0;
        let mut runs = |memory: u64| {
            tried += 1;
            simulation.runs(rules, memory)
        };
        let least = peak_live.div_ceil(STEP).max(1) * STEP;
        let mut good = enough.max(least).div_ceil(STEP) * STEP;
        // With exactly what it held before, nothing changes; limits as shares of the memory may still.
        if !runs(good) {
            good += (good / 8).div_ceil(STEP) * STEP;
            if !runs(good) {
                return None;
            }
        }
        if runs(least) {
            return Some(Self { runs: least, fails: None, tried });
        }
        let mut bad = least;
        while good - bad > STEP.max(peak_live / SHARE) {
            let middle = (bad + (good - bad) / 2).div_ceil(STEP) * STEP;
            if middle >= good {
                break;
            }
            if runs(middle) { good = middle } else { bad = middle }
        }
        Some(Self { runs: good, fails: Some(bad), tried })
    }
}
