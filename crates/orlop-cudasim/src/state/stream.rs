//! [`Stream`]: an ordered queue of operations.

use super::graph::NodeSet;
use super::work::Work;
use crate::memory::MemoryAccess;
use orlop_race::HOST_QUEUE;
use std::collections::VecDeque;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// An operation in a stream.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Streams and positions that must complete before it starts.
    pub(crate) after: Vec<(u64, u64)>,
    pub(crate) work: Work,
    pub(crate) touched: Vec<MemoryAccess>,
    pub(crate) duration: u64,
    pub(crate) submitted_at: u64,
    /// Known once it can start.
    pub(crate) end: Option<u64>,
}

/// A stream of a device, which may be a default stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) is_legacy: bool,
    /// What `cuStreamGetId` returns: no other stream of the program has had it.
    pub(crate) number: u64,
    /// Its number in the order of work.
    pub(crate) queue: usize,
    pub(crate) operations: VecDeque<Operation>,
    /// How many operations were submitted and how many have completed.
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// The end of the last completed operation.
    pub(crate) ready_at: u64,
    /// Whether the first operation is a host function that runs now.
    pub(crate) is_running: bool,
    /// Gone for the program; its operations still complete.
    pub(crate) is_destroyed: bool,
    /// The capture it is part of, and the nodes that its next operation follows.
    pub(crate) capture: Option<(u64, NodeSet)>,
}

impl Stream {
    pub(crate) fn new(flags: u32, priority: i32) -> Self {
        Self {
            device: 0,
            flags,
            priority,
            is_legacy: false,
            number: 0,
            queue: HOST_QUEUE,
            operations: VecDeque::new(),
            submitted: 0,
            completed: 0,
            ready_at: 0,
            is_running: false,
            is_destroyed: false,
            capture: None,
        }
    }

    /// Creates the legacy default stream of a device.
    pub(crate) fn legacy() -> Self {
        Self { is_legacy: true, ..Self::new(0, 0) }
    }

    /// Returns `true` for streams that wait for the legacy default stream and that it waits for.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0 && !self.is_legacy
    }
}
