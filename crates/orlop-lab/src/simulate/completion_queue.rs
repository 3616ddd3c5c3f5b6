//! The completion queue: frees that are pending until their recorded completion.
//!
//! A recording has the completion of such a free, but not the stream that delayed it (PyTorch's snapshots
//! have no event for `record_stream`). So in a replay the free waits for an artificial stream, whose progress
//! follows the recording.

use foldhash::HashMap;
use orlop_core::StreamId;
use orlop_device::{DeviceBlock, Engine, NullDevice};
use std::collections::VecDeque;
use std::hash::Hash;

/// The number of artificial streams. At every allocation, engines poll each of them that has pending frees.
const MAX_STREAMS_OF_QUEUE: u64 = 16;

/// Pending frees, by the replay's key for a block.
#[derive(Debug)]
pub(super) struct CompletionQueue<Id> {
    streams: Vec<CompletionStream>,
    /// The stream that a block waits for, by its index, and the event in it.
    waiting: HashMap<Id, (usize, u64)>,
}

impl<Id> Default for CompletionQueue<Id> {
    fn default() -> Self {
        Self { streams: Vec::new(), waiting: HashMap::default() }
    }
}

#[derive(Debug)]
struct CompletionStream {
    stream: StreamId,
    /// The events that are waited for, in order, and whether each completed ahead of those before it: a
    /// stream itself completes its events in order.
    queue: VecDeque<(u64, bool)>,
}

impl<Id: Eq + Hash> CompletionQueue<Id> {
    /// Frees a block that stays pending.
    pub(super) fn free_later(&mut self, engine: &mut Engine<NullDevice>, id: Id, block: DeviceBlock) {
        let index = self.stream(engine);
        let target = &mut self.streams[index];
        let recorded = engine.record_stream(block, target.stream).and_then(|()| engine.free(block));
        debug_assert!(recorded.is_ok());
        // One more than before, or the same during a capture: then the free does not wait.
        let event = engine.backing().recorded_events(target.stream);
        if target.queue.back().is_none_or(|&(last, _)| last < event) {
            target.queue.push_back((event, false));
            self.waiting.insert(id, (index, event));
        }
    }

    /// Completes a pending free. Returns whether the block was pending.
    pub(super) fn complete(&mut self, engine: &Engine<NullDevice>, id: Id) -> bool {
        let Some((index, event)) = self.waiting.remove(&id) else { return false };
        let CompletionStream { stream, queue } = &mut self.streams[index];
        if let Ok(position) = queue.binary_search_by_key(&event, |&(event, _)| event) {
            queue[position].1 = true;
        }
        let completed = engine.backing().completed_events(*stream);
        while let Some(&(event, done)) = queue.front()
            && (done || event <= completed)
        {
            engine.backing().complete_events(*stream, event);
            queue.pop_front();
        }
        true
    }

    /// Completes all pending frees.
    pub(super) fn complete_all(&mut self, engine: &Engine<NullDevice>) {
        self.waiting.clear();
        for CompletionStream { stream, queue } in &mut self.streams {
            queue.clear();
            engine.backing().complete_events(*stream, engine.backing().recorded_events(*stream));
        }
    }

    /// Returns the index of a stream without pending frees, or of the one with the fewest.
    fn stream(&mut self, engine: &Engine<NullDevice>) -> usize {
        for CompletionStream { stream, queue } in &mut self.streams {
            // The device may have waited for all of them for other reasons.
            let completed = engine.backing().completed_events(*stream);
            while queue.front().is_some_and(|&(event, _)| event <= completed) {
                queue.pop_front();
            }
        }
        let number = self.streams.len() as u64;
        let fewest = (0..).zip(&self.streams).min_by_key(|(_, stream)| stream.queue.len());
        match fewest {
            Some((index, stream)) if stream.queue.is_empty() || number == MAX_STREAMS_OF_QUEUE => index,
            _ => {
                // No stream of a program: those are addresses, or small.
                let stream = StreamId::from_raw(u64::MAX - number);
                engine.backing().track_completions(stream);
                self.streams.push(CompletionStream { stream, queue: VecDeque::new() });
                self.streams.len() - 1
            }
        }
    }
}
