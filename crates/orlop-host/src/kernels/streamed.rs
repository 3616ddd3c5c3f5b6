//! Rows written with non-temporal stores.
//!
//! An ordinary store reads the cache line first. For a destination that is larger than the cache that is a
//! third of the traffic of a copy, and it replaces lines of the source. So a part of a row is made in a small
//! buffer, which stays in the cache, and written line by line.

use core::mem::MaybeUninit;

use super::strided::{RowKernel, UninitItem};

/// The bytes of a cache line.
pub(super) const LINE: usize = 64;

/// The bytes of the buffer: well below the smallest first-level cache.
const BUFFER: usize = 4096;

/// The bytes of a row below which the partial lines at its ends outweigh the whole ones.
pub(super) const MIN_ROW: usize = 8 * LINE;

/// The kind of stores to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// Ordinary stores: the output is likely to be read soon.
    Cached,
    /// Non-temporal stores: the destination is larger than the cache, and its lines need not be read before
    /// they are overwritten.
    Streaming,
}

impl Stores {
    /// The size of a destination from which stores are non-temporal. Below it, some of the output may still
    /// be in the cache when it is read.
    const STREAMED_BYTES: usize = 16 << 20;

    /// Selects the stores for a destination of `bytes` bytes.
    pub(super) const fn for_bytes(bytes: usize) -> Self {
        if bytes >= Self::STREAMED_BYTES { Self::Streaming } else { Self::Cached }
    }
}

/// Non-temporal stores, or what stands in for them.
pub(super) trait Streams {
    /// Whether they are non-temporal.
    const STREAMS: bool;

    /// Copies a line.
    ///
    /// # Safety
    /// 1. The [`LINE`] bytes at `src` can be read, initialised.
    /// 2. Those at `dst`, a multiple of [`LINE`], can be written; they do not overlap.
    unsafe fn line(dst: *mut u8, src: *const u8);

    /// Orders non-temporal stores before later stores.
    fn finish();
}

/// Memory for a part of a row.
#[repr(align(64))]
struct Buffer([MaybeUninit<u8>; BUFFER]);

/// Fills `dst` by `row`, with non-temporal stores for its whole lines. They are unordered until
/// [`Streams::finish`].
///
/// # Safety
/// 1. As [`RowKernel`].
/// 2. The items are initialised, and `T` has a power of two up to 16 of bytes.
pub(super) unsafe fn fill_row<T: Copy, K: Streams>(
    row: RowKernel<T>,
    dst: &mut [UninitItem<T>],
    src: *const u8,
    stride: usize,
) {
    let size = size_of::<T>();
    let to_line = dst.as_ptr().addr().wrapping_neg() % LINE;
    if !to_line.is_multiple_of(size) || dst.len() * size < to_line {
        // SAFETY: obligation 1.
        return unsafe { row(dst, src, stride) };
    }
    let (head, rest) = dst.split_at_mut(to_line / size);
    // SAFETY: obligation 1, for the items before the first whole line.
    unsafe { row(head, src, stride) };
    let mut from = head.len();
    let mut buffer = Buffer([MaybeUninit::uninit(); BUFFER]);
    let mut parts = rest.chunks_exact_mut(LINE / size);
    loop {
        let lines = parts.len().min(BUFFER / LINE);
        let items = lines * (LINE / size);
        if lines == 0 {
            break;
        }
        // SAFETY: the buffer has the bytes of `items` items, which need no alignment, and any bytes are
        // valid.
        let made = unsafe { core::slice::from_raw_parts_mut(buffer.0.as_mut_ptr().cast(), items) };
        // SAFETY: obligation 1, for these items.
        unsafe { row(made, src.wrapping_add(from * stride), stride) };
        for (index, line) in parts.by_ref().take(lines).enumerate() {
            let made = buffer.0.as_ptr().cast::<u8>().wrapping_add(index * LINE);
            // SAFETY: `row` has filled this line of the buffer with initialised items; `line` has as many
            // bytes and starts at a multiple of a line, since `rest` does.
            unsafe { K::line(line.as_mut_ptr().cast(), made) };
        }
        from += items;
    }
    // SAFETY: obligation 1, for the items after the last whole line.
    unsafe { row(parts.into_remainder(), src.wrapping_add(from * stride), stride) };
}

#[cfg(test)]
mod tests {
    use crate::kernels::copy::Native;
    use crate::kernels::moves::Bytes16;
    use crate::kernels::nest::LoopDim;
    use crate::kernels::portable::Portable;
    use crate::kernels::strided;

    use super::*;

    /// Copies two rows of `items` items, `gap` bytes apart in the source, to `lead` bytes after a line.
    fn check<T: Copy, K: Streams>(items: usize, gap: usize, lead: usize) {
        let size = size_of::<T>();
        let (pitch, stride) = (items * size + 5, size + gap);
        let src: Vec<u8> = (0..2 * items * stride).map(|at| (at * 167 + at / 251).to_le_bytes()[0]).collect();
        let mut dst = vec![0xee; LINE + lead + 2 * pitch];
        let start = dst.as_ptr().addr().wrapping_neg() % LINE + lead;
        let mut expected = dst.clone();
        for row in 0..2 {
            for item in 0..items {
                let from = &src[(row * items + item) * stride..][..size];
                expected[start + row * pitch + item * size..][..size].copy_from_slice(from);
            }
        }
        let outer = LoopDim { size: 2, dst: pitch, src: items * stride };
        let inner = LoopDim { size: items, dst: size, src: stride };
        let to = dst.as_mut_ptr().wrapping_add(start);
        // SAFETY: the loops cover all of `src`, and of `dst` two rows from `start` on.
        unsafe { strided::dense_plane::<T, K>(to, src.as_ptr(), outer, inner, Stores::Streaming) };
        assert!(dst == expected, "{items} items of {size} bytes, {gap} apart, {lead} after a line");
    }

    fn check_item<T: Copy>() {
        let size = size_of::<T>();
        for items in [1, MIN_ROW / size, MIN_ROW / size + 3, 2 * BUFFER / size, 3 * BUFFER / size - 1] {
            for gap in [size, 3 * size, 4 * size, 1] {
                for lead in [0, size, LINE - size, 3] {
                    check::<T, Native>(items, gap, lead);
                }
                check::<T, Portable>(items, gap, 0);
            }
            if cfg!(miri) {
                break;
            }
        }
    }

    #[test]
    fn rows_of_every_item_size() {
        check_item::<u8>();
        check_item::<u16>();
        check_item::<u32>();
        check_item::<u64>();
        check_item::<Bytes16>();
    }
}
