//! Transposition tiles and casts with SSE2, which every x86-64 CPU has, and with AVX2 and F16C.

use core::arch::x86_64::{
    __m128i, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence,
    _mm_storeu_si128, _mm_stream_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16, _mm_unpackhi_epi32,
    _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
};

use super::{
    moves::Bytes16,
    streamed::{LINE, Streams},
    strided::{self, UninitItem},
    transpose::{Tiles, VECTOR},
    via_f32,
};

/// Tiles of SSE2 vectors, with non-temporal stores for lines.
#[derive(Debug)]
pub(super) struct Sse2;

/// Interleaves the items of two vectors: those of the lower halves, then those of the upper ones.
trait Interleave {
    fn interleave(a: __m128i, b: __m128i) -> (__m128i, __m128i);
}

macro_rules! interleave {
    ($($item:ty, $low:ident, $high:ident;)+) => {$(
        impl Interleave for $item {
            #[inline(always)]
            fn interleave(a: __m128i, b: __m128i) -> (__m128i, __m128i) {
                // SAFETY: SSE2 is part of the target.
                let low = unsafe { $low(a, b) };
                // SAFETY: as above.
                let high = unsafe { $high(a, b) };
                (low, high)
            }
        }
    )+};
}

interleave! {
    u8, _mm_unpacklo_epi8, _mm_unpackhi_epi8;
    u16, _mm_unpacklo_epi16, _mm_unpackhi_epi16;
    u32, _mm_unpacklo_epi32, _mm_unpackhi_epi32;
    u64, _mm_unpacklo_epi64, _mm_unpackhi_epi64;
}

/// Returns the transposed tile at `src`.
///
/// # Safety
/// `N` initialised vectors can be read, `pitch` bytes apart.
#[inline(always)]
unsafe fn transposed<T: Interleave, const N: usize>(src: *const u8, pitch: usize) -> [__m128i; N] {
    let mut rows: [__m128i; N] = core::array::from_fn(|index| {
        // SAFETY: the caller's obligation; the load needs no alignment.
        unsafe { _mm_loadu_si128(src.wrapping_add(index * pitch).cast()) }
    });
    for _ in 0..N.ilog2() {
        let mut next = rows;
        for pair in 0..N / 2 {
            (next[2 * pair], next[2 * pair + 1]) = T::interleave(rows[pair], rows[pair + N / 2]);
        }
        rows = next;
    }
    rows
}

impl Interleave for Bytes16 {
    /// Never called: a vector has one item.
    fn interleave(a: __m128i, b: __m128i) -> (__m128i, __m128i) {
        (a, b)
    }
}

impl Streams for Sse2 {
    const STREAMS: bool = true;

    #[inline]
    unsafe fn line(dst: *mut u8, src: *const u8) {
        for from in (0..LINE).step_by(VECTOR) {
            // SAFETY: obligation 1: a quarter of the line.
            let part = unsafe { _mm_loadu_si128(src.wrapping_add(from).cast()) };
            // SAFETY: obligation 2, which has the alignment.
            unsafe { _mm_stream_si128(dst.wrapping_add(from).cast(), part) };
        }
    }

    #[inline]
    fn finish() {
        // Non-temporal stores are not ordered by later stores; this fence orders them before the caller's
        // next release.
        // SAFETY: SSE is part of the target.
        unsafe { _mm_sfence() };
    }
}

macro_rules! tiles {
    ($($item:ty),+) => {$(
        impl Tiles<$item> for Sse2 {
            #[inline]
            unsafe fn tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize) {
                const SIDE: usize = VECTOR / size_of::<$item>();
                // SAFETY: obligation 1.
                let columns = unsafe { transposed::<$item, SIDE>(src, src_pitch) };
                for (index, &column) in columns.iter().enumerate() {
                    // SAFETY: obligation 2; the store needs no alignment.
                    unsafe { _mm_storeu_si128(dst.wrapping_add(index * dst_pitch).cast(), column) };
                }
            }

            #[inline]
            unsafe fn line_tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize) {
                const SIDE: usize = VECTOR / size_of::<$item>();
                let parts: [[__m128i; SIDE]; LINE / VECTOR] = core::array::from_fn(|part| {
                    // SAFETY: obligation 1, for a quarter of the rows.
                    unsafe { transposed::<$item, SIDE>(src.wrapping_add(part * SIDE * src_pitch), src_pitch) }
                });
                for column in 0..SIDE {
                    let line = dst.wrapping_add(column * dst_pitch);
                    for (index, part) in parts.iter().enumerate() {
                        // SAFETY: obligation 2, and 3 for the alignment.
                        unsafe { _mm_stream_si128(line.wrapping_add(index * VECTOR).cast(), part[column]) };
                    }
                }
            }

            #[inline]
            fn prefetch(line: *const u8) {
                // SAFETY: a hint that accepts any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
            }
        }
    )+};
}

tiles!(u8, u16, u32, u64, Bytes16);

/// [`strided::gather`] with shuffles.
///
/// # Safety
/// 1. As for [`strided::gather`].
/// 2. The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn gather<T: Copy, const STEP: usize>(
    dst: &mut [UninitItem<T>],
    src: *const u8,
    stride: usize,
) {
    // SAFETY: obligation 1.
    unsafe { strided::gather::<T, STEP>(dst, src, stride) };
}

/// The elements of an `f32` vector.
const FLOATS: usize = 8;

/// `f16` to `f32`.
///
/// # Safety
/// 1. As [`DenseCast`](super::dense::DenseCast).
/// 2. The CPU has F16C, and so AVX.
#[target_feature(enable = "avx,f16c")]
pub(super) unsafe fn decode_f16(dst: *mut u8, src: *const u8, count: usize) {
    let rest = count % FLOATS;
    for from in (0..count - rest).step_by(FLOATS) {
        let (dst, src) =
            (dst.wrapping_add(from * size_of::<f32>()), src.wrapping_add(from * size_of::<u16>()));
        // SAFETY: obligation 1: a vector of elements; the load needs no alignment.
        let halves = unsafe { _mm_loadu_si128(src.cast()) };
        let floats = _mm256_cvtph_ps(halves);
        // SAFETY: as above, for the store.
        unsafe { _mm256_storeu_ps(dst.cast(), floats) };
    }
    let from = count - rest;
    let (dst, src) = (dst.wrapping_add(from * size_of::<f32>()), src.wrapping_add(from * size_of::<u16>()));
    // SAFETY: obligation 1 for the remaining elements.
    unsafe { via_f32::decode_f16(dst, src, rest) };
}

/// `f32` to `f16`.
///
/// # Safety
/// As [`decode_f16`].
#[target_feature(enable = "avx,f16c")]
pub(super) unsafe fn encode_f16(dst: *mut u8, src: *const u8, count: usize) {
    let rest = count % FLOATS;
    for from in (0..count - rest).step_by(FLOATS) {
        let (dst, src) =
            (dst.wrapping_add(from * size_of::<u16>()), src.wrapping_add(from * size_of::<f32>()));
        // SAFETY: obligation 1: a vector of elements; the load needs no alignment.
        let floats = unsafe { _mm256_loadu_ps(src.cast()) };
        let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(floats);
        // SAFETY: as above, for the store.
        unsafe { _mm_storeu_si128(dst.cast(), halves) };
    }
    let from = count - rest;
    let (dst, src) = (dst.wrapping_add(from * size_of::<u16>()), src.wrapping_add(from * size_of::<f32>()));
    // SAFETY: obligation 1 for the remaining elements.
    unsafe { via_f32::encode_f16(dst, src, rest) };
}
