//! [`Range`]: what is known about an integer.
//!
//! A size that depends on data, like the number of results of `NonZero`, has a smallest and a largest value.
//! Arithmetic on ranges covers every value that the arithmetic on numbers can have, so a size that is
//! computed from such a size is never too small.

use super::factors::Factors;

/// The integers from `min` to `max`, both included. A `max` of `i64::MAX` is no bound at all. Ranges of the
/// same integers are equal, whatever is known about their factors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    min: i64,
    max: i64,
    /// What the integer is the product of. That of a number is not stored.
    factors: Option<Factors>,
}

impl PartialEq for Range {
    fn eq(&self, other: &Self) -> bool {
        (self.min, self.max) == (other.min, other.max)
    }
}

impl Eq for Range {}

impl Range {
    /// Any integer.
    pub(crate) const ANY: Self = Self::between(i64::MIN, i64::MAX);
    /// Any size.
    pub(crate) const ANY_SIZE: Self = Self::up_to(i64::MAX);
    /// True or false.
    pub(crate) const ANY_BOOL: Self = Self::up_to(1);

    pub(crate) const fn between(min: i64, max: i64) -> Self {
        Self { min, max, factors: None }
    }

    pub(crate) const fn exactly(number: i64) -> Self {
        Self::between(number, number)
    }

    pub(crate) const fn up_to(max: i64) -> Self {
        Self::between(0, max)
    }

    pub(crate) const fn min(self) -> i64 {
        self.min
    }

    pub(crate) const fn max(self) -> i64 {
        self.max
    }

    /// Returns a range with another end, of another integer.
    pub(crate) const fn with_min(self, min: i64) -> Self {
        Self::between(min, self.max)
    }

    /// Returns a range with another end, of another integer.
    pub(crate) const fn with_max(self, max: i64) -> Self {
        Self::between(self.min, max)
    }

    /// Returns the range of an integer of which the factors are known, too.
    pub(super) fn with_factors(self, factors: Option<Factors>) -> Self {
        match factors.and_then(Factors::number) {
            Some(number) => Self::exactly(number),
            None => Self { factors, ..self },
        }
    }

    /// Returns what the integer is the product of, if that is known.
    pub(super) fn factors(self) -> Option<Factors> {
        self.exact().map_or(self.factors, Factors::of_number)
    }

    /// Returns the factors if another integer has the same ones, and so is the same.
    fn shared_factors(self, other: Self) -> Option<Factors> {
        self.factors().filter(|&factors| other.factors() == Some(factors))
    }

    /// Returns `true` if the integers are known to be the same one.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.shared_factors(other).is_some()
    }

    /// Returns the number, if there is only one.
    pub(crate) fn exact(self) -> Option<i64> {
        (self.min == self.max).then_some(self.min)
    }

    pub(crate) fn is_exactly(self, number: i64) -> bool {
        self.exact() == Some(number)
    }

    pub(crate) fn is_bounded(self) -> bool {
        self.max < i64::MAX
    }

    /// Returns the range that has the numbers of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        let hull = Self::between(self.min.min(other.min), self.max.max(other.max));
        hull.with_factors(self.shared_factors(other))
    }

    /// Returns this range with the ends of `all` in place of those by which it exceeds `before`.
    pub(crate) fn widened(self, before: Self, all: Self) -> Self {
        Self::between(
            if self.min < before.min { self.min.min(all.min) } else { self.min },
            if self.max > before.max { self.max.max(all.max) } else { self.max },
        )
    }

    /// Returns the range of an integer that is in both. `None` if there is none.
    pub(crate) fn intersection(self, other: Self) -> Option<Self> {
        let both = Self::between(self.min.max(other.min), self.max.min(other.max));
        (both.min <= both.max).then_some(both.with_factors(self.factors.or(other.factors)))
    }

    /// Applies a function that is monotone in each argument, in either direction.
    pub(crate) fn combine(self, other: Self, function: impl Fn(i128, i128) -> i128) -> Self {
        let ends = |range: Self| [i128::from(range.min), i128::from(range.max)];
        let mut result: Option<Self> = None;
        for left in ends(self) {
            for right in ends(other) {
                let end = Self::exactly(clamped(function(left, right)));
                result = Some(result.map_or(end, |range| range.hull(end)));
            }
        }
        result.unwrap_or(Self::ANY)
    }

    /// Applies a monotone function.
    pub(crate) fn map(self, function: impl Fn(i128) -> i128) -> Self {
        self.combine(Self::exactly(0), |number, _| function(number))
    }

    /// Applies a function that does not fall. What has no bound stays without.
    pub(crate) fn map_increasing(self, function: impl Fn(i128) -> i128) -> Self {
        let result = self.map(function);
        if self.is_bounded() { result } else { result.with_max(i64::MAX) }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        if self.is_exactly(0) {
            return other;
        }
        if other.is_exactly(0) {
            return self;
        }
        let sum = self.combine(other, |left, right| left + right);
        if self.is_bounded() && other.is_bounded() { sum } else { sum.with_max(i64::MAX) }
    }

    pub(crate) fn subtract(self, other: Self) -> Self {
        if self.is_same(other) {
            return Self::exactly(0);
        }
        self.add(other.map(|number| -number))
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        let factors = self.factors().zip(other.factors()).and_then(|(left, right)| left.times(right));
        self.combine(other, |left, right| left * right).with_factors(factors)
    }

    /// Divides, rounding towards zero as integers in ONNX do. `None` if the divisor may be 0.
    pub(crate) fn divide(self, other: Self) -> Option<Self> {
        let has_zero = other.min <= 0 && other.max >= 0;
        let quotient = self.combine(other, |left, right| if right == 0 { 0 } else { left / right });
        let quotient = if self.is_bounded() { quotient } else { quotient.with_max(i64::MAX) };
        let factors = self.factors().zip(other.factors()).and_then(|(left, right)| left.over(right));
        (!has_zero).then_some(quotient.with_factors(factors))
    }

    pub(crate) fn minimum(self, other: Self) -> Self {
        if self.max <= other.min || self.is_same(other) {
            return self;
        }
        if other.max <= self.min {
            return other;
        }
        Self::between(self.min.min(other.min), self.max.min(other.max))
    }

    pub(crate) fn maximum(self, other: Self) -> Self {
        if self.min >= other.max || self.is_same(other) {
            return self;
        }
        if other.min >= self.max {
            return other;
        }
        Self::between(self.min.max(other.min), self.max.max(other.max))
    }

    /// Returns the product of sizes: the number of elements of a tensor. An exact 0 counts, whatever the
    /// others are.
    pub(crate) fn product(sizes: &[Self]) -> Self {
        if sizes.iter().any(|size| size.is_exactly(0)) {
            return Self::exactly(0);
        }
        sizes.iter().fold(Self::exactly(1), |product, &size| product.multiply(size))
    }
}

fn clamped(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(min: i64, max: i64) -> Range {
        Range::between(min, max)
    }

    #[test]
    fn arithmetic_covers_every_value() {
        let ranges = [(-3, 2), (0, 4), (2, 2), (-5, -1), (1, 7)].map(|(min, max)| range(min, max));
        for left in ranges {
            for right in ranges {
                for a in left.min..=left.max {
                    for b in right.min..=right.max {
                        let covers = |range: Range, number: i64| range.min <= number && number <= range.max;
                        assert!(covers(left.add(right), a + b));
                        assert!(covers(left.subtract(right), a - b));
                        assert!(covers(left.multiply(right), a * b));
                        assert!(covers(left.minimum(right), a.min(b)));
                        assert!(covers(left.maximum(right), a.max(b)));
                        assert!(covers(left.hull(right), a) && covers(left.hull(right), b));
                        let quotient = left.divide(right);
                        assert!(b == 0 || quotient.is_none_or(|range| covers(range, a / b)));
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_no_bound_stays_without() {
        let sum = Range::ANY_SIZE.subtract(Range::exactly(7));
        assert_eq!(sum, range(-7, i64::MAX));
        assert!(!Range::ANY_SIZE.multiply(Range::exactly(2)).is_bounded());
        assert_eq!(Range::ANY.subtract(Range::ANY), Range::ANY);
        assert_eq!(Range::product(&[Range::ANY_SIZE, Range::exactly(0)]), Range::exactly(0));
        assert_eq!(Range::exactly(i64::MAX).multiply(Range::exactly(3)), Range::exactly(i64::MAX));
        assert_eq!(Range::exactly(7).divide(range(-1, 1)), None);
    }
}
