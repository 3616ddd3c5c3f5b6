//! What can go wrong in a device engine.

use crate::engine::PoolId;
use orlop_core::ByteSize;
use std::io::ErrorKind;

/// Why a device engine did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No memory for a request.
    #[error(
        "out of memory: {} asked, {} live, {} pending, {} cached of {} reserved (largest free block {}), limit {}",
        ByteSize(*requested), ByteSize(*live), ByteSize(*pending), ByteSize(*cached), ByteSize(*reserved),
        ByteSize(*largest_free), ByteSize(*limit)
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// The same, rounded.
        rounded: u64,
        /// Bytes in blocks.
        live: u64,
        /// Bytes that came back while a stream may still use them.
        pending: u64,
        /// Bytes held from the device.
        reserved: u64,
        /// Bytes that are free.
        cached: u64,
        /// The largest free block.
        largest_free: u64,
        /// The most that may be held.
        limit: u64,
    },
    /// A block is not live: it came back already, or is another engine's.
    #[error("block {block} is not live: it came back already, or is another engine's")]
    NotLive {
        /// Its number.
        block: u32,
    },
    /// There is no private pool of this name.
    #[error("there is no private pool ({}, {})", id.0, id.1)]
    NoPool {
        /// Its name.
        id: PoolId,
    },
    /// There are as many pools as can be numbered.
    #[error("there are too many private pools")]
    TooManyPools,
    /// An engine that holds memory already cannot be restored.
    #[error("only a new engine can be restored: this one holds memory")]
    NotNew,
    /// A segment to restore does not add up.
    #[error("the segment at {address:#x} cannot be restored: {problem}")]
    BadSegment {
        /// Where it begins.
        address: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system has no memory whose pages can be moved, or not so much.
    #[error("no {} of memory with pages that can be moved: {kind}", ByteSize(*bytes))]
    NoMovablePages {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said; `Unsupported` where there is no such thing.
        kind: ErrorKind,
    },
}

/// What [`orlop_alloc::Error::backend_error`] gives back.
impl From<DeviceError> for orlop_alloc::Error {
    fn from(error: DeviceError) -> Self {
        Self::backend(error)
    }
}
