//! Whether the engine does what the allocator did that was recorded: the same addresses, from the recorded state on.
//!
//! A replay by PyTorch's rules is worth what this says.

use super::lanes::Lanes;
use super::streams::FoldedStreams;
use crate::history::{BlockState, Completions, DeviceHistory, EventAction, HistoryEvent, Segment};
use orlop_core::{Device, StreamId};
use orlop_device::{
    DeviceBlock, DeviceChunk, DeviceChunkState, DeviceRequest, DeviceSegment, Engine, NullDevice, Policy,
    PoolId, StreamFilter, TorchConf,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// How many recorded addresses the engine gave, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// Allocations in the trace.
    pub allocations: u64,
    /// Those that have the address that was recorded.
    pub same: u64,
    /// The first event whose address is another.
    pub first_difference: Option<usize>,
    /// Blocks whose free was completed though nothing says that it was requested. They are freed there, as in a
    /// [`Workload`](crate::history::Workload); when they were given back in the recorded run is not known.
    pub unrequested: u64,
}

impl Fidelity {
    /// Whether this is asked of a recording with reason: it tells of segments, and they can be PyTorch's. Its snapshots do
    /// not tell of threads; recordings of orlop's allocators do, and a profiler's, of which no segment is known.
    #[must_use]
    pub fn is_told_by(history: &DeviceHistory) -> bool {
        history.has_segments() && history.events.iter().all(|event| event.thread == 0)
    }

    /// Replays a device's events by PyTorch's rules, from the segments at the start on. Nothing is set right in between:
    /// one difference leads to more. What a segment that is gained is called is taken from the trace, and when one goes
    /// back: that depends on what else the device held. So is when streams were done with what was freed.
    #[must_use]
    pub fn of(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let mut replay = FidelityReplay::new(history, conf);
        for (place, event) in history.events.iter().enumerate() {
            replay.event(history, place, event);
        }
        replay.fidelity
    }
}

struct FidelityReplay {
    engine: Engine<NullDevice>,
    streams: FoldedStreams,
    /// By address in the recording, as the next: what was freed and waits for streams.
    lanes: Lanes<u64>,
    blocks: HashMap<u64, DeviceBlock>,
    completions: Completions,
    fidelity: Fidelity,
}

impl FidelityReplay {
    fn new(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let device = NullDevice::new(Device::cuda(0), super::machine::UNLIMITED);
        let mut streams = FoldedStreams::default();
        let segments: Vec<DeviceSegment> =
            history.start.iter().filter_map(|told| segment(told, &mut streams)).collect();
        let mut engine = Engine::new(device, Policy::torch(conf));
        // From a state that cannot be, the replay begins with nothing, and few addresses are the same.
        let restored = engine.restore(&segments).unwrap_or_default();
        expect(&engine, history);
        let mut replay = Self {
            engine,
            streams,
            lanes: Lanes::default(),
            blocks: restored.into_iter().map(|(at, block)| (at as u64, block)).collect(),
            completions: Completions::default(),
            fidelity: Fidelity::default(),
        };
        for address in waiting(history) {
            if let Some(block) = replay.blocks.remove(&address) {
                replay.free(address, block, true);
            }
        }
        replay
    }

    fn event(&mut self, history: &DeviceHistory, place: usize, event: &HistoryEvent) {
        let lingers = self.completions.lingers(event, history.events.get(place + 1));
        match event.action {
            EventAction::Allocate => {
                let pool = history.detail(place).map_or((0, 0), |detail| detail.pool);
                self.allocate(place, event, pool);
            }
            EventAction::Use => {
                if let Some(&block) = self.blocks.get(&event.address) {
                    let _noted = self.engine.record_stream(block, self.streams.fold(event.stream));
                }
            }
            EventAction::FreeRequested => {
                if let Some(block) = self.blocks.remove(&event.address) {
                    self.free(event.address, block, lingers);
                }
            }
            EventAction::FreeCompleted => {
                if !self.lanes.complete(&self.engine, event.address)
                    && let Some(block) = self.blocks.remove(&event.address)
                {
                    self.free(event.address, block, false);
                    self.fidelity.unrequested += 1;
                }
            }
            EventAction::RegionLost | EventAction::Unmapped => {
                if let (Ok(address), Ok(bytes)) =
                    (usize::try_from(event.address), usize::try_from(event.bytes))
                {
                    let stream = self.streams.fold(event.stream);
                    self.engine.release_segment(stream, address, bytes);
                }
            }
            _ => {}
        }
    }

    fn allocate(&mut self, place: usize, event: &HistoryEvent, pool: PoolId) {
        self.fidelity.allocations += 1;
        let bytes = usize::try_from(event.bytes).unwrap_or(usize::MAX);
        let ask = DeviceRequest::new(bytes, self.streams.fold(event.stream));
        let got = allocate(&mut self.engine, ask, pool);
        if got.map(|block| self.engine.address(block) as u64) == Some(event.address) {
            self.fidelity.same += 1;
        } else {
            self.fidelity.first_difference.get_or_insert(place);
        }
        if let Some(before) = got.and_then(|block| self.blocks.insert(event.address, block)) {
            // A block that the trace never frees, and whose place it gives away.
            let _freed = self.engine.free(before);
        }
    }

    fn free(&mut self, address: u64, block: DeviceBlock, lingers: bool) {
        if lingers {
            self.lanes.free_later(&mut self.engine, address, block);
        } else {
            let _freed = self.engine.free(block);
        }
    }
}

/// Blocks that wait for streams at the start, in the order in which streams are done with them.
fn waiting(history: &DeviceHistory) -> Vec<u64> {
    let chunks = history.start.iter().flat_map(|segment| &segment.blocks);
    let mut until: HashMap<u64, usize> = chunks
        .filter(|piece| piece.state == BlockState::Pending)
        .map(|piece| (piece.address, usize::MAX))
        .collect();
    for (place, event) in history.events.iter().enumerate().rev() {
        if let (EventAction::FreeCompleted, Some(until)) = (event.action, until.get_mut(&event.address)) {
            *until = place;
        }
    }
    let mut order: Vec<(usize, u64)> = until.into_iter().map(|(address, until)| (until, address)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, address)| address).collect()
}

/// Where segments will be that are gained in the trace, and ranges in which pages are mapped.
fn expect(engine: &Engine<NullDevice>, history: &DeviceHistory) {
    // By where they begin, to where ranges reach, and how much of them has pages.
    let mut whose: BTreeMap<(StreamId, bool, PoolId), PageRange> = BTreeMap::new();
    for segment in history.start.iter().filter(|segment| segment.expandable) {
        let end = segment.address.saturating_add(segment.bytes);
        let begin = PageRange { begin: segment.address, end, bytes: 0 };
        let range = whose.entry((segment.stream, segment.small, segment.pool)).or_insert(begin);
        range.begin = range.begin.min(segment.address);
        range.map(end, segment.bytes);
    }
    let mut ranges: BTreeMap<u64, PageRange> =
        whose.into_values().map(|range| (range.begin, range)).collect();
    for event in &history.events {
        let (Ok(address), Ok(bytes)) = (usize::try_from(event.address), usize::try_from(event.bytes)) else {
            continue;
        };
        let end = event.address.saturating_add(event.bytes);
        let around = ranges.range_mut(..=event.address).next_back().map(|(_, range)| range);
        match (event.action, around) {
            (EventAction::RegionGained, _) => engine.backing().expect(address, bytes),
            (EventAction::Mapped, Some(range)) if event.address <= range.end => range.map(end, event.bytes),
            (EventAction::Mapped, _) => {
                ranges.insert(event.address, PageRange { begin: event.address, end, bytes: event.bytes });
                engine.backing().expect_range(address);
            }
            (EventAction::Unmapped, Some(range)) => {
                range.bytes = range.bytes.saturating_sub(event.bytes);
                // One without pages is given up.
                if range.bytes == 0 {
                    let begin = range.begin;
                    ranges.remove(&begin);
                }
            }
            _ => {}
        }
    }
}

/// A range of addresses in which there are pages.
struct PageRange {
    begin: u64,
    end: u64,
    bytes: u64,
}

impl PageRange {
    fn map(&mut self, end: u64, bytes: u64) {
        self.end = self.end.max(end);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A block from the pool that the recorded one came from.
fn allocate(engine: &mut Engine<NullDevice>, ask: DeviceRequest, pool: PoolId) -> Option<DeviceBlock> {
    if pool == (0, 0) {
        return engine.allocate(ask).ok();
    }
    engine.begin_allocate_to_pool(pool, StreamFilter::All).ok()?;
    let got = engine.allocate(ask).ok();
    engine.end_allocate_to_pool(pool).ok()?;
    got
}

fn segment(segment: &Segment, streams: &mut FoldedStreams) -> Option<DeviceSegment> {
    let chunks = segment.blocks.iter().map(|block| {
        Some(DeviceChunk {
            address: usize::try_from(block.address).ok()?,
            bytes: usize::try_from(block.bytes).ok()?,
            requested: usize::try_from(block.requested).ok()?,
            state: match block.state {
                // What waits for streams is a block that is freed at once.
                BlockState::Live | BlockState::Pending => DeviceChunkState::Live,
                BlockState::Free => DeviceChunkState::Free,
            },
        })
    });
    Some(DeviceSegment {
        address: usize::try_from(segment.address).ok()?,
        bytes: usize::try_from(segment.bytes).ok()?,
        stream: streams.fold(segment.stream),
        small: segment.small,
        expandable: segment.expandable,
        pool: segment.pool,
        chunks: chunks.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fidelity(conf: &str, events: &[(EventAction, u64, u64)]) -> Fidelity {
        let events = events
            .iter()
            .map(|&(action, address, bytes)| HistoryEvent::new(action, address, bytes))
            .collect();
        let history = DeviceHistory { events, ..DeviceHistory::default() };
        assert!(Fidelity::is_told_by(&history));
        Fidelity::of(&history, &conf.parse().unwrap())
    }

    /// All goes back, and the ranges change places: small blocks are where large ones were.
    #[test]
    fn ranges_without_pages_are_given_up() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, Mapped, Unmapped};
        let (first, second) = (1 << 40, 2 << 40);
        let mut events = Vec::new();
        for (small, large) in [(first, second), (second, first)] {
            for (address, bytes, page) in [(small, 512, 2 * MIB), (large, 20 * MIB, 20 * MIB)] {
                events.extend([(Mapped, address, page), (Allocate, address, bytes)]);
                events.extend([(FreeRequested, address, bytes), (FreeCompleted, address, bytes)]);
            }
            events.extend([(Unmapped, small, 2 * MIB), (Unmapped, large, 20 * MIB)]);
        }
        let fidelity = fidelity("expandable_segments:True", &events);
        assert_eq!((fidelity.allocations, fidelity.same), (4, 4), "{fidelity:?}");
    }

    /// Two blocks that wait for streams, of which the later one is free first.
    #[test]
    fn what_lingers_is_taken_when_it_is_free() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, RegionGained};
        let (at, size) = (1 << 40, 2 * MIB);
        let events = [
            (RegionGained, at, 20 * MIB),
            (Allocate, at, size),
            (Allocate, at + size, size),
            (Allocate, at + 2 * size, size),
            (FreeRequested, at + 2 * size, size),
            (FreeCompleted, at + 2 * size, size),
            (FreeRequested, at, size),
            (FreeRequested, at + size, size),
            (Allocate, at + 2 * size, size),
            (FreeCompleted, at + size, size),
            (Allocate, at + size, size),
            (FreeCompleted, at, size),
            (Allocate, at, size),
        ];
        let fidelity = fidelity("", &events);
        assert_eq!((fidelity.allocations, fidelity.same), (6, 6), "{fidelity:?}");
    }
}
