//! Pending frees: blocks that were freed while other streams may still use them.
//!
//! Such memory is free when an event in each of those streams is complete, which is recorded when the block is
//! freed. By PyTorch's rules a request waits for none: as long as the events are not complete, it gets other
//! memory, however far the host runs ahead. By orlop's ([`Extensions::limit_run_ahead`](crate::Extensions))
//! a request that two pending blocks fit takes the older one, and its stream waits for the events on the
//! device: so one block can be filled while another is in use.
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

/// How many of the oldest blocks of each stream are candidates of a request that may wait.
const CANDIDATES: usize = 64;

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
    /// The number of retired streams whose events were not complete when numbers were last collected.
    pub(crate) stuck: usize,
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
    pub(crate) fn events(&self) -> HashMap<EventId, u32> {
        let queues = (0..).zip(&self.queues);
        queues
            .flat_map(|(stream, queue)| queue.events.iter().map(move |&(event, _)| (event, stream)))
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
            while let Some(&(event, _)) = self.pending.queues[stream].events.front()
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
        let Some(&(event, _)) = self.pending.queues[stream].events.front() else { return };
        while let Some(&(next, chunk)) = self.pending.queues[stream].events.front()
            && next == event
        {
            self.pending.queues[stream].events.pop_front();
            self.pending.count -= 1;
            self.complete(chunk);
        }
    }

    /// Returns the oldest blocks that wait for nothing but recorded events, those of each stream in order.
    pub(crate) fn oldest_pending(&self) -> impl Iterator<Item = Index> + '_ {
        let queues = self.pending.order.iter().map(|&stream| &self.pending.queues[stream as usize]);
        let oldest = queues.flat_map(|queue| queue.events.iter().take(CANDIDATES));
        oldest.map(|&(_, chunk)| chunk).filter(|&chunk| self.chunks[chunk].note == 0)
    }

    /// Makes a stream wait, on the device, for the events of a pending block, which waits for nothing then.
    /// Returns `false` if it does not: the block stays pending.
    #[must_use]
    pub(crate) fn wait_for_pending(&mut self, chunk: Index, stream: u32) -> bool {
        let waits = self.pending.order.iter().copied().filter(|&user| {
            self.pending.queues[user as usize].events.iter().any(|&(_, waiting)| waiting == chunk)
        });
        let users: Vec<u32> = waits.collect();
        // Another thread may wait for one of its events, out of its queue.
        if users.len() != self.chunks[chunk].events as usize {
            return false;
        }
        for (place, &user) in users.iter().enumerate() {
            if !self.wait_in_queue(chunk, user, stream) {
                // Only the request's stream waits for those before: for others the block is still in use.
                users[..place].iter().for_each(|&user| self.add_use(chunk, user));
                if place > 0 {
                    self.pending.without_events.push(chunk);
                }
                return false;
            }
        }
        true
    }

    /// Makes a stream wait for the event of a pending block in another one, and takes the block from there.
    fn wait_in_queue(&mut self, chunk: Index, user: u32, stream: u32) -> bool {
        let events = &self.pending.queues[user as usize].events;
        let Some(place) = events.iter().position(|&(_, waiting)| waiting == chunk) else { return true };
        let event = events[place].0;
        let is_shared = events.iter().filter(|&&(other, _)| other == event).count() > 1;
        let waited = if is_shared {
            user == stream || self.wait_for(stream, user)
        } else if user == stream {
            self.backing.forget(event);
            true
        } else {
            let waited = self.backing.wait(self.streams.id(stream), event);
            self.stats.num_stream_waits += u64::from(waited.is_ok());
            self.noted(waited).is_ok()
        };
        if waited {
            self.pending.queues[user as usize].events.remove(place);
            self.pending.count -= 1;
            self.chunks[chunk].events -= 1;
        }
        waited
    }

    /// Takes an event out of the queue of a stream. The block at this place is the first that waits for it.
    fn take_event(&mut self, stream: usize, place: usize) -> Option<TakenEvent> {
        let events = &mut self.pending.queues[stream].events;
        let &(event, _) = events.get(place)?;
        let before = place.checked_sub(1).and_then(|before| events.get(before)).map(|&(event, _)| event);
        let mut blocks = Vec::new();
        while events.get(place).is_some_and(|next| next.0 == event) {
            blocks.extend(events.remove(place).map(|(_, chunk)| chunk));
        }
        self.pending.count -= blocks.len();
        Some(TakenEvent { event, before, blocks })
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

    /// Puts an event back into the queue of a stream: behind the one before it, if that was not complete
    /// meanwhile.
    fn put_event_back(&mut self, stream: usize, taken: TakenEvent) {
        let TakenEvent { event, before, blocks } = taken;
        self.pending.count += blocks.len();
        let events = &mut self.pending.queues[stream].events;
        let place = events.iter().rposition(|&(other, _)| Some(other) == before).map_or(0, |place| place + 1);
        for chunk in blocks.into_iter().rev() {
            events.insert(place, (event, chunk));
        }
    }
}

/// An event that is waited for, out of its queue: no other thread queries it, or forgets it.
#[derive(Debug)]
struct TakenEvent {
    event: EventId,
    /// The one before it in its queue.
    before: Option<EventId>,
    blocks: Vec<Index>,
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
                events.filter(|&&(_, chunk)| is_awaited(&self.chunks[chunk])).map(|next| next.0).collect();
            self.wait_for_events(stream, &awaited);
        }
    }

    /// Waits for events of a stream, in their order, until that fails.
    fn wait_for_events(&mut self, stream: usize, awaited: &HashSet<EventId>) {
        let next = |engine: &Engine<B>| {
            engine.pending.queues[stream].events.iter().position(|next| awaited.contains(&next.0))
        };
        while let Some(place) = next(self)
            && let Some(taken) = self.take_event(stream, place)
        {
            let event = taken.event;
            let waited = self.call(|backing| backing.synchronize(event));
            if self.noted(waited).is_err() {
                return self.put_event_back(stream, taken);
            }
            for chunk in taken.blocks {
                self.complete(chunk);
            }
        }
    }
}
