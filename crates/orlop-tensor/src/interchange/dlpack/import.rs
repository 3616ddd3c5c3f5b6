//! Importing tensors from other frameworks.
//!
//! The import takes ownership first: from then on every path, including errors, either moves ownership into
//! the storage or calls the deleter.

use super::abi::{DLTensor, READ_ONLY};
use super::convert::place_of;
use super::managed::{Managed, ManagedTensor};
use crate::error::dlpack::DlpackError;
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::tensor::Tensor;
use orlop_alloc::{Deleter, engine_support::Record};
use orlop_core::{DType, Layout, Shape, Strides};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

/// Creates a tensor over the memory that another framework exported. Nothing is copied. The deleter is called
/// once: when the last user of the memory is dropped, or before this returns an error.
///
/// The structure is [`DLManagedTensorVersioned`](super::DLManagedTensorVersioned), or the one from before
/// DLPack 1.0, [`DLManagedTensor`](super::DLManagedTensor), whose memory can always be written.
///
/// A tensor that is [`READ_ONLY`] refuses writes. Page-locked host memory has the kind
/// [`HostPinned`](orlop_core::MemoryKind::HostPinned).
///
/// ```
/// use orlop_tensor::{Tensor, interchange::dlpack};
///
/// let tensor = Tensor::from_nested(&[[1.0f32, 2.0], [3.0, 4.0]])?;
/// // This stands for an export of another framework.
/// let raw = dlpack::export_mut(&tensor)?.into_raw();
/// // SAFETY: just exported, and `tensor` is not used while `imported` exists.
/// let imported = unsafe { dlpack::import(raw) }?;
/// imported.fill_(7.0)?;
/// drop(imported);
/// assert_eq!(tensor.to_vec::<f32>()?, [7.0; 4]);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
///
/// # Errors
///
/// A [`DlpackError`], including [`Version`](DlpackError::Version), [`Lanes`](DlpackError::Lanes) and
/// [`UnknownDevice`](DlpackError::UnknownDevice); [`Error::Layout`] for negative strides or sizes, and for
/// sizes beyond the address space; [`Error::Misaligned`].
///
/// # Safety
///
/// 1. `raw` points to a managed tensor as DLPack describes it, valid up to its flags for any version, and
///    entirely for major number 1; then `shape` points to `ndim` numbers, and so does `strides` unless it is
///    null;
/// 2. nothing else deletes or changes these, and the deleter may be called once, from any thread, and does
///    not unwind;
/// 3. the memory from the first element to the end of the last, gaps included, is in one allocation, and
///    stays valid until the deleter is called: for reads, and unless it is [`READ_ONLY`] for writes; host
///    memory is initialised;
/// 4. until then nothing else writes there, including the producer, nor reads while this tensor is written;
///    on devices, earlier work on the memory is done, or is ordered before orlop's on its stream.
pub unsafe fn import<M: ManagedTensor>(raw: NonNull<M>) -> Result<Tensor> {
    // SAFETY: the caller's obligation 1 and 2.
    let managed = unsafe { Managed::from_raw(raw) };
    // SAFETY: the caller's obligation 1.
    let (tensor, flags) = unsafe { M::open(raw) }?;
    let dtype = DType::try_from(tensor.dtype)?;
    let (device, kind, access) = place_of(tensor.device)?;
    // SAFETY: the caller's obligation 1.
    let layout = unsafe { layout_of(&tensor) }?;
    let bytes = layout.byte_range(dtype.size())?.end;
    let mut record = Record::new(first_of(&tensor, &layout, bytes, dtype)?, bytes, device, access);
    record.requested = bytes;
    record.kind = kind;
    record.align = dtype.alignment();
    // SAFETY: `delete` takes the context back, once, on any thread (obligation 2 of the caller).
    let deleter = unsafe { Deleter::from_fn(delete::<M>, managed.into_raw().as_ptr().cast()) };
    // SAFETY: obligations 3 and 4 of the caller, for the span of the layout; memory that is not valid for
    // writes is never written: writes are refused below, for good, before anything else has the storage.
    let storage = unsafe { Storage::from_record(record, deleter) };
    if flags & READ_ONLY != 0 {
        storage.mark_immutable("DLPack's producer marked it read-only");
    }
    Tensor::from_storage(storage, layout, dtype)
}

/// # Safety
///
/// `context` is a managed tensor that the caller owns, as [`Managed::from_raw`] requires.
unsafe fn delete<M: ManagedTensor>(context: *mut c_void, _: *mut u8) {
    if let Some(raw) = NonNull::new(context.cast::<M>()) {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Managed::from_raw(raw) });
    }
}

/// Returns the checked sizes and strides, with an offset of zero.
///
/// # Safety
///
/// `shape` points to `ndim` numbers, and so does `strides`, unless they are null.
unsafe fn layout_of(tensor: &DLTensor) -> Result<Layout> {
    let ndim = usize::try_from(tensor.ndim).map_err(|_| DlpackError::Ndim { ndim: tensor.ndim.into() })?;
    // SAFETY: guaranteed by the caller.
    let sizes = unsafe { numbers(tensor.shape, ndim) }.ok_or(DlpackError::NullShape { ndim })?;
    let shape = Shape::new(sizes)?;
    // SAFETY: guaranteed by the caller.
    let strides = match unsafe { numbers(tensor.strides, ndim) } {
        Some(strides) => Strides::for_shape(&shape, strides)?,
        None => Strides::contiguous(&shape),
    };
    Ok(Layout::new(shape, strides, 0)?)
}

/// Returns `len` numbers, or `None` if the pointer is null and `len` is not 0.
///
/// # Safety
///
/// `ptr` is null, or points to `len` numbers that stay valid and unchanged for `'a`.
unsafe fn numbers<'a>(ptr: *const i64, len: usize) -> Option<&'a [i64]> {
    match (ptr.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: guaranteed by the caller.
        (false, _) => Some(unsafe { slice::from_raw_parts(ptr, len) }),
    }
}

/// Returns the address of the first element, of `bytes` that the layout spans. Without elements it is any
/// aligned address.
fn first_of(tensor: &DLTensor, layout: &Layout, bytes: usize, dtype: DType) -> Result<NonNull<u8>> {
    let align = dtype.alignment().bytes();
    if layout.is_empty() {
        // Not null: an alignment is at least one.
        return Ok(NonNull::new(std::ptr::without_provenance_mut(align)).unwrap_or(NonNull::dangling()));
    }
    let data = tensor.data.cast::<u8>();
    if data.is_null() {
        return Err(DlpackError::NullData { numel: layout.numel() }.into());
    }
    let inside = |byte_offset: usize| {
        let address = data.addr().checked_add(byte_offset)?;
        address.checked_add(bytes).map(|_| data.wrapping_add(byte_offset))
    };
    let first = usize::try_from(tensor.byte_offset).ok().and_then(inside).and_then(NonNull::new);
    let outside = DlpackError::Address { address: data.addr(), byte_offset: tensor.byte_offset, bytes };
    let first = first.ok_or(outside)?;
    if dtype.alignment().is_aligned(first.addr().get()) {
        Ok(first)
    } else {
        Err(Error::Misaligned { address: first.addr().get(), align })
    }
}
