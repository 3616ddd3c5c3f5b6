//! Casts of one layout into another.
//!
//! The loops over contiguous elements ([`dense`](super::dense)) know about types; the copies know about
//! layouts. Where elements are not contiguous, a block of them is copied to the stack, cast there, and copied
//! to its destination: two more moves within the cache, instead of a loop for every pair of types and kind of
//! stride.

use core::mem::MaybeUninit;

use super::{
    copy,
    dense::Cast,
    nest::{LoopDim, blocks, plane, walk},
    strided::is_transposition,
};

/// The elements of a block, and the bytes of a block of the largest elements.
const BLOCK: usize = 1024;
const BLOCK_BYTES: usize = BLOCK * 16;

/// The steps of a block along the destination's dense loop, if the source is dense along another loop.
const SIDE: usize = 32;

/// The number of adjacent blocks along the source's dense loop that are processed before the next ones along
/// the destination's: they share the source's pages, and the destination's lines stay in the cache.
const BAND: usize = 8;

/// The smallest row that is worth a call.
const WORTH_A_ROW: usize = 16;

/// Memory for a block.
#[repr(align(64))]
struct BlockBuffer([MaybeUninit<u8>; BLOCK_BYTES]);

impl BlockBuffer {
    const fn new() -> Self {
        Self([MaybeUninit::uninit(); BLOCK_BYTES])
    }

    const fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Casts elements along the loops `dims`.
///
/// # Safety
/// 1. At every step of the loops an element can be read at `src`, initialised, and written at `dst`.
/// 2. No byte is written twice, and none that is read is written.
pub(super) unsafe fn nest(dims: &mut [LoopDim], dst: *mut u8, src: *const u8, cast: Cast) {
    let (around, outer, inner) = plane(dims);
    let (src_size, dst_size) = cast.sizes();
    let has_rows = |step, row, size| {
        step == size && (inner.size >= WORTH_A_ROW || outer.size == 1 || row == inner.size * size)
    };
    let gathers = !has_rows(inner.src, outer.src, src_size);
    let scatters = !has_rows(inner.dst, outer.dst, dst_size);
    if !gathers && !scatters {
        walk(around, dst, src, &mut |dst, src| {
            // SAFETY: one step of the outer loops, with the loops of the plane inside it.
            unsafe { rows(dst, src, outer, inner.size, cast) };
        });
        return;
    }
    let (mut before, mut after) = (BlockBuffer::new(), BlockBuffer::new());
    let before = gathers.then(|| before.start());
    let after = scatters.then(|| after.start());
    let (outer_block, inner_block) = block_shape(outer, inner);
    walk(around, dst, src, &mut |dst, src| {
        blocks((outer, BAND * outer_block), (inner, inner_block), dst, src, |dst, src, outer, inner| {
            blocks((outer, outer_block), (inner, inner_block), dst, src, |dst, src, outer, inner| {
                // SAFETY: a block of the plane that belongs to one step of the outer loops; the buffers are
                // large enough for it, and nothing else uses them.
                unsafe { block(dst, src, outer, inner, cast, before, after) };
            });
        });
    });
}

/// Returns the steps of a block along `outer` and `inner`: at most `BLOCK` in all.
fn block_shape(outer: LoopDim, inner: LoopDim) -> (usize, usize) {
    let inner_block = if is_transposition(outer, inner) { SIDE } else { BLOCK }.min(inner.size);
    let outer_block = (BLOCK / inner_block).min(outer.size);
    // A short outer loop leaves more steps for the inner one.
    (outer_block, (BLOCK / outer_block).min(inner.size))
}

/// Casts rows that are dense on both sides.
///
/// # Safety
/// As [`nest`], for the loops `outer` and `count` elements.
unsafe fn rows(dst: *mut u8, src: *const u8, outer: LoopDim, count: usize, cast: Cast) {
    for step in 0..outer.size {
        let (dst, src) = (dst.wrapping_add(step * outer.dst), src.wrapping_add(step * outer.src));
        // SAFETY: the elements of one row.
        unsafe { cast.run(dst, src, count) };
    }
}

/// Casts a block through buffers: `before` if the source is not in dense rows, `after` if the destination is
/// not.
///
/// # Safety
/// 1. and 2. as [`nest`], for the loops `outer` and `inner`, of `BLOCK` steps or fewer.
/// 3. `before` and `after` are the starts of [`BlockBuffer`]s that nothing else uses.
unsafe fn block(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    cast: Cast,
    before: Option<*mut u8>,
    after: Option<*mut u8>,
) {
    let (src_size, dst_size) = cast.sizes();
    let (src_row, dst_row) = (inner.size * src_size, inner.size * dst_size);
    let mut between = LoopDim { size: outer.size, dst: outer.dst, src: outer.src };
    let (mut cast_dst, mut cast_src) = (dst, src);
    if let Some(before) = before {
        let (outer, inner) = (LoopDim { dst: src_row, ..outer }, LoopDim { dst: src_size, ..inner });
        // SAFETY: every element of the block is copied to its own position in the buffer.
        unsafe { copy::block(before, src, outer, inner, src_size) };
        (cast_src, between.src) = (before, src_row);
    }
    if let Some(after) = after {
        (cast_dst, between.dst) = (after, dst_row);
    }
    if between.src == src_row && between.dst == dst_row {
        // SAFETY: the rows are contiguous on both sides, so they are one row.
        unsafe { cast.run(cast_dst, cast_src, outer.size * inner.size) };
    } else {
        // SAFETY: the rows of the block, dense on both sides.
        unsafe { rows(cast_dst, cast_src, between, inner.size, cast) };
    }
    if let Some(after) = after {
        let (outer, inner) = (LoopDim { src: dst_row, ..outer }, LoopDim { src: dst_size, ..inner });
        // SAFETY: every element is copied from its position in the buffer, which was just written, to its
        // destination.
        unsafe { copy::block(dst, after, outer, inner, dst_size) };
    }
}
