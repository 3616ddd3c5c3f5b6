//! Streams that are as far as they are told: those of a replay, which knows when they were.

use crate::backing::EventId;
use orlop_core::StreamId;

/// The bit of an event's id that says: in a stream that is told of, whose place comes next.
const OF_TOLD: u64 = 1 << 63;
/// The bits for how many events came before in that stream.
const ORDINAL: u32 = 48;

#[derive(Debug, Default)]
pub(crate) struct ToldStreams {
    streams: Vec<Told>,
}

#[derive(Debug)]
struct Told {
    stream: StreamId,
    /// How many events were put into it.
    recorded: u64,
    /// How many of them are done.
    passed: u64,
}

impl ToldStreams {
    /// From now on this stream is as far as it is told, or waited for.
    pub(crate) fn tell_of(&mut self, stream: StreamId) {
        if self.get(stream).is_none() {
            self.streams.push(Told { stream, recorded: 0, passed: 0 });
        }
    }

    /// Puts an event into a stream, if it is told of.
    pub(crate) fn record(&mut self, stream: StreamId) -> Option<EventId> {
        let (place, told) = (0..).zip(&mut self.streams).find(|(_, told)| told.stream == stream)?;
        told.recorded += 1;
        Some(EventId(OF_TOLD | place << ORDINAL | told.recorded))
    }

    /// Whether an event is done; `None` for one in another stream.
    pub(crate) fn is_done(&self, event: EventId) -> Option<bool> {
        let (place, ordinal) = ordinal(event)?;
        Some(self.streams.get(place).is_none_or(|told| ordinal <= told.passed))
    }

    pub(crate) fn synchronize(&mut self, event: EventId) {
        if let Some((place, ordinal)) = ordinal(event)
            && let Some(told) = self.streams.get_mut(place)
        {
            told.passed = told.passed.max(ordinal);
        }
    }

    /// How many events were put into a stream.
    pub(crate) fn recorded(&self, stream: StreamId) -> u64 {
        self.get(stream).map_or(0, |told| told.recorded)
    }

    /// How many of them are done.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.get(stream).map_or(0, |told| told.passed)
    }

    /// So many events of a stream are done.
    pub(crate) fn pass(&mut self, stream: StreamId, events: u64) {
        if let Some(told) = self.streams.iter_mut().find(|told| told.stream == stream) {
            told.passed = told.passed.max(events);
        }
    }

    /// All events so far are done.
    pub(crate) fn pass_all(&mut self) {
        for told in &mut self.streams {
            told.passed = told.recorded;
        }
    }

    fn get(&self, stream: StreamId) -> Option<&Told> {
        self.streams.iter().find(|told| told.stream == stream)
    }
}

/// Which stream that is told of, and the how manieth event in it.
fn ordinal(EventId(event): EventId) -> Option<(usize, u64)> {
    let place = usize::try_from((event & !OF_TOLD) >> ORDINAL).ok()?;
    (event & OF_TOLD != 0).then_some((place, event & ((1 << ORDINAL) - 1)))
}
