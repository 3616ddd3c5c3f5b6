//! Plans for parts of a problem, below a capacity.

use super::MAX_BACKTRACKING;
use super::budget::{RemainingBudget, Stop};
use super::heuristics::{Heuristic, Shared};
use super::orders::Keys;
use crate::capacity::{CapacitySearch, Neighbors};
use crate::normal::{Normal, Placement};
use crate::{Buffer, Problem};
use orlop_core::SplitMix64;

/// The work of a heuristic, for each buffer.
const HEURISTIC_WORK: u64 = 64;

/// Searches offsets for `buffers`, which have no other constraints, below `capacity`. Returns them, and the
/// work done. Heuristics are tried, and then a search with backtracking until `work` is done.
pub(crate) fn plan_part(
    buffers: Vec<Buffer>,
    capacity: u64,
    (work, seed): (u64, u64),
    stop: &Stop<'_>,
) -> (Option<Vec<u64>>, u64) {
    let count = buffers.len();
    if count > MAX_BACKTRACKING {
        return (None, 0);
    }
    let Ok(problem) = Problem::new(buffers) else { return (None, 0) };
    let mut normal = Normal::new(&problem);
    if normal.lower_bound > capacity {
        return (None, 0);
    }
    // No lower plan is of use.
    normal.lower_bound = capacity;
    let shared = Shared::new(&normal, Keys::new(&problem, &normal));
    let mut best = Placement { height: u64::MAX, offsets: Vec::new() };
    let mut heuristics = 0;
    for heuristic in Heuristic::groups(&normal).flatten() {
        heuristics += HEURISTIC_WORK * count as u64;
        if let Some(found) = heuristic.place(&shared, best.height - 1, stop) {
            best = found;
        }
        if best.height <= capacity || stop.is_due() {
            break;
        }
    }
    let mut budget = RemainingBudget::of_part(work, *stop);
    if best.height > capacity {
        backtrack(&shared, &mut best, &mut budget, seed);
    }
    let offsets = (best.height <= capacity).then(|| normal.offsets(&best, count));
    (offsets, heuristics + work - budget.work())
}

fn backtrack(shared: &Shared<'_>, best: &mut Placement, budget: &mut RemainingBudget<'_>, seed: u64) {
    let normal = shared.normal;
    let Some(neighbors) = Neighbors::new(&normal.spans) else { return };
    let mut random = SplitMix64::new(seed);
    let mut search = CapacitySearch::new(normal, &neighbors, shared.ranking(), &mut random).at_bound();
    while best.height > normal.lower_bound && search.lower_bound() <= normal.lower_bound && !budget.is_spent()
    {
        search.round(best, budget);
    }
}
