//! Improvement of the best order by small changes, while the budget lasts.
//!
//! Buffers that end above the bound were placed too late, so they are moved forward in the order. The idea is
//! squeaky-wheel optimisation (Joslin and Clements, 1999). A change that gives the same height is kept, so
//! that the search crosses plateaus.

use super::decode::Decoder;
use crate::normal::{Normal, SectionSpan};
use crate::skyline::orders::ranks;

/// A candidate plan: an order of buffers, and the offsets that it gives.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) height: u64,
    /// By span.
    pub(super) offsets: Vec<u64>,
    /// The indices of the spans in this order.
    pub(super) sorted: Vec<u32>,
}

/// One move in this many is of any buffer, not of one that ends above the bound.
const ANY_ONE_IN: usize = 4;

/// The maximum number of moves in one change.
const MOVES: usize = 9;

/// The pseudo-random generator SplitMix64 (Steele, Lea and Flood, 2014): its numbers depend on the seed only.
#[derive(Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        let scaled = (u128::from(self.next()) * bound as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }
}

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
            found.offsets[number] + spans[number].size > normal.lower_bound
        };
        (0..spans.len()).filter(above).collect()
    };
    let mut above = above_bound(found);
    let mut least = excess(normal, &found.offsets);
    while found.height > normal.lower_bound && may_continue() {
        let mut sorted = found.sorted.clone();
        let max = 2 + random.below(MOVES - 1);
        for _ in 0..1 + random.below(max) {
            let any = above.is_empty() || random.below(ANY_ONE_IN) == 0;
            let from = if any { random.below(sorted.len()) } else { above[random.below(above.len())] };
            let to = random.below(from + 1);
            sorted[to..=from].rotate_right(1);
        }
        let Some(height) = decoder.decode(&ranks(&sorted), found.height) else { continue };
        let sum = excess(normal, decoder.offsets());
        // The same height is accepted if no more bytes are above the bound: where a problem repeats itself,
        // each part has to come down before the height does.
        if height < found.height || sum <= least {
            least = sum;
            *found = Candidate { height, offsets: decoder.offsets().to_vec(), sorted };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_everywhere() {
        // The first outputs for seed 0, as published.
        let mut random = SplitMix64::new(0);
        assert_eq!([random.next(), random.next()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|&times| times > 150), "{seen:?}");
    }
}
