//! [`Element`]: what is known about an element of a small tensor.

use super::Range;
use half::{bf16, f16};

/// What is known about an element: the values that it can have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Element {
    /// An integer or a truth value.
    Int(Range),
    /// A floating-point number from the first to the second.
    Real(f64, f64),
}

/// ONNX's numbers of element types that rules use.
pub(crate) mod types {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const UINT8: i32 = 2;
    pub(crate) const INT8: i32 = 3;
    pub(crate) const INT32: i32 = 6;
    pub(crate) const INT64: i32 = 7;
    pub(crate) const STRING: i32 = 8;
    pub(crate) const BOOL: i32 = 9;
    pub(crate) const FLOAT16: i32 = 10;
    pub(crate) const DOUBLE: i32 = 11;
    pub(crate) const UINT32: i32 = 12;
    pub(crate) const BFLOAT16: i32 = 16;
}

impl Element {
    pub(crate) fn exact(number: i64) -> Self {
        Self::Int(Range::exactly(number))
    }

    pub(crate) fn exact_real(number: f64) -> Self {
        Self::Real(number, number)
    }

    pub(crate) fn bool(value: bool) -> Self {
        Self::exact(i64::from(value))
    }

    /// Returns any element of a type. `None` for types whose elements are not tracked.
    ///
    /// Types of 32 bits and more bound nothing: memory for any size that they can have is of no use.
    pub(crate) fn any(data_type: i32) -> Option<Self> {
        match Self::limits(data_type)? {
            Self::Int(range) if range.max() >= i64::from(i32::MAX) => {
                Some(Self::Int(if range.min() < 0 { Range::ANY } else { Range::ANY_SIZE }))
            }
            limits => Some(limits),
        }
    }

    /// Returns the numbers that a type has.
    fn limits(data_type: i32) -> Option<Self> {
        let int = |min, max| Some(Self::Int(Range::between(min, max)));
        match data_type {
            types::FLOAT | types::DOUBLE | types::FLOAT16 | types::BFLOAT16 => {
                Some(Self::Real(f64::NEG_INFINITY, f64::INFINITY))
            }
            types::UINT8 => int(0, 255),
            types::INT8 => int(-128, 127),
            4 => int(0, 65_535),
            5 => int(-32_768, 32_767),
            types::INT32 => int(i64::from(i32::MIN), i64::from(i32::MAX)),
            types::INT64 => Some(Self::Int(Range::ANY)),
            types::BOOL => Some(Self::Int(Range::ANY_BOOL)),
            12 => int(0, i64::from(u32::MAX)),
            13 => Some(Self::Int(Range::ANY_SIZE)),
            _ => None,
        }
    }

    /// Returns the range of an integer.
    pub(crate) fn range(self) -> Option<Range> {
        match self {
            Self::Int(range) => Some(range),
            Self::Real(..) => None,
        }
    }

    /// Returns the ends as floating-point numbers.
    pub(crate) fn span(self) -> (f64, f64) {
        match self {
            Self::Int(range) => (range.min() as f64, range.max() as f64),
            Self::Real(min, max) => (min, max),
        }
    }

    /// Returns `true` if there is only one value that the element can have.
    pub(crate) fn is_exact(self) -> bool {
        match self {
            Self::Int(range) => range.min() == range.max(),
            Self::Real(min, max) => min == max,
        }
    }

    pub(crate) fn is_bounded(self) -> bool {
        match self {
            Self::Int(range) => range.is_bounded(),
            Self::Real(_, max) => max < f64::INFINITY,
        }
    }

    pub(crate) fn hull(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int(left), Self::Int(right)) => Self::Int(left.hull(right)),
            (left, right) => {
                let (left, right) = (left.span(), right.span());
                Self::Real(left.0.min(right.0), left.1.max(right.1))
            }
        }
    }

    /// Returns this element with the ends of `all` in place of those by which it exceeds `before`.
    pub(crate) fn widened(self, before: Self, all: Self) -> Self {
        match (self, before, all) {
            (Self::Int(range), Self::Int(before), Self::Int(all)) => Self::Int(range.widened(before, all)),
            _ => {
                let ((min, max), before, all) = (self.span(), before.span(), all.span());
                let min = if min < before.0 { min.min(all.0) } else { min };
                Self::Real(min, if max > before.1 { max.max(all.1) } else { max })
            }
        }
    }

    /// Returns the truth of an element. `None` if it can be either.
    pub(crate) fn truth(self) -> Option<bool> {
        match self {
            Self::Int(range) if range.is_exactly(0) => Some(false),
            Self::Int(range) if range.min() > 0 || range.max() < 0 => Some(true),
            Self::Real(min, max) if min == max => Some(min != 0.0),
            _ => None,
        }
    }

    /// Converts an element to another type.
    pub(crate) fn cast(self, data_type: i32) -> Option<Self> {
        let any = Self::any(data_type)?;
        if data_type == types::BOOL {
            return Some(self.truth().map_or(any, Self::bool));
        }
        Some(match (Self::limits(data_type)?, self) {
            (Self::Int(all), Self::Int(range)) => {
                // A value that the type does not have wraps around.
                let is_within = range.min() >= all.min() && range.max() <= all.max();
                if is_within { self } else { any }
            }
            (Self::Int(all), Self::Real(min, max)) => {
                let is_within = min.trunc() >= all.min() as f64 && max.trunc() <= all.max() as f64;
                // Numbers beyond 2^63 saturate, as they do in the comparison.
                let whole = || Self::Int(Range::between(to_integer(min), to_integer(max)));
                if is_within { whole() } else { any }
            }
            (Self::Real(..), element) => {
                let (min, max) = element.span();
                Self::Real(rounded(min, data_type), rounded(max, data_type))
            }
        })
    }
}

/// Rounds a number to a type of floating-point numbers.
pub(crate) fn rounded(number: f64, data_type: i32) -> f64 {
    match data_type {
        types::DOUBLE => number,
        types::FLOAT16 => f16::from_f64(number).to_f64(),
        types::BFLOAT16 => bf16::from_f64(number).to_f64(),
        _ => f64::from(to_single(number)),
    }
}

/// Returns the results that runtimes may have for one of a floating-point operator: for halves there are two,
/// because some compute them in `f32` and do not round between operators.
pub(crate) fn computed(number: f64, data_type: i32) -> [f64; 2] {
    let wide = if data_type == types::DOUBLE { number } else { rounded(number, types::FLOAT) };
    [rounded(number, data_type), wide]
}

/// Rounds a number towards zero. Beyond 64 bits it is the last integer.
#[expect(clippy::cast_possible_truncation, reason = "that is its purpose")]
pub(crate) fn to_integer(number: f64) -> i64 {
    number as i64
}

/// Rounds a number to single precision.
#[expect(clippy::cast_possible_truncation, reason = "that is its purpose")]
pub(crate) fn to_single(number: f64) -> f32 {
    number as f32
}
