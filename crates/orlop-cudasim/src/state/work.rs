//! [`Work`]: what an operation in a stream does, and [`Submission`]: an operation on its way to a stream.

use super::kernel::Launch;
use crate::memory::{CopyShape, MemoryAccess, ProcessRecord};
use std::ffi::c_void;
use std::sync::Arc;

/// Where a copy reads.
#[derive(Debug, Clone)]
pub(crate) enum CopySource {
    Address(usize),
    /// Pageable memory, staged when the call was made.
    Staged(Arc<[u8]>),
}

/// What an operation does when its time comes.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Takes time, or only a place in the order.
    Nothing,
    Copy {
        to: usize,
        from: CopySource,
        shape: CopyShape,
        /// Between two contexts, with the rights of each.
        is_peer: bool,
    },
    Fill {
        to: usize,
        pitch: usize,
        count: usize,
        rows: usize,
        value: u32,
        width: usize,
    },
    /// Sets the time of an event, if it was not recorded again since.
    Record {
        event: u64,
        generation: u64,
        /// The record as other processes know it.
        shared: Option<ProcessRecord>,
    },
    /// Waits for the record of an event by another process.
    Await(ProcessRecord),
    Host {
        function: HostCallback,
    },
    Kernel(Arc<Launch>),
    /// Returns memory that was allocated in stream order.
    Free {
        address: usize,
    },
}

/// A host function with its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCallback {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

impl Work {
    /// Returns how many bytes the operation moves, for its duration.
    pub(crate) fn moved(&self) -> usize {
        match self {
            Self::Copy { shape, .. } => shape.bytes(),
            Self::Fill { count, rows, width, .. } => count.saturating_mul(*rows).saturating_mul(*width),
            _ => 0,
        }
    }

    /// Returns `true` unless the operation waits for another process.
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self, Self::Await(record) if !record.is_complete())
    }

    /// Returns `true` for operations that take no time of the device.
    pub(crate) fn is_instant(&self) -> bool {
        matches!(self, Self::Nothing | Self::Record { .. } | Self::Await(_) | Self::Free { .. })
    }
}

/// An operation to submit.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) name: Arc<str>,
    pub(crate) work: Work,
    pub(crate) accesses: Vec<MemoryAccess>,
    /// A given duration; otherwise one that follows from the seed.
    pub(crate) duration: Option<u64>,
}

impl Submission {
    pub(crate) fn new(name: &str, work: Work, accesses: Vec<MemoryAccess>) -> Self {
        Self { name: Arc::from(name), work, accesses, duration: None }
    }
}
