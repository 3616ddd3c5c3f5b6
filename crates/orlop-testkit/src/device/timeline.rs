//! [`Timeline`]: the order of work in streams, the host and events, as vector clocks.
//!
//! A stream's clock contains, for each stream, how much of its work is done before the next work of this
//! stream. Work that the host submits begins after everything whose completion the host has observed.

use orlop_core::StreamId;
use orlop_device::EventId;
use std::collections::HashMap;

/// The completed work of each stream, by the number of the stream.
#[derive(Debug, Clone, Default)]
struct StreamProgress(Vec<u64>);

impl StreamProgress {
    fn at(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            *ours = (*ours).max(*theirs);
        }
    }

    fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(stream, &done)| done <= self.at(stream))
    }

    fn tick(&mut self, stream: usize) -> u64 {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        self.0[stream]
    }
}

/// A unit of work: number `position` of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamWork {
    pub(super) stream: usize,
    position: u64,
}

#[derive(Debug, Default)]
pub(super) struct Timeline {
    streams: Vec<StreamId>,
    clocks: Vec<StreamProgress>,
    /// The work whose completion the host has observed.
    host: StreamProgress,
    events: HashMap<u64, StreamProgress>,
    recorded: u64,
}

impl Timeline {
    fn number(&mut self, stream: StreamId) -> usize {
        let known = self.streams.iter().position(|&other| other == stream);
        let number = known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.clocks.push(StreamProgress::default());
            self.streams.len() - 1
        });
        self.clocks[number].join(&self.host);
        number
    }

    pub(super) fn id(&self, stream: usize) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.raw())
    }

    /// Submits work to a stream.
    pub(super) fn submit(&mut self, stream: StreamId) -> StreamWork {
        let stream = self.number(stream);
        StreamWork { stream, position: self.clocks[stream].tick(stream) }
    }

    /// Returns `true` if `earlier` is done before `later` begins.
    pub(super) fn is_ordered(&self, earlier: StreamWork, later: StreamWork) -> bool {
        earlier.stream == later.stream || earlier.position <= self.clocks[later.stream].at(earlier.stream)
    }

    /// Returns `true` if the host has observed that the work is complete.
    pub(super) fn is_done(&self, work: StreamWork) -> bool {
        work.position <= self.host.at(work.stream)
    }

    pub(super) fn record(&mut self, stream: StreamId) -> EventId {
        let stream = self.number(stream);
        self.recorded += 1;
        self.events.insert(self.recorded, self.clocks[stream].clone());
        EventId(self.recorded)
    }

    /// Returns whether the host has observed that the event is complete, or `None` if it has ended.
    pub(super) fn poll(&self, EventId(event): EventId) -> Option<bool> {
        self.events.get(&event).map(|clock| self.host.covers(clock))
    }

    /// Ends an event, whose work the host then counts as complete. Returns `false` if it has ended before.
    pub(super) fn complete(&mut self, EventId(event): EventId) -> bool {
        let clock = self.events.remove(&event);
        clock.is_some_and(|clock| {
            self.host.join(&clock);
            true
        })
    }

    /// Ends an event. Returns `false` if it has ended before.
    pub(super) fn forget(&mut self, EventId(event): EventId) -> bool {
        self.events.remove(&event).is_some()
    }

    /// Ends an event that the stream waits for. Returns `false` if it has ended before.
    pub(super) fn wait(&mut self, stream: StreamId, EventId(event): EventId) -> bool {
        let stream = self.number(stream);
        let clock = self.events.remove(&event);
        clock.is_some_and(|clock| {
            self.clocks[stream].join(&clock);
            true
        })
    }

    /// Returns the number of live events.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }
}
