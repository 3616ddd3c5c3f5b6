//! Pending frees: blocks that were freed while other streams may still use them.
//!
//! When such a block is freed, an event is recorded in each of those streams; its memory is free when all
//! events are complete. Events of one stream complete in order, so each stream has a queue.

use super::chunks::{ChunkState, Index};
use crate::backing::{CallFailure, DeviceBacking, EventId, GuardedDevice};
use crate::engine::Engine;
use std::collections::{HashMap, VecDeque};

/// The bit of [`Chunk::note`](super::chunks::Chunk::note) that stands for the streams in
/// [`PendingFrees::more`].
const MORE: u32 = 63;

/// Blocks that wait for events, in a queue for each stream.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// By number of the stream.
    queues: Vec<Queue>,
    /// The numbers of the streams with queues, in order of stream id.
    order: Vec<u32>,
    /// The number of events in all queues.
    count: usize,
    /// The queue that is queried next, where one event is queried at a time.
    turn: usize,
    /// The streams from the 64th on that use a chunk.
    more: HashMap<Index, Vec<u32>>,
    /// Blocks that were freed during a capture, in which no event may be queried, or whose events could not
    /// all be recorded.
    pub(crate) without_events: Vec<Index>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<(EventId, Index)>,
    /// The index of the event that is queried next.
    reach: usize,
}

impl PendingFrees {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the recorded events that are not known to be complete.
    pub(crate) fn events(&self) -> impl Iterator<Item = EventId> + '_ {
        self.queues.iter().flat_map(|queue| &queue.events).map(|&(event, _)| event)
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Notes that a stream uses a live chunk.
    pub(crate) fn add_use(&mut self, chunk: Index, stream: u32) {
        if stream < MORE {
            self.chunks[chunk].note |= 1 << stream;
            return;
        }
        self.chunks[chunk].note |= 1 << MORE;
        let more = self.pending.more.entry(chunk).or_default();
        if !more.contains(&stream) {
            more.push(stream);
        }
    }

    /// Records an event in each stream that uses a chunk. Streams in which none could be recorded stay in the
    /// chunk's note, and it stays pending until they can. Returns `false` if there are such.
    pub(crate) fn record_events(&mut self, chunk: Index) -> bool {
        let uses = std::mem::take(&mut self.chunks[chunk].note);
        let few = (0..MORE).filter(|&stream| uses & (1 << stream) != 0);
        let more = if uses & (1 << MORE) == 0 { None } else { self.pending.more.remove(&chunk) };
        let streams: Vec<u32> = few.chain(more.unwrap_or_default()).collect();
        self.chunks[chunk].state = ChunkState::Pending;
        for stream in streams {
            let event = self.backing.record(self.streams.id(stream));
            let Ok(event) = self.noted(event) else {
                self.add_use(chunk, stream);
                continue;
            };
            let place = stream as usize;
            if place >= self.pending.queues.len() {
                self.pending.queues.resize_with(place + 1, Queue::default);
            }
            if !self.pending.order.contains(&stream) {
                self.pending.order.push(stream);
                self.pending.order.sort_by_key(|&stream| self.streams.id(stream));
            }
            self.pending.queues[place].events.push_back((event, chunk));
            self.pending.count += 1;
            self.chunks[chunk].events += 1;
        }
        let is_complete = self.chunks[chunk].note == 0;
        if !is_complete {
            self.pending.without_events.push(chunk);
        }
        is_complete
    }

    /// Tries again for blocks whose events could not all be recorded, until that fails again.
    fn retry_events(&mut self) {
        let mut chunks = std::mem::take(&mut self.pending.without_events).into_iter();
        while let Some(chunk) = chunks.next()
            && self.record_events(chunk)
        {}
        self.pending.without_events.extend(chunks);
    }

    /// Queries events, and frees the blocks that waited for them.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.pending.is_empty() && self.pending.without_events.is_empty() {
            return;
        }
        self.retry_events();
        if self.policy.extensions.poll_one { self.poll_one() } else { self.poll_all() }
    }

    /// Queries the oldest event of each stream until one is not complete; streams in order of their ids.
    /// PyTorch's order is that of a hash table. The order decides which chunks merge first, and so shows in
    /// the counts of splits.
    fn poll_all(&mut self) {
        self.pop_while(GuardedDevice::query);
    }

    /// Removes the oldest events of each stream as long as they are complete.
    fn pop_while(&mut self, is_complete: impl Fn(&GuardedDevice<B>, EventId) -> Result<bool, CallFailure>) {
        for place in 0..self.pending.order.len() {
            let stream = self.pending.order[place] as usize;
            while let Some(&(event, _)) = self.pending.queues[stream].events.front()
                && let complete = is_complete(&self.backing, event)
                && self.noted(complete) == Ok(true)
            {
                self.pop_event(stream);
            }
        }
    }

    /// Queries one event of one stream. If it is complete, so are those before it, and the next query goes
    /// twice as far ahead.
    fn poll_one(&mut self) {
        let queues = self.pending.queues.len();
        let mut turns = (0..queues).map(|more| (self.pending.turn + more) % queues);
        let Some(stream) = turns.find(|&stream| !self.pending.queues[stream].events.is_empty()) else {
            return;
        };
        self.pending.turn = (stream + 1) % queues;
        let queue = &self.pending.queues[stream];
        let ahead = queue.reach.min(queue.events.len() - 1);
        let event = queue.events[ahead].0;
        let complete = self.backing.query(event);
        let is_complete = self.noted(complete) == Ok(true);
        let queue = &mut self.pending.queues[stream];
        if is_complete {
            queue.reach = ahead * 2 + 1;
            for _ in 0..ahead {
                if let Some(&(before, _)) = self.pending.queues[stream].events.front() {
                    self.backing.forget(before);
                }
                self.pop_event(stream);
            }
            self.pop_event(stream);
        } else {
            queue.reach = ahead / 2;
        }
    }

    /// Removes the oldest event of a stream, which is complete.
    fn pop_event(&mut self, stream: usize) {
        let Some((_, chunk)) = self.pending.queues[stream].events.pop_front() else { return };
        self.pending.count -= 1;
        let passed = &mut self.chunks[chunk];
        passed.events -= 1;
        if passed.events == 0 && passed.note == 0 {
            self.make_free(chunk);
        }
    }

    /// Waits for all events, but for those of streams that could not be waited for.
    pub(crate) fn wait_for_all(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.retry_events();
        self.pop_while(|backing, event| backing.synchronize(event).map(|()| true));
    }
}
