//! The error type of the crate, and those of the interchange formats.
//!
//! The formats' errors are here and not beside their readers: [`Error`] contains them, and every reader
//! returns an [`Error`].

#[cfg(feature = "archive")]
pub(crate) mod archive;
#[cfg(feature = "dlpack")]
pub(crate) mod dlpack;
#[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
mod no_such_tensor;
#[cfg(feature = "npy")]
pub(crate) mod npy;
mod revocation;
#[cfg(feature = "safetensors")]
pub(crate) mod safetensors;

#[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
pub use self::no_such_tensor::NoSuchTensor;
pub use self::revocation::{Revocation, RevokedBy};

use orlop_core::{DType, Device, MemoryKind};
use std::sync::Arc;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Incompatible sizes, strides, dimensions, dtypes or formats.
    #[error(transparent)]
    Layout(#[from] orlop_core::Error),
    /// An allocation or a device operation failed.
    #[error(transparent)]
    Alloc(#[from] orlop_alloc::Error),
    /// The host heap cannot hold a copy of the elements, or a list of the handles.
    #[error("cannot allocate {bytes} bytes of host memory for the result")]
    HostMemory {
        /// The requested number of bytes.
        bytes: usize,
        /// The heap's error.
        source: std::collections::TryReserveError,
    },
    /// The tensor has no value: it is [`Tensor::undefined`](crate::Tensor::undefined).
    #[error("the tensor is undefined")]
    Undefined,
    /// Another handle, on this thread or on another, is reading or writing the storage.
    #[error("the storage is borrowed by {by}: drop that accessor or slice first")]
    Borrowed {
        /// The kind of access in progress.
        by: Borrower,
    },
    /// The storage does not allow writes.
    #[error("the storage is read-only{}", because(reason))]
    ReadOnly {
        /// The message that was set with the refusal.
        reason: Option<Box<str>>,
    },
    /// The storage refuses access to its bytes.
    #[error("the storage refuses access to its data{}", because(reason))]
    AccessRefused {
        /// The message that was set with the refusal.
        reason: Option<Box<str>>,
    },
    /// The storage is unbound: it has no memory until its size is known, or none any more.
    #[error("the storage has no memory{}", why_unbound(revoked.as_deref()))]
    Unbound {
        /// The end of its time in a plan, if that took its memory.
        revoked: Option<Arc<Revocation>>,
    },
    /// The storage is already bound to memory.
    #[error("the storage is bound already")]
    AlreadyBound,
    /// Planned memory is still in use although its time is over.
    #[error("the memory is in use: its address was handed out, or an export or another owner shares it")]
    MemoryInUse,
    /// The storage cannot be resized.
    #[error("the storage cannot be resized: {why}")]
    NotResizable {
        /// The reason.
        why: Unresizable,
    },
    /// A [`StorageHook`](crate::StorageHook) returned a block that does not satisfy the request.
    #[error("the storage hook of {device} returned a block that does not satisfy the request: {fault}")]
    StorageHook {
        /// The device of the hook.
        device: Device,
        /// The fault of the block.
        fault: HookFault,
    },
    /// An operation that is not possible with the memory of another process.
    #[error("{operation} is not possible with the memory of another process: clone the data first")]
    ForeignProcess {
        /// The requested operation.
        operation: &'static str,
    },
    /// Sizes or offsets of the elements exceed the indices of a packed accessor.
    #[error("the tensor has more elements than {bits}-bit indices reach: use 64-bit ones")]
    IndexTooNarrow {
        /// The bits of an index.
        bits: usize,
    },
    /// The elements have another type than requested.
    #[error("the tensor holds {actual}, not {expected}")]
    DTypeMismatch {
        /// The requested type.
        expected: DType,
        /// The tensor's type.
        actual: DType,
    },
    /// The tensor has another number of dimensions than requested.
    #[error("the tensor has {actual} dimensions, not {expected}")]
    RankMismatch {
        /// The requested number.
        expected: usize,
        /// The tensor's number.
        actual: usize,
    },
    /// A wrong number of elements.
    #[error("the number of elements is {actual}, not {expected}")]
    CountMismatch {
        /// The number needed.
        expected: usize,
        /// The number given.
        actual: usize,
    },
    /// A slice needs contiguous elements.
    #[error("the elements are not contiguous: use an accessor, or `contiguous` first")]
    NotContiguous,
    /// Elements share memory, so a write to one would change others.
    #[error("elements of the tensor share memory, as after `expand`: clone it before writing")]
    InternalOverlap,
    /// An address that is not aligned for the type.
    #[error("address {address:#x} is not a multiple of {align} bytes")]
    Misaligned {
        /// The address.
        address: usize,
        /// The required alignment in bytes.
        align: usize,
    },
    /// The tensor is on another device than needed.
    #[error("the tensor is on {actual}, not on {expected}")]
    DeviceMismatch {
        /// The device needed.
        expected: Device,
        /// The tensor's device.
        actual: Device,
    },
    /// Nested data with rows of different lengths.
    #[error("the data is ragged: {first} elements in one row and {other} in another")]
    Ragged {
        /// Elements in the first row.
        first: usize,
        /// Elements in the other.
        other: usize,
    },
    /// The requested tensor is not in the file.
    #[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
    #[error(transparent)]
    NoSuchTensor(#[from] Box<NoSuchTensor>),
    /// A range that does not end, or is not finite.
    #[error("a range from {start} to {end} by {step} has no end")]
    EmptyRange {
        /// The first value.
        start: f64,
        /// The end, exclusive.
        end: f64,
        /// The step.
        step: f64,
    },
    /// A byte of a `bool` tensor that is neither 0 nor 1.
    #[error("byte {byte} at element {index} is not a bool")]
    NotBool {
        /// The index of the element.
        index: usize,
        /// The byte.
        byte: u8,
    },
    /// An error of [`interchange::safetensors`](crate::interchange::safetensors).
    #[cfg(feature = "safetensors")]
    #[error(transparent)]
    Safetensors(#[from] safetensors::SafetensorsError),
    /// An error of [`interchange::npy`](crate::interchange::npy).
    #[cfg(feature = "npy")]
    #[error(transparent)]
    Npy(#[from] npy::NpyError),
    /// An error of [`interchange::dlpack`](crate::interchange::dlpack).
    #[cfg(feature = "dlpack")]
    #[error(transparent)]
    Dlpack(#[from] dlpack::DlpackError),
    /// An error of [`interchange::archive`](crate::interchange::archive).
    #[cfg(feature = "archive")]
    #[error(transparent)]
    Archive(#[from] archive::ArchiveError),
}

impl Error {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Alloc(error) => error.is_out_of_memory(),
            Self::HostMemory { .. } => true,
            #[cfg(feature = "safetensors")]
            Self::Safetensors(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// The fault of a block that a [`StorageHook`](crate::StorageHook) returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookFault {
    /// The block is too small.
    #[error("{actual} bytes, not {expected}")]
    Bytes {
        /// The requested size.
        expected: usize,
        /// The size of the block.
        actual: usize,
    },
    /// The block is on another device.
    #[error("it is on {actual}")]
    Device {
        /// The device of the block.
        actual: Device,
    },
    /// The block is of another kind.
    #[error("it is {actual}, not {expected}")]
    Kind {
        /// The requested kind.
        expected: MemoryKind,
        /// The kind of the block.
        actual: MemoryKind,
    },
    /// The address of the block is not aligned as requested.
    #[error("address {address:#x} is not a multiple of {align} bytes")]
    Misaligned {
        /// The address.
        address: usize,
        /// The requested alignment in bytes.
        align: usize,
    },
}

/// The access that borrows a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Borrower {
    /// One or more readers.
    Readers,
    /// A writer.
    Writer,
}

impl std::fmt::Display for Borrower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Readers => "readers",
            Self::Writer => "a writer",
        })
    }
}

/// The reason why a storage cannot be resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unresizable {
    /// Its memory is foreign.
    Foreign,
    /// It is a range of another storage.
    Part,
    /// It was created with a fixed size.
    Fixed,
    /// A plan determines when its bytes are used, and by what.
    Planned,
}

impl std::fmt::Display for Unresizable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "its memory is foreign",
            Self::Part => "it is a part of another storage",
            Self::Fixed => "it was created with a fixed size",
            Self::Planned => "its memory is planned",
        })
    }
}

fn why_unbound(revoked: Option<&Revocation>) -> String {
    match revoked {
        Some(revocation) => format!(" any more: {revocation}"),
        None => " yet: bind it to a size first".into(),
    }
}

fn because(reason: &Option<Box<str>>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}
