//! [`Event`]: a point in a stream that others wait for.

use super::graph::NodeSet;
use crate::memory::{ProcessEvent, ProcessRecord};
use orlop_race::VectorClock;

pub(crate) const DISABLE_TIMING: u32 = 2;
pub(crate) const INTERPROCESS: u32 = 4;

/// The last record of an event.
#[derive(Debug, Clone)]
pub(crate) enum Recorded {
    Never,
    /// In a stream, at a position.
    InStream {
        stream: u64,
        position: u64,
        clock: VectorClock,
    },
    /// By another process.
    Elsewhere(ProcessRecord),
    /// While a stream captured: a point in the capture.
    InCapture {
        capture: u64,
        nodes: NodeSet,
    },
}

/// An event of a device.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) recorded: Recorded,
    /// Counts the records, so that the completion of an earlier one is ignored.
    pub(crate) generation: u64,
    /// What other processes know of it, and its last record by this process in their count.
    pub(crate) shared: Option<ProcessEvent>,
    pub(crate) last_shared: u64,
    /// When its last record completed.
    pub(crate) completed_at: Option<u64>,
}

impl Event {
    /// Creates an event that was never recorded.
    pub(crate) fn new(device: usize, flags: u32) -> Self {
        Self {
            device,
            flags,
            recorded: Recorded::Never,
            generation: 0,
            shared: None,
            last_shared: 0,
            completed_at: None,
        }
    }

    /// Notes what other processes know of the event. What they recorded before counts as theirs.
    pub(crate) fn share(&mut self, shared: ProcessEvent) {
        self.shared = Some(shared);
    }

    /// Returns the last record, which can be another process's.
    pub(crate) fn latest(&self) -> Recorded {
        let latest = self.shared.as_ref().map(ProcessEvent::latest);
        match latest.filter(|latest| latest.generation() != self.last_shared) {
            Some(elsewhere) => Recorded::Elsewhere(elsewhere),
            None => self.recorded.clone(),
        }
    }

    /// Notes that the record of this generation completed, unless the event was recorded again since.
    pub(crate) fn complete(&mut self, generation: u64, end: u64) {
        if self.generation == generation {
            self.completed_at = Some(end);
        }
    }

    /// Returns `true` if its records have times.
    pub(crate) fn is_timed(&self) -> bool {
        self.flags & DISABLE_TIMING == 0
    }
}
