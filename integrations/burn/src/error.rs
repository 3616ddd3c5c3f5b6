//! Errors of this crate.

use burn_std::AccessError;
use orlop::prelude::*;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of orlop failed.
    #[error(transparent)]
    Tensor(#[from] orlop::tensor::Error),
    /// burn has no such dtype.
    #[error("burn has no dtype {0}")]
    DType(DType),
    /// Quantised data has scales besides its elements.
    #[error("quantised data is no tensor of its elements alone")]
    Quantized,
    /// The data has another number of bytes than its sizes need.
    #[error("data of {actual} bytes for sizes that need {expected:?}")]
    Length {
        /// The bytes of the sizes; `None` if there are more than `usize` counts.
        expected: Option<usize>,
        /// The bytes of the data.
        actual: usize,
    },
    /// A boolean is neither 0 nor 1.
    #[error("a boolean is neither 0 nor 1")]
    NotBool,
    /// Something else uses the storage of the tensor, or its memory cannot be moved out.
    #[error("the memory of the tensor is shared, or is not its own")]
    Shared,
    /// Another handle of the storage replaced its memory at the same time.
    #[error("the memory of the tensor was replaced meanwhile")]
    Changed,
    /// burn has the data elsewhere: in a file or on a device.
    #[error("the data is not in host memory: {0}")]
    Access(AccessError),
}

/// A tensor that did not become data of burn.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct NotBytes {
    /// The tensor, unchanged; undefined after [`Error::Changed`].
    pub tensor: Tensor,
    /// Why.
    pub source: Error,
}
