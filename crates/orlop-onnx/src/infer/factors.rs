//! [`Factors`]: an integer as a product of unknown ones.
//!
//! Ranges alone do not know that two sizes are the same one. Of rows `[batch, 40, 8]` with a batch from 1 to
//! 6, reshaped to `[batch, -1]`, they say that there are 53 to 1,920 numbers in a row; by their factors there
//! are 320. Sizes get an unknown of their own where nothing is known about their factors.

use super::Range;
use std::num::NonZeroU64;

/// Products of more unknowns are not known.
const MAX_UNKNOWNS: usize = 4;

/// After so many, integers get no unknown.
const MAX_COUNT: usize = 1 << 16;

/// An unknown integer, which is the same one wherever it occurs. None is 0.
type Unknown = u32;

/// The product of a number and unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factors {
    number: NonZeroU64,
    /// In ascending order, after zeros.
    unknowns: [Unknown; MAX_UNKNOWNS],
}

impl Factors {
    /// Returns those of a number. `None` if it is not positive.
    pub(super) fn of_number(number: i64) -> Option<Self> {
        let number = u64::try_from(number).ok().and_then(NonZeroU64::new)?;
        Some(Self { number, unknowns: [0; MAX_UNKNOWNS] })
    }

    /// Returns the product, if it has no unknowns.
    pub(super) fn number(self) -> Option<i64> {
        i64::try_from(self.number.get()).ok().filter(|_| self.unknowns == [0; MAX_UNKNOWNS])
    }

    /// Returns those of a product. `None` if they are too many.
    pub(super) fn times(self, other: Self) -> Option<Self> {
        let number = self.number.checked_mul(other.number)?;
        let mut unknowns = self.unknowns;
        for &unknown in other.unknowns.iter().filter(|&&unknown| unknown != 0) {
            // The first is the smallest.
            if unknowns[0] != 0 {
                return None;
            }
            unknowns[0] = unknown;
            unknowns.sort_unstable();
        }
        Some(Self { number, unknowns })
    }

    /// Returns those of a quotient. `None` if it has a remainder, or may have one.
    pub(super) fn over(self, divisor: Self) -> Option<Self> {
        let (number, by) = (self.number.get(), divisor.number.get());
        let number = NonZeroU64::new(number / by).filter(|_| number.is_multiple_of(by))?;
        let mut unknowns = self.unknowns;
        for unknown in divisor.unknowns.iter().filter(|&&unknown| unknown != 0) {
            *unknowns.iter_mut().find(|own| *own == unknown)? = 0;
            unknowns.sort_unstable();
        }
        Some(Self { number, unknowns })
    }
}

/// The unknown integers of a graph, with what is known about each.
#[derive(Debug, Default)]
pub(crate) struct Unknowns(Vec<Range>);

impl Unknowns {
    /// Gives an integer factors, or a range by its factors.
    pub(super) fn complete(&mut self, range: Range) -> Range {
        match range.factors() {
            Some(_) if range.exact().is_some() => range,
            Some(factors) => range.intersection(self.product(factors)).unwrap_or(range),
            None => self.add(range),
        }
    }

    /// Gives an integer an unknown of its own.
    pub(crate) fn add(&mut self, range: Range) -> Range {
        let range = range.with_factors(None);
        if range.exact().is_some() || self.0.len() >= MAX_COUNT {
            return range;
        }
        self.0.push(range);
        let unknown = Unknown::try_from(self.0.len()).unwrap_or(0);
        let mut unknowns = [0; MAX_UNKNOWNS];
        unknowns[MAX_UNKNOWNS - 1] = unknown;
        range.with_factors(Some(Factors { number: NonZeroU64::MIN, unknowns }))
    }

    fn product(&self, factors: Factors) -> Range {
        let number = i64::try_from(factors.number.get()).map_or(Range::ANY, Range::exactly);
        let unknowns = factors.unknowns.iter().filter_map(|&unknown| (unknown as usize).checked_sub(1));
        let ranges = unknowns.map(|index| self.0.get(index).copied().unwrap_or(Range::ANY));
        ranges.fold(number, Range::multiply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_products_are_the_other_factor() {
        let mut unknowns = Unknowns::default();
        let [batch, rows, columns] = [6, 40, 9].map(|max| unknowns.complete(Range::between(1, max)));
        let product = batch.multiply(rows).multiply(Range::exactly(8));
        let rest = unknowns.complete(product.divide(batch).unwrap());
        assert_eq!(
            (rest, rest.factors()),
            (Range::between(8, 320), rows.multiply(Range::exactly(8)).factors())
        );
        assert_eq!(product.divide(rows.multiply(batch)).unwrap().factors(), Factors::of_number(8));
        // Not divisible: a range, and no factors.
        for divisor in [columns, Range::exactly(3)] {
            assert_eq!(product.divide(divisor).unwrap().factors(), None);
        }
        assert_eq!(batch.subtract(Range::exactly(0)).factors(), batch.factors());
        assert_eq!(batch.subtract(Range::exactly(1)).factors(), None);
        assert_eq!(batch.subtract(batch), Range::exactly(0));
    }

    #[test]
    fn five_unknowns_are_a_range() {
        let mut unknowns = Unknowns::default();
        let sizes = [0; 5].map(|_| unknowns.complete(Range::between(1, 3)));
        let four = Range::product(&sizes[..4]);
        assert!(four.factors().is_some() && four.multiply(sizes[4]).factors().is_none());
        assert_eq!(four.multiply(sizes[4]), Range::between(1, 243));
    }

    #[test]
    fn what_is_the_same_in_both_stays() {
        let mut unknowns = Unknowns::default();
        let [one, other] = [4, 4].map(|max| unknowns.complete(Range::between(1, max)));
        assert_eq!(one.hull(one).factors(), one.factors());
        assert_eq!((one.hull(other), one.hull(other).factors()), (one, None));
        assert_eq!(one.with_min(0).factors(), None);
        assert_eq!(one.maximum(Range::exactly(0)).factors(), one.factors());
        assert_eq!(one.maximum(Range::exactly(2)).factors(), None);
        assert_eq!(one.minimum(Range::exactly(9)).factors(), one.factors());
        assert_eq!(one.minimum(other).factors(), None);
    }
}
