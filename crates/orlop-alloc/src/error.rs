//! Errors, with the figures that a caller needs to act on them.

use crate::OutOfMemory;
use orlop_core::{Alignment, DType, Device, MemoryKind, StreamId};
use std::error::Error as StdError;
use std::fmt;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory is unavailable. The report says which kinds and tags have the rest and what would have
    /// fitted; `{:#}` shows it in full.
    #[error(fmt = show_report)]
    OutOfMemory(Box<OutOfMemory>),
    /// The request is invalid: a size overflows, an alignment is not a power of two, or the device does not
    /// support the kind.
    #[error(transparent)]
    InvalidRequest(#[from] orlop_core::Error),
    /// No allocator is registered for this device and kind, nor for the device's default kind.
    #[error(
        "no allocator is registered for {device} {kind}, nor a default one for {device}{}",
        backend_hint(*device)
    )]
    NoAllocator {
        /// The requested device.
        device: Device,
        /// The requested kind.
        kind: MemoryKind,
    },
    /// A backend of another crate failed. [`std::error::Error::source`] is its own error, which
    /// [`Error::backend_error`] returns by its type.
    #[error("{0}")]
    Backend(#[source] Box<dyn StdError + Send + Sync>),
    /// A backend of another crate has no memory left. Otherwise as [`Error::Backend`].
    #[error("{0}")]
    BackendOutOfMemory(#[source] Box<dyn StdError + Send + Sync>),
    /// The context has no operations for memory of this device.
    #[error("no device operations are registered for {device}{}", backend_hint(*device))]
    NoDeviceOps {
        /// The device.
        device: Device,
    },
    /// The request is for zeroed memory, and the backing cannot zero memory that was used before.
    #[error("the request is for zeroed memory, and memory on {device} cannot be zeroed")]
    CannotZero {
        /// The device.
        device: Device,
    },
    /// The memory would be reused or freed without waiting for the stream, as soon as the block returns.
    #[error(
        "stream {stream} cannot be recorded on this memory of {device}: its allocator does not wait for \
         streams; synchronize with the stream before the block is dropped"
    )]
    StreamsNotHonoured {
        /// The device that the memory is on.
        device: Device,
        /// The stream that was to be recorded.
        stream: StreamId,
    },
    /// Neither the device's operations nor an allocator on it reports the size of its memory.
    #[error(
        "the size of {device}'s memory is unknown: neither its operations nor an allocator on it reports it"
    )]
    MemoryUnknown {
        /// The device.
        device: Device,
    },
    /// The operations of neither device can copy between the two.
    #[error("no registered operations can copy from {from} to {to}")]
    NoCopyPath {
        /// The source's device.
        from: Device,
        /// The destination's device.
        to: Device,
    },
    /// The memory is on another device than the one that these operations access.
    #[error("the operations of {operations} cannot access memory on {device}")]
    WrongOperations {
        /// The device of the operations.
        operations: Device,
        /// The device that the memory is on.
        device: Device,
    },
    /// The device's operations do not cast between these types.
    #[error("the device's operations cannot cast {from} to {to}")]
    CannotCast {
        /// The dtype of the source.
        from: DType,
        /// The dtype of the destination.
        to: DType,
    },
    /// The allocator is not on the device that it was registered for.
    #[error("an allocator on {actual} cannot serve {device}")]
    WrongDevice {
        /// The device of the registration.
        device: Device,
        /// The allocator's device.
        actual: Device,
    },
    /// The address was freed in an allocator that did not hand it out.
    #[error("{address:#x} does not belong to this allocator")]
    ForeignPointer {
        /// The address.
        address: usize,
    },
    /// The address was freed before and has not been handed out again since.
    #[error("{address:#x} was already freed")]
    DoubleFree {
        /// The address.
        address: usize,
    },
    /// The host cannot access the block's bytes.
    #[error("memory on {device} cannot be reached from the host")]
    NotHostAccessible {
        /// The device that the memory is on.
        device: Device,
    },
    /// The allocator cannot free a bare pointer: it needs the block's record.
    #[error("this allocator has no raw deleter: it cannot free a bare pointer")]
    NoRawDeleter,
    /// A range overlaps the place in its block that it is to be copied to.
    #[error("{bytes} bytes from {from} on overlap the place from {to} on that they are copied to")]
    OverlappingCopy {
        /// The first byte of the range.
        from: usize,
        /// The first byte of the place.
        to: usize,
        /// The number of bytes.
        bytes: usize,
    },
    /// A range is not inside its block.
    #[error("{bytes} bytes from {offset} on are not inside a block of {len} bytes")]
    OutsideBlock {
        /// The first byte of the range.
        offset: usize,
        /// The bytes of the range.
        bytes: usize,
        /// The bytes of the block.
        len: usize,
    },
    /// The sizes of two blocks differ where they must be equal.
    #[error("cannot copy {source_bytes} bytes to a block of {destination_bytes} bytes")]
    SizeMismatch {
        /// Size of the source in bytes.
        source_bytes: usize,
        /// Size of the destination in bytes.
        destination_bytes: usize,
    },
    /// The arena has live blocks, so it cannot be rewound.
    #[error(
        "the arena has {live} live block{} and cannot be rewound: drop {} first, or call `renew`",
        if *live == 1 { "" } else { "s" },
        if *live == 1 { "it" } else { "them" }
    )]
    ArenaInUse {
        /// The number of live blocks.
        live: usize,
    },
    /// Pinned memory was required, and the allocator has none: the process has no pinner, or the allocator
    /// does not pin. See [`Pinned`](crate::backing::Pinned).
    #[error(
        "{allocator} has no pinned memory: set a pinner before the first allocation, or request plain host \
         memory"
    )]
    NotPinned {
        /// The name of the allocator.
        allocator: Box<str>,
    },
    /// A block that cannot hold the elements of a [`TypedBlock`](crate::TypedBlock).
    #[error("a block of {available} bytes at {address:#x} cannot hold {bytes} bytes aligned to {align}")]
    UnsuitableBlock {
        /// The address of the block.
        address: usize,
        /// The bytes of the block.
        available: usize,
        /// The bytes of the elements.
        bytes: usize,
        /// The alignment of the elements.
        align: Alignment,
    },
    /// The elements exceed the address space.
    #[error("{count} elements of {element_bytes} bytes do not fit in the address space")]
    TooManyElements {
        /// Requested number of elements.
        count: usize,
        /// Size of an element in bytes.
        element_bytes: usize,
    },
    /// No allocator, backing or factory has this name.
    #[error("no {what} is named {name:?}")]
    UnknownName {
        /// The kind of thing: "allocator", "backing".
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
    /// A configuration value is not valid.
    #[error("{variable}={value:?} is not {expected}")]
    Configuration {
        /// The environment variable, or the builder's field.
        variable: &'static str,
        /// The value found.
        value: Box<str>,
        /// The accepted values.
        expected: &'static str,
    },
    /// Environment variables look like settings, and are none: misspelled ones would go unnoticed.
    #[error("no setting has the name {}", names.join(" or "))]
    UnknownVariables {
        /// Their names, sorted.
        names: Box<[Box<str>]>,
    },
    /// The system cannot register another fork handler.
    #[error("no fork handlers can be registered: error {code}")]
    ForkHandlers {
        /// What `pthread_atfork` returned.
        code: i32,
    },
    /// The process-wide default context is already set.
    #[error("the process already has a default context")]
    ContextAlreadySet,
    /// Memory outside a live block was overwritten, detected by [`Hardened`](crate::adaptor::Hardened).
    #[error("the block at {address:#x} was overwritten {place}")]
    Overwritten {
        /// The address of the block.
        address: usize,
        /// "behind the block", "after it was returned".
        place: &'static str,
    },
    /// The call came from user code that has to return first. An allocator cannot get memory from its backing
    /// from within a call of that backing, a visitor or a pinner, and a node's allocator is unavailable while
    /// it is being created.
    #[error("the call was refused because it came from within {inside}, which has to return first")]
    Reentrant {
        /// The call in progress: a backing, by name, or the creation of an allocator.
        inside: Box<str>,
    },
    /// The allocator's metadata is inconsistent: a bug in orlop, or a write from outside.
    #[error("allocator invariant broken at {address:#x}: {rule}")]
    Corrupt {
        /// The invariant that does not hold.
        rule: &'static str,
        /// The address concerned.
        address: usize,
    },
}

/// Passes the formatter's flags on, which select the short or the full report.
fn show_report(report: &OutOfMemory, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    fmt::Display::fmt(report, f)
}

/// Returns what a program without a backend for this device lacks.
fn backend_hint(device: Device) -> &'static str {
    if device.is_cuda() {
        ": build with the feature `cuda` and call `orlop::cuda::install` with the context"
    } else {
        ""
    }
}

impl Error {
    /// Returns `true` if the same request may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::BackendOutOfMemory(_))
    }
}

impl Error {
    /// Wraps the error of a backend outside this crate. Such a backend implements `From` for its errors with
    /// it.
    #[must_use]
    pub fn backend(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Backend(Box::new(error))
    }

    /// [`Error::backend`] for an error that says that there is no memory.
    #[must_use]
    pub fn backend_out_of_memory(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::BackendOutOfMemory(Box::new(error))
    }

    /// Returns the error of a backend if it is an `E`.
    ///
    /// ```
    /// use orlop_alloc::Error;
    ///
    /// let error = Error::backend(std::fmt::Error);
    /// assert_eq!(error.backend_error(), Some(&std::fmt::Error));
    /// assert!(error.backend_error::<std::io::Error>().is_none());
    /// ```
    #[must_use]
    pub fn backend_error<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Backend(error) | Self::BackendOutOfMemory(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(report: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(report))
    }
}
