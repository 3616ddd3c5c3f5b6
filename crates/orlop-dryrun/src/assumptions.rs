//! [`Assumptions`]: what a dry run takes for values that no kernel computes and that decide sizes of tensors.

use std::fmt;

/// A part of a whole, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fraction(u32);

impl Fraction {
    const WHOLE: u32 = 1_000_000;

    /// Parses a decimal number from 0 to 1, which is rounded to millionths.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok().filter(|value| (0.0..=1.0).contains(value))?;
        let millionths = (value * f64::from(Self::WHOLE)).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A whole number from 0 on.
        Some(Self(millionths as u32))
    }

    /// Returns this part of a number, rounded up.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let part = (u128::from(whole) * u128::from(self.0)).div_ceil(u128::from(Self::WHOLE));
        u64::try_from(part).unwrap_or(whole)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Self::WHOLE))
    }
}

/// What is assumed of values that kernels compute and that programs use as sizes.
///
/// They are given by name, like `mask=0.5`: [`Assumptions::with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assumptions {
    /// The part of a mask's elements that is true: `mask`.
    pub true_elements: Fraction,
    /// The number of distinct values that `unique` and `coalesce` find, at most the number of elements:
    /// `unique`.
    pub distinct_values: u64,
    /// The maximum of a tensor of integers, as `one_hot` and `bincount` read it: `max`.
    pub maximum: u64,
}

impl Default for Assumptions {
    /// What tensors of zeros would have.
    fn default() -> Self {
        Self { true_elements: Fraction::default(), distinct_values: 1, maximum: 0 }
    }
}

impl Assumptions {
    /// Returns these assumptions with one replaced, which is written like `mask=0.5`, `unique=20` or `max=9`;
    /// `None` if it is not one.
    #[must_use]
    pub fn with(mut self, assumption: &str) -> Option<Self> {
        let (name, value) = assumption.split_once('=')?;
        match name {
            "mask" => self.true_elements = Fraction::parse(value)?,
            "unique" => self.distinct_values = value.parse().ok().filter(|&values| values > 0)?,
            "max" => self.maximum = value.parse().ok().filter(|maximum| i64::try_from(*maximum).is_ok())?,
            _ => return None,
        }
        Some(self)
    }
}

impl fmt::Display for Assumptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mask={},unique={},max={}", self.true_elements, self.distinct_values, self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_mask_is_between_none_and_all() {
        let of = |text, whole| Fraction::parse(text).map(|part| part.of(whole));
        assert_eq!([of("0", 7), of("0.3", 7), of("1", u64::MAX)], [Some(0), Some(3), Some(u64::MAX)]);
        for wrong in ["", "-0.1", "1.1", "NaN", "half"] {
            assert_eq!(of(wrong, 7), None, "{wrong}");
        }
    }

    #[test]
    fn assumptions_are_set_by_name() {
        let all = ["mask=0.5", "unique=20", "max=9"]
            .into_iter()
            .try_fold(Assumptions::default(), Assumptions::with);
        let text = all.map(|all| all.to_string());
        assert_eq!(text.as_deref(), Some("mask=0.5,unique=20,max=9"));
        for wrong in ["", "mask", "mask=2", "unique=0", "max=-1", "max=9223372036854775808", "rank=1"] {
            assert_eq!(Assumptions::default().with(wrong), None, "{wrong}");
        }
    }
}
