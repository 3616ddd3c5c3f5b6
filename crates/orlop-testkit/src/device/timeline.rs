//! [`Timeline`]: the order of work in streams, the host and events, by the device layer's ids.
//!
//! The clocks are those of `orlop-race`, which the simulated CUDA driver checks with too.

use orlop_core::StreamId;
use orlop_device::EventId;
use orlop_race::{HOST_QUEUE, VectorClock, WorkId, WorkOrder};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The stream of each queue but the host's.
    streams: Vec<StreamId>,
    order: WorkOrder,
    events: HashMap<u64, VectorClock>,
    recorded: u64,
}

impl Timeline {
    fn queue(&mut self, stream: StreamId) -> usize {
        let known = self.streams.iter().position(|&other| other == stream);
        known.map_or_else(
            || {
                self.streams.push(stream);
                self.order.add_queue()
            },
            |index| HOST_QUEUE + 1 + index,
        )
    }

    pub(super) fn id(&self, queue: usize) -> u64 {
        let index = queue.checked_sub(HOST_QUEUE + 1);
        index.and_then(|index| self.streams.get(index)).map_or(0, |stream| stream.raw())
    }

    pub(super) fn order(&self) -> &WorkOrder {
        &self.order
    }

    /// Submits work to a stream.
    pub(super) fn submit(&mut self, stream: StreamId) -> WorkId {
        let queue = self.queue(stream);
        self.order.submit(queue)
    }

    pub(super) fn record(&mut self, stream: StreamId) -> EventId {
        let queue = self.queue(stream);
        self.recorded += 1;
        self.events.insert(self.recorded, self.order.record(queue));
        EventId(self.recorded)
    }

    /// Returns whether the host knows the event to be done, or `None` if it has ended.
    pub(super) fn poll(&self, EventId(event): EventId) -> Option<bool> {
        self.events.get(&event).map(|clock| self.order.host_knows(clock))
    }

    /// Ends an event, which the host then knows to be done. Returns `false` if it has ended before.
    pub(super) fn complete(&mut self, event: EventId) -> bool {
        self.end(HOST_QUEUE, event)
    }

    /// Ends an event. Returns `false` if it has ended before.
    pub(super) fn forget(&mut self, EventId(event): EventId) -> bool {
        self.events.remove(&event).is_some()
    }

    /// Ends an event that the stream waits for. Returns `false` if it has ended before.
    pub(super) fn wait(&mut self, stream: StreamId, event: EventId) -> bool {
        let queue = self.queue(stream);
        self.end(queue, event)
    }

    /// Ends an event that a queue waits for.
    fn end(&mut self, queue: usize, EventId(event): EventId) -> bool {
        let clock = self.events.remove(&event);
        clock.is_some_and(|clock| {
            self.order.wait(queue, &clock);
            true
        })
    }

    /// Returns the number of live events.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }
}
