//! [`Range`]: what is known about an integer.
//!
//! A size that depends on data, like the number of results of `NonZero`, has a smallest and a largest value.
//! Arithmetic on ranges covers every value that the arithmetic on numbers can have, so a size that is
//! computed from such a size is never too small.

/// The integers from `min` to `max`, both included. A `max` of `i64::MAX` is no bound at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl Range {
    /// Any integer.
    pub(crate) const ANY: Self = Self { min: i64::MIN, max: i64::MAX };
    /// Any size.
    pub(crate) const ANY_SIZE: Self = Self { min: 0, max: i64::MAX };
    /// True or false.
    pub(crate) const ANY_BOOL: Self = Self { min: 0, max: 1 };

    pub(crate) const fn exactly(number: i64) -> Self {
        Self { min: number, max: number }
    }

    pub(crate) const fn up_to(max: i64) -> Self {
        Self { min: 0, max }
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
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// Returns this range with the ends of `all` in place of those by which it exceeds `before`.
    pub(crate) fn widened(self, before: Self, all: Self) -> Self {
        Self {
            min: if self.min < before.min { self.min.min(all.min) } else { self.min },
            max: if self.max > before.max { self.max.max(all.max) } else { self.max },
        }
    }

    /// Returns the numbers that are in both. `None` if there are none.
    pub(crate) fn intersection(self, other: Self) -> Option<Self> {
        let both = Self { min: self.min.max(other.min), max: self.max.min(other.max) };
        (both.min <= both.max).then_some(both)
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
        if self.is_bounded() { result } else { Self { max: i64::MAX, ..result } }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let sum = self.combine(other, |left, right| left + right);
        Self { max: if self.is_bounded() && other.is_bounded() { sum.max } else { i64::MAX }, ..sum }
    }

    pub(crate) fn subtract(self, other: Self) -> Self {
        self.add(other.map(|number| -number))
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        self.combine(other, |left, right| left * right)
    }

    /// Divides, rounding towards zero as integers in ONNX do. `None` if the divisor may be 0.
    pub(crate) fn divide(self, other: Self) -> Option<Self> {
        let has_zero = other.min <= 0 && other.max >= 0;
        let quotient = || self.combine(other, |left, right| left / right);
        (!has_zero).then(|| if self.is_bounded() { quotient() } else { Self { max: i64::MAX, ..quotient() } })
    }

    pub(crate) fn minimum(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.min(other.max) }
    }

    pub(crate) fn maximum(self, other: Self) -> Self {
        Self { min: self.min.max(other.min), max: self.max.max(other.max) }
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
        Range { min, max }
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
