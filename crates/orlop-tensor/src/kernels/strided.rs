//! Planes with gaps: one move per element.
//!
//! Where neither side allows whole vectors the cost is that of one load and one store for each element, provided the
//! loops are long and stay within the cache. So a short inner loop changes places with the outer one, and where the two
//! sides disagree about which loop is the dense one, the plane is walked in blocks that keep the lines of both.
//! Destinations without gaps do better where the source repeats one item or has small steps between items: then the
//! compiler makes vectors of it.

use core::mem::MaybeUninit;

use super::{
    moves::{Item, Move, Unaligned},
    nest::{Dim, blocks},
};

/// Inner loops below this many steps change places with a longer outer loop.
const SHORT: usize = 8;

/// Steps of the longer loop between two visits to the same lines, where the shorter one is around it.
const LONG_BLOCK: usize = 512;

/// Shape of the blocks where the sides disagree: along the source's dense loop, and along the destination's.
const OUTER_BLOCK: usize = 128;
const INNER_BLOCK: usize = 16;

/// Copies a plane, one `m` per step.
///
/// # Safety
/// 1. At every step of `outer` and `inner`, `m` can move: the bytes can be read at `src` and written at `dst`.
/// 2. No byte is written twice, and none that is read is written.
pub(super) unsafe fn plane<M: Move>(m: M, dst: *mut u8, src: *const u8, outer: Dim, inner: Dim) {
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

/// Whether the source is denser along the outer loop than along the inner one.
pub(super) const fn is_transposition(outer: Dim, inner: Dim) -> bool {
    outer.src != 0 && outer.src < inner.src
}

/// # Safety
/// As [`plane`].
#[inline(always)]
unsafe fn lines<M: Move>(m: M, dst: *mut u8, src: *const u8, outer: Dim, inner: Dim) {
    for step in 0..outer.size {
        let (dst, src) = (dst.wrapping_add(step * outer.dst), src.wrapping_add(step * outer.src));
        for step in 0..inner.size {
            // SAFETY: one step of the plane.
            unsafe { m.move_one(dst.wrapping_add(step * inner.dst), src.wrapping_add(step * inner.src)) };
        }
    }
}

/// Copies a plane whose inner loop writes one `T` after the other.
///
/// # Safety
/// 1. and 2. as for [`plane`] with `Item::<T>`.
/// 3. `inner.dst` is the size of `T`.
pub(super) unsafe fn dense_plane<T: Copy>(dst: *mut u8, src: *const u8, outer: Dim, inner: Dim) {
    let Some(row) = row_for::<T>(inner.src) else {
        // SAFETY: the caller's obligations.
        return unsafe { plane(Item::<T>::MOVE, dst, src, outer, inner) };
    };
    let inner_block = if is_transposition(outer, inner) { LONG_BLOCK } else { inner.size };
    blocks((outer, outer.size), (inner, inner_block), dst, src, |dst, src, outer, inner| {
        for step in 0..outer.size {
            let dst = dst.wrapping_add(step * outer.dst).cast::<Slot<T>>();
            // SAFETY: by obligations 1 and 3 these `inner.size` items can be written, by 2 by nobody else meanwhile;
            // the type needs no alignment and takes any bytes.
            let dst = unsafe { core::slice::from_raw_parts_mut(dst, inner.size) };
            // SAFETY: by obligation 1 as many items can be read, as far apart as this row function expects them.
            unsafe { row(dst, src.wrapping_add(step * outer.src)) };
        }
    });
}

/// Room for a `T`, anywhere.
pub(super) type Slot<T> = Unaligned<MaybeUninit<T>>;

/// Fills `dst` with items from the address given, the first one there.
///
/// As many items as `dst` has must be there to be read, each so many bytes after the one before as the function is for.
type Row<T> = unsafe fn(dst: &mut [Slot<T>], src: *const u8);

/// The function for rows of items that are `stride` bytes apart, if there is one that is better than a loop of moves.
fn row_for<T: Copy>(stride: usize) -> Option<Row<T>> {
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

/// The function for rows of every `STEP`th item, if the processor has shuffles for it.
fn stepping<T: Copy, const STEP: usize>() -> Option<Row<T>> {
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
unsafe fn repeat<T: Copy>(dst: &mut [Slot<T>], src: *const u8) {
    // SAFETY: the obligation.
    let item = unsafe { src.cast::<Slot<T>>().read() };
    dst.fill(item);
}

/// Fills `dst` with every `STEP`th item from `src` on. A constant step is one that the compiler knows shuffles for.
///
/// # Safety
/// As many items as `dst` has can be read, each `STEP` items after the one before.
#[inline(always)]
pub(super) unsafe fn gather<T: Copy, const STEP: usize>(dst: &mut [Slot<T>], src: *const u8) {
    let src = src.cast::<Slot<T>>();
    for (index, slot) in dst.iter_mut().enumerate() {
        // SAFETY: by the obligation this item is there.
        *slot = unsafe { src.wrapping_add(index * STEP).read() };
    }
}
