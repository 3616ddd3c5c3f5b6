//! Streams in which nothing ever runs: of a device without a processor, or whose processor is the caller's.

use crate::backing::EventId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Events are done at once; for tests also only when they are waited for.
#[derive(Debug)]
pub(crate) struct IdleStreams {
    /// Whether events that are asked about are done.
    done: AtomicBool,
    events: AtomicU64,
    queries: AtomicU64,
    waits: AtomicU64,
}

impl Default for IdleStreams {
    fn default() -> Self {
        Self {
            done: AtomicBool::new(true),
            events: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }
}

impl IdleStreams {
    pub(crate) fn set_events_done(&self, done: bool) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// How many events were asked about.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// How many times a stream was made to wait for another.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self) -> EventId {
        EventId(self.events.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }
}
