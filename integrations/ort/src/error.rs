//! The errors of this crate.

use orlop::types::DType;
use std::io;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// ONNX Runtime refused a call.
    #[error("ONNX Runtime: {0}")]
    Runtime(#[from] ort::Error),
    /// A request of ONNX Runtime was refused, so that its call failed.
    #[error("a request of ONNX Runtime was refused: {refusal}")]
    Refused {
        /// Why the last request was refused: for a lack of memory, with the report.
        refusal: orlop::memory::Error,
        /// What ONNX Runtime made of it.
        runtime: ort::Error,
    },
    /// An allocator of orlop failed.
    #[error(transparent)]
    Memory(#[from] orlop::memory::Error),
    /// A tensor of orlop could not be lent or created.
    #[error(transparent)]
    Tensor(#[from] orlop::tensor::Error),
    /// ONNX Runtime has no element type for this dtype, or this crate does not convert it.
    #[error("elements of {0} cannot be passed to ONNX Runtime")]
    UnsupportedDType(DType),
    /// An output is not a tensor on the CPU whose elements orlop has a dtype for.
    #[error("the output {name:?} ({what}) cannot become a tensor")]
    UnsupportedOutput {
        /// The name of the output.
        name: String,
        /// Its type in ONNX Runtime.
        what: String,
    },
    /// The C++ library that ONNX Runtime uses cannot be found, so a request could not be refused.
    ///
    /// ONNX Runtime ends the process when an allocator returns null. Only an exception of C++ becomes an
    /// error of its call, and that is thrown by the function of the system's `libstdc++`.
    #[error("no C++ library that can throw std::bad_alloc: {0}")]
    NoBadAlloc(#[source] io::Error),
    /// The program is built with `panic = "abort"`: the exception that refuses a request would end the
    /// process.
    #[error("a program with panic = \"abort\" cannot refuse a request of ONNX Runtime")]
    CannotRefuse,
}
