//! [`Scalar`], a single number of any dtype, and [`cast`], the conversion between dtypes.
//!
//! Casts between 17 types do not need 289 functions: each type widens losslessly into one of five forms, and
//! each form narrows into each type. Where narrowing rounds twice (`f64` to `f16` through `f32`), so do
//! PyTorch's casts, and the results agree bit for bit. After inlining, the form is known at compile time and
//! the intermediate step disappears.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "values are converted, never sizes: a cast is allowed to lose what the destination cannot hold"
)]

use half::{bf16, f16};
use num_complex::Complex;

use crate::{Element, F8E4M3, F8E5M2};

/// A number in the widest type of its family: exact for every dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// From `bool`.
    Bool(bool),
    /// From signed integers.
    Int(i64),
    /// From unsigned integers.
    UInt(u64),
    /// From floats.
    Float(f64),
    /// From complex numbers.
    Complex(Complex<f64>),
}

/// Converts one element as PyTorch's `to(dtype)` does.
///
/// - To `bool`: `true` if the number is not zero; NaN is not zero.
/// - Integer to integer: the low bits.
/// - Float to integer: rounds towards zero. Beyond the range of the destination, where C++ leaves the result
///   undefined, the nearest value, and 0 for NaN; only `uint8` takes the low bits of the `int64`, as PyTorch
///   defines it.
/// - To a float: the nearest value, ties to even. Floats of 16 bits or fewer are converted through `f32`.
/// - Complex to real: the real part.
///
/// ```
/// use orlop_core::{F8E4M3, cast};
///
/// assert_eq!(cast::<f32, i8>(-3.7), -3);
/// assert_eq!(cast::<i64, u8>(-1), 255);
/// assert_eq!(cast::<f64, F8E4M3>(1e9).to_f32(), 448.0);
/// assert!(cast::<f32, bool>(f32::NAN));
/// ```
#[inline]
#[must_use]
pub fn cast<S: Element, D: Element>(value: S) -> D {
    D::from_scalar(value.to_scalar())
}

/// Conversion between an element type and [`Scalar`].
pub trait Convert: Sized {
    /// Converts to the widest type of the family, exactly.
    fn to_scalar(self) -> Scalar;

    /// Converts to this type by the rules of [`cast`].
    fn from_scalar(scalar: Scalar) -> Self;
}

impl Convert for bool {
    #[inline]
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }

    #[inline]
    fn from_scalar(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(value) => value,
            Scalar::Int(value) => value != 0,
            Scalar::UInt(value) => value != 0,
            Scalar::Float(value) => value != 0.0,
            Scalar::Complex(value) => value.re != 0.0 || value.im != 0.0,
        }
    }
}

/// Implements [`Convert`] for an integer type; `$from_float` converts an `f64` to the type.
macro_rules! convert_integer {
    ($($rust:ty, $form:ident, $from_float:expr;)+) => {$(
        impl Convert for $rust {
            #[inline]
            fn to_scalar(self) -> Scalar {
                Scalar::$form(self.into())
            }

            #[inline]
            fn from_scalar(scalar: Scalar) -> Self {
                let from_float: fn(f64) -> $rust = $from_float;
                match scalar {
                    Scalar::Bool(value) => value.into(),
                    Scalar::Int(value) => value as $rust,
                    Scalar::UInt(value) => value as $rust,
                    Scalar::Float(value) => from_float(value),
                    Scalar::Complex(value) => from_float(value.re),
                }
            }
        }
    )+};
}

convert_integer! {
    u8, UInt, |value| value as i64 as u8;
    u16, UInt, |value| value as u16;
    u32, UInt, |value| value as u32;
    u64, UInt, |value| value as u64;
    i8, Int, |value| value as i8;
    i16, Int, |value| value as i16;
    i32, Int, |value| value as i32;
    i64, Int, |value| value as i64;
}

/// Implements [`Convert`] for a float type. `$via` is the primitive float that integers and doubles are
/// rounded to first; `$wrap` and `$unwrap` convert between it and the type.
macro_rules! convert_float {
    ($($rust:ty, $via:ty, $wrap:expr, $unwrap:expr;)+) => {$(
        impl Convert for $rust {
            #[inline]
            fn to_scalar(self) -> Scalar {
                let unwrap: fn($rust) -> $via = $unwrap;
                Scalar::Float(unwrap(self).into())
            }

            #[inline]
            fn from_scalar(scalar: Scalar) -> Self {
                let wrap: fn($via) -> $rust = $wrap;
                wrap(match scalar {
                    Scalar::Bool(value) => value.into(),
                    Scalar::Int(value) => value as $via,
                    Scalar::UInt(value) => value as $via,
                    Scalar::Float(value) => value as $via,
                    Scalar::Complex(value) => value.re as $via,
                })
            }
        }
    )+};
}

convert_float! {
    F8E4M3, f32, F8E4M3::from_f32, F8E4M3::to_f32;
    F8E5M2, f32, F8E5M2::from_f32, F8E5M2::to_f32;
    f16, f32, f16::from_f32, f16::to_f32;
    bf16, f32, bf16::from_f32, bf16::to_f32;
    f32, f32, |value| value, |value| value;
    f64, f64, |value| value, |value| value;
}

macro_rules! convert_complex {
    ($($real:ty),+) => {$(
        impl Convert for Complex<$real> {
            #[inline]
            fn to_scalar(self) -> Scalar {
                Scalar::Complex(Complex::new(self.re.into(), self.im.into()))
            }

            #[inline]
            fn from_scalar(scalar: Scalar) -> Self {
                match scalar {
                    Scalar::Complex(value) => Complex::new(value.re as $real, value.im as $real),
                    real => Complex::new(<$real>::from_scalar(real), 0.0),
                }
            }
        }
    )+};
}

convert_complex!(f32, f64);

impl<T: Element> From<T> for Scalar {
    #[inline]
    fn from(value: T) -> Self {
        value.to_scalar()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // tests/it/dtypes.rs compares with 24 tables of PyTorch's casts. These are the cases that the tables
    // leave out.

    #[test]
    fn floats_beyond_the_range_of_an_integer() {
        assert_eq!(cast::<f32, i8>(1e3), 127);
        assert_eq!(cast::<f64, u16>(-5.0), 0);
        assert_eq!(cast::<f32, i64>(f32::NAN), 0);
        assert_eq!(cast::<f32, u8>(-1.0), 255);
        assert_eq!(cast::<f32, u8>(300.0), 44);
    }

    #[test]
    fn complex_numbers() {
        let value = Complex::new(2.5f32, -1.0);
        assert_eq!(cast::<_, f64>(value), 2.5);
        assert_eq!(cast::<_, i32>(value), 2);
        assert_eq!(cast::<_, Complex<f64>>(value), Complex::new(2.5, -1.0));
        assert!(cast::<_, bool>(Complex::new(0.0f64, 1.0)));
        assert_eq!(cast::<bool, Complex<f32>>(true), Complex::new(1.0, 0.0));
    }

    #[test]
    fn integers_round_once_to_f32() {
        // Through f64 this would round to 2^60 first and lose the tie-break.
        let above_tie = (1i64 << 60) + (1 << 36) + 1;
        assert_eq!(cast::<i64, f32>(above_tie), above_tie as f32);
        assert_ne!(cast::<i64, f32>(above_tie), above_tie as f64 as f32);
        assert_eq!(cast::<u64, f64>(u64::MAX), 18446744073709551616.0);
    }
}
