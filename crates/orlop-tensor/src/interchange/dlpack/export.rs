//! Exporting tensors to other frameworks.
//!
//! An export is one heap object: the managed tensor, its sizes and strides, and a share of the block of
//! memory. It shares the block and not the tensor, because a storage can be resized, or get another block
//! when a deferred copy is made; the block that the consumer uses stays.

use super::abi::{DLDataType, DLDevice, DLTensor, IS_COPIED, READ_ONLY};
use super::managed::{DlpackTensor, LegacyDlpackTensor, Managed, ManagedTensor};
use crate::borrows::Flags;
use crate::error::Result;
use crate::error::dlpack::DlpackError;
use crate::storage::TensorImpl;
use crate::tensor::Tensor;
use orlop_alloc::MemoryBlock;
use orlop_core::{Error as LayoutError, Quantity, Strides};
use std::ptr::{self, NonNull};

/// Exports the tensor to consumers that only read it ([`READ_ONLY`]). Nothing is copied: lazy clones stay
/// lazy, and storages that refuse writes are accepted.
///
/// The memory stays valid until the deleter is called, whatever happens to the tensor. The consumer sees
/// later writes through the tensor, except after a write that makes a deferred copy. It must not read while
/// the tensor is written.
///
/// ```
/// use orlop_tensor::{Tensor, interchange::dlpack};
///
/// let tensor = Tensor::from_nested(&[[1i64, 2, 3], [4, 5, 6]])?.t()?;
/// let exported = dlpack::export(&tensor)?;
/// // SAFETY: the exported tensor is alive, and of this version.
/// let managed = unsafe { &*exported.as_ptr() };
/// assert_eq!((managed.dl_tensor.ndim, managed.flags), (2, dlpack::READ_ONLY));
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Undefined`](crate::Error::Undefined); [`Error::Borrowed`](crate::Error::Borrowed) during a write;
/// [`Error::AccessRefused`](crate::Error::AccessRefused), [`Error::Unbound`](crate::Error::Unbound);
/// [`Error::ForeignProcess`](crate::Error::ForeignProcess); [`DlpackError::UnnamedDevice`].
pub fn export(tensor: &Tensor) -> Result<DlpackTensor> {
    let imp = tensor.imp()?;
    let guard = imp.read()?;
    hand_out(imp, guard.block(), guard.bytes(), READ_ONLY)
}

/// Exports the tensor to consumers that read and write it. A deferred copy is made first. Later clones of the
/// storage are real copies, because the consumer's writes cannot be observed.
///
/// Elements that share memory, as after `expand`, are exported as they are.
///
/// # Errors
///
/// Those of [`export`], and [`Error::Borrowed`](crate::Error::Borrowed) during a read;
/// [`Error::ReadOnly`](crate::Error::ReadOnly); out of memory if a copy is needed.
pub fn export_mut(tensor: &Tensor) -> Result<DlpackTensor> {
    hand_out_mut(tensor)
}

/// [`export_mut`] for consumers of DLPack before version 1.0, which has no flag for read-only memory.
///
/// # Errors
///
/// Those of [`export_mut`].
pub fn export_legacy(tensor: &Tensor) -> Result<LegacyDlpackTensor> {
    hand_out_mut(tensor)
}

/// Exports a copy of the tensor, which only the consumer uses ([`IS_COPIED`]).
///
/// # Errors
///
/// Those of [`export`] and of [`Tensor::duplicate`]. Memory of another process is copied without an error.
pub fn export_copy(tensor: &Tensor) -> Result<DlpackTensor> {
    let copy = tensor.duplicate()?;
    let imp = copy.imp()?;
    let guard = imp.read()?;
    hand_out(imp, guard.block(), guard.bytes(), IS_COPIED)
}

fn hand_out_mut<M: ManagedTensor>(tensor: &Tensor) -> Result<Managed<M>> {
    let imp = tensor.imp()?;
    let guard = imp.write()?;
    let exported = hand_out(imp, guard.block(), guard.bytes(), 0)?;
    // The guard excludes a lazy clone between the copy and this.
    imp.storage().cell().borrows.set(Flags::ESCAPED);
    Ok(exported)
}

/// The heap object behind an exported tensor.
#[repr(C)]
struct Export<M> {
    /// First, so that its address is the box's.
    managed: M,
    /// The sizes, followed by the strides; the managed tensor points here.
    dims: Vec<i64>,
    block: MemoryBlock,
}

/// Exports a share of a block that a guard holds and of which `bytes` are in use.
fn hand_out<M: ManagedTensor>(
    imp: &TensorImpl,
    block: &MemoryBlock,
    bytes: usize,
    flags: u64,
) -> Result<Managed<M>> {
    imp.storage().check_own_process("exporting")?;
    block.check_reachable()?;
    let (layout, device) = (&imp.layout, DLDevice::try_from(block.device)?);
    let data = if layout.is_empty() {
        ptr::null_mut()
    } else {
        let first = layout.byte_range(imp.dtype.size())?.start;
        imp.origin(block.ptr, bytes)?.as_ptr().wrapping_add(first)
    };
    // Strides along sizes of 0 or 1 may be anything. Some consumers compare all of them, so they get
    // row-major strides.
    let usual = layout.is_contiguous().then(|| Strides::contiguous(layout.shape()));
    let strides = usual.as_ref().unwrap_or(layout.strides());
    let mut dims = Vec::with_capacity(2 * layout.ndim());
    for &dim in layout.shape().iter().chain(strides.iter()) {
        dims.push(i64::try_from(dim).map_err(|_| LayoutError::Overflow { quantity: Quantity::ElementSpan })?);
    }
    let tensor = DLTensor {
        data: data.cast(),
        device,
        ndim: i32::try_from(layout.ndim())
            .map_err(|_| DlpackError::Ndim { ndim: i64::try_from(layout.ndim()).unwrap_or(i64::MAX) })?,
        dtype: DLDataType::from(imp.dtype),
        shape: dims.as_mut_ptr(),
        strides: dims.as_mut_ptr().wrapping_add(layout.ndim()),
        byte_offset: 0,
    };
    let place = Box::into_raw(Box::<Export<M>>::new_uninit()).cast::<Export<M>>();
    let managed = M::new(tensor, place.cast(), release::<M>, flags);
    // SAFETY: a box allocated for this value.
    unsafe { place.write(Export { managed, dims, block: block.clone() }) };
    // SAFETY: the address of a box.
    let raw = unsafe { NonNull::new_unchecked(place) }.cast::<M>();
    // SAFETY: the first field of the box, which nothing else uses; `release` takes it back, on any thread,
    // because a block may be dropped on any.
    Ok(unsafe { Managed::from_raw(raw) })
}

/// The deleter of all exports. A panic in it (in the owner of foreign memory) aborts the process.
///
/// # Safety
///
/// `managed` is a managed tensor from [`hand_out`], and this is the only call for it.
unsafe extern "C" fn release<M: ManagedTensor>(managed: *mut M) {
    let Some(managed) = NonNull::new(managed) else { return };
    // SAFETY: guaranteed by the caller.
    let place = unsafe { M::context(managed) }.cast::<Export<M>>();
    // SAFETY: the box of `hand_out`, which stored it as the context; taken back once.
    drop(unsafe { Box::from_raw(place) });
}
