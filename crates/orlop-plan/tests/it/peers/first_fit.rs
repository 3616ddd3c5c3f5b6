//! Placement in fixed orders: greedy by size, XLA's rule, and the orders of a portfolio.

use super::{Conflicts, Packing};
use std::cmp::Reverse;

/// The offset of a buffer that is not placed.
const UNPLACED: u64 = u64::MAX;

/// Places the buffers in an order: each in the lowest or in the smallest gap that fits, or above the others.
pub(super) fn place(conflicts: &Conflicts<'_>, order: &[usize], is_tightest: bool) -> Packing {
    let mut offsets = vec![UNPLACED; conflicts.len()];
    let (mut height, mut placed) = (0, Vec::<(u64, u64)>::new());
    for &index in order {
        let size = conflicts.size(index);
        if size == 0 {
            offsets[index] = 0;
            continue;
        }
        placed.clear();
        let neighbors = conflicts.of(index).filter(|&other| offsets[other] != UNPLACED);
        placed.extend(neighbors.map(|other| (offsets[other], offsets[other] + conflicts.size(other))));
        placed.sort_unstable();
        let (mut offset, mut best) = (0, None::<(u64, u64)>);
        for &(start, end) in &placed {
            let room = start.saturating_sub(offset);
            if room >= size && best.is_none_or(|(smallest, _)| is_tightest && room < smallest) {
                best = Some((room, offset));
            }
            offset = offset.max(conflicts.round_up(index, end));
        }
        let offset = best.map_or(offset, |(_, offset)| offset);
        offsets[index] = offset;
        height = height.max(offset + size);
    }
    (height, offsets)
}

fn sorted<K: Ord>(conflicts: &Conflicts<'_>, key: impl Fn(usize) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..conflicts.len()).collect();
    order.sort_by_cached_key(|&index| key(index));
    order
}

fn length(conflicts: &Conflicts<'_>, index: usize) -> u64 {
    let buffer = &conflicts.problem.buffers()[index];
    buffer.end - buffer.start
}

/// TensorFlow Lite's planner, and many others.
pub(super) fn greedy_by_size(conflicts: &Conflicts<'_>) -> Packing {
    place(conflicts, &by_size(conflicts), true)
}

pub(super) fn by_size(conflicts: &Conflicts<'_>) -> Vec<usize> {
    sorted(conflicts, |index| Reverse(conflicts.size(index)))
}

/// XLA's `GlobalDecreasingSizeBestFitHeap`: the better of its two orders.
pub(super) fn xla(conflicts: &Conflicts<'_>) -> Packing {
    let (size, length) = (|index| Reverse(conflicts.size(index)), |index| Reverse(length(conflicts, index)));
    let spatial = place(conflicts, &sorted(conflicts, |index| (size(index), length(index))), true);
    let temporal = place(conflicts, &sorted(conflicts, |index| (length(index), size(index))), true);
    spatial.min(temporal)
}

/// A portfolio of greedy orders, each with the lowest and the smallest gap.
pub(super) fn portfolio(conflicts: &Conflicts<'_>) -> Packing {
    let buffer = |index: usize| &conflicts.problem.buffers()[index];
    let area = |index| Reverse(u128::from(conflicts.size(index)) * u128::from(length(conflicts, index)));
    let degree = |index| Reverse(conflicts.of(index).len());
    let orders = [
        (0..conflicts.len()).collect(),
        by_size(conflicts),
        sorted(conflicts, |index| (Reverse(length(conflicts, index)), Reverse(conflicts.size(index)))),
        sorted(conflicts, area),
        sorted(conflicts, |index| (degree(index), Reverse(conflicts.size(index)))),
        sorted(conflicts, |index| (buffer(index).start, Reverse(conflicts.size(index)))),
        sorted(conflicts, |index| (buffer(index).start, Reverse(length(conflicts, index)))),
        sorted(conflicts, |index| (buffer(index).end, Reverse(conflicts.size(index)))),
    ];
    let places = orders.iter().flat_map(|order| [false, true].map(|fit| place(conflicts, order, fit)));
    places.min_by_key(|packing| packing.0).unwrap_or_default()
}
