//! The two eight-bit float formats of deep learning.
//!
//! Both store a sign, an exponent and a mantissa in one byte (Micikevicius et al., *FP8 Formats for Deep
//! Learning*, 2022). They are storage formats: arithmetic happens in `f32`.
//!
//! Codes of one sign, read as integers, are ordered like their values. Rounding is therefore done on the
//! code: a carry moves from mantissa to exponent by itself, and overflow is a comparison with the largest
//! code. Above that code the formats differ, and this module follows PyTorch's casts: [`F8E4M3`] saturates,
//! infinities included; [`F8E5M2`] overflows to infinity.

use core::{cmp::Ordering, fmt};

use bytemuck::{Pod, Zeroable};
use half::f16;

const SIGN: u8 = 0x80;
const F32_MANTISSA_BITS: u32 = f32::MANTISSA_DIGITS - 1;
const F32_BIAS: u32 = 127;
const F32_INFINITY_BITS: u32 = f32::INFINITY.to_bits();

/// Returns the code of `magnitude` (neither negative nor NaN) in a format with `mantissa` bits and exponent
/// bias `bias`, rounded to nearest, ties to even, with an unbounded exponent range.
fn round_to_code(magnitude: f32, mantissa: u32, bias: u32) -> u32 {
    let smallest_normal = f32::from_bits((F32_BIAS + 1 - bias) << F32_MANTISSA_BITS);
    if magnitude < smallest_normal {
        // Adding 2^23 quanta leaves a whole number of quanta in the mantissa, rounded by the addition itself.
        let anchor =
            f32::from_bits((F32_BIAS + 1 - bias - mantissa + F32_MANTISSA_BITS) << F32_MANTISSA_BITS);
        return (magnitude + anchor).to_bits() - anchor.to_bits();
    }
    let rebiased = magnitude.to_bits() - ((F32_BIAS - bias) << F32_MANTISSA_BITS);
    let dropped = F32_MANTISSA_BITS - mantissa;
    let to_even = (rebiased >> dropped) & 1;
    (rebiased + (1 << (dropped - 1)) - 1 + to_even) >> dropped
}

/// Encodes `value`; codes above `largest` become `overflow`, NaN becomes `nan`, each under the sign of
/// `value`.
fn encode(value: f32, mantissa: u32, bias: u32, overflow: u8, nan: u8) -> u8 {
    let magnitude = value.abs();
    let code = if magnitude.to_bits() > F32_INFINITY_BITS {
        nan
    } else {
        u8::try_from(round_to_code(magnitude, mantissa, bias)).unwrap_or(overflow).min(overflow)
    };
    if value.is_sign_negative() { code | SIGN } else { code }
}

macro_rules! float8 {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// Creates a value from its bit pattern. Every pattern is valid.
            #[inline]
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Returns the bit pattern.
            #[inline]
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Returns `true` for NaN.
            #[must_use]
            pub fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        /// Floating-point equality: NaN equals nothing, and the two zeros are equal.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

float8! {
    /// `float8_e4m3fn`: 4 exponent bits, 3 mantissa bits, no infinities, one NaN per sign.
    ///
    /// ```
    /// use orlop_core::F8E4M3;
    ///
    /// assert_eq!(F8E4M3::from_f32(0.3).to_f32(), 0.3125);
    /// assert_eq!(F8E4M3::from_f32(1e6), F8E4M3::MAX);
    /// ```
    F8E4M3
}

float8! {
    /// `float8_e5m2`: 5 exponent bits, 2 mantissa bits, infinities and NaNs as in IEEE 754; the upper byte of
    /// an [`half::f16`].
    ///
    /// ```
    /// use orlop_core::F8E5M2;
    ///
    /// assert_eq!(F8E5M2::from_f32(0.3).to_f32(), 0.3125);
    /// assert_eq!(F8E5M2::from_f32(1e6), F8E5M2::INFINITY);
    /// ```
    F8E5M2
}

impl F8E4M3 {
    const MANTISSA_BITS: u32 = 3;
    const BIAS: u32 = 7;

    /// The largest value, 448.
    pub const MAX: Self = Self(0x7e);

    /// Not a number.
    pub const NAN: Self = Self(0x7f);

    /// Converts to the nearest value, ties to even. Values beyond ±448, infinities included, saturate to
    /// ±448.
    #[must_use]
    pub fn from_f32(value: f32) -> Self {
        Self(encode(value, Self::MANTISSA_BITS, Self::BIAS, Self::MAX.0, Self::NAN.0))
    }

    /// Converts to `f32`, exactly.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        /// 2^-9, the spacing of subnormal values.
        const QUANTUM: f32 = f32::from_bits((F32_BIAS - 9) << F32_MANTISSA_BITS);
        let code = self.0 & !SIGN;
        let magnitude = match u32::from(code) {
            0x7f => f32::NAN,
            0..8 => f32::from(code) * QUANTUM,
            code => f32::from_bits(
                (code << (F32_MANTISSA_BITS - Self::MANTISSA_BITS))
                    + ((F32_BIAS - Self::BIAS) << F32_MANTISSA_BITS),
            ),
        };
        if self.0 & SIGN == 0 { magnitude } else { -magnitude }
    }
}

impl F8E5M2 {
    const MANTISSA_BITS: u32 = 2;
    const BIAS: u32 = 15;

    /// The largest finite value, 57344.
    pub const MAX: Self = Self(0x7b);

    /// Infinity.
    pub const INFINITY: Self = Self(0x7c);

    /// Not a number.
    pub const NAN: Self = Self(0x7f);

    /// Converts to the nearest value, ties to even. Magnitudes that round above 57344 become infinity.
    #[must_use]
    pub fn from_f32(value: f32) -> Self {
        Self(encode(value, Self::MANTISSA_BITS, Self::BIAS, Self::INFINITY.0, Self::NAN.0))
    }

    /// Converts to `f32`, exactly.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        f16::from_le_bytes([0, self.0]).to_f32()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Returns the nearest of all finite values, ties to the even code, by exhaustive search: the definition
    /// of rounding.
    fn nearest(value: f32, decode: fn(u8) -> f32, codes: core::ops::RangeInclusive<u8>) -> u8 {
        let distance = |code: u8| (f64::from(decode(code)) - f64::from(value).abs()).abs();
        let candidates: Vec<u8> = codes.collect();
        let best = candidates.iter().copied().map(distance).fold(f64::INFINITY, f64::min);
        let ties = candidates.into_iter().filter(|&code| distance(code) == best);
        ties.min_by_key(|code| code & 1).unwrap_or(0)
    }

    #[test]
    fn every_code_survives_a_round_trip() {
        for bits in 0..=u8::MAX {
            let (narrow, wide) = (F8E4M3::from_bits(bits), F8E5M2::from_bits(bits));
            assert_eq!(F8E4M3::from_f32(narrow.to_f32()).to_bits(), bits);
            let back = F8E5M2::from_f32(wide.to_f32());
            assert!(back.to_bits() == bits || (wide.is_nan() && back.is_nan()));
        }
    }

    #[test]
    fn codes_are_in_the_order_of_their_values() {
        assert!((0..F8E4M3::MAX.0).all(|code| F8E4M3(code) < F8E4M3(code + 1)));
        assert!((0..F8E5M2::INFINITY.0).all(|code| F8E5M2(code) < F8E5M2(code + 1)));
        assert_eq!(F8E4M3::MAX.to_f32(), 448.0);
        assert_eq!(F8E5M2::MAX.to_f32(), 57344.0);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(F8E4M3::from_f32(f32::NEG_INFINITY).to_f32(), -448.0);
        assert_eq!(F8E5M2::from_f32(61439.9), F8E5M2::MAX);
        assert_eq!(F8E5M2::from_f32(61440.0), F8E5M2::INFINITY);
        assert!(F8E4M3::from_f32(f32::NAN).is_nan() && F8E5M2::from_f32(-f32::NAN).is_nan());
        assert_eq!(F8E4M3::from_f32(-0.0).to_bits(), SIGN);
    }

    proptest! {
        #[test]
        fn rounding_is_to_nearest_even(value in prop_oneof![-500.0f32..500.0, -0.02f32..0.02, -6e4f32..6e4]) {
            let narrow = nearest(value, |code| F8E4M3(code).to_f32(), 0..=F8E4M3::MAX.0);
            prop_assert_eq!(F8E4M3::from_f32(value).to_bits() & !SIGN, narrow);
            let wide = nearest(value, |code| F8E5M2(code).to_f32(), 0..=F8E5M2::MAX.0);
            prop_assert_eq!(F8E5M2::from_f32(value).to_bits() & !SIGN, wide);
        }
    }
}
