//! Events of a replay that wait for earlier ones.

use super::event_pools::PoolNumber;
use orlop_trace::history::HistoryEvent;
use std::cmp::Ordering;

const _: () = assert!(size_of::<QueuedEvent>() == 64);

/// An event in the reorder queue, ordered by time, then by position.
pub(super) struct QueuedEvent {
    pub(super) event: HistoryEvent,
    pub(super) index: u64,
    pub(super) device: u32,
    pub(super) pool: PoolNumber,
}

impl QueuedEvent {
    fn key(&self) -> (u64, u64) {
        (self.event.time, self.index)
    }
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    /// Reversed: the heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}
