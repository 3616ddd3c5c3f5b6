//! Pending frees: blocks that were freed while other streams may still use them.
//!
//! Such memory is free when an event in each of those streams is complete. By PyTorch's rules the events are
//! recorded when the block is freed. By orlop's ([`Extensions::lazy_events`](crate::Extensions)) they are
//! recorded when the memory is wanted: a request that a pending block fits takes it, and its stream waits for
//! the others on the device, which is one event for each (see [`steal`](Engine::steal)); before the engine
//! grows, one event in each stream serves all blocks that it may still use. So most blocks that two streams
//! share need no query, and no event that is not waited for.
//!
//! Events of one stream complete in order, so each stream has a queue.

use super::chunks::{ChunkState, Index};
use crate::DeviceError;
use crate::backing::{CallFailure, DeviceBacking, EventId, GuardedDevice};
use crate::engine::Engine;
use crate::policy::Extensions;
use orlop_core::{Device, StreamId};
use std::collections::{HashMap, HashSet, VecDeque};

/// The bit of [`Chunk::note`](super::chunks::Chunk::note) that stands for the streams in
/// [`PendingFrees::more`].
const MORE: u32 = 63;

/// The maximum of blocks without events: their memory is not free, even if the other streams are done.
const MAX_UNRECORDED: usize = 64;

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
    /// Blocks whose events are recorded when their memory is wanted.
    pub(crate) unrecorded: Vec<Index>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Blocks that wait for the same event follow each other.
    events: VecDeque<(EventId, Index)>,
    /// The index of the event that is queried next.
    reach: usize,
}

impl PendingFrees {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the recorded events that are not known to be complete.
    pub(crate) fn events(&self) -> HashSet<EventId> {
        self.queues.iter().flat_map(|queue| &queue.events).map(|&(event, _)| event).collect()
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

    /// Returns the other streams that use a chunk.
    pub(crate) fn users(&self, chunk: Index) -> impl Iterator<Item = u32> + '_ {
        let uses = self.chunks[chunk].note;
        let more = if uses & (1 << MORE) == 0 { None } else { self.pending.more.get(&chunk) };
        let few = (0..MORE).filter(move |&stream| uses & (1 << stream) != 0);
        few.chain(more.into_iter().flatten().copied())
    }

    /// Removes the note that a stream uses a chunk. Returns `false` if there is none.
    fn remove_use(&mut self, chunk: Index, stream: u32) -> bool {
        let uses = &mut self.chunks[chunk].note;
        if stream < MORE {
            let bit = 1 << stream;
            let was_set = *uses & bit != 0;
            *uses &= !bit;
            return was_set;
        }
        let Some(more) = self.pending.more.get_mut(&chunk).filter(|_| *uses & (1 << MORE) != 0) else {
            return false;
        };
        let before = more.len();
        more.retain(|&other| other != stream);
        let was_set = more.len() < before;
        if more.is_empty() {
            self.pending.more.remove(&chunk);
            *uses &= !(1 << MORE);
        }
        was_set
    }

    /// Removes all notes that streams use a chunk.
    pub(crate) fn remove_uses(&mut self, chunk: Index) {
        if self.chunks[chunk].note & (1 << MORE) != 0 {
            self.pending.more.remove(&chunk);
        }
        self.chunks[chunk].note = 0;
    }

    /// Makes a block pending that other streams use.
    pub(crate) fn free_later(&mut self, chunk: Index) {
        self.chunks[chunk].state = ChunkState::Pending;
        if self.private.is_capturing() {
            self.pending.without_events.push(chunk);
        } else if self.is_lazy() {
            self.pending.unrecorded.push(chunk);
            if self.pending.unrecorded.len() >= MAX_UNRECORDED {
                self.record_unrecorded();
            }
        } else {
            self.record_events(&[chunk]);
        }
    }

    /// Returns `true` if events are recorded when memory is wanted. The host cannot be made to wait for an
    /// event on the device, so its memory is not handed over in this way.
    fn is_lazy(&self) -> bool {
        let Extensions { lazy_events, steal, .. } = self.policy.extensions;
        lazy_events && steal && self.backing.device() != Device::CPU
    }

    /// Records an event in each stream that uses one of these chunks, which are pending. Streams in which
    /// none could be recorded stay in the chunks' notes, and these pending until they can.
    fn record_events(&mut self, chunks: &[Index]) {
        let mut streams: Vec<u32> = chunks.iter().flat_map(|&chunk| self.users(chunk)).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let event = self.backing.record(self.streams.id(stream));
            let Ok(event) = self.noted(event) else { continue };
            let place = stream as usize;
            if place >= self.pending.queues.len() {
                self.pending.queues.resize_with(place + 1, Queue::default);
            }
            if !self.pending.order.contains(&stream) {
                self.pending.order.push(stream);
                self.pending.order.sort_by_key(|&stream| self.streams.id(stream));
            }
            for &chunk in chunks {
                if self.remove_use(chunk, stream) {
                    self.pending.queues[place].events.push_back((event, chunk));
                    self.pending.count += 1;
                    self.chunks[chunk].events += 1;
                }
            }
        }
        let without = chunks.iter().filter(|&&chunk| self.chunks[chunk].note != 0);
        self.pending.without_events.extend(without);
    }

    /// Tries again for blocks whose events could not all be recorded.
    fn retry_events(&mut self) {
        if !self.pending.without_events.is_empty() {
            let chunks = std::mem::take(&mut self.pending.without_events);
            self.record_events(&chunks);
        }
    }

    /// Records the events of all blocks without them: one in each stream that uses some.
    pub(crate) fn record_unrecorded(&mut self) {
        if !self.pending.unrecorded.is_empty() && !self.private.is_capturing() {
            let chunks = std::mem::take(&mut self.pending.unrecorded);
            self.record_events(&chunks);
        }
    }

    /// Records an event for all blocks that were freed while a stream may still use them. Call it before the
    /// stream is destroyed: later none can be recorded in it.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Backing`] if that failed. It is tried again at each request.
    pub fn retire_stream(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        let stream = self.streams.number(stream);
        self.failures.begin();
        let is_user = |&&chunk: &&Index| self.users(chunk).any(|user| user == stream);
        if self.pending.unrecorded.iter().any(|chunk| is_user(&chunk)) {
            self.record_unrecorded();
        }
        self.failures.first().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Queries events, and frees the blocks that waited for them.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.pending.is_empty() && self.pending.without_events.is_empty() {
            return;
        }
        // No event of before it may be queried during a capture, and none can be recorded.
        if self.private.is_capturing() {
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
            while let Some(&(before, _)) = self.pending.queues[stream].events.front()
                && before != event
            {
                self.backing.forget(before);
                self.pop_event(stream);
            }
            self.pop_event(stream);
        } else {
            queue.reach = ahead / 2;
        }
    }

    /// Removes the oldest event of a stream, which is complete, and frees the blocks that waited for it.
    fn pop_event(&mut self, stream: usize) {
        self.end_event(stream, 0);
    }

    /// Removes a complete event of a stream, and frees the blocks that waited for it. One of them is at
    /// `place`.
    fn end_event(&mut self, stream: usize, mut place: usize) {
        let events = &self.pending.queues[stream].events;
        let Some(&(event, _)) = events.get(place) else { return };
        while place > 0 && events[place - 1].0 == event {
            place -= 1;
        }
        while let Some(&(next, chunk)) = self.pending.queues[stream].events.get(place)
            && next == event
        {
            self.pending.queues[stream].events.remove(place);
            self.pending.count -= 1;
            let passed = &mut self.chunks[chunk];
            passed.events -= 1;
            if passed.events == 0 && passed.note == 0 {
                self.make_free(chunk);
            }
        }
    }

    /// Waits for the events of blocks of these pools.
    pub(crate) fn wait_for_pools(&mut self, pools: [u16; 2]) {
        self.stats.num_sync_all_streams += 1;
        self.record_unrecorded();
        self.retry_events();
        for place in 0..self.pending.order.len() {
            let stream = self.pending.order[place] as usize;
            let mut next = 0;
            while let Some(&(event, chunk)) = self.pending.queues[stream].events.get(next) {
                let is_theirs = pools.contains(&self.chunks[chunk].pool);
                if is_theirs
                    && let waited = self.backing.synchronize(event)
                    && self.noted(waited).is_ok()
                {
                    self.end_event(stream, next);
                    // Blocks of other pools may have waited for the same event.
                    next = 0;
                } else {
                    next += 1;
                }
            }
        }
    }

    /// Waits for all events, but for those of streams that could not be waited for.
    pub(crate) fn wait_for_all(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.record_unrecorded();
        self.retry_events();
        self.pop_while(|backing, event| backing.synchronize(event).map(|()| true));
    }
}
