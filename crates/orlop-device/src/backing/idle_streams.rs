//! Streams in which nothing runs: of a device without a processor, or whose work is done when the call
//! returns.

use crate::backing::EventId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Events that are complete at once or, for tests, only when they are waited for.
#[derive(Debug, Default)]
pub(crate) struct IdleStreams {
    /// Whether queried events are incomplete.
    pending: AtomicBool,
    events: AtomicU64,
    queries: AtomicU64,
    waits: AtomicU64,
}

impl IdleStreams {
    pub(crate) fn set_events_done(&self, done: bool) {
        self.pending.store(!done, Ordering::Relaxed);
    }

    /// Returns the number of recorded events.
    #[cfg(test)]
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns the number of queries.
    #[cfg(test)]
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// Returns the number of times a stream was made to wait for another.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self) -> EventId {
        EventId(self.events.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn query(&self) -> bool {
        self.queries.fetch_add(1, Ordering::Relaxed);
        !self.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }
}
