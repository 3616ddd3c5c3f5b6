//! TVM's hill climb: two buffers around the peak change places in the order of first fit.

use super::{Conflicts, Limit, Packing, first_fit};
use orlop_core::SplitMix64;

/// The number of buffers around the peak from which a pair is taken.
const MAX_AROUND: usize = 4096;

pub(super) fn plan(conflicts: &Conflicts<'_>, limit: Limit, seed: u64) -> Packing {
    let mut random = SplitMix64::new(seed);
    let mut order = first_fit::by_size(conflicts);
    let mut best = first_fit::place(conflicts, &order, false);
    let mut current = best.clone();
    for step in 0..limit.steps {
        if limit.is_over() {
            break;
        }
        let around = around_peak(conflicts, &current, &mut random);
        if around.len() < 2 {
            break;
        }
        let mut pick = || around[random.below(around.len())];
        let (one, other) = (pick(), pick());
        let position = |index| order.iter().position(|&at| at == index).unwrap_or(0);
        let (one, other) = (position(one), position(other));
        order.swap(one, other);
        let next = first_fit::place(conflicts, &order, false);
        // Worse plans are accepted, less and less often.
        let is_accepted = next.0 <= current.0 || random.below(100 + usize::try_from(step).unwrap_or(0)) < 25;
        if next.0 < best.0 {
            best.clone_from(&next);
        }
        if is_accepted {
            current = next;
        } else {
            order.swap(one, other);
        }
    }
    best
}

/// Returns a buffer that ends at the peak, and those below it that are live together with it.
fn around_peak(conflicts: &Conflicts<'_>, packing: &Packing, random: &mut SplitMix64) -> Vec<usize> {
    let end = |index: usize| packing.1[index] + conflicts.size(index);
    let highest: Vec<usize> = (0..conflicts.len()).filter(|&index| end(index) == packing.0).collect();
    if highest.is_empty() {
        return highest;
    }
    let peak = highest[random.below(highest.len())];
    let mut around = vec![peak];
    around.extend(conflicts.of(peak).filter(|&other| packing.1[other] < packing.1[peak]).take(MAX_AROUND));
    around
}
