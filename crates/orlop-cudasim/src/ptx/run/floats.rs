//! Floats of every size as doubles: exact sums, and the rounding to a type.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are cut to their types on purpose"
)]

use crate::ptx::types::{FloatMode, Rounding, Type, TypeKind};

/// What a type of floats can represent.
struct Format {
    /// With the one that is not stored.
    mantissa_bits: i32,
    min_exponent: i32,
    max: f64,
}

/// Returns the format of a float of less than 64 bits.
fn format_of(of: Type) -> Format {
    match (of.kind, of.bytes) {
        (TypeKind::Brain, _) => {
            Format { mantissa_bits: 8, min_exponent: -126, max: f32::from_bits(0x7f7f_0000).into() }
        }
        (_, 2) => Format { mantissa_bits: 11, min_exponent: -14, max: 65504.0 },
        _ => Format { mantissa_bits: 24, min_exponent: -126, max: f32::MAX.into() },
    }
}

/// Returns the value of a float. NaNs stay NaNs.
pub(super) fn decode(of: Type, bits: u64) -> f64 {
    match (of.kind, of.bytes) {
        (_, 8) => f64::from_bits(bits),
        (_, 4) => f32::from_bits(bits as u32).into(),
        (TypeKind::Brain, _) => f32::from_bits((bits as u32) << 16).into(),
        _ => {
            let (exponent, mantissa) = ((bits >> 10 & 0x1f) as i32, (bits & 0x3ff) as f64);
            let size = match exponent {
                0 => mantissa * 2_f64.powi(-24),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + mantissa / 1024.0) * 2_f64.powi(exponent - 15),
            };
            if bits >> 15 & 1 == 1 { -size } else { size }
        }
    }
}

/// Returns the bits of a number that the type has. Payloads of NaNs are not kept.
fn bits_of(of: Type, value: f64) -> u64 {
    let is_nan = value.is_nan();
    match (of.kind, of.bytes) {
        (_, 8) if is_nan => 0x7fff_ffff_ffff_ffff,
        (_, 8) => value.to_bits(),
        (_, 4) if is_nan => 0x7fff_ffff,
        (_, 4) => (value as f32).to_bits().into(),
        _ if is_nan => 0x7fff,
        (TypeKind::Brain, _) => u64::from((value as f32).to_bits()) >> 16,
        _ => {
            let (sign, size) = (value.to_bits() >> 63 << 15, value.abs());
            sign | if size.is_infinite() {
                0x7c00
            } else if size < 2_f64.powi(-14) {
                (size * 2_f64.powi(24)) as u64
            } else {
                // The mantissa of a double begins with that of the half.
                let bits = size.to_bits();
                ((bits >> 52) + 15 - 1023) << 10 | (bits >> 42 & 0x3ff)
            }
        }
    }
}

/// Rounds a number to whole ones.
pub(super) fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// Returns the bits of a value that was computed exactly, or rounded to odd.
pub(super) fn encode(of: Type, value: f64, mode: FloatMode) -> u64 {
    let value = if mode.saturates && (value.is_nan() || value < 0.0) {
        0.0
    } else if mode.saturates {
        value.min(1.0)
    } else {
        value
    };
    if of.bytes == 8 || !value.is_finite() || value == 0.0 {
        return bits_of(of, value);
    }
    let Format { mantissa_bits, min_exponent, max } = format_of(of);
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(min_exponent);
    let unit = 2_f64.powi(exponent - mantissa_bits + 1);
    let rounded = whole(value / unit, mode.rounding) * unit;
    let is_towards_zero = match mode.rounding {
        Rounding::Nearest => false,
        Rounding::Zero => true,
        Rounding::Down => value > 0.0,
        Rounding::Up => value < 0.0,
    };
    let limited = match rounded.abs() > max {
        true if is_towards_zero => max.copysign(value),
        true => f64::INFINITY.copysign(value),
        // A number that becomes zero keeps its sign.
        false => rounded.copysign(value),
    };
    bits_of(of, flush(of, limited, mode))
}

/// Returns zero in place of a subnormal number of 32 bits, if the mode says so.
pub(super) fn flush(of: Type, value: f64, mode: FloatMode) -> f64 {
    let is_subnormal = of == Type::F32 && value.abs() < f64::from(f32::MIN_POSITIVE);
    if mode.flushes && is_subnormal { 0_f64.copysign(value) } else { value }
}

/// Returns a sum. If it is not exact, the last bit is set, so that it is rounded right to fewer bits later.
pub(super) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let of_b = sum - a;
    let error = (a - (sum - of_b)) + (b - of_b);
    let bits = sum.to_bits();
    if !sum.is_finite() || error == 0.0 || bits & 1 == 1 {
        return sum;
    }
    f64::from_bits(if (error > 0.0) == (sum > 0.0) { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Type = Type { kind: TypeKind::Float, bytes: 2 };
    const BRAIN: Type = Type { kind: TypeKind::Brain, bytes: 2 };

    fn rounded(of: Type, value: f64, rounding: Rounding) -> f64 {
        decode(of, encode(of, value, FloatMode { rounding, ..FloatMode::default() }))
    }

    #[test]
    fn every_half_is_its_own_value() {
        for of in [HALF, BRAIN] {
            for bits in 0..=0xffff {
                let value = decode(of, bits);
                let expected = if value.is_nan() { 0x7fff } else { bits };
                assert_eq!(encode(of, value, FloatMode::default()), expected, "{of:?} {bits:#x}");
            }
        }
    }

    #[test]
    fn numbers_between_are_rounded() {
        // Between 1 and the next half, which is 1 + 2^-10.
        let tie = 1.0 + 2_f64.powi(-11);
        assert_eq!(rounded(HALF, tie, Rounding::Nearest), 1.0);
        assert_eq!(rounded(HALF, tie + 2_f64.powi(-40), Rounding::Nearest), 1.0 + 2_f64.powi(-10));
        assert_eq!(rounded(HALF, tie, Rounding::Up), 1.0 + 2_f64.powi(-10));
        assert_eq!(rounded(HALF, -tie, Rounding::Up), -1.0);
        assert_eq!(rounded(HALF, -tie, Rounding::Down), -1.0 - 2_f64.powi(-10));
        assert_eq!(rounded(HALF, 65519.0, Rounding::Nearest), 65504.0);
        assert_eq!(rounded(HALF, 65520.0, Rounding::Nearest), f64::INFINITY);
        assert_eq!(rounded(HALF, 1e9, Rounding::Zero), 65504.0);
        assert_eq!(rounded(HALF, 2_f64.powi(-25), Rounding::Nearest), 0.0, "half of the smallest");
        assert_eq!(rounded(HALF, 3.0 * 2_f64.powi(-25), Rounding::Nearest), 2_f64.powi(-23));
        assert_eq!(rounded(BRAIN, 1.0 + 2_f64.powi(-8), Rounding::Nearest), 1.0);
        assert_eq!(rounded(Type::F32, 1.0 + 2_f64.powi(-24), Rounding::Up), 1.0 + 2_f64.powi(-23));
    }

    #[test]
    fn a_sum_that_is_not_exact_is_odd() {
        assert_eq!(sum_to_odd(1.0, 2.0), 3.0);
        let (little, above) = (2_f64.powi(-80), 1_f64.to_bits() + 1);
        assert_eq!(sum_to_odd(1.0, little).to_bits(), above);
        assert_eq!(sum_to_odd(-1.0, -little).to_bits(), above | 1 << 63);
        assert_eq!(sum_to_odd(1.0, -little).to_bits(), 1_f64.to_bits() - 1);
    }
}
