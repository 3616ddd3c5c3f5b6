//! Host memory of orlop under burn's tensors, and back, without a copy.
//!
//! burn keeps the elements of host tensors in [`Bytes`], behind an
//! [`AllocationController`](burn_std::AllocationController). So its tensors can have memory that burn knows
//! nothing of: weights in a mapped file ([`share`]), blocks that an allocator of orlop counts against a
//! budget or pins ([`into_bytes`]).
//!
//! ```
//! use orlop::prelude::*;
//!
//! let tensor = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0])?;
//! let data = orlop_burn::share(&tensor)?;
//! assert_eq!(data.as_slice::<f32>()?, &[1.0, 2.0, 3.0, 4.0]);
//!
//! let back = orlop_burn::from_data(data)?;
//! assert_eq!(back.as_slice::<f32>()?.as_ptr(), tensor.as_slice::<f32>()?.as_ptr());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod controller;
mod error;

pub use self::controller::OrlopController;
pub use self::error::{Error, NotBytes, Result};

use burn_std::{AllocationProperty, BoolStore, Bytes, DType as BurnDType, Reader, TensorData};
use orlop::prelude::*;
use std::ops::Range;
use std::ptr::NonNull;

/// Why writes to the storage are refused.
const SHARED: &str = "a tensor of burn shares this memory";

/// Gives burn the elements of a contiguous tensor, without a copy. The storage becomes immutable
/// ([`Storage::mark_immutable`](orlop::tensor::Storage::mark_immutable)), and lives as long as burn uses it.
/// burn copies the elements, into memory of its own, before it writes them.
///
/// # Errors
///
/// [`Error::DType`] if burn has no such dtype; [`Error::Tensor`] for a tensor with gaps between its elements,
/// outside of host memory, or borrowed for writing.
pub fn share(tensor: &Tensor) -> Result<TensorData> {
    let dtype = burn_dtype(tensor.dtype())?;
    let bytes = if tensor.numel() == 0 {
        // Checks what is checked for elements: host memory, and no writer.
        drop(tensor.storage()?.read()?);
        bytes::Bytes::new()
    } else {
        bytes::Bytes::from_owner(SharedElements::new(tensor)?)
    };
    let bytes = Bytes::from_shared(bytes, AllocationProperty::Other);
    Ok(TensorData::from_bytes(bytes, tensor.sizes().to_vec(), dtype))
}

/// The elements of a tensor whose storage is immutable.
struct SharedElements {
    first: NonNull<u8>,
    length: usize,
    /// Keeps the elements.
    _tensor: Tensor,
}

// SAFETY: the elements can be read from any thread, and the tensor is `Send` and `Sync`.
unsafe impl Send for SharedElements {}
// SAFETY: as above.
unsafe impl Sync for SharedElements {}

impl SharedElements {
    fn new(tensor: &Tensor) -> Result<Self> {
        let flat = tensor.view([tensor.numel()])?.view_dtype(DType::U8)?;
        let elements = flat.as_slice::<u8>()?;
        let (first, length) = (NonNull::from(&*elements).cast(), elements.len());
        // While it is read: nothing is being written, and nothing will be.
        flat.storage()?.mark_immutable(SHARED);
        drop(elements);
        Ok(Self { first, length, _tensor: flat })
    }
}

impl AsRef<[u8]> for SharedElements {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: an immutable storage keeps its memory, unchanged, until its last handle is dropped, and
        // `_tensor` is one. The elements were read as a slice there.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.length) }
    }
}

/// Moves the block of a contiguous tensor into burn, without a copy: burn reads and writes it. It returns to
/// its allocator when burn drops it. Pinned memory says so ([`AllocationProperty::Pinned`]).
///
/// # Errors
///
/// The tensor, with [`Error::Shared`] if anything else uses its storage, or if the storage does not own
/// memory that can be moved out ([`Storage::into_block`](orlop::tensor::Storage::into_block)): planned
/// memory, mapped files, which [`share`] gives. With [`Error::DType`] or [`Error::Tensor`] as of [`share`].
/// An undefined tensor with [`Error::Changed`] if another handle replaces the memory during the call.
pub fn into_bytes(tensor: Tensor) -> std::result::Result<TensorData, NotBytes> {
    let (dtype, range) =
        match burn_dtype(tensor.dtype()).and_then(|dtype| Ok((dtype, element_bytes(&tensor)?))) {
            Ok(found) => found,
            Err(source) => return Err(NotBytes { tensor, source }),
        };
    let storage = match tensor.storage() {
        Ok(storage) => storage.clone(),
        Err(source) => return Err(NotBytes { tensor, source: source.into() }),
    };
    let (layout, orlop_dtype, sizes) = (tensor.layout().clone(), tensor.dtype(), tensor.sizes().to_vec());
    drop(tensor);
    let length = range.len();
    // Another handle may have changed the storage since the elements were looked up, before it was dropped.
    match storage.into_block().map(|block| OrlopController::new(block, range)) {
        Ok(Some(controller)) => {
            // SAFETY: the memory of tensors is initialised, and the controller has `length` bytes of it.
            let bytes = unsafe { Bytes::from_controller(Box::new(controller), length) };
            Ok(TensorData::from_bytes(bytes, sizes, dtype))
        }
        Ok(None) => Err(NotBytes { tensor: Tensor::default(), source: Error::Changed }),
        Err(storage) => match Tensor::from_storage(storage, layout, orlop_dtype) {
            Ok(tensor) => Err(NotBytes { tensor, source: Error::Shared }),
            Err(_) => Err(NotBytes { tensor: Tensor::default(), source: Error::Changed }),
        },
    }
}

/// Returns where a tensor's elements are in its block, in bytes.
fn element_bytes(tensor: &Tensor) -> Result<Range<usize>> {
    if tensor.numel() == 0 {
        drop(tensor.storage()?.read()?);
        return Ok(0..0);
    }
    let elements = tensor.view([tensor.numel()])?.view_dtype(DType::U8)?;
    let elements = elements.as_slice::<u8>()?;
    let start = elements.as_ptr().addr() - tensor.storage()?.as_ptr()?.addr();
    Ok(start..start + elements.len())
}

/// Creates a row-major tensor over data of burn, without a copy. Its storage is immutable, and is counted in
/// the current context as foreign memory of the default kind.
///
/// # Errors
///
/// [`Error::Quantized`] and [`Error::DType`]; [`Error::Access`] for data that is not in host memory;
/// [`Error::Tensor`] for data that is not aligned for the dtype, and for booleans that are neither 0 nor 1.
pub fn from_data(data: TensorData) -> Result<Tensor> {
    let (bytes, shape, dtype) = data.into_parts();
    let dtype = orlop_dtype(dtype)?;
    let elements = bytes.read(Reader::new().no_copy()).map_err(Error::Access)?;
    let (first, length) = (NonNull::from(elements).cast::<u8>(), elements.len());
    let sizes: Vec<usize> = shape.iter().copied().collect();
    let expected = sizes.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
    if expected != Some(length) {
        return Err(Error::Length { expected, actual: length });
    }
    if dtype == DType::Bool && elements.iter().any(|&byte| byte > 1) {
        return Err(Error::NotBool);
    }
    let align = dtype.alignment();
    if length > 0 && !align.is_aligned(first.addr().get()) {
        let (address, align) = (first.addr().get(), align.bytes());
        return Err(orlop::tensor::Error::Misaligned { address, align }.into());
    }
    // SAFETY: the memory is behind the controller's box, so that moving `bytes` leaves it in place; it is
    // initialised, and nothing writes it: not through `bytes`, which the storage keeps unused, nor through
    // the tensor, whose storage nothing else has before it is immutable.
    let tensor = unsafe { Tensor::from_foreign(first, sizes, dtype, bytes) }?;
    tensor.storage()?.mark_immutable(SHARED);
    Ok(tensor)
}

fn burn_dtype(dtype: DType) -> Result<BurnDType> {
    Ok(match dtype {
        DType::F64 => BurnDType::F64,
        DType::F32 => BurnDType::F32,
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        DType::I64 => BurnDType::I64,
        DType::I32 => BurnDType::I32,
        DType::I16 => BurnDType::I16,
        DType::I8 => BurnDType::I8,
        DType::U64 => BurnDType::U64,
        DType::U32 => BurnDType::U32,
        DType::U16 => BurnDType::U16,
        DType::U8 => BurnDType::U8,
        DType::Bool => BurnDType::Bool(BoolStore::Native),
        other => return Err(Error::DType(other)),
    })
}

fn orlop_dtype(dtype: BurnDType) -> Result<DType> {
    Ok(match dtype {
        BurnDType::F64 => DType::F64,
        BurnDType::F32 | BurnDType::Flex32 => DType::F32,
        BurnDType::F16 => DType::F16,
        BurnDType::BF16 => DType::BF16,
        BurnDType::I64 => DType::I64,
        BurnDType::I32 => DType::I32,
        BurnDType::I16 => DType::I16,
        BurnDType::I8 => DType::I8,
        BurnDType::U64 => DType::U64,
        BurnDType::U32 => DType::U32,
        BurnDType::U16 => DType::U16,
        BurnDType::U8 => DType::U8,
        BurnDType::Bool(BoolStore::Native | BoolStore::U8) => DType::Bool,
        BurnDType::Bool(BoolStore::U32) => DType::U32,
        BurnDType::QFloat(_) => return Err(Error::Quantized),
    })
}
