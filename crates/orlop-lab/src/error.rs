//! The error of this crate.

use crate::fit::SequenceDifference;
use crate::kv::{LineProblem, ModelProblem};
use orlop_trace::TraceError;
use orlop_trace::formats::DeviceLabel;
use std::io;

/// The result of this crate's operations.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// The errors of this crate. Operations are numbered from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A recording cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A report page cannot be written.
    #[error("cannot be written: {error}")]
    Write {
        /// The cause.
        error: io::Error,
    },
    /// An allocator failed during a replay.
    #[error("{allocator}: operation {operation} of {operations}: {error}")]
    Replay {
        /// The name of the allocator.
        allocator: Box<str>,
        /// The operation that failed.
        operation: usize,
        /// The number of operations.
        operations: usize,
        /// The cause.
        error: orlop_alloc::Error,
    },
    /// An allocator cannot be created.
    #[error("{allocator}: cannot be created: {error}")]
    Make {
        /// The name of the allocator.
        allocator: Box<str>,
        /// The cause.
        error: orlop_alloc::Error,
    },
    /// Threads cannot be started.
    #[error("{threads} threads cannot be started: {error}")]
    Threads {
        /// The number of threads.
        threads: usize,
        /// The cause.
        error: io::Error,
    },
    /// Blocks are to be written that the host cannot access.
    #[error("{allocator}: the host cannot access its memory: replay without touching it")]
    Untouchable {
        /// The name of the allocator.
        allocator: Box<str>,
    },
    /// No pool of a sensible size fits the trace.
    #[error(
        "{allocator}: the trace does not fit into a pool of {largest} bytes, which is {times} times \
         its peak of live bytes"
    )]
    NoPoolFits {
        /// The name of the allocator.
        allocator: Box<str>,
        /// The largest pool that was tried.
        largest: usize,
        /// Its size as a multiple of the live peak.
        times: usize,
    },
    /// A file cannot be read.
    #[error("cannot be read: {error}")]
    Read {
        /// The cause.
        error: io::Error,
    },
    /// A line of a request trace is not a request.
    #[error("line {line}: {problem}")]
    RequestLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: LineProblem,
    },
    /// A request trace has no request.
    #[error("no requests")]
    NoRequests,
    /// A model is unknown, or its file cannot be understood.
    #[error("model {model}: {problem}")]
    Model {
        /// The name or the file.
        model: Box<str>,
        /// What is wrong.
        problem: ModelProblem,
    },
    /// A pool of KV memory cannot be made, or a replay in one failed.
    #[error(transparent)]
    Kv(#[from] orlop_kv::KvError),
    /// Recordings of one program are not of the same sequence of requests.
    #[error("the recordings are not of the same sequence of requests: {difference}")]
    SequencesDiffer {
        /// The first difference.
        difference: Box<SequenceDifference>,
    },
    /// A fit needs at least two different sizes above 0.
    #[error("the sizes {sizes:?} are not two or more different numbers above 0")]
    FitSizes {
        /// The sizes, in order.
        sizes: Vec<u64>,
    },
    /// The history does not have this device.
    #[error("nothing was recorded on {}", DeviceLabel(*.device))]
    NoSuchDevice {
        /// The number of the device.
        device: u32,
    },
}

impl LabError {
    /// Returns `true` if an allocator ran out of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Replay { error, .. } | Self::Make { error, .. } => error.is_out_of_memory(),
            _ => false,
        }
    }
}
