//! Casts of one layout into another.
//!
//! What knows about types are the loops over elements that lie together ([`dense`](super::dense)); what knows about
//! layouts are the copies. Where elements do not lie together, a block of them is copied to the stack, where they do,
//! cast there, and copied to their places: two more moves within the cache, and no loop for every pair of types and
//! kind of stride.

use core::mem::MaybeUninit;

use super::{
    copy,
    dense::Cast,
    nest::{Dim, blocks, plane, walk},
    strided::is_transposition,
};

/// Elements of a block, and the bytes that the largest ones take.
const BLOCK: usize = 1024;
const BLOCK_BYTES: usize = BLOCK * 16;

/// Steps along the destination's dense loop in a block where the source is dense along another.
const SIDE: usize = 32;

/// Blocks side by side along the source's dense loop before those next to them along the destination's: they share the
/// source's pages, and the destination's lines stay in the cache for the next ones.
const BAND: usize = 8;

/// Elements that make a row worth a call.
const WORTH_A_ROW: usize = 16;

/// Room for a block.
#[repr(align(64))]
struct Buffer([MaybeUninit<u8>; BLOCK_BYTES]);

impl Buffer {
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
pub(super) unsafe fn nest(dims: &mut [Dim], dst: *mut u8, src: *const u8, cast: Cast) {
    let (around, outer, inner) = plane(dims);
    let (src_size, dst_size) = cast.sizes();
    let has_rows = |step, row, size| {
        step == size && (inner.size >= WORTH_A_ROW || outer.size == 1 || row == inner.size * size)
    };
    let gathers = !has_rows(inner.src, outer.src, src_size);
    let scatters = !has_rows(inner.dst, outer.dst, dst_size);
    if !gathers && !scatters {
        walk(around, dst, src, &mut |dst, src| {
            // SAFETY: one step of the loops around, with the loops of the plane inside it.
            unsafe { rows(dst, src, outer, inner.size, cast) };
        });
        return;
    }
    let (mut before, mut after) = (Buffer::new(), Buffer::new());
    let before = gathers.then(|| before.start());
    let after = scatters.then(|| after.start());
    let (outer_block, inner_block) = block_shape(outer, inner);
    walk(around, dst, src, &mut |dst, src| {
        blocks((outer, BAND * outer_block), (inner, inner_block), dst, src, |dst, src, outer, inner| {
            blocks((outer, outer_block), (inner, inner_block), dst, src, |dst, src, outer, inner| {
                // SAFETY: a block of the plane that belongs to one step of the loops around; the buffers have room for
                // it, and nothing else uses them.
                unsafe { block(dst, src, outer, inner, cast, before, after) };
            });
        });
    });
}

/// Steps of a block along `outer` and `inner`: at most `BLOCK` together.
fn block_shape(outer: Dim, inner: Dim) -> (usize, usize) {
    let inner_block = if is_transposition(outer, inner) { SIDE } else { BLOCK }.min(inner.size);
    let outer_block = (BLOCK / inner_block).min(outer.size);
    // A short outer loop leaves more for the inner one.
    (outer_block, (BLOCK / outer_block).min(inner.size))
}

/// Casts rows that are dense on both sides.
///
/// # Safety
/// As [`nest`], for the loops `outer` and `count` elements.
unsafe fn rows(dst: *mut u8, src: *const u8, outer: Dim, count: usize, cast: Cast) {
    for step in 0..outer.size {
        let (dst, src) = (dst.wrapping_add(step * outer.dst), src.wrapping_add(step * outer.src));
        // SAFETY: the elements of one row.
        unsafe { cast.run(dst, src, count) };
    }
}

/// Casts a block by way of buffers: `before` if the source is no rows, `after` if the destination is none.
///
/// # Safety
/// 1. and 2. as [`nest`], for the loops `outer` and `inner`, of `BLOCK` steps or fewer.
/// 3. `before` and `after` are the starts of [`Buffer`]s that nothing else uses.
unsafe fn block(
    dst: *mut u8,
    src: *const u8,
    outer: Dim,
    inner: Dim,
    cast: Cast,
    before: Option<*mut u8>,
    after: Option<*mut u8>,
) {
    let (src_size, dst_size) = cast.sizes();
    let (src_row, dst_row) = (inner.size * src_size, inner.size * dst_size);
    let mut between = Dim { size: outer.size, dst: outer.dst, src: outer.src };
    let (mut cast_dst, mut cast_src) = (dst, src);
    if let Some(before) = before {
        let (outer, inner) = (Dim { dst: src_row, ..outer }, Dim { dst: src_size, ..inner });
        // SAFETY: every element of the block to a place of its own in the buffer.
        unsafe { copy::block(before, src, outer, inner, src_size) };
        (cast_src, between.src) = (before, src_row);
    }
    if let Some(after) = after {
        (cast_dst, between.dst) = (after, dst_row);
    }
    if between.src == src_row && between.dst == dst_row {
        // SAFETY: the rows follow each other on both sides: they are one.
        unsafe { cast.run(cast_dst, cast_src, outer.size * inner.size) };
    } else {
        // SAFETY: the rows of the block, dense on both sides.
        unsafe { rows(cast_dst, cast_src, between, inner.size, cast) };
    }
    if let Some(after) = after {
        let (outer, inner) = (Dim { src: dst_row, ..outer }, Dim { src: dst_size, ..inner });
        // SAFETY: every element from its place in the buffer, which was just written, to its own.
        unsafe { copy::block(dst, after, outer, inner, dst_size) };
    }
}
