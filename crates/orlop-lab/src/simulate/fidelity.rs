//! Fidelity: whether the engine reproduces the recorded allocator's addresses, from the recorded start on. It
//! measures the reliability of simulations by PyTorch's rules.

use super::completion_queue::CompletionQueue;
use super::folded_streams::FoldedStreams;
use super::simulator::allocate_from;
use foldhash::HashMap;
use orlop_core::torch::{TieRule, TorchConf, TorchReleases};
use orlop_core::{Device, StreamId};
use orlop_device::{
    DeviceBlock, DeviceChunk, DeviceChunkState, DeviceRequest, DeviceSegment, Engine, NullDevice, Policy,
    PoolId,
};
use orlop_trace::history::{
    BlockEvent, BlockState, DeviceHistory, EventAction, EventInterpreter, HistoryEvent, Segment,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many of the recorded addresses the engine reproduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// Allocations in the recording.
    pub allocations: u64,
    /// Allocations that got the recorded address.
    pub same: u64,
    /// The first event with a different address.
    pub first_difference: Option<usize>,
    /// Blocks whose free was completed without a recorded request. They are freed at the completion, as in a
    /// [`Workload`](orlop_trace::history::Workload).
    pub unrequested: u64,
    /// The rule for free blocks of equal size by which most addresses are the recorded ones: versions of
    /// PyTorch differ.
    #[serde(skip)]
    pub ties: TieRule,
}

impl Fidelity {
    /// Returns `true` if `history` records segments that can be PyTorch's, so that addresses can be compared.
    /// PyTorch's snapshots have no threads; recordings of orlop's allocators and of profilers do.
    #[must_use]
    pub fn applies_to(history: &DeviceHistory) -> bool {
        history.has_segments() && history.events.iter().all(|event| event.thread == 0)
    }

    /// Replays a device's events by PyTorch's rules, from the segments at the start. Nothing is corrected on
    /// the way, so one difference leads to more. Three facts are taken from the recording, because they
    /// depend on the rest of the device: the addresses of new segments, when a segment is released, and when
    /// a pending free completes.
    ///
    /// The settings do not say which [`TieRule`] the recorded release of PyTorch had: those of all `releases`
    /// are tried, in their order, until one reproduces all addresses.
    #[must_use]
    pub fn of(history: &DeviceHistory, conf: &TorchConf, releases: TorchReleases) -> Self {
        let mut best: Option<Self> = None;
        for &ties in releases.tie_rules() {
            let fidelity = Self::by_rule(history, &conf.clone().with_ties(ties));
            if best.is_none_or(|best| fidelity.same > best.same) {
                best = Some(fidelity);
            }
            if fidelity.same == fidelity.allocations {
                break;
            }
        }
        best.unwrap_or_default()
    }

    fn by_rule(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let mut replay = FidelityReplay::new(history, conf);
        replay.fidelity.ties = conf.ties;
        for (index, event) in history.events.iter().enumerate() {
            replay.event(history, index, event);
        }
        replay.fidelity
    }
}

struct FidelityReplay {
    engine: Engine<NullDevice>,
    streams: FoldedStreams,
    /// Pending frees, by the address in the recording.
    completions: CompletionQueue<u64>,
    blocks: EventInterpreter<DeviceBlock>,
    fidelity: Fidelity,
}

impl FidelityReplay {
    fn new(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let device = NullDevice::new(Device::cuda(0), super::simulator::UNLIMITED);
        let mut streams = FoldedStreams::default();
        let segments: Vec<DeviceSegment> =
            history.start.iter().filter_map(|recorded| segment(recorded, &mut streams)).collect();
        let mut engine = Engine::new(device, Policy::torch(conf));
        // If the state is inconsistent, the replay begins empty and reproduces few addresses.
        let restored = engine.restore(&segments).unwrap_or_default();
        expect(&engine, history);
        let mut replay = Self {
            engine,
            streams,
            completions: CompletionQueue::default(),
            blocks: EventInterpreter::new(),
            fidelity: Fidelity::default(),
        };
        let mut restored: HashMap<u64, DeviceBlock> =
            restored.into_iter().map(|(at, block)| (at as u64, block)).collect();
        for address in pending_at_start(history) {
            if let Some(block) = restored.remove(&address) {
                replay.free(address, block, true);
                replay.blocks.insert_pending(address, block);
            }
        }
        for (address, block) in restored {
            replay.blocks.insert(address, block);
        }
        replay
    }

    fn event(&mut self, history: &DeviceHistory, index: usize, event: &HistoryEvent) {
        match self.blocks.event(event, history.events.get(index + 1)) {
            Some(BlockEvent::Allocate | BlockEvent::Overlap) => {
                let pool = history.pool(index);
                self.allocate(index, event, pool);
            }
            Some(BlockEvent::Use(block)) => {
                let _recorded = self.engine.record_stream(block, self.streams.fold(event.stream));
            }
            Some(BlockEvent::Free { block, pending, unrequested }) => {
                self.free(event.address, block, pending);
                self.fidelity.unrequested += u64::from(unrequested);
            }
            Some(BlockEvent::Completed(_)) => {
                self.completions.complete(&self.engine, event.address);
            }
            _ => {}
        }
        if let EventAction::RegionReleased | EventAction::Unmapped = event.action
            && let (Ok(address), Ok(bytes)) = (usize::try_from(event.address), usize::try_from(event.bytes))
        {
            let stream = self.streams.fold(event.stream);
            self.engine.release_segment(stream, address, bytes);
        }
    }

    fn allocate(&mut self, index: usize, event: &HistoryEvent, pool: PoolId) {
        self.fidelity.allocations += 1;
        let bytes = usize::try_from(event.bytes).unwrap_or(usize::MAX);
        let request = DeviceRequest::new(bytes, self.streams.fold(event.stream));
        let block = allocate_from(&mut self.engine, request, pool).ok();
        if block.map(|block| self.engine.address(block) as u64) == Some(event.address) {
            self.fidelity.same += 1;
        } else {
            self.fidelity.first_difference.get_or_insert(index);
        }
        if let Some(before) = block.and_then(|block| self.blocks.insert(event.address, block)) {
            // The recording lacks its free.
            let _freed = self.engine.free(before);
        }
    }

    fn free(&mut self, address: u64, block: DeviceBlock, stays_pending: bool) {
        if stays_pending {
            self.completions.free_later(&mut self.engine, address, block);
        } else {
            let _freed = self.engine.free(block);
        }
    }
}

/// Returns the addresses of blocks that are pending at the start, in the order in which they are completed.
fn pending_at_start(history: &DeviceHistory) -> Vec<u64> {
    let chunks = history.start.iter().flat_map(|segment| &segment.blocks);
    let mut until: HashMap<u64, usize> = chunks
        .filter(|chunk| chunk.state == BlockState::Pending)
        .map(|chunk| (chunk.address, usize::MAX))
        .collect();
    for (index, event) in history.events.iter().enumerate().rev() {
        if let (EventAction::FreeCompleted, Some(until)) = (event.action, until.get_mut(&event.address)) {
            *until = index;
        }
    }
    let mut order: Vec<(usize, u64)> = until.into_iter().map(|(address, until)| (until, address)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, address)| address).collect()
}

/// Gives the device the recorded addresses of future segments, and of the ranges in which pages are mapped.
fn expect(engine: &Engine<NullDevice>, history: &DeviceHistory) {
    // Ranges by address: their end, and their mapped bytes.
    let mut by_owner: BTreeMap<(StreamId, bool, PoolId), PageRange> = BTreeMap::new();
    for segment in history.start.iter().filter(|segment| segment.expandable) {
        let end = segment.address.saturating_add(segment.bytes);
        let begin = PageRange { begin: segment.address, end, bytes: 0 };
        let range = by_owner.entry((segment.stream, segment.small, segment.pool)).or_insert(begin);
        range.begin = range.begin.min(segment.address);
        range.map(end, segment.bytes);
    }
    let mut ranges: BTreeMap<u64, PageRange> =
        by_owner.into_values().map(|range| (range.begin, range)).collect();
    for event in &history.events {
        let (Ok(address), Ok(bytes)) = (usize::try_from(event.address), usize::try_from(event.bytes)) else {
            continue;
        };
        let end = event.address.saturating_add(event.bytes);
        let around = ranges.range_mut(..=event.address).next_back().map(|(_, range)| range);
        match (event.action, around) {
            (EventAction::RegionReserved, _) => engine.backing().expect(address, bytes),
            (EventAction::Mapped, Some(range)) if event.address <= range.end => range.map(end, event.bytes),
            (EventAction::Mapped, _) => {
                ranges.insert(event.address, PageRange { begin: event.address, end, bytes: event.bytes });
                engine.backing().expect_range(address);
            }
            (EventAction::Unmapped, Some(range)) => {
                range.bytes = range.bytes.saturating_sub(event.bytes);
                // The allocator drops a range without pages.
                if range.bytes == 0 {
                    let begin = range.begin;
                    ranges.remove(&begin);
                }
            }
            _ => {}
        }
    }
}

/// A range of addresses with mapped pages.
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

fn segment(segment: &Segment, streams: &mut FoldedStreams) -> Option<DeviceSegment> {
    let chunks = segment.blocks.iter().map(|block| {
        Some(DeviceChunk {
            address: usize::try_from(block.address).ok()?,
            bytes: usize::try_from(block.bytes).ok()?,
            requested: usize::try_from(block.requested).ok()?,
            state: match block.state {
                // A pending block is restored as live and then freed.
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
        let history = DeviceHistory::from_events(events);
        assert!(Fidelity::applies_to(&history));
        Fidelity::of(&history, &conf.parse().unwrap(), TorchReleases::ALL)
    }

    /// All pages are unmapped, and the ranges swap: small blocks use the range of large ones.
    #[test]
    fn empty_ranges_are_released() {
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

    /// Two pending frees, of which the later one completes first.
    #[test]
    fn pending_blocks_are_reused_once_they_are_free() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, RegionReserved};
        let (at, size) = (1 << 40, 2 * MIB);
        let events = [
            (RegionReserved, at, 20 * MIB),
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
