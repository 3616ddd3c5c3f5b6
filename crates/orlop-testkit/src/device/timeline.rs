//! What is ordered before what: streams, the host and events, as vector clocks.
//!
//! A stream's clock says, for each stream, how much of its work is done before what the stream does next. Work that the host
//! submits begins after all that the host knows to be done.

use orlop_core::StreamId;
use orlop_device::EventId;
use std::collections::HashMap;

/// The amount of completed work of each stream, by the stream's number.
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

/// A piece of work: the `position`-th of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) stream: usize,
    position: u64,
}

#[derive(Debug, Default)]
pub(super) struct Timeline {
    streams: Vec<StreamId>,
    clocks: Vec<StreamProgress>,
    /// What the host knows to be done.
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
        self.streams.get(stream).map_or(0, |stream| stream.get())
    }

    /// The host submits work to a stream.
    pub(super) fn submit(&mut self, stream: StreamId) -> Work {
        let stream = self.number(stream);
        Work { stream, position: self.clocks[stream].tick(stream) }
    }

    /// Whether `earlier` is done before `later` begins.
    pub(super) fn is_ordered(&self, earlier: Work, later: Work) -> bool {
        earlier.stream == later.stream || earlier.position <= self.clocks[later.stream].at(earlier.stream)
    }

    /// Whether the host knows work to be done.
    pub(super) fn is_done(&self, work: Work) -> bool {
        work.position <= self.host.at(work.stream)
    }

    pub(super) fn record(&mut self, stream: StreamId) -> EventId {
        let stream = self.number(stream);
        self.recorded += 1;
        self.events.insert(self.recorded, self.clocks[stream].clone());
        EventId(self.recorded)
    }

    /// Whether the event is live; whether the host knows it to be done already.
    pub(super) fn poll(&self, EventId(event): EventId) -> Option<bool> {
        self.events.get(&event).map(|clock| self.host.covers(clock))
    }

    /// Ends an event, which the host knows to be done from now on. False if it has ended before.
    pub(super) fn complete(&mut self, EventId(event): EventId) -> bool {
        let clock = self.events.remove(&event);
        clock.is_some_and(|clock| {
            self.host.join(&clock);
            true
        })
    }

    /// Ends an event. False if it has ended before.
    pub(super) fn forget(&mut self, EventId(event): EventId) -> bool {
        self.events.remove(&event).is_some()
    }

    /// Ends an event, which the stream waits for. False if it has ended before.
    pub(super) fn wait(&mut self, stream: StreamId, EventId(event): EventId) -> bool {
        let stream = self.number(stream);
        let clock = self.events.remove(&event);
        clock.is_some_and(|clock| {
            self.clocks[stream].join(&clock);
            true
        })
    }

    /// The number of events that have not ended.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }
}
