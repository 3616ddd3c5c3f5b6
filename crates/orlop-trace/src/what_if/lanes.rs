//! Blocks that were given back while streams still used them, in replays.
//!
//! Recordings tell when such a block was free at last, but not what it waited for (PyTorch's snapshots have no event for
//! `record_stream`). So it waits for a stream of the replay's own, a lane, that is as far as the recording says.

use orlop_core::StreamId;
use orlop_device::{DeviceBlock, Engine, NullDevice};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// So many lanes at most: engines ask each lane in which something waits, whenever they allocate.
const LANES: u64 = 16;

/// Blocks by what their replay knows them by.
#[derive(Debug)]
pub(super) struct Lanes<Id> {
    lanes: Vec<CompletionLane>,
    /// In which lane a block waits, and for which of its events.
    waiting: HashMap<Id, (usize, u64)>,
}

impl<Id> Default for Lanes<Id> {
    fn default() -> Self {
        Self { lanes: Vec::new(), waiting: HashMap::new() }
    }
}

#[derive(Debug)]
struct CompletionLane {
    stream: StreamId,
    /// Blocks that wait here, in order, and whether they were completed out of it: streams do what they are given in order.
    queue: VecDeque<(u64, bool)>,
}

impl<Id: Eq + Hash> Lanes<Id> {
    /// Frees a block, which has to wait.
    pub(super) fn free_later(&mut self, engine: &mut Engine<NullDevice>, id: Id, block: DeviceBlock) {
        let place = self.lane(engine);
        let lane = &mut self.lanes[place];
        let noted = engine.record_stream(block, lane.stream).and_then(|()| engine.free(block));
        debug_assert!(noted.is_ok());
        // One more than before, or as many while a capture goes on: it does not wait then.
        let event = engine.backing().recorded_events(lane.stream);
        if lane.queue.back().is_none_or(|&(last, _)| last < event) {
            lane.queue.push_back((event, false));
            self.waiting.insert(id, (place, event));
        }
    }

    /// A block need not wait any more. Whether it did.
    pub(super) fn complete(&mut self, engine: &Engine<NullDevice>, id: Id) -> bool {
        let Some((place, event)) = self.waiting.remove(&id) else { return false };
        let CompletionLane { stream, queue } = &mut self.lanes[place];
        if let Ok(found) = queue.binary_search_by_key(&event, |&(event, _)| event) {
            queue[found].1 = true;
        }
        let passed = engine.backing().completed_events(*stream);
        while let Some(&(event, done)) = queue.front()
            && (done || event <= passed)
        {
            engine.backing().complete_events(*stream, event);
            queue.pop_front();
        }
        true
    }

    /// Nothing waits any more.
    pub(super) fn complete_all(&mut self, engine: &Engine<NullDevice>) {
        self.waiting.clear();
        for CompletionLane { stream, queue } in &mut self.lanes {
            queue.clear();
            engine.backing().complete_events(*stream, engine.backing().recorded_events(*stream));
        }
    }

    /// A lane in which nothing waits, or where the fewest do.
    fn lane(&mut self, engine: &Engine<NullDevice>) -> usize {
        for CompletionLane { stream, queue } in &mut self.lanes {
            // The device may have waited for them all, for other reasons.
            let passed = engine.backing().completed_events(*stream);
            while queue.front().is_some_and(|&(event, _)| event <= passed) {
                queue.pop_front();
            }
        }
        let number = self.lanes.len() as u64;
        let fewest = (0..).zip(&self.lanes).min_by_key(|(_, lane)| lane.queue.len());
        match fewest {
            Some((place, lane)) if lane.queue.is_empty() || number == LANES => place,
            _ => {
                // No program's: these are addresses, or small.
                let stream = StreamId::new(u64::MAX - number);
                engine.backing().track_completions(stream);
                self.lanes.push(CompletionLane { stream, queue: VecDeque::new() });
                self.lanes.len() - 1
            }
        }
    }
}
