//! Casts of floats to small integers.
//!
//! Rust's conversion saturates, and `cast` may convert through a wider type; compilers turn that into scalar
//! code. Here the number is clamped first, after which a plain truncation remains, which vectorises. The
//! result is the same.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are converted: the low bits are the result"
)]

use orlop_core::DType;

use super::dense::{DenseCast, map};

/// Returns the loop from `src` to `dst` if `src` is a float and `dst` a small integer.
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
            const MIN: $float = <$int>::MIN as $float;
            const MAX: $float = <$int>::MAX as $float;
            let convert = |value: $float| {
                let number = if value.is_nan() { 0.0 } else { value };
                let within = if number < MIN { MIN } else if number > MAX { MAX } else { number };
                // SAFETY: clamped to the range of the integer, which `i32` contains exactly.
                (unsafe { within.to_int_unchecked::<i32>() }) as $int
            };
            // SAFETY: the caller's obligations; any bits are a valid float.
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

/// The largest `i32` and `i64` plus one: `f32` cannot represent the largest values themselves.
const ABOVE_I32: f32 = 2_147_483_648.0;
const ABOVE_I64: f32 = 9_223_372_036_854_775_808.0;

/// Returns the integer part if it is an `i32`, else 0.
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
    // SAFETY: the caller's obligations; any bits are a valid float.
    unsafe { map::<f32, i32>(dst, src, count, convert) };
}

/// Casts to the low bits of the `i64`. An `f32` beyond the range of `i32` is a multiple of 256, so they are
/// zero; beyond `i64` the value saturates, and the largest `i64` has only ones there.
///
/// # Safety
/// As [`DenseCast`].
unsafe fn f32_to_u8(dst: *mut u8, src: *const u8, count: usize) {
    let convert = |value: f32| i32_or_zero(value) as u8 | if value >= ABOVE_I64 { u8::MAX } else { 0 };
    // SAFETY: the caller's obligations; any bits are a valid float.
    unsafe { map::<f32, u8>(dst, src, count, convert) };
}
