//! What can go wrong, typed, with the figures a caller needs to act on it.

use crate::OutOfMemory;
use orlop_core::{Device, MemoryKind, StreamId};
use std::error::Error as StdError;
use std::fmt;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory is not to be had. The report says who holds it and what would have fitted: in full as `{:#}`.
    #[error(fmt = show_report)]
    OutOfMemory(Box<OutOfMemory>),
    /// The request itself is impossible: sizes overflow, an alignment is none, a kind is not on the device.
    #[error(transparent)]
    Words(#[from] orlop_core::Error),
    /// Nobody registered an allocator for this device and kind, nor for the device's default kind.
    #[error("no allocator is registered for {device} {kind}, nor a default one for {device}")]
    NoAllocator {
        /// The device asked for.
        device: Device,
        /// The kind asked for.
        kind: MemoryKind,
    },
    /// A backend outside this crate failed. [`std::error::Error::source`] is its own error, which
    /// [`Error::backend_error`] returns by its type.
    #[error("{0}")]
    Backend(#[source] Box<dyn StdError + Send + Sync>),
    /// The context has nobody who can copy, fill and zero memory of this device.
    #[error("no device operations are registered for {device}")]
    NoDeviceOps {
        /// The device.
        device: Device,
    },
    /// The request wants zeros, and the backing cannot fill memory that was used before.
    #[error("memory on {device} cannot be zeroed, as the request wants it")]
    CannotZero {
        /// The device.
        device: Device,
    },
    /// Nobody would wait for the stream: the owner of the memory uses it again, or frees it, as soon as it comes back.
    #[error(
        "stream {stream} cannot be recorded on this memory of {device}: its allocator does not wait for streams; \
         synchronize before it goes"
    )]
    StreamsNotHonoured {
        /// Where the memory is.
        device: Device,
        /// The stream that would use it.
        stream: StreamId,
    },
    /// Neither the device's operations nor an allocator on it can tell.
    #[error("nobody can tell how much memory {device} has")]
    MemoryUnknown {
        /// The device.
        device: Device,
    },
    /// Neither device's operations can copy between the two.
    #[error("nobody can copy from {from} to {to}")]
    NoCopyPath {
        /// The source's device.
        from: Device,
        /// The destination's device.
        to: Device,
    },
    /// The allocator is not on the device it was registered for.
    #[error("an allocator on {actual} cannot serve {device}")]
    WrongDevice {
        /// The device registered for.
        device: Device,
        /// The allocator's own device.
        actual: Device,
    },
    /// The address was returned to an allocator that did not hand it out.
    #[error("{address:#x} does not belong to this allocator")]
    ForeignPointer {
        /// The address.
        address: usize,
    },
    /// The address was returned before, and not handed out again since.
    #[error("{address:#x} was returned already")]
    DoubleFree {
        /// The address.
        address: usize,
    },
    /// The block's bytes cannot be read by the processor.
    #[error("memory on {device} cannot be reached from the host")]
    NotHostAccessible {
        /// Where it is.
        device: Device,
    },
    /// The allocator cannot free a bare pointer: it needs what the block knows.
    #[error("this allocator has no raw deleter: it cannot free a bare pointer")]
    NoRawDeleter,
    /// Two blocks that must have the same size do not.
    #[error("cannot copy {source_bytes} bytes to a block of {destination_bytes}")]
    SizeMismatch {
        /// Bytes in the source.
        source_bytes: usize,
        /// Bytes in the destination.
        destination_bytes: usize,
    },
    /// An arena cannot be rewound while blocks from it live.
    #[error("the arena has {live} live blocks and cannot be rewound under them")]
    ArenaInUse {
        /// How many.
        live: usize,
    },
    /// Memory that devices can read by DMA was required, and the allocator of pinned memory has none: nobody pins in this
    /// process, or the allocator is one of other memory. See [`Pinned`](crate::backing::Pinned).
    #[error(
        "{allocator} has no pinned memory: set a pinner before the first allocation, or ask for plain host memory"
    )]
    NotPinned {
        /// The allocator that serves pinned memory.
        allocator: Box<str>,
    },
    /// Elements of this type need dropping or are larger than the address space allows.
    #[error("{count} elements of {element_bytes} bytes do not fit in the address space")]
    TooManyElements {
        /// Elements asked for.
        count: usize,
        /// Bytes of each.
        element_bytes: usize,
    },
    /// No allocator, backing or factory has this name.
    #[error("no {what} is named {name:?}")]
    UnknownName {
        /// What was looked for: "allocator", "backing".
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
    /// A configuration value cannot be understood.
    #[error("{variable}={value:?} is not {expected}")]
    Configuration {
        /// The variable, or the builder's field.
        variable: &'static str,
        /// The text found.
        value: Box<str>,
        /// What is accepted.
        expected: &'static str,
    },
    /// The system registers no more fork handlers.
    #[error("no fork handlers can be registered: error {code}")]
    ForkHandlers {
        /// What `pthread_atfork` returned.
        code: i32,
    },
    /// The process-wide default context was set already.
    #[error("the process already has a default context")]
    ContextAlreadySet,
    /// Somebody wrote where nothing was theirs (found by [`Hardened`](crate::adaptor::Hardened)).
    #[error("the block at {address:#x} was overwritten {place}")]
    Overwritten {
        /// Where the block begins.
        address: usize,
        /// "behind the block", "after it was returned".
        place: &'static str,
    },
    /// The call came from inside user code that has to return first: an allocator cannot get memory from its backing while
    /// that, a visitor or a pinner is at work for it, and an allocator of a node is not there while it is being made.
    #[error("refused: the call came from inside {inside}, which has to return first")]
    Reentrant {
        /// What: a backing, by name, or what is being made.
        inside: Box<str>,
    },
    /// The structures of an allocator contradict each other: a bug in orlop, or memory written from outside.
    #[error("allocator invariant broken at {address:#x}: {rule}")]
    Corrupt {
        /// Which rule.
        rule: &'static str,
        /// Where.
        address: usize,
    },
}

/// With the flags, which say how much of it.
fn show_report(report: &OutOfMemory, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    fmt::Display::fmt(report, f)
}

impl Error {
    /// Whether freeing memory somewhere may make the same request succeed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }
}

impl Error {
    /// Wraps the error of a backend outside this crate. Such a backend implements `From` for its errors with it.
    #[must_use]
    pub fn backend(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Backend(Box::new(error))
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
            Self::Backend(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(report: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(report))
    }
}
