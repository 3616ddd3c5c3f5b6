//! From floats to small integers.
//!
//! Rust's conversion saturates, and `cast` may go by way of a wider type; compilers make scalar code of that. Here the
//! number is brought into range first, after which a plain truncation is left, for which there are vectors. The outcome
//! is the same.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "converting values: the low bits are what is asked for"
)]

use orlop_core::DType;

use super::dense::{DenseCast, map};

/// The loop from `src` to `dst` where it is a float and that a small integer.
pub(super) fn to_integer(dst: DType, src: DType) -> Option<DenseCast> {
    Some(match (src, dst) {
        (DType::F32, DType::U8) => f32_to_u8,
        (DType::F32, DType::I8) => f32_to_i8,
        (DType::F32, DType::I16) => f32_to_i16,
        (DType::F32, DType::U16) => f32_to_u16,
        (DType::F32, DType::I32) => f32_to_i32,
        (DType::F64, DType::I8) => f64_to_i8,
        (DType::F64, DType::I16) => f64_to_i16,
        (DType::F64, DType::U16) => f64_to_u16,
        (DType::F64, DType::I32) => f64_to_i32,
        _ => return None,
    })
}

macro_rules! clamped {
    ($($name:ident: $float:ty => $int:ty;)+) => {$(
        /// # Safety
        /// As [`DenseCast`].
        unsafe fn $name(dst: *mut u8, src: *const u8, count: usize) {
            const LEAST: $float = <$int>::MIN as $float;
            const MOST: $float = <$int>::MAX as $float;
            let convert = |value: $float| {
                let number = if value.is_nan() { 0.0 } else { value };
                let within = if number < LEAST { LEAST } else if number > MOST { MOST } else { number };
                // SAFETY: a number between two `i32`s, which these bounds are exactly.
                (unsafe { within.to_int_unchecked::<i32>() }) as $int
            };
            // SAFETY: the caller's obligations; any bits are a float.
            unsafe { map::<$float, $int>(dst, src, count, convert) };
        }
    )+};
}

clamped! {
    f32_to_i8: f32 => i8;
    f32_to_i16: f32 => i16;
    f32_to_u16: f32 => u16;
    f64_to_i8: f64 => i8;
    f64_to_i16: f64 => i16;
    f64_to_u16: f64 => u16;
    f64_to_i32: f64 => i32;
}

/// One above the largest `i32`, and its like for `i64`: `f32` has no numbers for those themselves.
const ABOVE_I32: f32 = 2_147_483_648.0;
const ABOVE_I64: f32 = 9_223_372_036_854_775_808.0;

/// The integer part where that is an `i32`, else 0.
#[inline(always)]
fn i32_or_zero(value: f32) -> i32 {
    let within = if (-ABOVE_I32..ABOVE_I32).contains(&value) { value } else { 0.0 };
    // SAFETY: not NaN, and its integer part is an `i32`.
    unsafe { within.to_int_unchecked() }
}

/// # Safety
/// As [`DenseCast`].
unsafe fn f32_to_i32(dst: *mut u8, src: *const u8, count: usize) {
    let convert = |value: f32| {
        let above = if value >= ABOVE_I32 { i32::MAX } else { 0 };
        let below = if value < -ABOVE_I32 { i32::MIN } else { 0 };
        i32_or_zero(value) | above | below
    };
    // SAFETY: the caller's obligations; any bits are a float.
    unsafe { map::<f32, i32>(dst, src, count, convert) };
}

/// The low bits of the `i64`. An `f32` beyond `i32` is a multiple of 256, so they are zero; beyond `i64` the nearest
/// one counts, of which the largest has nothing but ones there.
///
/// # Safety
/// As [`DenseCast`].
unsafe fn f32_to_u8(dst: *mut u8, src: *const u8, count: usize) {
    let convert = |value: f32| i32_or_zero(value) as u8 | if value >= ABOVE_I64 { u8::MAX } else { 0 };
    // SAFETY: the caller's obligations; any bits are a float.
    unsafe { map::<f32, u8>(dst, src, count, convert) };
}
