//! Pending frees: blocks that were freed while other streams may still use them.
//!
//! Such memory is free when an event in each of those streams is complete, which is recorded when the block
//! is freed. A stream may also take it before, and wait on the device: see `run_ahead`.
//!
//! Events of one stream complete in order, so each stream has a queue.

use super::chunks::{Chunk, ChunkState, Index};
use super::slow_path::SlowPath;
use crate::backing::{DeviceBacking, EventId};
use crate::engine::Engine;
use std::collections::{HashMap, HashSet, VecDeque};

/// The bit of [`Chunk::note`](super::chunks::Chunk::note) that stands for the streams in
/// [`PendingFrees::more`].
const MORE: u32 = 63;

/// Blocks that wait for events, in a queue for each stream.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// By number of the stream.
    pub(super) queues: Vec<Queue>,
    /// The numbers of the streams with queues, in order of stream id.
    pub(super) order: Vec<u32>,
    /// The number of events in all queues.
    pub(super) count: usize,
    /// The number of frees whose events were recorded.
    frees: u64,
    /// The queue that is queried next, where one event is queried at a time.
    turn: usize,
    /// The streams from the 64th on that use a chunk.
    more: HashMap<Index, Vec<u32>>,
    /// Blocks that were freed during a capture, in which no event may be queried, or whose events could not
    /// all be recorded.
    pub(crate) without_events: Vec<Index>,
    /// The number of retired streams whose events were not complete when numbers were last collected.
    pub(crate) stuck: usize,
}

/// An event that a block waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AwaitedEvent {
    pub(super) event: EventId,
    pub(super) chunk: Index,
    /// Counts the frees, in whose order events are in a queue.
    pub(super) serial: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Blocks that wait for the same event follow each other.
    pub(super) events: VecDeque<AwaitedEvent>,
    /// The index of the event that is queried next.
    reach: usize,
}

impl PendingFrees {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the recorded events that are not known to be complete.
    pub(crate) fn events(&self) -> HashMap<EventId, u32> {
        let queues = (0..).zip(&self.queues);
        queues
            .flat_map(|(stream, queue)| queue.events.iter().map(move |awaited| (awaited.event, stream)))
            .collect()
    }

    /// Returns the blocks that wait for events which are not recorded.
    pub(crate) fn unawaited(&self) -> impl Iterator<Item = Index> + '_ {
        self.without_events.iter().copied()
    }

    /// Removes the queue of a stream if it is empty. Returns `false` if it is not.
    pub(crate) fn drop_queue(&mut self, stream: u32) -> bool {
        let Some(queue) = self.queues.get_mut(stream as usize) else { return true };
        if !queue.events.is_empty() {
            return false;
        }
        *queue = Queue::default();
        self.order.retain(|&other| other != stream);
        true
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
    pub(crate) fn remove_use(&mut self, chunk: Index, stream: u32) -> bool {
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

    /// Makes a block pending that other streams use.
    pub(crate) fn free_later(&mut self, chunk: Index) {
        self.chunks[chunk].state = ChunkState::Pending;
        if self.is_free_captured(chunk) {
            self.pending.without_events.push(chunk);
        } else {
            self.record_events(&[chunk]);
        }
    }

    /// Records an event in each stream that uses one of these chunks, which are pending. Streams in which
    /// none could be recorded stay in the chunks' notes, and these pending until they can.
    fn record_events(&mut self, chunks: &[Index]) {
        let mut streams: Vec<u32> = chunks.iter().flat_map(|&chunk| self.users(chunk)).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            if self.is_captured(stream) {
                continue;
            }
            let event = self.backing.record(self.streams.id(stream));
            let Ok(event) = self.noted(event) else { continue };
            let before = self.pending.queues.get(stream as usize).and_then(|queue| queue.events.back());
            if before.is_some_and(|before| before.event == event) {
                // A stream that has ended has one event, which counts its users: a queue is one of them.
                self.backing.forget(event);
            }
            let place = stream as usize;
            if place >= self.pending.queues.len() {
                self.pending.queues.resize_with(place + 1, Queue::default);
            }
            if !self.pending.order.contains(&stream) {
                self.pending.order.push(stream);
                self.pending.order.sort_by_key(|&stream| self.streams.id(stream));
            }
            for (serial, &chunk) in (self.pending.frees..).zip(chunks) {
                if self.remove_use(chunk, stream) {
                    let awaited = AwaitedEvent { event, chunk, serial };
                    self.pending.queues[place].events.push_back(awaited);
                    self.pending.count += 1;
                    self.chunks[chunk].events += 1;
                }
            }
        }
        self.pending.frees += chunks.len() as u64;
        let without = chunks.iter().filter(|&&chunk| self.chunks[chunk].note != 0);
        self.pending.without_events.extend(without);
    }

    /// Tries again for blocks whose events could not all be recorded, unless the device is lost.
    pub(crate) fn retry_events(&mut self) {
        if self.pending.without_events.is_empty() {
            return;
        }
        if let Some(loss) = self.backing.loss() {
            let _lost = self.noted::<()>(Err(loss));
        } else {
            let chunks = std::mem::take(&mut self.pending.without_events);
            self.record_events(&chunks);
        }
    }

    /// Queries events for a call of a stream, and frees the blocks that waited for them.
    #[inline(always)]
    pub(crate) fn poll(&mut self, stream: u32) {
        if !self.pending.is_empty() || !self.pending.without_events.is_empty() {
            self.poll_events(stream);
        }
    }

    #[inline(never)]
    fn poll_events(&mut self, stream: u32) {
        // No event of before it may be queried during a capture, and none can be recorded.
        if self.is_captured(stream) {
            return;
        }
        self.retry_events();
        if self.policy.extensions.poll_one { self.poll_one() } else { self.poll_all() }
    }

    /// Queries the oldest event of each stream until one is not complete; streams in order of their ids.
    /// PyTorch's order is that of a hash table. The order decides which chunks merge first, and so shows in
    /// the counts of splits.
    fn poll_all(&mut self) {
        for place in 0..self.pending.order.len() {
            let stream = self.pending.order[place] as usize;
            while let Some(&AwaitedEvent { event, .. }) = self.pending.queues[stream].events.front()
                && let complete = self.backing.query(event)
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
        let event = queue.events[ahead].event;
        let complete = self.backing.query(event);
        let is_complete = self.noted(complete) == Ok(true);
        let queue = &mut self.pending.queues[stream];
        if is_complete {
            queue.reach = ahead * 2 + 1;
            while let Some(&AwaitedEvent { event: before, .. }) = self.pending.queues[stream].events.front()
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
        let Some(&AwaitedEvent { event, .. }) = self.pending.queues[stream].events.front() else { return };
        while let Some(&AwaitedEvent { event: next, chunk, .. }) = self.pending.queues[stream].events.front()
            && next == event
        {
            self.pending.queues[stream].events.pop_front();
            self.pending.count -= 1;
            self.complete(chunk);
        }
    }

    /// Takes an event out of the queue of a stream. The block at this place is the first that waits for it.
    fn take_event(&mut self, stream: usize, place: usize) -> Option<TakenEvent> {
        let events = &mut self.pending.queues[stream].events;
        let event = events.get(place)?.event;
        let mut blocks = Vec::new();
        while events.get(place).is_some_and(|next| next.event == event) {
            blocks.extend(events.remove(place));
        }
        self.pending.count -= blocks.len();
        Some(TakenEvent { event, blocks })
    }

    /// Notes that an event is complete that a block waited for, and frees the block if it was the last one.
    fn complete(&mut self, chunk: Index) {
        let passed = &mut self.chunks[chunk];
        passed.events -= 1;
        if passed.events == 0 && passed.note == 0 {
            if self.streams.is_retired(passed.stream) {
                passed.stream = self.streams.default_number();
            }
            self.make_free(chunk);
        }
    }

    /// Puts an event back into the queue of a stream, in the order of frees.
    fn put_event_back(&mut self, stream: usize, taken: TakenEvent) {
        let Some(first) = taken.blocks.first() else { return };
        self.pending.count += taken.blocks.len();
        let events = &mut self.pending.queues[stream].events;
        let place = events.partition_point(|other| other.serial < first.serial);
        for awaited in taken.blocks.into_iter().rev() {
            events.insert(place, awaited);
        }
    }
}

/// An event that is waited for, out of its queue: no other thread queries it, or forgets it.
#[derive(Debug)]
struct TakenEvent {
    event: EventId,
    /// The blocks that wait for it.
    blocks: Vec<AwaitedEvent>,
}

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Waits for the events of blocks of these pools.
    pub(crate) fn wait_for_pools(&mut self, pools: [u16; 2]) {
        self.wait_for_blocks(|chunk| pools.contains(&chunk.pool));
    }

    /// Waits for all events, but for those of streams that could not be waited for.
    pub(crate) fn wait_for_all(&mut self) {
        self.wait_for_blocks(|_| true);
    }

    /// Waits for the events of some blocks.
    fn wait_for_blocks(&mut self, is_awaited: impl Fn(&Chunk) -> bool) {
        self.stats.num_sync_all_streams += 1;
        self.retry_events();
        // Events that other threads record meanwhile are not waited for, and streams that they add to the
        // order shift those behind them.
        for stream in self.pending.order.clone() {
            let stream = stream as usize;
            let events = self.pending.queues[stream].events.iter();
            let awaited: HashSet<EventId> =
                events.filter(|next| is_awaited(&self.chunks[next.chunk])).map(|next| next.event).collect();
            self.wait_for_events(stream, &awaited);
        }
    }

    /// Waits for events of a stream, in their order, until that fails.
    fn wait_for_events(&mut self, stream: usize, awaited: &HashSet<EventId>) {
        let next = |engine: &Engine<B>| {
            engine.pending.queues[stream].events.iter().position(|next| awaited.contains(&next.event))
        };
        while let Some(place) = next(self)
            && let Some(taken) = self.take_event(stream, place)
        {
            let event = taken.event;
            let waited = self.call(|backing| backing.synchronize(event));
            if self.noted(waited).is_err() {
                return self.put_event_back(stream, taken);
            }
            for awaited in taken.blocks {
                self.complete(awaited.chunk);
            }
        }
    }
}
