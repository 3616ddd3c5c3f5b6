//! Planes with gaps: one move per element.
//!
//! If neither side allows whole vectors, the cost is one load and one store per element, provided the loops
//! are long and stay within the cache. So a short inner loop is swapped with the outer one, and if the two
//! sides are dense along different loops, the plane is traversed in blocks that keep the cache lines of both.
//! If the destination has no gaps and the source repeats one item or has small steps, the compiler vectorises
//! the loop.

use core::mem::MaybeUninit;

use super::{
    moves::{Move, MoveItem, Unaligned},
    nest::{LoopDim, blocks},
    streamed::{self, Stores, Streams},
};

/// Inner loops with fewer steps are swapped with a longer outer loop.
const SHORT: usize = 8;

/// The steps of the longer loop between two visits to the same cache lines, if the shorter loop is outside.
const LONG_BLOCK: usize = 512;

/// The shape of the blocks if the sides are dense along different loops: along the source's dense loop, and
/// along the destination's.
const OUTER_BLOCK: usize = 128;
const INNER_BLOCK: usize = 16;

/// Copies a plane, one `m` per step.
///
/// # Safety
/// 1. At every step of `outer` and `inner`, `m` can move: the bytes can be read at `src` and written at
///    `dst`.
/// 2. No byte is written twice, and none that is read is written.
pub(super) unsafe fn plane<M: Move>(m: M, dst: *mut u8, src: *const u8, outer: LoopDim, inner: LoopDim) {
    if inner.size < SHORT && inner.size < outer.size {
        blocks((outer, LONG_BLOCK), (inner, SHORT), dst, src, |dst, src, outer, inner| {
            // SAFETY: a block of the plane, with its loops swapped: the same steps.
            unsafe { lines(m, dst, src, inner, outer) };
        });
    } else if is_transposition(outer, inner) {
        blocks((outer, OUTER_BLOCK), (inner, INNER_BLOCK), dst, src, |dst, src, outer, inner| {
            // SAFETY: a block of the plane.
            unsafe { lines(m, dst, src, outer, inner) };
        });
    } else {
        // SAFETY: the caller's obligations.
        unsafe { lines(m, dst, src, outer, inner) };
    }
}

/// Returns `true` if the source is denser along the outer loop than along the inner one.
pub(super) const fn is_transposition(outer: LoopDim, inner: LoopDim) -> bool {
    outer.src != 0 && outer.src < inner.src
}

/// # Safety
/// As [`plane`].
#[inline(always)]
unsafe fn lines<M: Move>(m: M, dst: *mut u8, src: *const u8, outer: LoopDim, inner: LoopDim) {
    for step in 0..outer.size {
        let (dst, src) = (dst.wrapping_add(step * outer.dst), src.wrapping_add(step * outer.src));
        for step in 0..inner.size {
            // SAFETY: one step of the plane.
            unsafe { m.move_one(dst.wrapping_add(step * inner.dst), src.wrapping_add(step * inner.src)) };
        }
    }
}

/// Copies a plane whose inner loop writes contiguous `T`s.
///
/// # Safety
/// 1. and 2. as for [`plane`] with `MoveItem::<T>`.
/// 3. `inner.dst` is the size of `T`.
pub(super) unsafe fn dense_plane<T: Copy, K: Streams>(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    stores: Stores,
) {
    let transposition = is_transposition(outer, inner);
    let streams = K::STREAMS
        && stores == Stores::Streaming
        && inner.src != 0
        && !transposition
        && inner.size * size_of::<T>() >= streamed::MIN_ROW;
    let row = match row_for::<T>(inner.src) {
        Some(row) => row,
        None if streams => step_by::<T>,
        // SAFETY: the caller's obligations.
        None => return unsafe { plane(MoveItem::<T>::MOVE, dst, src, outer, inner) },
    };
    let inner_block = if transposition { LONG_BLOCK } else { inner.size };
    blocks((outer, outer.size), (inner, inner_block), dst, src, |dst, src, outer, inner| {
        for step in 0..outer.size {
            let dst = dst.wrapping_add(step * outer.dst).cast::<UninitItem<T>>();
            let src = src.wrapping_add(step * outer.src);
            // SAFETY: by obligations 1 and 3 these `inner.size` items can be written, and by 2 nothing else
            // writes them meanwhile; the type needs no alignment and any bytes are valid.
            let dst = unsafe { core::slice::from_raw_parts_mut(dst, inner.size) };
            if streams {
                // SAFETY: by obligation 1 this number of items can be read, initialised, at the distance that
                // the row function expects.
                unsafe { streamed::fill_row::<T, K>(row, dst, src, inner.src) };
            } else {
                // SAFETY: as above.
                unsafe { row(dst, src, inner.src) };
            }
        }
    });
    if streams {
        K::finish();
    }
}

/// Memory for a `T` at any address.
pub(super) type UninitItem<T> = Unaligned<MaybeUninit<T>>;

/// Fills `dst` with items from `src`: `row(dst, src, stride)`.
///
/// The obligation of its caller: `dst.len()` items can be read there, each `stride` bytes after the previous
/// one; the function is that of [`row_for`] for `stride`, or [`step_by`].
pub(super) type RowKernel<T> = unsafe fn(&mut [UninitItem<T>], *const u8, usize);

/// Returns the function for rows of items `stride` bytes apart, if one is better than a loop of moves.
fn row_for<T: Copy>(stride: usize) -> Option<RowKernel<T>> {
    if stride == 0 {
        return Some(repeat::<T>);
    }
    if size_of::<T>() > size_of::<u32>() || !stride.is_multiple_of(size_of::<T>()) {
        return None;
    }
    match stride / size_of::<T>() {
        2 => stepping::<T, 2>(),
        3 => stepping::<T, 3>(),
        4 => stepping::<T, 4>(),
        _ => None,
    }
}

/// Returns the function for rows of every `STEP`th item, if the CPU has shuffles for it.
fn stepping<T: Copy, const STEP: usize>() -> Option<RowKernel<T>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        std::arch::is_x86_feature_detected!("avx2").then_some(super::x86::gather::<T, STEP>)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        Some(gather::<T, STEP>)
    }
}

/// Fills `dst` with the item at `src`.
///
/// # Safety
/// A `T` can be read at `src`.
unsafe fn repeat<T: Copy>(dst: &mut [UninitItem<T>], src: *const u8, _: usize) {
    // SAFETY: the caller's obligation.
    let item = unsafe { src.cast::<UninitItem<T>>().read() };
    dst.fill(item);
}

/// Fills `dst` with every `STEP`th item from `src` on. The constant step lets the compiler use shuffles.
///
/// # Safety
/// `dst.len()` items can be read, each `STEP` items after the previous one.
#[inline(always)]
pub(super) unsafe fn gather<T: Copy, const STEP: usize>(dst: &mut [UninitItem<T>], src: *const u8, _: usize) {
    let src = src.cast::<UninitItem<T>>();
    for (index, slot) in dst.iter_mut().enumerate() {
        // SAFETY: this item can be read (the caller's obligation).
        *slot = unsafe { src.wrapping_add(index * STEP).read() };
    }
}

/// A [`RowKernel`] for any stride.
///
/// # Safety
/// `dst.len()` items can be read, each `stride` bytes after the previous one.
unsafe fn step_by<T: Copy>(dst: &mut [UninitItem<T>], src: *const u8, stride: usize) {
    for (index, slot) in dst.iter_mut().enumerate() {
        // SAFETY: this item can be read (the caller's obligation).
        *slot = unsafe { src.wrapping_add(index * stride).cast::<UninitItem<T>>().read() };
    }
}
