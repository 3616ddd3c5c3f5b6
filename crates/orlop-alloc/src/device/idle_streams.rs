//! Streams in which nothing ever runs: of a device without a processor, or whose processor is the caller's.

use super::backing::EventId;
use orlop_core::StreamId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events are done at once; for tests also only when they are waited for, and for replays when that is told.
#[derive(Debug)]
pub(super) struct IdleStreams {
    /// Whether events that are asked about are done.
    done: AtomicBool,
    /// Streams of which it is told how far they are.
    told: Mutex<Vec<Told>>,
    events: AtomicU64,
    queries: AtomicU64,
    waits: AtomicU64,
}

/// A stream that is as far as it is told.
#[derive(Debug)]
struct Told {
    stream: StreamId,
    /// How many events were put into it.
    recorded: u64,
    /// How many of them are done.
    passed: u64,
}

/// The bit of an event's id that says: in a stream that is told of, whose place comes next.
const OF_TOLD: u64 = 1 << 63;
/// The bits for how many events came before in that stream.
const ORDINAL: u32 = 48;

impl Default for IdleStreams {
    fn default() -> Self {
        Self {
            done: AtomicBool::new(true),
            told: Mutex::default(),
            events: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }
}

impl IdleStreams {
    pub(super) fn set_events_done(&self, done: bool) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// How many events were asked about.
    pub(super) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// How many times a stream was made to wait for another.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, stream: StreamId) -> EventId {
        let mut told = self.told();
        match (0..).zip(&mut *told).find(|(_, told)| told.stream == stream) {
            Some((place, told)) => {
                told.recorded += 1;
                EventId(OF_TOLD | place << ORDINAL | told.recorded)
            }
            None => EventId(self.events.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub(super) fn is_done(&self, event: EventId) -> bool {
        self.queries.fetch_add(1, Ordering::Relaxed);
        match ordinal(event) {
            Some((place, ordinal)) => self.told().get(place).is_none_or(|told| ordinal <= told.passed),
            None => self.done.load(Ordering::Relaxed),
        }
    }

    pub(super) fn synchronize(&self, event: EventId) {
        if let Some((place, ordinal)) = ordinal(event)
            && let Some(told) = self.told().get_mut(place)
        {
            told.passed = told.passed.max(ordinal);
        }
    }

    pub(super) fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on this stream is as far as it is told, or waited for.
    pub(super) fn tell_of(&self, stream: StreamId) {
        let mut told = self.told();
        if told.iter().all(|told| told.stream != stream) {
            told.push(Told { stream, recorded: 0, passed: 0 });
        }
    }

    /// How many events were put into a stream that is told of.
    pub(super) fn recorded(&self, stream: StreamId) -> u64 {
        self.told().iter().find(|told| told.stream == stream).map_or(0, |told| told.recorded)
    }

    /// How many of them are done.
    pub(super) fn passed(&self, stream: StreamId) -> u64 {
        self.told().iter().find(|told| told.stream == stream).map_or(0, |told| told.passed)
    }

    /// So many events of a stream are done.
    pub(super) fn pass(&self, stream: StreamId, events: u64) {
        if let Some(told) = self.told().iter_mut().find(|told| told.stream == stream) {
            told.passed = told.passed.max(events);
        }
    }

    /// All that is told of is done so far.
    pub(super) fn pass_all(&self) {
        for told in &mut *self.told() {
            told.passed = told.recorded;
        }
    }

    fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which stream that is told of, and the how manieth event in it.
fn ordinal(EventId(event): EventId) -> Option<(usize, u64)> {
    let place = usize::try_from((event & !OF_TOLD) >> ORDINAL).ok()?;
    (event & OF_TOLD != 0).then_some((place, event & ((1 << ORDINAL) - 1)))
}
