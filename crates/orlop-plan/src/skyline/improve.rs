//! Improvement of the best order by small changes.
//!
//! Buffers that end above the bound were placed too late, so they are moved forward in the order. The idea is
//! squeaky-wheel optimisation (Joslin and Clements, 1999). A change that gives the same height is kept, so
//! that the search crosses plateaus.

use super::decode::Decoder;
use crate::capacity::Placement;
use crate::normal::{Normal, SectionSpan};
use crate::skyline::orders::ranks;
use orlop_core::SplitMix64;

/// A plan, and the order that gives it.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) placement: Placement,
    /// The indices of the spans in this order.
    pub(super) sorted: Vec<u32>,
}

/// One move in this many is of any buffer, not of one that ends above the bound.
const ANY_ONE_IN: usize = 4;

/// The maximum number of moves in one change.
const MOVES: usize = 9;

/// Tries changes while `may_continue` returns `true`, until the bound is reached.
pub(super) fn improve(
    decoder: &mut Decoder<'_>,
    normal: &Normal,
    found: &mut Candidate,
    random: &mut SplitMix64,
    mut may_continue: impl FnMut() -> bool,
) {
    let spans = &normal.spans;
    let above_bound = |found: &Candidate| -> Vec<usize> {
        let above = |&place: &usize| {
            let number = found.sorted[place] as usize;
            found.placement.offsets[number] + spans[number].size > normal.lower_bound
        };
        (0..spans.len()).filter(above).collect()
    };
    let mut above = above_bound(found);
    let mut least = excess(normal, &found.placement.offsets);
    while found.placement.height > normal.lower_bound && may_continue() {
        let mut sorted = found.sorted.clone();
        let max = 2 + random.below(MOVES - 1);
        for _ in 0..1 + random.below(max) {
            let any = above.is_empty() || random.below(ANY_ONE_IN) == 0;
            let from = if any { random.below(sorted.len()) } else { above[random.below(above.len())] };
            let to = random.below(from + 1);
            sorted[to..=from].rotate_right(1);
        }
        let Some(height) = decoder.decode(&ranks(&sorted), found.placement.height) else { continue };
        let sum = excess(normal, decoder.offsets());
        // The same height is accepted if no more bytes are above the bound: where a problem repeats itself,
        // each part has to come down before the height does.
        if height < found.placement.height || sum <= least {
            least = sum;
            let placement = Placement { height, offsets: decoder.offsets().to_vec() };
            *found = Candidate { placement, sorted };
            above = above_bound(found);
        }
    }
}

/// Returns the sum of the bytes by which spans end above the bound.
fn excess(normal: &Normal, offsets: &[u64]) -> u128 {
    let end = |(span, offset): (&SectionSpan, &u64)| offset + span.size;
    let ends = normal.spans.iter().zip(offsets).map(end);
    ends.map(|end| u128::from(end.saturating_sub(normal.lower_bound))).sum()
}
