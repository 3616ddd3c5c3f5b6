//! What instructions compute. Values are the low bytes of 64 bits.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the instructions of a processor: the results are what these conversions give"
)]

use super::instruction::{Binary, Comparison, Type, TypeKind, Unary};

/// The NaNs of arithmetic and conversions: payloads are not kept.
const NAN_32: u64 = 0x7fff_ffff;
const NAN_64: u64 = 0x7fff_ffff_ffff_ffff;

/// Returns the low bytes of a value.
pub(super) fn cut(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

/// Returns a value of a type with 64 bits: with its sign, or zeros.
pub(super) fn extend(value: u64, of: Type) -> u64 {
    let unused = 64 - 8 * of.bytes as u32;
    if of.is_signed() { ((value << unused) as i64 >> unused) as u64 } else { cut(value, of.bytes) }
}

fn single(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn double(value: u64) -> f64 {
    f64::from_bits(value)
}

fn single_bits(value: f32) -> u64 {
    if value.is_nan() { NAN_32 } else { value.to_bits().into() }
}

fn double_bits(value: f64) -> u64 {
    if value.is_nan() { NAN_64 } else { value.to_bits() }
}

pub(super) fn binary(what: Binary, of: Type, a: u64, b: u64) -> u64 {
    let bits = 8 * of.bytes as u64;
    if of.is_float() {
        let compute = |a: f64, b: f64| match what {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Div => a / b,
            _ => a * b,
        };
        if of.bytes == 8 {
            return double_bits(compute(double(a), double(b)));
        }
        let (a, b) = (single(a), single(b));
        return single_bits(match what {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Div => a / b,
            _ => a * b,
        });
    }
    let (a, wide) = (extend(a, of), extend(b, of));
    let signed = (a as i64, wide as i64);
    match what {
        Binary::Add => a.wrapping_add(wide),
        Binary::Sub => a.wrapping_sub(wide),
        Binary::Mul => a.wrapping_mul(wide),
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

pub(super) fn unary(what: Unary, of: Type, a: u64) -> u64 {
    let sign = 1 << (8 * of.bytes - 1);
    match (what, of.kind) {
        (Unary::Not, TypeKind::Predicate) => u64::from(a == 0),
        (Unary::Not, _) => !a,
        // The sign of a NaN too.
        (Unary::Neg, TypeKind::Float) => a ^ sign,
        (Unary::Abs, TypeKind::Float) => a & !sign,
        (Unary::Neg, _) => a.wrapping_neg(),
        (Unary::Abs, _) => (extend(a, of) as i64).unsigned_abs(),
    }
}

pub(super) fn mul_wide(of: Type, a: u64, b: u64) -> u64 {
    extend(a, of).wrapping_mul(extend(b, of))
}

pub(super) fn mul_add(of: Type, a: u64, b: u64, c: u64) -> u64 {
    match (of.is_float(), of.bytes) {
        (true, 8) => return double_bits(double(a).mul_add(double(b), double(c))),
        (true, _) => return single_bits(single(a).mul_add(single(b), single(c))),
        (false, _) => {}
    }
    extend(a, of).wrapping_mul(extend(b, of)).wrapping_add(extend(c, of))
}

pub(super) fn compare(what: Comparison, of: Type, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = if of.is_float() {
        let wide = |value| if of.bytes == 8 { double(value) } else { single(value).into() };
        wide(a).partial_cmp(&wide(b))
    } else {
        let (a, b) = (extend(a, of), extend(b, of));
        Some(if of.is_signed() { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) })
    };
    match what {
        Comparison::Eq => order == Some(Equal),
        Comparison::Ne => matches!(order, Some(Less | Greater)),
        Comparison::Lt => order == Some(Less),
        Comparison::Le => matches!(order, Some(Less | Equal)),
        Comparison::Gt => order == Some(Greater),
        Comparison::Ge => matches!(order, Some(Greater | Equal)),
        Comparison::Nan => order.is_none(),
        Comparison::Num => order.is_some(),
    }
}

pub(super) fn convert(to: Type, from: Type, value: u64) -> u64 {
    match (to.is_float(), from.is_float()) {
        (false, false) => extend(extend(value, from), to),
        (true, false) => {
            let value = extend(value, from);
            match (to.bytes, from.is_signed()) {
                (4, true) => single_bits(value as i64 as f32),
                (4, false) => single_bits(value as f32),
                (_, true) => double_bits(value as i64 as f64),
                (_, false) => double_bits(value as f64),
            }
        }
        (true, true) if to.bytes == 4 => single_bits(double(value) as f32),
        (true, true) => double_bits(single(value).into()),
        (false, true) => float_to_integer(to, from, value),
    }
}

/// Rounds towards zero, within the range of the integer. NaN is zero if neither side has 64 bits, else the
/// highest bit alone.
fn float_to_integer(to: Type, from: Type, value: u64) -> u64 {
    let float = if from.bytes == 8 { double(value) } else { single(value).into() };
    if float.is_nan() {
        return if from.bytes == 8 || to.bytes == 8 { extend(1 << (8 * to.bytes - 1), to) } else { 0 };
    }
    let unused = 64 - 8 * to.bytes as u32;
    if to.is_signed() {
        (float as i64).clamp(i64::MIN >> unused, i64::MAX >> unused) as u64
    } else {
        (float as u64).min(u64::MAX >> unused)
    }
}
