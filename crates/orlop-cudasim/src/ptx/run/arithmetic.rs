//! What instructions compute. Values are the low bytes of 64 bits.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the instructions of a processor: the results are what these conversions give"
)]

use super::floats::{decode, encode, flush, sum_to_odd, whole};
use crate::ptx::instruction::{Binary, BitFunction, Comparison, Unary};
use crate::ptx::types::{FloatMode, Rounding, Type, TypeKind};

/// Returns the low bytes of a value.
pub(super) fn cut(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

/// Returns a value of a type with 64 bits: with its sign, or zeros.
pub(super) fn extend(value: u64, of: Type) -> u64 {
    let unused = 64 - 8 * of.bytes as u32;
    if of.is_signed() { ((value << unused) as i64 >> unused) as u64 } else { cut(value, of.bytes) }
}

/// Computes each half of a pair.
fn in_halves(half: Type, operands: [u64; 3], compute: impl Fn(u64, u64, u64) -> u64) -> u64 {
    let bits = 8 * half.bytes as u32;
    let [low, high] = [0, bits].map(|at| {
        let [a, b, c] = operands.map(|operand| cut(operand >> at, half.bytes));
        compute(a, b, c)
    });
    low | high << bits
}

pub(super) fn binary(what: Binary, of: Type, mode: FloatMode, a: u64, b: u64) -> u64 {
    let is_bitwise = matches!(what, Binary::And | Binary::Or | Binary::Xor);
    if let Some(half) = of.half().filter(|_| !is_bitwise) {
        return in_halves(half, [a, b, 0], |a, b, _| binary(what, half, mode, a, b));
    }
    if of.is_float() && !is_bitwise {
        return binary_of_floats(what, of, mode, a, b);
    }
    let bits = 8 * of.bytes as u64;
    let (a, wide) = (extend(a, of), extend(b, of));
    let signed = (a as i64, wide as i64);
    match what {
        Binary::Add => a.wrapping_add(wide),
        Binary::Sub => a.wrapping_sub(wide),
        Binary::Mul => a.wrapping_mul(wide),
        Binary::MulHigh if of.is_signed() => ((i128::from(signed.0) * i128::from(signed.1)) >> bits) as u64,
        Binary::MulHigh => ((u128::from(a) * u128::from(wide)) >> bits) as u64,
        // Division by zero gives an unspecified value.
        Binary::Div if wide == 0 => u64::MAX,
        Binary::Div if of.is_signed() => signed.0.wrapping_div(signed.1) as u64,
        Binary::Div => a / wide,
        Binary::Rem if wide == 0 => u64::MAX,
        Binary::Rem if of.is_signed() => signed.0.wrapping_rem(signed.1) as u64,
        Binary::Rem => a % wide,
        Binary::Min if of.is_signed() => signed.0.min(signed.1) as u64,
        Binary::Min => a.min(wide),
        Binary::Max if of.is_signed() => signed.0.max(signed.1) as u64,
        Binary::Max => a.max(wide),
        Binary::And => a & wide,
        Binary::Or => a | wide,
        Binary::Xor => a ^ wide,
        // Longer distances than the register count as its size.
        Binary::Shl => a.checked_shl(cut(b, 4).min(bits) as u32).unwrap_or(0),
        Binary::Shr if of.is_signed() => (a as i64 >> cut(b, 4).min(63)) as u64,
        Binary::Shr => a.checked_shr(cut(b, 4).min(bits) as u32).unwrap_or(0),
    }
}

fn binary_of_floats(what: Binary, of: Type, mode: FloatMode, a: u64, b: u64) -> u64 {
    let [a, b] = [a, b].map(|bits| flush(of, decode(of, bits), mode));
    let is_double = of.bytes == 8;
    encode(
        of,
        match what {
            // Products of shorter types are exact.
            Binary::Mul | Binary::MulHigh => a * b,
            Binary::Add if is_double => a + b,
            Binary::Add => sum_to_odd(a, b),
            Binary::Sub if is_double => a - b,
            Binary::Sub => sum_to_odd(a, -b),
            Binary::Min | Binary::Max if a.is_nan() || b.is_nan() => {
                match mode.keeps_nan || a.is_nan() && b.is_nan() {
                    true => f64::NAN,
                    false if a.is_nan() => b,
                    false => a,
                }
            }
            // Negative zero is less than zero.
            Binary::Min => {
                if a < b || a == b && a.is_sign_negative() {
                    a
                } else {
                    b
                }
            }
            Binary::Max => {
                if a > b || a == b && a.is_sign_positive() {
                    a
                } else {
                    b
                }
            }
            // A double has more than twice the bits of a single: its quotient is rounded right to it.
            _ => a / b,
        },
        mode,
    )
}

pub(super) fn unary(what: Unary, of: Type, mode: FloatMode, a: u64) -> u64 {
    let sign = 1 << (8 * of.bytes - 1);
    if let Some(half) = of.half() {
        return in_halves(half, [a, 0, 0], |a, _, _| unary(what, half, mode, a));
    }
    if of.is_float() {
        let value = flush(of, decode(of, a), mode);
        return match what {
            // The sign of a NaN too.
            Unary::Neg if !mode.flushes => a ^ sign,
            Unary::Abs if !mode.flushes => a & !sign,
            what => encode(of, function(what, value), mode),
        };
    }
    let low = cut(a, of.bytes);
    match (what, of.kind) {
        (Unary::Not, TypeKind::Predicate) => u64::from(a == 0),
        (Unary::Not, _) => !a,
        (Unary::Abs, _) => (extend(a, of) as i64).unsigned_abs(),
        (Unary::CountOnes, _) => low.count_ones().into(),
        (Unary::LeadingZeros, _) => u64::from(low.leading_zeros()) - (64 - 8 * of.bytes as u64),
        (Unary::Reverse, _) => low.reverse_bits() >> (64 - 8 * of.bytes),
        _ => a.wrapping_neg(),
    }
}

fn function(what: Unary, value: f64) -> f64 {
    match what {
        Unary::Abs => value.abs(),
        Unary::Sqrt => value.sqrt(),
        Unary::Reciprocal => value.recip(),
        Unary::ReciprocalSqrt => value.sqrt().recip(),
        Unary::Exp2 => value.exp2(),
        Unary::Log2 => value.log2(),
        _ => -value,
    }
}

pub(super) fn mul_wide(of: Type, a: u64, b: u64, c: u64) -> u64 {
    extend(a, of).wrapping_mul(extend(b, of)).wrapping_add(c)
}

pub(super) fn mul_add(of: Type, mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
    if let Some(half) = of.half() {
        return in_halves(half, [a, b, c], |a, b, c| mul_add(half, mode, a, b, c));
    }
    if !of.is_float() {
        return extend(a, of).wrapping_mul(extend(b, of)).wrapping_add(extend(c, of));
    }
    let [a, b, c] = [a, b, c].map(|bits| flush(of, decode(of, bits), mode));
    let value = if of.bytes == 8 { a.mul_add(b, c) } else { sum_to_odd(a * b, c) };
    encode(of, value, mode)
}

pub(super) fn bits(what: BitFunction, of: Type, operands: [u64; 4]) -> u64 {
    let [a, b, c, d] = operands;
    let size = 8 * of.bytes as u64;
    let field = |position: u64, length: u64| {
        let (position, length) = (position & 0xff, length & 0xff);
        let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
        (position, cut(ones.checked_shl(position as u32).unwrap_or(0), of.bytes))
    };
    match what {
        BitFunction::Lookup(table) => (0..8).filter(|row| table >> row & 1 == 1).fold(0, |found, row| {
            let bit = |value: u64, at: u32| if row >> at & 1 == 1 { value } else { !value };
            found | bit(a, 2) & bit(b, 1) & bit(c, 0)
        }),
        BitFunction::Funnel { is_left, wraps } => {
            let (pair, distance) = (cut(b, 4) << 32 | cut(a, 4), cut(c, 4));
            let distance = if wraps { distance & 31 } else { distance.min(32) };
            if is_left { pair << distance >> 32 } else { pair >> distance }
        }
        BitFunction::Permute => {
            let bytes = cut(a, 4) | b << 32;
            (0..4).fold(0, |found, at| {
                let selector = c >> (4 * at) & 0xf;
                let byte = bytes >> (8 * (selector & 7)) & 0xff;
                let byte = if selector & 8 == 0 { byte } else { 0xff * (byte >> 7) };
                found | byte << (8 * at)
            })
        }
        BitFunction::Extract => {
            let ((position, mask), a) = (field(b, c), extend(a, of));
            let found = (cut(a, of.bytes) & mask).checked_shr(position as u32).unwrap_or(0);
            let last = (position + (c & 0xff)).saturating_sub(1).min(size - 1);
            let is_negative = of.is_signed() && c & 0xff != 0 && a >> last & 1 == 1;
            let kept = (last + 1).saturating_sub(position);
            if is_negative && kept < 64 { found | u64::MAX << kept } else { found }
        }
        BitFunction::Insert => {
            let (position, mask) = field(c, d);
            b & !mask | a.checked_shl(position as u32).unwrap_or(0) & mask
        }
    }
}

pub(super) fn compare(what: Comparison, nan: bool, of: Type, mode: FloatMode, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = if of.is_float() {
        let [a, b] = [a, b].map(|bits| flush(of, decode(of, bits), mode));
        a.partial_cmp(&b)
    } else {
        let (a, b) = (extend(a, of), extend(b, of));
        Some(if of.is_signed() { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) })
    };
    let Some(order) = order else { return nan || what == Comparison::Nan };
    match what {
        Comparison::Eq => order == Equal,
        Comparison::Ne => order != Equal,
        Comparison::Lt => order == Less,
        Comparison::Le => order != Greater,
        Comparison::Gt => order == Greater,
        Comparison::Ge => order != Less,
        Comparison::Nan => false,
        Comparison::Num => true,
    }
}

pub(super) fn convert(to: Type, from: Type, mode: FloatMode, value: u64) -> u64 {
    match (to.is_float(), from.is_float()) {
        (false, false) => extend(extend(value, from), to),
        (true, false) => {
            let value = extend(value, from);
            // To doubles and singles integers of 64 bits are rounded once.
            match (to.bytes, from.is_signed()) {
                (4, true) if from.bytes == 8 => (value as i64 as f32).to_bits().into(),
                (4, false) if from.bytes == 8 => (value as f32).to_bits().into(),
                (_, true) => encode(to, value as i64 as f64, mode),
                (_, false) => encode(to, value as f64, mode),
            }
        }
        (true, true) => {
            let value = flush(from, decode(from, value), mode);
            encode(to, if mode.is_whole { whole(value, mode.rounding) } else { value }, mode)
        }
        (false, true) => float_to_integer(to, from, mode.rounding, value),
    }
}

/// Rounds within the range of the integer. NaN is zero if neither side has 64 bits, else the highest bit
/// alone.
fn float_to_integer(to: Type, from: Type, rounding: Rounding, value: u64) -> u64 {
    let float = decode(from, value);
    if float.is_nan() {
        return if from.bytes == 8 || to.bytes == 8 { extend(1 << (8 * to.bytes - 1), to) } else { 0 };
    }
    let (float, unused) = (whole(float, rounding), 64 - 8 * to.bytes as u32);
    if to.is_signed() {
        (float as i64).clamp(i64::MIN >> unused, i64::MAX >> unused) as u64
    } else {
        (float as u64).min(u64::MAX >> unused)
    }
}
