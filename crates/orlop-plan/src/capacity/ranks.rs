//! Which span is tried first.

use super::weights::{ConflictWeights, FRACTION};
use crate::normal::Normal;
use crate::planner::{Keys, OrderKey, ranks};
use orlop_core::SplitMix64;

/// The part of an order by which a span is moved in it.
const MAX_SHIFT: usize = 2;

/// One, in the numbers that features are multiplied by.
const ONE: u64 = 1 << 8;

/// The features of a span, whose logarithms are to base 2.
#[derive(Debug)]
struct Features {
    log_width: u64,
    log_size: u64,
    /// The largest load of its lifetime, as a part of the peak.
    load: u64,
}

/// Makes ranks, others for each search.
#[derive(Debug)]
pub(crate) struct Ranking {
    /// In each, the spans to be placed first come first.
    orders: Vec<Vec<u32>>,
    features: Vec<Features>,
}

impl Ranking {
    pub(crate) fn new(normal: &Normal, keys: &Keys<'_>, orders: Vec<Vec<u32>>) -> Self {
        let features = (0..normal.spans.len()).map(|span| Features {
            log_width: log2(keys.value(OrderKey::Width, span)),
            log_size: log2(keys.value(OrderKey::Size, span)),
            load: fraction(keys.value(OrderKey::Load, span), normal.lower_bound),
        });
        Self { features: features.collect(), orders }
    }

    /// Returns the number of orders.
    pub(super) fn orders(&self) -> usize {
        self.orders.len()
    }

    /// Returns the ranks of an order; from the second time on, spans are moved at random.
    pub(super) fn ordered(&self, search: usize, random: &mut SplitMix64) -> Vec<u32> {
        let sorted = &self.orders[search % self.orders.len()];
        let max_shift =
            if search < self.orders.len() { 0 } else { random.below(sorted.len() / MAX_SHIFT + 1) };
        let places = sorted.iter().enumerate();
        keyed_ranks(places.map(|(place, &span)| (place + random.below(max_shift + 1), span)).collect())
    }

    /// Returns the ranks by a sum of the features, the weight of the span, and chance. The first sums have
    /// one or two features, later ones have all, each times a random number.
    pub(super) fn scored(
        &self,
        search: usize,
        weights: &ConflictWeights,
        random: &mut SplitMix64,
    ) -> Vec<u32> {
        let mut up_to = |max: u64| random.next_u64() % (max * ONE + 1);
        let of_weight = up_to(9);
        let [width, size, load, noise] = match search {
            0 => [ONE, ONE / 8, 0, 0],
            1 => [ONE, ONE, 144 * ONE, 0],
            2 => [ONE, 0, 144 * ONE, 0],
            3 => [ONE, ONE, 0, 0],
            4 => [0, ONE, 0, 0],
            _ => {
                let area = up_to(1);
                [up_to(2) + area, up_to(2) + area, up_to(29) * up_to(1) / ONE, up_to(3)]
            }
        };
        let mut score = |features: &Features, weight: u64| {
            let chance = if noise == 0 { 0 } else { random.next_u64() % (noise << FRACTION) };
            let (log_width, log_size) = (width * features.log_width, size * features.log_size);
            log_width + log_size + load * features.load + of_weight * weight + chance
        };
        let scores = self.features.iter().zip(weights.of_spans()).map(|(of, weight)| score(of, weight));
        keyed_ranks(scores.map(|score| u64::MAX - score).zip(0..).collect())
    }
}

/// Returns the ranks of spans in order of their keys.
fn keyed_ranks<K: Ord>(mut keyed: Vec<(K, u32)>) -> Vec<u32> {
    keyed.sort_unstable();
    let sorted: Vec<u32> = keyed.into_iter().map(|(_, span)| span).collect();
    ranks(&sorted)
}

/// Returns the logarithm to base 2, with 16 bits behind the point, rounded down; of 0 that of 1.
fn log2(value: u64) -> u64 {
    let value = value.max(1);
    let whole = value.ilog2();
    // In [1, 2) with 31 bits behind the point. Each square gives one more bit.
    let mut rest = (value << (u64::BITS - 1 - whole)) >> 32;
    let mut log = u64::from(whole);
    for _ in 0..FRACTION {
        rest = (rest * rest) >> 31;
        let bit = rest >> 32;
        log = 2 * log + bit;
        rest >>= bit;
    }
    log
}

/// Returns a part of a whole.
fn fraction(part: u64, whole: u64) -> u64 {
    // At most one.
    u64::try_from((u128::from(part) << FRACTION) / u128::from(whole.max(1))).unwrap_or(1 << FRACTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_floats() {
        assert_eq!([0, 1, 2, 1 << 63].map(log2), [0, 0, 1 << FRACTION, 63 << FRACTION]);
        for value in [3_u32, 5, 1000, 1023, 1025, 123_456_789, u32::MAX] {
            let difference = f64::from(value).log2() * 65536.0 - log2(value.into()) as f64;
            assert!((0.0..1.5).contains(&difference), "{value}: {difference}");
        }
    }
}
