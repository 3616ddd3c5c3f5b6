//! The errors of a device engine.

use crate::backing::BackingError;
use crate::engine::PoolId;
use orlop_core::{ByteSize, StreamId};
use std::fmt;
use std::io::ErrorKind;

/// Every failure of a device engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no memory for a request.
    #[error(
        "out of memory: {} requested, {} live, {} pending, {} cached of {} reserved (largest free block {}), \
         limit {}{}",
        ByteSize(*requested), ByteSize(*live), ByteSize(*pending), ByteSize(*cached), ByteSize(*reserved),
        ByteSize(*largest_free), ByteSize(*limit), NoAddresses(*addresses)
    )]
    OutOfMemory {
        /// Requested bytes.
        requested: u64,
        /// Requested bytes, rounded.
        rounded: u64,
        /// Bytes in live blocks.
        live: u64,
        /// Bytes of blocks that were freed while a stream may still use them.
        pending: u64,
        /// Bytes reserved from the device.
        reserved: u64,
        /// Bytes in free chunks.
        cached: u64,
        /// Bytes of the largest free chunk.
        largest_free: u64,
        /// The limit of reserved bytes.
        limit: u64,
        /// If the device had no addresses left to map pages at: the bytes of addresses that are reserved.
        addresses: Option<u64>,
    },
    /// A call of the device failed. If the device is lost, so is all further use of the engine, except that
    /// its blocks can be freed.
    #[error("{call} of the device failed: {error}")]
    Backing {
        /// The function of [`DeviceBacking`](crate::DeviceBacking).
        call: &'static str,
        /// Its error.
        #[source]
        error: BackingError,
    },
    /// The stream of a request is not the device's.
    #[error("stream {stream} is not known to the device")]
    UnknownStream {
        /// The stream.
        stream: StreamId,
    },
    /// A block is not live: it was freed already, or is another engine's.
    #[error("block {block} is not live: it was freed already, or is another engine's")]
    NotLive {
        /// Its number.
        block: u32,
    },
    /// There is no private pool of this id.
    #[error("there is no private pool ({}, {})", id.0, id.1)]
    NoPool {
        /// The id.
        id: PoolId,
    },
    /// The maximum number of private pools is reached.
    #[error("there are too many private pools")]
    TooManyPools,
    /// No capture is in progress.
    #[error("no capture is in progress")]
    NoCapture,
    /// The call would make a stream wait, which is illegal while one captures.
    #[error("a stream captures: no stream can wait for another before the end of the capture")]
    DuringCapture,
    /// Only an engine without memory can be restored.
    #[error("only a new engine can be restored: this one has memory")]
    NotNew,
    /// A segment to restore is not consistent.
    #[error("the segment at {address:#x} cannot be restored: {problem}")]
    BadSegment {
        /// Its address.
        address: usize,
        /// The problem.
        problem: &'static str,
    },
    /// The system has no memory with pages that can move, or not enough.
    #[error("no {} of memory with pages that can be moved: {kind}", ByteSize(*bytes))]
    NoMovablePages {
        /// Requested bytes.
        bytes: u64,
        /// The error of the system; `Unsupported` where there are no such pages.
        kind: ErrorKind,
    },
}

impl DeviceError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Backing { error, .. } => error.is_out_of_memory(),
            Self::NoMovablePages { kind, .. } => kind == ErrorKind::OutOfMemory,
            _ => false,
        }
    }
}

/// [`orlop_alloc::Error::backend_error`] returns it by type.
impl From<DeviceError> for orlop_alloc::Error {
    fn from(error: DeviceError) -> Self {
        if error.is_out_of_memory() { Self::backend_out_of_memory(error) } else { Self::backend(error) }
    }
}

/// The last part of an out-of-memory message.
struct NoAddresses(Option<u64>);

impl fmt::Display for NoAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reserved) = self.0 else { return Ok(()) };
        write!(f, "; no addresses are left, {} are reserved", ByteSize(reserved))
    }
}
