//! Arrow's buffers and orlop's tensors share memory, both ways, without a copy.
//!
//! Arrow's buffers are immutable and shared between threads. So a tensor becomes a buffer only if nothing
//! else uses its storage, and a tensor over a buffer is immutable
//! ([`Storage::mark_immutable`](orlop::tensor::Storage::mark_immutable)).
//!
//! ```
//! use arrow_buffer::ScalarBuffer;
//! use orlop::prelude::*;
//!
//! let tensor = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0])?;
//! let floats = ScalarBuffer::<f32>::from(orlop_arrow::into_buffer(tensor)?);
//! assert_eq!(floats[3], 4.0);
//!
//! let matrix = orlop_arrow::from_buffer(floats.inner().clone(), [2, 2], DType::F32)?;
//! assert_eq!(matrix.as_slice::<f32>()?.as_ptr(), floats.as_ptr());
//! assert!(matrix.fill_(0.0).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use arrow_buffer::Buffer;
use orlop::prelude::*;
use orlop::tensor::IntoShape;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of orlop failed.
    #[error(transparent)]
    Tensor(#[from] orlop::tensor::Error),
    /// The buffer has another number of bytes than the tensor needs.
    #[error("a buffer of {actual} bytes for a tensor of {expected} bytes")]
    Length {
        /// The bytes of the shape.
        expected: usize,
        /// The bytes of the buffer.
        actual: usize,
    },
    /// Something else uses the storage of the tensor, or its memory cannot be moved out.
    #[error("the memory of the tensor is shared, or is not its own")]
    Shared,
    /// Another handle of the storage replaced its memory at the same time.
    #[error("the memory of the tensor was replaced meanwhile")]
    Changed,
    /// Arrow's booleans are bits, which a tensor cannot have as elements.
    #[error("Arrow's booleans are bits: they are not the elements of a tensor")]
    Bits,
}

/// Why writes to the storage are refused.
const SHARED: &str = "an Arrow buffer shares this memory";

/// A tensor that did not become a buffer.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct NotABuffer {
    /// The tensor, unchanged; undefined after [`Error::Changed`].
    pub tensor: Tensor,
    /// Why.
    pub source: Error,
}

/// Converts a contiguous tensor into a buffer, without a copy. The block returns to its allocator when the
/// buffer, and all that share it, are dropped.
///
/// # Errors
///
/// The tensor, with [`Error::Shared`] if anything else uses its storage, or if the storage does not own
/// memory that can be moved out ([`Storage::into_block`](orlop::tensor::Storage::into_block)): planned
/// memory, mapped files. With [`Error::Bits`], or with [`Error::Tensor`] for a tensor with gaps between its
/// elements, outside of host memory, or borrowed for writing. An undefined tensor with [`Error::Changed`] if
/// another handle replaces the memory during the call.
pub fn into_buffer(tensor: Tensor) -> std::result::Result<Buffer, NotABuffer> {
    let range = match element_bytes(&tensor) {
        Ok(range) => range,
        Err(source) => return Err(NotABuffer { tensor, source }),
    };
    let (layout, dtype) = (tensor.layout().clone(), tensor.dtype());
    let storage = match tensor.storage() {
        Ok(storage) => storage.clone(),
        Err(source) => return Err(NotABuffer { tensor, source: source.into() }),
    };
    drop(tensor);
    let changed = || NotABuffer { tensor: Tensor::default(), source: Error::Changed };
    let block = match storage.into_block() {
        // Another handle may have changed the storage since the elements were looked up, and was dropped.
        Ok(block) if range.end > block.len() => return Err(changed()),
        Ok(block) => block,
        Err(storage) => {
            let tensor = Tensor::from_storage(storage, layout, dtype).map_err(|_| changed())?;
            return Err(NotABuffer { tensor, source: Error::Shared });
        }
    };
    let (first, length) = (block.as_ptr(), block.len());
    // SAFETY: the block keeps its bytes allocated and initialised, and nothing else has access to them.
    let whole = unsafe { Buffer::from_custom_allocation(first, length, Arc::new(block)) };
    Ok(whole.slice_with_length(range.start, range.len()))
}

/// Returns where a tensor's elements are in its block, in bytes.
fn element_bytes(tensor: &Tensor) -> Result<Range<usize>> {
    if tensor.dtype() == DType::Bool {
        return Err(Error::Bits);
    }
    if tensor.numel() == 0 {
        // Checks what is checked for elements: host memory, and no writer.
        drop(tensor.storage()?.read()?);
        return Ok(0..0);
    }
    // The bytes of elements need a last stride of 1, which a contiguous tensor need not have: `[1, n].t()`.
    let elements = tensor.view([tensor.numel()])?.view_dtype(DType::U8)?;
    let elements = elements.as_slice::<u8>()?;
    let start = elements.as_ptr().addr() - tensor.storage()?.as_ptr()?.addr();
    Ok(start..start + elements.len())
}

/// Creates a row-major tensor over a buffer, without a copy. Its storage is immutable, and is counted in the
/// current context as foreign memory of the default kind.
///
/// # Errors
///
/// [`Error::Length`]; [`Error::Bits`]; [`Error::Tensor`] for invalid sizes, and for a buffer that is not
/// aligned for the dtype.
pub fn from_buffer(buffer: Buffer, shape: impl IntoShape, dtype: DType) -> Result<Tensor> {
    if dtype == DType::Bool {
        return Err(Error::Bits);
    }
    let shape = shape.into_shape()?;
    let expected = shape.checked_bytes(dtype.size()).map_err(orlop::tensor::Error::from)?;
    let actual = buffer.len();
    if expected != actual {
        return Err(Error::Length { expected, actual });
    }
    let address = buffer.as_ptr().addr();
    let align = dtype.alignment();
    if expected > 0 && !align.is_aligned(address) {
        return Err(orlop::tensor::Error::Misaligned { address, align: align.bytes() }.into());
    }
    let first = NonNull::from(buffer.as_slice()).cast::<u8>();
    // SAFETY: the buffer keeps its bytes allocated and initialised; nothing writes them, not even through the
    // tensor, whose storage nothing else has before it is immutable.
    let tensor = unsafe { Tensor::from_foreign(first, shape, dtype, buffer) }?;
    tensor.storage()?.mark_immutable(SHARED);
    Ok(tensor)
}
