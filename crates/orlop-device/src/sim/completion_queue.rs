//! Completion queues: events of a replay that complete when they did in the recording.
//!
//! A recording shows when the work of a stream was done. So the replay puts events into the queue of the
//! stream and completes them at those moments; an engine that queries an event earlier finds it incomplete,
//! as it did on the device.

use crate::EventId;
use orlop_core::StreamId;

/// The bit of an event's id that marks an event in a queue; the queue's index comes next.
const QUEUED: u64 = 1 << 63;
/// The bits below the queue's index: the ordinal of the event in its queue, from 1.
const ORDINAL_BITS: u32 = 48;

/// A queue for each stream whose completions are recorded.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueues {
    queues: Vec<CompletionQueue>,
}

#[derive(Debug)]
struct CompletionQueue {
    stream: StreamId,
    /// Events put into it.
    recorded: u64,
    /// Events completed.
    completed: u64,
}

impl CompletionQueues {
    /// Adds a queue for a stream, unless it has one.
    pub(crate) fn add(&mut self, stream: StreamId) {
        if self.get(stream).is_none() {
            self.queues.push(CompletionQueue { stream, recorded: 0, completed: 0 });
        }
    }

    /// Puts an event into the queue of a stream. `None` if it has none.
    pub(crate) fn record(&mut self, stream: StreamId) -> Option<EventId> {
        let (index, queue) = (0..).zip(&mut self.queues).find(|(_, queue)| queue.stream == stream)?;
        queue.recorded += 1;
        Some(EventId(QUEUED | index << ORDINAL_BITS | queue.recorded))
    }

    /// Returns whether an event is complete; `None` if it is in no queue.
    pub(crate) fn is_done(&self, event: EventId) -> Option<bool> {
        let (index, ordinal) = position(event)?;
        Some(self.queues.get(index).is_none_or(|queue| ordinal <= queue.completed))
    }

    /// Completes an event and those before it: the host has waited for it.
    pub(crate) fn synchronize(&mut self, event: EventId) {
        if let Some((index, ordinal)) = position(event)
            && let Some(queue) = self.queues.get_mut(index)
        {
            queue.completed = queue.completed.max(ordinal);
        }
    }

    /// Returns the number of events put into the queue of a stream.
    pub(crate) fn recorded(&self, stream: StreamId) -> u64 {
        self.get(stream).map_or(0, |queue| queue.recorded)
    }

    /// Returns the number of completed events of a stream.
    pub(crate) fn completed(&self, stream: StreamId) -> u64 {
        self.get(stream).map_or(0, |queue| queue.completed)
    }

    /// Completes the first `events` events of a stream.
    pub(crate) fn complete(&mut self, stream: StreamId, events: u64) {
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.stream == stream) {
            queue.completed = queue.completed.max(events);
        }
    }

    /// Completes all events.
    pub(crate) fn complete_all(&mut self) {
        for queue in &mut self.queues {
            queue.completed = queue.recorded;
        }
    }

    fn get(&self, stream: StreamId) -> Option<&CompletionQueue> {
        self.queues.iter().find(|queue| queue.stream == stream)
    }
}

/// Returns the index of the queue that an event is in, and its ordinal there.
fn position(EventId(event): EventId) -> Option<(usize, u64)> {
    let index = usize::try_from((event & !QUEUED) >> ORDINAL_BITS).ok()?;
    (event & QUEUED != 0).then_some((index, event & ((1 << ORDINAL_BITS) - 1)))
}
