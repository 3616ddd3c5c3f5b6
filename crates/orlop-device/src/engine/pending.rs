//! Blocks that were given back while other streams may use them.
//!
//! When such a block comes back, a mark is put into each of those streams; the memory is free when all are passed. Marks
//! of one stream are passed in order, so each stream has a queue.

use super::chunks::{ChunkState, Index};
use crate::backing::{DeviceBacking, EventId};
use crate::engine::Engine;
use std::collections::{HashMap, VecDeque};

/// The bit of [`Chunk::note`](super::chunks::Chunk::note) that says to look into the table.
const MORE: u32 = 63;

#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// By stream.
    queues: Vec<Queue>,
    /// The queues, in order of their streams' ids.
    order: Vec<u32>,
    /// How many marks there are.
    marks: usize,
    /// The queue that is asked next.
    turn: usize,
    /// StreamTable beyond the 63rd that use a chunk.
    more: HashMap<Index, Vec<u32>>,
    /// Blocks that came back during a capture, in which marks may not be asked about, or whose marks could not all be put in.
    pub(crate) without_events: Vec<Index>,
}

#[derive(Debug, Default)]
struct Queue {
    marks: VecDeque<(EventId, Index)>,
    /// How far ahead the next question goes, less one.
    reach: usize,
}

impl PendingFrees {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks == 0
    }

    /// Every event that was recorded and neither found done nor waited for.
    pub(crate) fn events(&self) -> impl Iterator<Item = EventId> + '_ {
        self.queues.iter().flat_map(|queue| &queue.marks).map(|&(event, _)| event)
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Remembers that a stream uses a live chunk.
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

    /// Puts a mark into each stream that uses a chunk. StreamTable into which none could be put stay in the chunk's note.
    pub(crate) fn record_events(&mut self, chunk: Index) {
        let uses = std::mem::take(&mut self.chunks[chunk].note);
        let few = (0..MORE).filter(|&stream| uses & (1 << stream) != 0);
        let more = if uses & (1 << MORE) == 0 { None } else { self.pending.more.remove(&chunk) };
        let streams: Vec<u32> = few.chain(more.unwrap_or_default()).collect();
        self.chunks[chunk].state = ChunkState::Pending;
        for stream in streams {
            let Some(event) = self.backing.record(self.streams.id(stream)) else {
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
            self.pending.queues[place].marks.push_back((event, chunk));
            self.pending.marks += 1;
            self.chunks[chunk].events += 1;
        }
        if self.chunks[chunk].note != 0 {
            self.pending.without_events.push(chunk);
        }
    }

    /// Tries again for blocks without all of their marks.
    fn retry_events(&mut self) {
        for chunk in std::mem::take(&mut self.pending.without_events) {
            self.record_events(chunk);
        }
    }

    /// Asks about marks, and frees what they kept.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.pending.is_empty() && self.pending.without_events.is_empty() {
            return;
        }
        self.retry_events();
        if self.policy.extensions.poll_one { self.poll_one() } else { self.poll_all() }
    }

    /// The oldest mark of each stream, until one is not passed; streams in order of their ids. (PyTorch's order is that
    /// of a hash table. It decides what merges with what first, and so shows in how often pieces were counted.)
    fn poll_all(&mut self) {
        for place in 0..self.pending.order.len() {
            let stream = self.pending.order[place] as usize;
            while let Some(&(event, _)) = self.pending.queues[stream].marks.front()
                && self.backing.is_done(event)
            {
                self.pass(stream);
            }
        }
    }

    /// One mark of one stream. If it is passed so are those before it: the further the better, as long as it works.
    fn poll_one(&mut self) {
        let queues = self.pending.queues.len();
        let mut turns = (0..queues).map(|more| (self.pending.turn + more) % queues);
        let Some(stream) = turns.find(|&stream| !self.pending.queues[stream].marks.is_empty()) else {
            return;
        };
        self.pending.turn = (stream + 1) % queues;
        let queue = &mut self.pending.queues[stream];
        let ahead = queue.reach.min(queue.marks.len() - 1);
        let event = queue.marks[ahead].0;
        if self.backing.is_done(event) {
            queue.reach = ahead * 2 + 1;
            for _ in 0..ahead {
                if let Some(&(before, _)) = self.pending.queues[stream].marks.front() {
                    self.backing.forget(before);
                }
                self.pass(stream);
            }
            self.pass(stream);
        } else {
            queue.reach = ahead / 2;
        }
    }

    /// The first mark of a stream is passed.
    fn pass(&mut self, stream: usize) {
        let Some((_, chunk)) = self.pending.queues[stream].marks.pop_front() else { return };
        self.pending.marks -= 1;
        let passed = &mut self.chunks[chunk];
        passed.events -= 1;
        if passed.events == 0 && passed.note == 0 {
            self.make_free(chunk);
        }
    }

    /// Waits until all marks are passed, but for those of streams that could not be waited for.
    pub(crate) fn wait_for_all(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.retry_events();
        for place in 0..self.pending.order.len() {
            let stream = self.pending.order[place] as usize;
            while let Some(&(event, _)) = self.pending.queues[stream].marks.front()
                && self.backing.synchronize(event)
            {
                self.pass(stream);
            }
        }
    }
}
