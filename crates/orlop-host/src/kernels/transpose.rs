//! Transposition: both sides are dense, along different loops.
//!
//! A plane is traversed in bands of source rows that, transposed, fill one cache line of each destination
//! row. A band advances along its rows for about a page, then the next band continues the same destination
//! rows. So both sides see long forward streams, each line is touched once while it is in the cache, and few
//! pages are in use at a time. Strides of a power of two, which map all rows of a band to the same cache set,
//! do little harm: a line is consumed within a few loads, and where it matters the band's lines are written
//! with non-temporal stores.
//!
//! Within a band, square tiles of 16-byte vectors are transposed in registers by repeated interleaving (the
//! perfect shuffle: interleaving the first half of the rows with the second moves the top bit of the row
//! number to the bottom of the column number; after as many times as there are bits, rows and columns have
//! been exchanged).

use super::{
    moves::MoveItem,
    nest::LoopDim,
    streamed::{LINE, Stores, Streams},
    strided,
};

/// The bytes of a vector.
pub(super) const VECTOR: usize = 16;

/// The bytes that a band advances along the source's rows before the next band, with non-temporal stores: a
/// page.
const STREAMED_STRIDE: usize = 4096;

/// The same where the destination's lines must stay in the cache until the next band, in bytes and in
/// columns. With strides of a power of two, no more lines fit.
const CACHED_STRIDE: usize = 1024;
const CACHED_COLUMNS: usize = 256;

/// Transposition of tiles with items of type `T`.
pub(super) trait Tiles<T>: Streams {
    /// Transposes a tile with as many rows and columns as a vector has items. Rows are `src_pitch` bytes
    /// apart at `src`, columns `dst_pitch` bytes at `dst`.
    ///
    /// # Safety
    /// 1. The rows can be read: a vector's bytes at each, initialised.
    /// 2. The columns can be written: a vector's bytes at each; they do not overlap the rows.
    unsafe fn tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize);

    /// Transposes as many rows as a cache line has items, and as many columns as a vector has items, with
    /// non-temporal stores where there are some.
    ///
    /// # Safety
    /// 1. As for [`tile`](Self::tile), with more rows.
    /// 2. As for [`tile`](Self::tile), with a whole line's bytes at each column.
    /// 3. `dst` and `dst_pitch` are multiples of [`LINE`].
    unsafe fn line_tile(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize);

    /// Prefetches the cache line at any address for a write.
    fn prefetch(line: *const u8);
}

/// Copies a plane in which the source is dense along `outer` and the destination along `inner`.
///
/// # Safety
/// 1. At every step of `outer` and `inner` a `T` can be read at `src`, initialised, and written at `dst`.
/// 2. No byte is written twice, and none that is read is written.
/// 3. `outer.src` and `inner.dst` are the size of `T`, a power of two up to 16.
pub(super) unsafe fn plane<T: Copy, K: Tiles<T>>(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    stores: Stores,
) {
    let per_line = LINE / size_of::<T>();
    let to_line = dst.addr().wrapping_neg() % LINE;
    let streams = K::STREAMS
        && stores == Stores::Streaming
        && outer.dst.is_multiple_of(LINE)
        && to_line.is_multiple_of(size_of::<T>())
        && inner.size >= 2 * per_line;
    let band_stride = if streams {
        STREAMED_STRIDE / size_of::<T>()
    } else {
        CACHED_COLUMNS.min(CACHED_STRIDE / size_of::<T>())
    };
    for from in (0..outer.size).step_by(band_stride) {
        let (dst, src) = (dst.wrapping_add(from * outer.dst), src.wrapping_add(from * outer.src));
        let outer = outer.part(band_stride.min(outer.size - from));
        // The rows before the first whole line form a band of fewer rows.
        let head = if streams && to_line != 0 { to_line / size_of::<T>() } else { per_line };
        let (mut row, mut rows) = (0, head.min(inner.size));
        while row < inner.size {
            let (dst, src) = (dst.wrapping_add(row * inner.dst), src.wrapping_add(row * inner.src));
            let lines = streams && rows == per_line;
            // SAFETY: some rows of the plane. With `lines` they start at a multiple of a line: the rows
            // before the first line were split off, and the pitch of columns is a multiple of a line.
            unsafe { band::<T, K>(dst, src, outer, inner.part(rows), lines) };
            row += rows;
            rows = per_line.min(inner.size - row);
        }
    }
    if streams {
        K::finish();
    }
}

/// Copies a band: a plane of few rows.
///
/// # Safety
/// 1. to 3. as for [`plane`].
/// 4. With `lines`, the band has as many rows as a line has items, and `dst` and `outer.dst` are multiples of
///    [`LINE`].
unsafe fn band<T: Copy, K: Tiles<T>>(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    lines: bool,
) {
    let side = VECTOR / size_of::<T>();
    let whole_columns = outer.size - outer.size % side;
    let whole_rows = inner.size - inner.size % side;
    for column in (0..whole_columns).step_by(side) {
        let (dst, src) = (dst.wrapping_add(column * outer.dst), src.wrapping_add(column * outer.src));
        if lines {
            // SAFETY: these columns of all the band's rows, which by obligation 4 fill whole lines.
            unsafe { K::line_tile(dst, outer.dst, src, inner.src) };
            continue;
        }
        // The columns are far apart, so no hardware prefetcher predicts the next band's writes.
        for ahead in 0..side {
            K::prefetch(dst.wrapping_add(ahead * outer.dst + inner.size * size_of::<T>()));
        }
        for row in (0..whole_rows).step_by(side) {
            let (dst, src) = (dst.wrapping_add(row * inner.dst), src.wrapping_add(row * inner.src));
            // SAFETY: `side` rows and columns of the plane, dense by obligation 3.
            unsafe { K::tile(dst, outer.dst, src, inner.src) };
        }
    }
    let rest = inner.part(inner.size - whole_rows);
    if rest.size != 0 {
        let (dst, src) = (dst.wrapping_add(whole_rows * inner.dst), src.wrapping_add(whole_rows * inner.src));
        // SAFETY: the rows that do not fill a tile.
        unsafe { strided::plane(MoveItem::<T>::MOVE, dst, src, outer.part(whole_columns), rest) };
    }
    let rest = outer.part(outer.size - whole_columns);
    if rest.size != 0 {
        let (dst, src) =
            (dst.wrapping_add(whole_columns * outer.dst), src.wrapping_add(whole_columns * outer.src));
        // SAFETY: the columns that do not fill a tile.
        unsafe { strided::plane(MoveItem::<T>::MOVE, dst, src, rest, inner) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::copy::Native;
    use crate::kernels::portable::Portable;

    /// Memory aligned to a cache line.
    #[derive(Clone)]
    #[repr(align(64))]
    struct AlignedLine([u8; LINE]);

    fn check<T: Copy, K: Tiles<T>>(
        rows: usize,
        columns: usize,
        pitches: (usize, usize),
        lead: usize,
        stores: Stores,
    ) {
        let size = size_of::<T>();
        let (dst_pitch, src_pitch) = (rows * size + pitches.0, columns * size + pitches.1);
        let src: Vec<u8> =
            (0..rows * src_pitch).map(|index| (index * 167 + index / 251).to_le_bytes()[0]).collect();
        let mut lines = vec![AlignedLine([0xee; LINE]); (lead + columns * dst_pitch).div_ceil(LINE)];
        let mut expected = vec![0xee; lines.len() * LINE];
        for row in 0..rows {
            for column in 0..columns {
                let item = &src[row * src_pitch + column * size..][..size];
                expected[lead + column * dst_pitch + row * size..][..size].copy_from_slice(item);
            }
        }
        let dst = lines.as_mut_ptr().cast::<u8>().wrapping_add(lead);
        let outer = LoopDim { size: columns, dst: dst_pitch, src: size };
        let inner = LoopDim { size: rows, dst: size, src: src_pitch };
        // SAFETY: the loops cover all of `src`, and `dst` up to `lead + columns * dst_pitch` at most.
        unsafe { plane::<T, K>(dst, src.as_ptr(), outer, inner, stores) };
        let actual = lines.iter().flat_map(|line| line.0).collect::<Vec<u8>>();
        assert!(actual == expected, "{rows} x {columns} of {size} bytes, {pitches:?}, {lead}, {stores:?}");
    }

    fn check_item<T: Copy>()
    where
        Portable: Tiles<T>,
        Native: Tiles<T>,
    {
        let per_line = LINE / size_of::<T>();
        let (mut all_rows, mut all_columns) = (
            vec![1, 4, per_line - 1, 2 * per_line, 3 * per_line + 5],
            vec![1, per_line / 4, per_line + 3, 300],
        );
        if cfg!(miri) {
            (all_rows, all_columns) = (vec![per_line + 5], vec![per_line / 4 + 3]);
        }
        for &rows in &all_rows {
            for &columns in &all_columns {
                check::<T, Portable>(rows, columns, (5, 3), 24, Stores::Cached);
                if cfg!(miri) {
                    continue;
                }
                for (lead, pitches) in [(0, (0, 0)), (24, (5, 3))] {
                    check::<T, Portable>(rows, columns, pitches, lead, Stores::Streaming);
                    check::<T, Native>(rows, columns, pitches, lead, Stores::Cached);
                    check::<T, Native>(rows, columns, pitches, lead, Stores::Streaming);
                }
                // Columns that start at a line, or as far after one as the first: these can use non-temporal
                // stores.
                let to_line = (rows * size_of::<T>()).next_multiple_of(LINE) - rows * size_of::<T>();
                for lead in [0, 16, 48, 63] {
                    check::<T, Native>(rows, columns, (to_line, 7), lead, Stores::Streaming);
                }
            }
        }
    }

    #[test]
    fn every_item_size() {
        check_item::<u8>();
        check_item::<u16>();
        check_item::<u32>();
        check_item::<u64>();
        check_item::<crate::kernels::moves::Bytes16>();
    }
}
