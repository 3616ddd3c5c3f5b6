//! Casts of contiguous elements: one loop for each pair of types.
//!
//! Seventeen types would give 272 pairs. Casts of floats of 16 and 8 bits are defined through `f32`, so they
//! take two loops; the remaining pairs are small loops over [`orlop_core::cast`], which the compiler
//! vectorises where it can.

use core::mem::MaybeUninit;

use orlop_core::{Complex, DType, Element, cast};

use super::{
    moves::Unaligned,
    to_integers::to_integer,
    via_f32::{decoder, encoder},
};

/// Casts `count` elements from `src` to `dst`.
///
/// The obligations of its caller are:
/// 1. `count` elements can be read at `src`, initialised, and written at `dst`; neither needs alignment.
/// 2. The elements do not overlap.
pub(super) type DenseCast = unsafe fn(dst: *mut u8, src: *const u8, count: usize);

/// The number of elements in the intermediate `f32` buffer.
const CHUNK: usize = 512;

/// The cast from one type to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    first: DenseCast,
    /// Continues from the `f32` output of `first`.
    then: Option<DenseCast>,
    dst_size: usize,
    src_size: usize,
}

impl Cast {
    /// Creates the cast from `src` to `dst`.
    pub(super) fn new(dst: DType, src: DType) -> Self {
        let (first, then) = match (decoder(src), encoder(dst)) {
            (Some(decode), Some(encode)) => (decode, Some(encode)),
            (Some(decode), None) if dst == DType::F32 => (decode, None),
            (Some(decode), None) => (decode, Some(direct(dst, DType::F32))),
            (None, Some(encode)) if src == DType::F32 => (encode, None),
            (None, Some(encode)) => (direct(DType::F32, src), Some(encode)),
            (None, None) => (direct(dst, src), None),
        };
        Self { first, then, dst_size: dst.size(), src_size: src.size() }
    }

    /// Returns the bytes of an element of the destination and the source.
    pub(super) const fn sizes(&self) -> (usize, usize) {
        (self.src_size, self.dst_size)
    }

    /// Casts `count` elements from `src` to `dst`.
    ///
    /// # Safety
    /// As [`DenseCast`].
    pub(super) unsafe fn run(&self, dst: *mut u8, src: *const u8, count: usize) {
        let Some(then) = self.then else {
            // SAFETY: the caller's obligations.
            return unsafe { (self.first)(dst, src, count) };
        };
        let mut floats = [MaybeUninit::<f32>::uninit(); CHUNK];
        let floats = floats.as_mut_ptr().cast::<u8>();
        for from in (0..count).step_by(CHUNK) {
            let count = CHUNK.min(count - from);
            // SAFETY: part of the elements, to a buffer that is large enough.
            unsafe { (self.first)(floats, src.wrapping_add(from * self.src_size), count) };
            // SAFETY: part of the elements, from the buffer just filled.
            unsafe { then(dst.wrapping_add(from * self.dst_size), floats, count) };
        }
    }
}

/// Applies `convert` to the elements at `src` and writes the results to `dst`.
///
/// # Safety
/// As [`DenseCast`], and the elements at `src` are valid `S`s.
#[inline(always)]
pub(super) unsafe fn map<S: Copy, D: Copy>(
    dst: *mut u8,
    src: *const u8,
    count: usize,
    convert: impl Fn(S) -> D,
) {
    // SAFETY: obligation 1, and the elements are valid by the last one; the type needs no alignment.
    // Obligation 2: nothing writes there while the slice exists.
    let src = unsafe { core::slice::from_raw_parts(src.cast::<Unaligned<S>>(), count) };
    // SAFETY: obligation 1; the type needs neither alignment nor an initial value. Obligation 2: no other
    // reference.
    let dst = unsafe { core::slice::from_raw_parts_mut(dst.cast::<Unaligned<MaybeUninit<D>>>(), count) };
    for (dst, &Unaligned(element)) in dst.iter_mut().zip(src) {
        *dst = Unaligned(MaybeUninit::new(convert(element)));
    }
}

/// Evaluates an expression with `$T` bound to the Rust type of a dtype that is cast directly, and another
/// expression for `bool`, which is read differently.
macro_rules! for_direct {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        for_direct!(@match $dtype, $T, $body, $other, [
            U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64,
            F32 = f32, F64 = f64, C64 = Complex<f32>, C128 = Complex<f64>,
        ])
    };
    (@match $dtype:expr, $T:ident, $body:expr, $other:expr, [$($variant:ident = $rust:ty,)+]) => {
        match $dtype {
            $(DType::$variant => {
                type $T = $rust;
                $body
            })+
            DType::Bool | DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => $other,
        }
    };
}

/// Returns the loop from `src` to `dst`, neither of which is cast through `f32`.
fn direct(dst: DType, src: DType) -> DenseCast {
    match to_integer(dst, src) {
        Some(special) => special,
        None => for_direct!(src, S => to::<S>(dst), else from_bool(dst)),
    }
}

/// Returns the loop from `S` to `dst`.
fn to<S: Element>(dst: DType) -> DenseCast {
    for_direct!(dst, D => pair::<S, D>, else pair::<S, bool>)
}

/// Returns the loop from `bool` to `dst`.
fn from_bool(dst: DType) -> DenseCast {
    for_direct!(dst, D => pair_from_bool::<D>, else pair_from_bool::<bool>)
}

/// # Safety
/// As [`DenseCast`].
unsafe fn pair<S: Element, D: Element>(dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the caller's obligations; `S` is not `bool`, so any bits are a valid element.
    unsafe { map::<S, D>(dst, src, count, cast) };
}

/// # Safety
/// As [`DenseCast`].
unsafe fn pair_from_bool<D: Element>(dst: *mut u8, src: *const u8, count: usize) {
    // Read as `u8`: bytes of foreign origin may be neither 0 nor 1.
    // SAFETY: the caller's obligations.
    unsafe { map::<u8, D>(dst, src, count, |byte| cast(byte != 0)) };
}
