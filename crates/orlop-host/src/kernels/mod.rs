//! Copy, cast and fill of host memory over any strides: vectorised, and parallel for large data with the
//! crate's feature `rayon`.
//!
//! Tensors on the CPU and the host's device operations do their work here.
//!
//! Each operation converts its layouts to a loop nest ordered for memory access (`nest`) and may split it
//! among threads (`parallel`). It then handles the two innermost loops (`copy`): contiguous
//! runs are moved with `memcpy`, or as one larger item if they are short; if the two sides are dense along
//! different loops, tiles are transposed (`transpose`); the rest is moved element by element (`strided`).
//! Large destinations are written past the cache (`streamed`). Casts copy blocks into contiguous buffers and
//! cast them there (`cast`, `dense`). A fill is a copy from a single element.
//!
//! Everything works on bytes and needs no alignment. Intrinsics are in `x86` and always have a portable
//! counterpart.

mod cast;
mod copy;
mod dense;
mod moves;
pub(crate) mod nest;
mod parallel;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable;
mod streamed;
mod strided;
#[cfg(test)]
mod tests;
mod to_integers;
mod transpose;
mod via_f32;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use orlop_core::{DType, Element, Layout, Scalar, dispatch};

use self::{dense::Cast, nest::with_loops, streamed::Stores};

pub use self::nest::LoopDim;
pub use self::parallel::pays;

/// The size of the largest element.
const MAX_ITEM: usize = 16;

/// Copies the elements of one layout to those of another.
///
/// `itemsize` is a power of two up to 16. No alignment is needed. The elements are copied as bytes, which is
/// correct for every dtype.
///
/// # Safety
/// 1. Both layouts have the same shape. Counted from `dst` and `src`, their elements, each of `itemsize`
///    bytes, are within one allocation each; those of `src` are initialised and can be read, those of `dst`
///    can be written.
/// 2. No two elements of `dst` overlap, and none overlaps one of `src`.
/// 3. Nothing else writes to either or reads from `dst` meanwhile. With feature `rayon`, other threads do the
///    work.
#[inline]
pub unsafe fn copy(dst: *mut u8, dst_layout: &Layout, src: *const u8, src_layout: &Layout, itemsize: usize) {
    if dst_layout.is_empty() {
        return;
    }
    let dst = start(dst, dst_layout, itemsize);
    let src = start(src.cast_mut(), src_layout, itemsize).cast_const();
    let bytes = dst_layout.numel() * itemsize;
    if dst_layout.is_contiguous() && src_layout.is_contiguous() && !pays(bytes) {
        // SAFETY: obligations 1 and 2; the elements are contiguous in the same order.
        return unsafe { src.copy_to_nonoverlapping(dst, bytes) };
    }
    with_loops((dst_layout, itemsize), (Some(src_layout), itemsize), |dims| {
        // SAFETY: the caller's obligations: the loops reach each pair of elements once.
        unsafe { copy_loops(dims, dst, src, bytes, itemsize) };
    });
}

/// Casts the elements of one layout into those of another.
///
/// The rules are those of [`orlop_core::cast`]; a cast from a type to itself changes nothing, not even the
/// payload of a NaN. When `bool` is read, every byte but 0 is true; when it is written, the bytes are 0 and
/// 1. No alignment is needed.
///
/// # Safety
/// As for [`copy`](copy()), with the item sizes of the dtypes.
#[inline]
pub unsafe fn cast(
    dst: *mut u8,
    dst_layout: &Layout,
    dst_dtype: DType,
    src: *const u8,
    src_layout: &Layout,
    src_dtype: DType,
) {
    if is_copy(dst_dtype, src_dtype) {
        // SAFETY: the caller's obligations.
        return unsafe { copy(dst, dst_layout, src, src_layout, dst_dtype.size()) };
    }
    if dst_layout.is_empty() {
        return;
    }
    let (dst_size, src_size) = (dst_dtype.size(), src_dtype.size());
    let dst = start(dst, dst_layout, dst_size);
    let src = start(src.cast_mut(), src_layout, src_size).cast_const();
    with_loops((dst_layout, dst_size), (Some(src_layout), src_size), |dims| {
        // SAFETY: the caller's obligations: the loops reach each pair of elements once.
        unsafe { cast_loops(dims, dst, dst_dtype, src, src_dtype) };
    });
}

/// Casts along loops, on several threads if that pays.
///
/// # Safety
/// As for [`cast`](cast()): at each step of the loops there is an element of `src_dtype` at `src` and room
/// for one of `dst_dtype` at `dst`.
pub unsafe fn cast_loops(
    dims: &mut [LoopDim],
    dst: *mut u8,
    dst_dtype: DType,
    src: *const u8,
    src_dtype: DType,
) {
    let steps: usize = dims.iter().map(|dim| dim.size).product();
    let bytes = steps * dst_dtype.size().max(src_dtype.size());
    if is_copy(dst_dtype, src_dtype) {
        // SAFETY: the caller's obligations.
        return unsafe { copy_loops(dims, dst, src, bytes, dst_dtype.size()) };
    }
    let cast = Cast::new(dst_dtype, src_dtype);
    let work = |dims: &mut [LoopDim], dst, src| {
        // SAFETY: the caller's obligations.
        unsafe { cast::nest(dims, dst, src, cast) };
    };
    // SAFETY: as above; the steps are independent.
    unsafe { parallel::in_parts(dims, dst, src, bytes, work) };
}

/// Sets every element to `value`, cast by the rules of [`orlop_core::cast`].
///
/// # Safety
/// 1. Counted from `dst`, the elements of `layout` are within one allocation and can be written.
/// 2. No two of them overlap.
/// 3. Nothing else reads or writes them meanwhile. With feature `rayon`, other threads do the work.
#[inline]
pub unsafe fn fill(dst: *mut u8, layout: &Layout, dtype: DType, value: Scalar) {
    let mut item = [0; MAX_ITEM];
    dispatch!(dtype, T => write_scalar::<T>(&mut item, value));
    // SAFETY: the caller's obligations.
    unsafe { fill_with(dst, layout, dtype.size(), &item) };
}

/// Sets every element to the first `itemsize` bytes of `item`.
///
/// # Safety
/// As for [`fill`].
unsafe fn fill_with(dst: *mut u8, layout: &Layout, itemsize: usize, item: &[u8; MAX_ITEM]) {
    if layout.is_empty() {
        return;
    }
    let dst = start(dst, layout, itemsize);
    let bytes = layout.numel() * itemsize;
    with_loops((layout, itemsize), (None, itemsize), |dims| {
        // SAFETY: the caller's obligations; the item is not part of the output.
        unsafe { fill_loops(dims, dst, &item[..itemsize], bytes) };
    });
}

/// Writes `item` at every step of the loops, on several threads if that pays. `bytes` is the size of the
/// output.
///
/// # Safety
/// 1. At every step of the loops an item can be written at `dst`; `src` of every loop is zero.
/// 2. No byte is written twice, and nothing else reads or writes them meanwhile.
pub unsafe fn fill_loops(dims: &mut [LoopDim], dst: *mut u8, item: &[u8], bytes: usize) {
    let mut itemsize = item.len();
    if let (Some(inner), Some(first)) = (dims.last_mut(), item.first())
        && inner.dst == itemsize
        && item.iter().all(|byte| byte == first)
    {
        // If all bytes are equal, this becomes a `memset`.
        *inner = LoopDim { size: inner.size * itemsize, dst: 1, src: 0 };
        itemsize = 1;
    }
    // SAFETY: the caller's obligations; every step reads the same item, which is not part of the output.
    unsafe { copy_loops(dims, dst, item.as_ptr(), bytes, itemsize) };
}

/// Copies along loops, on several threads if that pays.
///
/// # Safety
/// 1. At every step of the loops, `itemsize` bytes, a power of two up to 16, can be read at `src` and written
///    at `dst`. `bytes` is the size of the output.
/// 2. No byte is written twice, and none that is written is read.
/// 3. Nothing else writes to either or reads from the output meanwhile. With feature `rayon`, other threads
///    do the work.
pub unsafe fn copy_loops(dims: &mut [LoopDim], dst: *mut u8, src: *const u8, bytes: usize, itemsize: usize) {
    let stores = Stores::for_bytes(bytes);
    let work = |dims: &mut [LoopDim], dst, src| {
        // SAFETY: the caller's obligations.
        unsafe { copy::nest(dims, dst, src, itemsize, stores) };
    };
    // SAFETY: as above; the steps are independent.
    unsafe { parallel::in_parts(dims, dst, src, bytes, work) };
}

/// Returns the address of the first element of `layout`, counted from `base`.
fn start(base: *mut u8, layout: &Layout, itemsize: usize) -> *mut u8 {
    base.wrapping_add(layout.offset() * itemsize)
}

/// Returns `true` if the cast changes no bit: the same type, or integers of one size. `bool` may be
/// normalised.
fn is_copy(dst: DType, src: DType) -> bool {
    match (dst, src) {
        (DType::Bool, DType::Bool) => false,
        _ => dst == src || dst.is_integer() && src.is_integer() && dst.size() == src.size(),
    }
}

/// Writes `value` as a `T` to the start of `item`.
fn write_scalar<T: Element>(item: &mut [u8; MAX_ITEM], value: Scalar) {
    let element = T::from_scalar(value);
    let bytes = bytemuck::bytes_of(&element);
    item[..bytes.len()].copy_from_slice(bytes);
}
