//! What can go wrong, typed, with the figures a caller needs to act on it.

use orlop_core::{DType, Device, MemoryKind};

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sizes, strides, dims, dtypes or formats that do not go together.
    #[error(transparent)]
    Layout(#[from] orlop_core::Error),
    /// The memory is not to be had, or the device does not do that.
    #[error(transparent)]
    Alloc(#[from] orlop_alloc::Error),
    /// The host has no room for a copy of the elements, or for as many handles.
    #[error("no {bytes} bytes of host memory for a result of this size")]
    HostMemory {
        /// Bytes wanted.
        bytes: usize,
        /// What the heap says.
        source: std::collections::TryReserveError,
    },
    /// The tensor has no value: it is [`Tensor::undefined`](crate::Tensor::undefined).
    #[error("the tensor is undefined")]
    Undefined,
    /// Somebody else, or the same thread through another handle, is reading or writing the same storage.
    #[error("the storage is borrowed by {by}: drop that accessor or slice first")]
    Borrowed {
        /// Who has it.
        by: Borrower,
    },
    /// The storage does not allow writes.
    #[error("the storage is read-only{}", because(reason))]
    ReadOnly {
        /// What its owner says about it.
        reason: Option<Box<str>>,
    },
    /// The storage allows no access to its bytes.
    #[error("the storage gives no access to its data{}", because(reason))]
    AccessRefused {
        /// What its owner says about it.
        reason: Option<Box<str>>,
    },
    /// The storage has no memory yet: its size was not known.
    #[error("the storage has no memory yet: bind it to a size first")]
    Unbound,
    /// The storage has memory already.
    #[error("the storage is bound already")]
    AlreadyBound,
    /// The storage cannot be resized: its memory is not an allocator's, or it is a part of another.
    #[error("the storage cannot be resized: {why}")]
    NotResizable {
        /// Why not.
        why: Unresizable,
    },
    /// A backend's [`StorageHook`](crate::StorageHook) gave a block that is not what it was asked for.
    #[error("the storage hook of {device} gave a block that is not as asked: {fault}")]
    StorageHook {
        /// Whose hook.
        device: Device,
        /// What is wrong with the block.
        fault: HookFault,
    },
    /// Not possible with another process's memory.
    #[error("{operation} is not possible with the memory of another process: clone the data first")]
    ForeignProcess {
        /// What was asked.
        operation: &'static str,
    },
    /// The elements are of another type.
    #[error("the tensor holds {actual}, not {expected}")]
    DTypeMismatch {
        /// What was asked for.
        expected: DType,
        /// What there is.
        actual: DType,
    },
    /// The tensor has another number of dimensions.
    #[error("the tensor has {actual} dimensions, not {expected}")]
    RankMismatch {
        /// What was asked for.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// Another number of elements.
    #[error("{actual} elements, where {expected} are needed")]
    CountMismatch {
        /// What is needed.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// A slice needs elements one after the other.
    #[error("the elements do not lie one after the other: use an accessor, or `contiguous()` first")]
    NotContiguous,
    /// Elements share memory, and writes to one would show in others.
    #[error("elements of the tensor share memory, as `expand` makes it: clone it before writing")]
    InternalOverlap,
    /// The address is not a multiple of what the type needs.
    #[error("address {address:#x} is not a multiple of {align} bytes")]
    Misaligned {
        /// The address.
        address: usize,
        /// What it should be a multiple of.
        align: usize,
    },
    /// The bytes lie elsewhere.
    #[error("the tensor is on {actual}, not on {expected}")]
    DeviceMismatch {
        /// What is needed.
        expected: Device,
        /// Where it is.
        actual: Device,
    },
    /// Nested data whose parts are not of one length.
    #[error("the data is ragged: {first} elements in one row and {other} in another")]
    Ragged {
        /// Elements in the first row.
        first: usize,
        /// Elements in the other.
        other: usize,
    },
    /// A range that makes no tensor.
    #[error("a range from {start} to {end} by {step} has no end")]
    EmptyRange {
        /// Where it begins.
        start: f64,
        /// Where it should end.
        end: f64,
        /// Its step.
        step: f64,
    },
    /// A byte that is neither true nor false.
    #[error("byte {byte} at element {index} is no bool")]
    NotBool {
        /// Which element.
        index: usize,
        /// Its byte.
        byte: u8,
    },
    /// From [`interchange::safetensors`](crate::interchange::safetensors).
    #[cfg(feature = "safetensors")]
    #[error(transparent)]
    Safetensors(#[from] crate::interchange::safetensors::SafetensorsError),
    /// From [`interchange::npy`](crate::interchange::npy).
    #[cfg(feature = "npy")]
    #[error(transparent)]
    Npy(#[from] crate::interchange::npy::NpyError),
    /// From [`interchange::dlpack`](crate::interchange::dlpack).
    #[cfg(feature = "dlpack")]
    #[error(transparent)]
    Dlpack(#[from] crate::interchange::dlpack::DlpackError),
    /// From [`interchange::archive`](crate::interchange::archive).
    #[cfg(feature = "archive")]
    #[error(transparent)]
    Archive(#[from] crate::interchange::archive::ArchiveError),
}

/// What is wrong with a block that a [`StorageHook`](crate::StorageHook) gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookFault {
    /// It is too small.
    #[error("{actual} bytes, not {expected}")]
    Bytes {
        /// What was asked for.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// It is elsewhere.
    #[error("it is on {actual}")]
    Device {
        /// Where it is.
        actual: Device,
    },
    /// It is of another kind.
    #[error("it is {actual}, not {expected}")]
    Kind {
        /// What was asked for.
        expected: MemoryKind,
        /// What it is.
        actual: MemoryKind,
    },
    /// Its address is not a multiple of what was asked for.
    #[error("address {address:#x} is not a multiple of {align} bytes")]
    Misaligned {
        /// The address.
        address: usize,
        /// What it should be a multiple of.
        align: usize,
    },
}

/// Who has a storage.
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

/// Why a storage keeps its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unresizable {
    /// Its memory came from outside.
    Foreign,
    /// It is a range of another storage.
    Part,
    /// It was made so.
    Fixed,
}

impl std::fmt::Display for Unresizable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "its memory came from outside",
            Self::Part => "it is a part of another",
            Self::Fixed => "it was made with a fixed size",
        })
    }
}

fn because(reason: &Option<Box<str>>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}
