//! Errors of tensors, as exceptions of Python.

use pyo3::PyErr;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use std::ffi::CStr;

/// The reasons why memory cannot be allocated, shared or resized.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TensorError {
    /// An operation on tensors failed.
    #[error(transparent)]
    Tensor(#[from] orlop_tensor::Error),
    /// Others use the memory.
    #[error("the memory is exported: a tensor can be resized when its arrays, views and capsules are gone")]
    Exported,
    /// The buffer protocol has no format for the elements.
    #[error("the buffer protocol has no format for {dtype}: use from_dlpack")]
    NoFormat { dtype: orlop_core::DType },
    /// A buffer has a format that is no element type.
    #[error("no dtype corresponds to the format {format:?} with {bytes} bytes")]
    Format { format: String, bytes: usize },
    /// A buffer without dimensions whose bytes Python does not give.
    #[error("one element without dimensions in a format that Python does not cast to bytes: give an array")]
    Element,
    /// A consumer asks for another order of the elements than they have.
    #[error("the elements are not in the order that the consumer asks for")]
    Order,
    /// A consumer asks to write memory that must not be written.
    #[error("the tensor is read-only")]
    ReadOnly,
    /// A buffer has indirections, or strides that are negative or no multiple of the elements' size.
    #[error("the buffer has strides of {stride} bytes for elements of {bytes} bytes: copy it first")]
    Strides { stride: isize, bytes: usize },
    /// A buffer of pointers to rows.
    #[error("a buffer with suboffsets cannot be a tensor: copy it first")]
    Suboffsets,
    /// The source's memory is not the host's.
    #[error("the memory is on device type {device_type} of DLPack: copy it to the host first")]
    Device { device_type: i32 },
    /// What `__dlpack__` returned is no capsule of DLPack, or a used one.
    #[error("no unused capsule named \"dltensor\" or \"dltensor_versioned\"")]
    NoCapsule,
}

impl TensorError {
    /// The error for a format that is no element type.
    pub(super) fn format(format: &CStr, bytes: usize) -> Self {
        Self::Format { format: format.to_string_lossy().into_owned(), bytes }
    }
}

impl From<TensorError> for PyErr {
    fn from(error: TensorError) -> Self {
        let text = error.to_string();
        match error {
            TensorError::Tensor(error) if error.is_out_of_memory() => PyMemoryError::new_err(text),
            TensorError::Tensor(orlop_tensor::Error::Layout(_)) => PyValueError::new_err(text),
            TensorError::Tensor(orlop_tensor::Error::Alloc(_)) => PyValueError::new_err(text),
            _ => PyBufferError::new_err(text),
        }
    }
}
