//! Transposition of tiles without intrinsics. Where intrinsics exist, only the tests use it.

use core::mem::MaybeUninit;

use super::{
    streamed::{LINE, Streams},
    transpose::{Tiles, VECTOR},
};

/// Tiles without intrinsics, for any CPU.
#[derive(Debug)]
pub(super) struct Portable;

impl Streams for Portable {
    const STREAMS: bool = false;

    unsafe fn line(dst: *mut u8, src: *const u8) {
        // SAFETY: obligations 1 and 2.
        unsafe { dst.copy_from_nonoverlapping(src, LINE) };
    }

    fn finish() {}
}

/// `N` contiguous items.
type TileRow<T, const N: usize> = [MaybeUninit<T>; N];

/// # Safety
/// As [`Tiles::tile`], for `N` rows and columns.
#[inline(always)]
unsafe fn portable_tile<T: Copy, const N: usize>(
    dst: *mut u8,
    dst_pitch: usize,
    src: *const u8,
    src_pitch: usize,
) {
    let mut rows = [[MaybeUninit::<T>::uninit(); N]; N];
    for (index, row) in rows.iter_mut().enumerate() {
        // SAFETY: obligation 1.
        *row = unsafe { src.wrapping_add(index * src_pitch).cast::<TileRow<T, N>>().read_unaligned() };
    }
    let columns: [TileRow<T, N>; N] =
        core::array::from_fn(|column| core::array::from_fn(|row| rows[row][column]));
    for (index, column) in columns.into_iter().enumerate() {
        // SAFETY: obligation 2.
        unsafe { dst.wrapping_add(index * dst_pitch).cast::<TileRow<T, N>>().write_unaligned(column) };
    }
}

macro_rules! portable_tiles {
    ($($item:ty),+) => {$(
        impl Tiles<$item> for Portable {
            #[inline]
            unsafe fn tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize) {
                // SAFETY: the caller's obligations, for one vector of items.
                unsafe {
                    portable_tile::<$item, { VECTOR / size_of::<$item>() }>(dst, dst_pitch, src, src_pitch);
                };
            }

            #[inline]
            unsafe fn line_tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize) {
                for part in 0..LINE / VECTOR {
                    let rows = part * (VECTOR / size_of::<$item>());
                    let (dst, src) = (dst.wrapping_add(part * VECTOR), src.wrapping_add(rows * src_pitch));
                    // SAFETY: the caller's obligations, for a quarter of the rows.
                    unsafe { <Self as Tiles<$item>>::tile(dst, dst_pitch, src, src_pitch) };
                }
            }

            fn prefetch(_: *const u8) {}
        }
    )+};
}

portable_tiles!(u8, u16, u32, u64, super::moves::Bytes16);
