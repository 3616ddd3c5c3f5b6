//! Casts of elements that lie together on both sides: one loop for each pair of types.
//!
//! Seventeen types would make 272 pairs. Floats of 16 and 8 bits go by way of `f32`, which is how their casts are
//! defined, so they cost two loops each; the pairs that are left are small loops over [`orlop_core::cast`], which the
//! compiler makes vectors of where the processor has them.

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

/// Elements that are held as `f32` at a time.
const CHUNK: usize = 512;

/// The cast from one type to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    first: DenseCast,
    /// Goes on from the `f32` that `first` makes.
    then: Option<DenseCast>,
    dst_size: usize,
    src_size: usize,
}

impl Cast {
    /// From `src` to `dst`.
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

    /// Bytes of an element before and after.
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
            // SAFETY: part of the elements, to a buffer with room for them.
            unsafe { (self.first)(floats, src.wrapping_add(from * self.src_size), count) };
            // SAFETY: part of the elements, from the buffer that now holds them.
            unsafe { then(dst.wrapping_add(from * self.dst_size), floats, count) };
        }
    }
}

/// Writes to `dst` what `convert` makes of the elements at `src`.
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
    // SAFETY: obligation 1, and valid elements by the last; the type needs no alignment. Obligation 2: nobody writes
    // there while the slice lives.
    let src = unsafe { core::slice::from_raw_parts(src.cast::<Unaligned<S>>(), count) };
    // SAFETY: obligation 1; the type needs neither alignment nor an initial value. Obligation 2: no other reference.
    let dst = unsafe { core::slice::from_raw_parts_mut(dst.cast::<Unaligned<MaybeUninit<D>>>(), count) };
    for (dst, &Unaligned(element)) in dst.iter_mut().zip(src) {
        *dst = Unaligned(MaybeUninit::new(convert(element)));
    }
}

/// Runs an expression with `$T` standing for the Rust type of a dtype that is cast directly, and another for `bool`,
/// which is read differently.
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

/// The loop from `src` to `dst`, neither of which goes by way of `f32`.
fn direct(dst: DType, src: DType) -> DenseCast {
    match to_integer(dst, src) {
        Some(special) => special,
        None => for_direct!(src, S => to::<S>(dst), else from_bool(dst)),
    }
}

/// The loop from `S` to `dst`.
fn to<S: Element>(dst: DType) -> DenseCast {
    for_direct!(dst, D => pair::<S, D>, else pair::<S, bool>)
}

/// The loop from `bool` to `dst`.
fn from_bool(dst: DType) -> DenseCast {
    for_direct!(dst, D => pair_from_bool::<D>, else pair_from_bool::<bool>)
}

/// # Safety
/// As [`DenseCast`].
unsafe fn pair<S: Element, D: Element>(dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the caller's obligations; `S` is not `bool`, so any bits are an element.
    unsafe { map::<S, D>(dst, src, count, cast) };
}

/// # Safety
/// As [`DenseCast`].
unsafe fn pair_from_bool<D: Element>(dst: *mut u8, src: *const u8, count: usize) {
    // Read as `u8`: bytes of foreign origin may be neither 0 nor 1.
    // SAFETY: the caller's obligations.
    unsafe { map::<u8, D>(dst, src, count, |byte| cast(byte != 0)) };
}
