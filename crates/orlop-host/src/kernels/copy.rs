//! Copies of one layout into another.

use super::{
    moves::{Bytes16, Bytes32, MoveEnds, MoveItem, MoveRun},
    nest::{LoopDim, plane, walk},
    streamed::Stores,
    strided,
    transpose::{self, Tiles},
};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) use super::portable::Portable as Native;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use super::x86::Sse2 as Native;

/// Loops with fewer steps are not worth tiling.
const MIN_TILED_STEPS: usize = 4;

/// Copies items of `itemsize` bytes along the loops `dims`.
///
/// # Safety
/// 1. At every step of the loops an item can be read at `src`, initialised, and written at `dst`.
/// 2. No byte is written twice, and none that is read is written.
pub(super) unsafe fn nest(
    dims: &mut [LoopDim],
    dst: *mut u8,
    src: *const u8,
    itemsize: usize,
    stores: Stores,
) {
    let (dims, unit) = match dims {
        [outer @ .., run] if run.dst == itemsize && run.src == itemsize => (outer, run.size * itemsize),
        all => (all, itemsize),
    };
    let copy_plane = kernel_for(unit);
    let (around, outer, inner) = plane(dims);
    walk(around, dst, src, &mut |dst, src| {
        // SAFETY: one step of the outer loops, with the loops of the plane and the run inside it.
        unsafe { copy_plane(dst, src, outer, inner, unit, stores) };
    });
}

/// Copies a plane of items of `itemsize` bytes that may make runs along `inner`.
///
/// # Safety
/// As [`nest`], for the loops `outer` and `inner`.
pub(super) unsafe fn block(dst: *mut u8, src: *const u8, outer: LoopDim, inner: LoopDim, itemsize: usize) {
    let (outer, inner, unit) = if inner.dst == itemsize && inner.src == itemsize {
        (LoopDim::ONCE, outer, inner.size * itemsize)
    } else {
        (outer, inner, itemsize)
    };
    let copy_plane = kernel_for(unit);
    // SAFETY: the caller's obligations; the inner loop may have been replaced by a run.
    unsafe { copy_plane(dst, src, outer, inner, unit, Stores::Cached) };
}

/// Copies a plane of runs: `kernel(dst, src, outer, inner, bytes, stores)`, where each run has `bytes` bytes.
///
/// The obligations of its caller are:
/// 1. At every step of `outer` and `inner`, `bytes` bytes can be read at `src`, initialised, and written at
///    `dst`.
/// 2. No byte is written twice, and none that is read is written.
/// 3. The kernel is that of [`kernel_for`] for `bytes`.
type Kernel = unsafe fn(*mut u8, *const u8, LoopDim, LoopDim, usize, Stores);

/// Returns the kernel for runs of `bytes` bytes.
fn kernel_for(bytes: usize) -> Kernel {
    match bytes {
        1 => items::<u8>,
        2 => items::<u16>,
        4 => items::<u32>,
        8 => items::<u64>,
        16 => items::<Bytes16>,
        3 => ends::<u16>,
        5..8 => ends::<u32>,
        9..16 => ends::<u64>,
        17..=32 => ends::<Bytes16>,
        33..=64 => ends::<Bytes32>,
        _ => runs,
    }
}

/// A [`Kernel`] for runs of the size of a `T`.
///
/// # Safety
/// As [`Kernel`].
unsafe fn items<T: Copy>(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    bytes: usize,
    stores: Stores,
) where
    Native: Tiles<T>,
{
    let size = size_of::<T>();
    debug_assert_eq!(bytes, size, "the kernel is for this size");
    if inner.dst != size {
        // SAFETY: the caller's obligations.
        unsafe { strided::plane(MoveItem::<T>::MOVE, dst, src, outer, inner) };
    } else if outer.src == size && inner.src != 0 && outer.size.min(inner.size) >= MIN_TILED_STEPS {
        // SAFETY: the caller's obligations; both sides are dense along their loops.
        unsafe { transpose::plane::<T, Native>(dst, src, outer, inner, stores) };
    } else {
        // SAFETY: the caller's obligations; the inner loop is dense at `dst`.
        unsafe { strided::dense_plane::<T, Native>(dst, src, outer, inner, stores) };
    }
}

/// A [`Kernel`] for runs of one to two times the size of a `T`.
///
/// # Safety
/// As [`Kernel`].
unsafe fn ends<T: Copy>(
    dst: *mut u8,
    src: *const u8,
    outer: LoopDim,
    inner: LoopDim,
    bytes: usize,
    _: Stores,
) {
    // SAFETY: the caller's obligations.
    unsafe { strided::plane(MoveEnds::<T>::new(bytes), dst, src, outer, inner) };
}

/// A [`Kernel`] for runs of any size.
///
/// # Safety
/// As [`Kernel`].
unsafe fn runs(dst: *mut u8, src: *const u8, outer: LoopDim, inner: LoopDim, bytes: usize, _: Stores) {
    // SAFETY: the caller's obligations.
    unsafe { strided::plane(MoveRun(bytes), dst, src, outer, inner) };
}
