//! The error of this crate.

use orlop_trace::TraceError;
use std::io;

/// The result of this crate's operations.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Every failure of this crate. Operations count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A recording cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A report page cannot be written.
    #[error("cannot be written: {error}")]
    Write {
        /// Why.
        error: io::Error,
    },
    /// An allocator failed in the midst of a replay.
    #[error("{allocator}: operation {operation} of {operations}: {error}")]
    Replay {
        /// Which.
        allocator: Box<str>,
        /// The operation that failed.
        operation: usize,
        /// Of how many.
        operations: usize,
        /// Why.
        error: orlop_alloc::Error,
    },
    /// There is no allocator to replay through.
    #[error("{allocator}: cannot be made: {error}")]
    Make {
        /// Which.
        allocator: Box<str>,
        /// Why.
        error: orlop_alloc::Error,
    },
    /// The threads cannot all be started.
    #[error("{threads} threads cannot be started: {error}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why.
        error: io::Error,
    },
    /// The allocator's blocks are to be written to, and cannot be.
    #[error("{allocator}: its memory cannot be reached from the host: replay without touching it")]
    Untouchable {
        /// Which.
        allocator: Box<str>,
    },
    /// No pool of any sensible size holds the trace.
    #[error(
        "{allocator}: the trace does not fit into a pool of {largest} bytes either, {times} times its peak"
    )]
    NoPoolFits {
        /// Which.
        allocator: Box<str>,
        /// The largest that was tried.
        largest: usize,
        /// As a multiple of the live peak.
        times: usize,
    },
    /// The history has nothing of this device.
    #[error("nothing is known of device {device}")]
    NoSuchDevice {
        /// Which.
        device: u32,
    },
}

impl LabError {
    /// Returns `true` if an allocator ran out of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Replay { error, .. } if error.is_out_of_memory())
    }
}
