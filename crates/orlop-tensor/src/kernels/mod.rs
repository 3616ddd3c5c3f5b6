//! What the processor does with elements: copy, cast and fill over any strides.
//!
//! Each operation turns its layouts into a loop nest in the order that suits memory ([`nest`]), may share that out
//! among threads ([`parallel`]), and then looks at the two innermost loops ([`copy`](mod@copy)): runs that lie together
//! are moved as they are, or as one larger item if they are short; where the two sides are dense along different loops,
//! tiles are transposed ([`transpose`]); the rest goes element by element ([`strided`]). Casts copy blocks to where
//! elements lie together and cast them there ([`cast`](mod@cast), [`dense`]). A fill is a copy from a single element.
//!
//! Everything works on bytes and needs no alignment. Intrinsics are in [`x86`] and always have a portable counterpart.

mod cast;
mod copy;
mod dense;
mod moves;
mod nest;
mod parallel;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable;
mod strided;
#[cfg(test)]
mod tests;
mod to_integers;
mod transpose;
mod via_f32;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use orlop_core::{DType, Element, Layout, Scalar, dispatch};

use self::{
    dense::Cast,
    nest::{Dim, with_loops},
    transpose::Stores,
};

/// The size of the largest element.
const MAX_ITEM: usize = 16;

/// Copies the elements of one layout to those of another.
///
/// `itemsize` is a power of two up to 16. Nothing needs alignment. The elements are copied as bytes: this is right for
/// every dtype.
///
/// # Safety
/// 1. Both layouts have the same shape. Counted from `dst` and `src`, their elements, each of `itemsize` bytes, lie
///    within one allocation each; those of `src` are initialised and can be read, those of `dst` can be written.
/// 2. No two elements of `dst` overlap, and none overlaps one of `src`.
/// 3. Nobody else writes to either or reads from `dst` meanwhile. With feature `rayon` other threads do the work.
pub(crate) unsafe fn copy(
    dst: *mut u8,
    dst_layout: &Layout,
    src: *const u8,
    src_layout: &Layout,
    itemsize: usize,
) {
    if dst_layout.is_empty() {
        return;
    }
    let dst = start(dst, dst_layout, itemsize);
    let src = start(src.cast_mut(), src_layout, itemsize).cast_const();
    let bytes = dst_layout.numel() * itemsize;
    if dst_layout.is_contiguous() && src_layout.is_contiguous() && !parallel::pays(bytes) {
        // SAFETY: obligations 1 and 2; the elements lie together in the same order.
        return unsafe { src.copy_to_nonoverlapping(dst, bytes) };
    }
    with_loops((dst_layout, itemsize), (Some(src_layout), itemsize), |dims| {
        // SAFETY: the obligations: the loops lead to each pair of elements once.
        unsafe { copy_loops(dims, dst, src, bytes, itemsize) };
    });
}

/// Writes the elements of one layout, cast, to those of another.
///
/// By the rules of [`orlop_core::cast`]; from a type to itself nothing changes, not even the payload of a NaN. Where
/// `bool` is read, every byte but 0 is true; where it is written, the bytes are 0 and 1. Nothing needs alignment.
///
/// # Safety
/// As for [`copy`](copy()), with the item sizes of the dtypes.
pub(crate) unsafe fn cast(
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
    let cast = Cast::new(dst_dtype, src_dtype);
    let bytes = dst_layout.numel() * dst_size.max(src_size);
    let work = |dims: &mut [Dim], dst, src| {
        // SAFETY: the obligations: the loops lead to each pair of elements once.
        unsafe { cast::nest(dims, dst, src, cast) };
    };
    with_loops((dst_layout, dst_size), (Some(src_layout), src_size), |dims| {
        // SAFETY: the same; steps do not disturb each other.
        unsafe { parallel::in_parts(dims, dst, src, bytes, work) };
    });
}

/// Sets every element to `value`, cast by the rules of [`orlop_core::cast`].
///
/// # Safety
/// 1. Counted from `dst`, the elements of `layout` lie within one allocation and can be written.
/// 2. No two of them overlap.
/// 3. Nobody else reads or writes them meanwhile. With feature `rayon` other threads do the work.
pub(crate) unsafe fn fill(dst: *mut u8, layout: &Layout, dtype: DType, value: Scalar) {
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
        let mut itemsize = itemsize;
        if let Some(inner) = dims.last_mut()
            && inner.dst == itemsize
            && item[..itemsize].iter().all(|&byte| byte == item[0])
        {
            // Bytes that are all the same are what `memset` is for.
            *inner = Dim { size: inner.size * itemsize, dst: 1, src: 0 };
            itemsize = 1;
        }
        // SAFETY: the obligations; every step reads the same item, which is no part of what is written.
        unsafe { copy_loops(dims, dst, item.as_ptr(), bytes, itemsize) };
    });
}

/// Copies along loops, perhaps on several threads.
///
/// # Safety
/// As for [`copy::nest`], from any thread.
unsafe fn copy_loops(dims: &mut [Dim], dst: *mut u8, src: *const u8, bytes: usize, itemsize: usize) {
    let stores = Stores::for_bytes(bytes);
    let work = |dims: &mut [Dim], dst, src| {
        // SAFETY: the caller's obligations.
        unsafe { copy::nest(dims, dst, src, itemsize, stores) };
    };
    // SAFETY: the same; steps do not disturb each other.
    unsafe { parallel::in_parts(dims, dst, src, bytes, work) };
}

/// Where the first element of `layout` is, counted from `base`.
fn start(base: *mut u8, layout: &Layout, itemsize: usize) -> *mut u8 {
    base.wrapping_add(layout.offset() * itemsize)
}

/// Whether casting changes no bit: the same type, or integers of one size. `bool` may be normalised.
fn is_copy(dst: DType, src: DType) -> bool {
    match (dst, src) {
        (DType::Bool, DType::Bool) => false,
        _ => dst == src || dst.is_integer() && src.is_integer() && dst.size() == src.size(),
    }
}

/// Writes `value` as a `T` to the beginning of `item`.
fn write_scalar<T: Element>(item: &mut [u8; MAX_ITEM], value: Scalar) {
    let element = T::from_scalar(value);
    let bytes = bytemuck::bytes_of(&element);
    item[..bytes.len()].copy_from_slice(bytes);
}
