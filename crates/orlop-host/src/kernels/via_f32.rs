//! Casts between `f32` and floats of 16 and 8 bits.
//!
//! All casts from and to these types go through `f32` (see [`orlop_core::cast`]), so these eight loops
//! suffice. Conversions of single numbers branch; the ones here compute the result of each branch and select
//! one, which vectorises. They give the same bits, including NaNs.

use std::sync::LazyLock;

use half::{bf16, f16};
use orlop_core::{DType, F8E4M3, F8E5M2};

use super::dense::{DenseCast, map};

const F32_MANTISSA_BITS: u32 = f32::MANTISSA_DIGITS - 1;
const F32_BIAS: u32 = 127;
const F32_INFINITY: u32 = f32::INFINITY.to_bits();
const F32_SIGN: u32 = 1 << 31;
/// The bit that makes a NaN quiet.
const F32_QUIET: u32 = 1 << (F32_MANTISSA_BITS - 1);

const F16_SIGN: u16 = 1 << 15;
const F16_INFINITY: u16 = f16::INFINITY.to_bits();
const F16_QUIET: u16 = 1 << 9;
/// The mantissa bits that `f32` has more than `f16`.
const DROPPED: u32 = F32_MANTISSA_BITS - (f16::MANTISSA_DIGITS - 1);
/// The difference of the exponent biases of `f32` and `f16`, shifted to the exponent's position.
const REBIAS: u32 = (F32_BIAS - 15) << F32_MANTISSA_BITS;

/// Returns the loop from `dtype` to `f32`, for types that are cast through it.
pub(super) fn decoder(dtype: DType) -> Option<DenseCast> {
    match dtype {
        DType::F16 => {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if std::arch::is_x86_feature_detected!("f16c") {
                return Some(super::x86::decode_f16);
            }
            Some(decode_f16)
        }
        DType::BF16 => Some(decode_bf16),
        DType::F8E4M3 => Some(decode_f8e4m3),
        DType::F8E5M2 => Some(decode_f8e5m2),
        _ => None,
    }
}

/// Returns the loop from `f32` to `dtype`, for types that are cast through it.
pub(super) fn encoder(dtype: DType) -> Option<DenseCast> {
    match dtype {
        DType::F16 => {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if std::arch::is_x86_feature_detected!("f16c") {
                return Some(super::x86::encode_f16);
            }
            Some(encode_f16)
        }
        DType::BF16 => Some(encode_bf16),
        DType::F8E4M3 => Some(encode_f8e4m3),
        DType::F8E5M2 => Some(encode_f8e5m2),
        _ => None,
    }
}

/// Converts to `f32`, exactly.
#[inline]
fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & !F16_SIGN);
    let shifted = magnitude << DROPPED;
    let normal = shifted + REBIAS;
    let special = (normal + REBIAS) | if magnitude > u32::from(F16_INFINITY) { F32_QUIET } else { 0 };
    // With the smallest normal exponent plus one, the mantissa's bits have the weight that they have in a
    // subnormal, and the implicit leading one is subtracted again.
    let min_normal = 1 << F32_MANTISSA_BITS;
    let subnormal = (f32::from_bits(normal + min_normal) - f32::from_bits(REBIAS + min_normal)).to_bits();
    let bits = if magnitude >= u32::from(F16_INFINITY) {
        special
    } else if magnitude < 1 << (f16::MANTISSA_DIGITS - 1) {
        subnormal
    } else {
        normal
    };
    f32::from_bits(bits | (u32::from(half & F16_SIGN) << 16))
}

/// The parameters of a narrow float format.
struct NarrowFormat {
    mantissa_bits: u32,
    bias: u32,
    /// The code for values that are too large, and the largest code that rounding can give.
    overflow: u32,
}

impl NarrowFormat {
    const F16: Self = Self { mantissa_bits: 10, bias: 15, overflow: 0x7c00 };
    const F8E4M3: Self = Self { mantissa_bits: 3, bias: 7, overflow: 0x7e };
    const F8E5M2: Self = Self { mantissa_bits: 2, bias: 15, overflow: 0x7c };

    /// Returns the code nearest to the number with these bits, which is not NaN, ties to even.
    #[inline(always)]
    fn encode(&self, magnitude: u32) -> u32 {
        let dropped = F32_MANTISSA_BITS - self.mantissa_bits;
        let rebias = (F32_BIAS - self.bias) << F32_MANTISSA_BITS;
        let to_even = (magnitude >> dropped) & 1;
        // Codes are ordered like values: a carry correctly continues into the exponent.
        let normal =
            magnitude.wrapping_sub(rebias).wrapping_add((1 << (dropped - 1)) - 1 + to_even) >> dropped;
        // The last bit of this number has the weight of the smallest subnormal: the addition rounds to whole
        // multiples and leaves their number in the mantissa.
        let anchor = f32::from_bits(rebias + ((dropped + 1) << F32_MANTISSA_BITS));
        let subnormal = (f32::from_bits(magnitude) + anchor).to_bits().wrapping_sub(anchor.to_bits());
        let least_normal = rebias + (1 << F32_MANTISSA_BITS);
        if magnitude < least_normal { subnormal } else { normal.min(self.overflow) }
    }
}

/// Converts to the nearest value, ties to even.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero, or shifted down to be kept")]
fn f32_to_f16(value: f32) -> u16 {
    let (sign, magnitude) = (value.to_bits() & F32_SIGN, value.to_bits() & !F32_SIGN);
    // A NaN keeps the upper bits of its payload.
    let nan = ((magnitude >> DROPPED) & 0x3ff) | u32::from(F16_INFINITY | F16_QUIET);
    let code = if magnitude > F32_INFINITY { nan } else { NarrowFormat::F16.encode(magnitude) };
    (code | sign >> 16) as u16
}

/// Converts to the nearest eight-bit float, ties to even; NaN is 0x7f in both formats.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper bits are zero, or shifted down to be kept")]
fn f32_to_f8(value: f32, format: &NarrowFormat) -> u8 {
    let (sign, magnitude) = (value.to_bits() & F32_SIGN, value.to_bits() & !F32_SIGN);
    let code = if magnitude > F32_INFINITY { 0x7f } else { format.encode(magnitude) };
    (code | sign >> 24) as u8
}

/// Converts to the nearest value, ties to even.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "shifted down to be kept")]
fn f32_to_bf16(value: f32) -> u16 {
    const QUIET: u32 = F32_QUIET >> 16;
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | QUIET;
    (if bits & !F32_SIGN > F32_INFINITY { nan } else { rounded }) as u16
}

macro_rules! loops {
    ($($(#[$meta:meta])* $name:ident: $src:ty => $dst:ty, $convert:expr;)+) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// As [`DenseCast`].
        pub(super) unsafe fn $name(dst: *mut u8, src: *const u8, count: usize) {
            // SAFETY: the caller's obligations; any bits are a valid element of these types.
            unsafe { map::<$src, $dst>(dst, src, count, $convert) };
        }
    )+};
}

loops! {
    /// `f16` to `f32` without the F16C instructions.
    decode_f16: u16 => f32, f16_to_f32;
    /// `f32` to `f16` without the F16C instructions.
    encode_f16: f32 => u16, f32_to_f16;
    /// `bf16` to `f32`.
    decode_bf16: u16 => f32, |bits| bf16::from_bits(bits).to_f32();
    /// `f32` to `bf16`.
    encode_bf16: f32 => u16, f32_to_bf16;
    /// `f32` to [`F8E4M3`].
    encode_f8e4m3: f32 => u8, |value| f32_to_f8(value, &NarrowFormat::F8E4M3);
    /// `f32` to [`F8E5M2`].
    encode_f8e5m2: f32 => u8, |value| f32_to_f8(value, &NarrowFormat::F8E5M2);
}

/// The values of all codes of an eight-bit type.
type DecodeTable = LazyLock<[f32; 256]>;

/// [`F8E4M3`] to `f32`.
///
/// # Safety
/// As [`DenseCast`].
unsafe fn decode_f8e4m3(dst: *mut u8, src: *const u8, count: usize) {
    static TABLE: DecodeTable = LazyLock::new(|| codes().map(|code| F8E4M3::from_bits(code).to_f32()));
    let table: &[f32; 256] = &TABLE;
    // SAFETY: the caller's obligations.
    unsafe { map::<u8, f32>(dst, src, count, |code| table[usize::from(code)]) };
}

/// [`F8E5M2`] to `f32`.
///
/// # Safety
/// As [`DenseCast`].
unsafe fn decode_f8e5m2(dst: *mut u8, src: *const u8, count: usize) {
    static TABLE: DecodeTable = LazyLock::new(|| codes().map(|code| F8E5M2::from_bits(code).to_f32()));
    let table: &[f32; 256] = &TABLE;
    // SAFETY: the caller's obligations.
    unsafe { map::<u8, f32>(dst, src, count, |code| table[usize::from(code)]) };
}

fn codes() -> [u8; 256] {
    let mut next = 0_u8;
    [(); 256].map(|()| {
        let code = next;
        next = next.wrapping_add(1);
        code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every `f16`, or a few of them under Miri.
    fn halves() -> impl Iterator<Item = u16> {
        (0..=u16::MAX).step_by(if cfg!(miri) { 1201 } else { 1 })
    }

    /// Returns the floats where rounding changes: two values, the middle between them, and the neighbours of
    /// each.
    fn around(value: f32, next: f32) -> impl Iterator<Item = f32> {
        let middle = value / 2.0 + next / 2.0;
        [value, middle, next].into_iter().flat_map(|at| {
            let bits = at.to_bits();
            [bits.saturating_sub(1), bits, bits.saturating_add(1)].map(f32::from_bits)
        })
    }

    fn check_encoders(value: f32) {
        let shown = value.to_bits();
        assert_eq!(f32_to_f16(value), f16::from_f32(value).to_bits(), "{shown:#010x}");
        assert_eq!(f32_to_bf16(value), bf16::from_f32(value).to_bits(), "{shown:#010x}");
        assert_eq!(
            f32_to_f8(value, &NarrowFormat::F8E4M3),
            F8E4M3::from_f32(value).to_bits(),
            "{shown:#010x}"
        );
        assert_eq!(
            f32_to_f8(value, &NarrowFormat::F8E5M2),
            F8E5M2::from_f32(value).to_bits(),
            "{shown:#010x}"
        );
    }

    #[test]
    fn all_halves_decode_alike() {
        for bits in halves() {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#06x}");
        }
    }

    #[test]
    fn floats_around_all_narrow_ones_encode_alike() {
        for bits in halves() {
            let next = bits.wrapping_add(1);
            around(f16::from_bits(bits).to_f32(), f16::from_bits(next).to_f32()).for_each(check_encoders);
            around(bf16::from_bits(bits).to_f32(), bf16::from_bits(next).to_f32()).for_each(check_encoders);
        }
        for code in codes().into_iter().step_by(if cfg!(miri) { 17 } else { 1 }) {
            let next = code.wrapping_add(1);
            let e4m3 = [code, next].map(|code| F8E4M3::from_bits(code).to_f32());
            around(e4m3[0], e4m3[1]).for_each(check_encoders);
            let e5m2 = [code, next].map(|code| F8E5M2::from_bits(code).to_f32());
            around(e5m2[0], e5m2[1]).for_each(check_encoders);
        }
    }

    #[test]
    fn special_floats_encode_alike() {
        let tiny = [0, 1, 0x7fff, 0x8000, 0x3300_0000, 0x3300_0001, 0x387f_ffff];
        let huge =
            [0x477f_f000, 0x7f7f_ffff, F32_INFINITY, F32_INFINITY + 1, 0x7fa0_2000, 0x7fc0_1234, 0x7fff_ffff];
        for bits in tiny.into_iter().chain(huge) {
            check_encoders(f32::from_bits(bits));
            check_encoders(f32::from_bits(bits | F32_SIGN));
        }
    }
}
