//! The timeline: all segments and blocks of a device at any instant of its history.
//!
//! Events are about blocks, not about the free chunks between them. They are applied to the start state by
//! address: an allocation takes its part of the free chunk around it, a freed block merges with its free
//! neighbours, and regions are added and removed. Recordings have the *requested* bytes, not those that the
//! allocator took. These follow from PyTorch's rules (at least 512 bytes, and small remainders are not split
//! off), from the end state if the block is still live there, and from later blocks that begin before this
//! one would end.
//!
//! Tools look at many instants of one history. So copies of the state are stored, at distances that grow with
//! their size: together they take no more memory than the events, and no more than [`MAX_STORED_CHUNKS`];
//! every instant is near one.

use super::{
    AddressRange, BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SegmentBlock, SegmentMap,
    SegmentRange, SiteId, SizeRules, carve, merge_adjacent,
};
use foldhash::HashMap;
use std::collections::BTreeMap;

/// The minimum distance between stored states, in events.
const DISTANCE: usize = 256;

/// The maximum number of chunks in the stored states of a recording whose states are of one size.
const MAX_STORED_CHUNKS: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };

/// The segments of a device over its history.
///
/// ```
/// use orlop_trace::history::DeviceHistory;
/// use orlop_trace::history::Timeline;
///
/// let history = DeviceHistory::default();
/// assert!(Timeline::new(&history).after(0).is_empty());
/// ```
#[derive(Debug)]
pub struct Timeline<'a> {
    history: &'a DeviceHistory,
    context: TimelineContext,
    /// Snapshots of the state, each with the number of events before it. The first is the start.
    snapshots: Vec<(usize, TimelineState)>,
    ignored: u64,
}

/// Facts about a recording that its events do not carry.
#[derive(Debug)]
struct TimelineContext {
    /// The sizes of blocks.
    rules: SizeRules,
    /// The private pool of an event, by event.
    pools: HashMap<usize, (u64, u64)>,
    /// The bytes of blocks that are live at the end, by the event that allocates them.
    taken: HashMap<usize, u64>,
    /// The segments at the end: they have the pool and size class, which events lack.
    end: BTreeMap<u64, SegmentRange>,
    /// Whether the source records no completions, so that a request to free is final.
    frees_at_once: bool,
}

impl<'a> Timeline<'a> {
    /// Creates the timeline under PyTorch's default settings.
    #[must_use]
    pub fn new(history: &'a DeviceHistory) -> Self {
        Self::with_settings(history, None)
    }

    /// Creates the timeline under the [settings](crate::history::History::settings) of the history.
    #[must_use]
    pub fn with_settings(history: &'a DeviceHistory, settings: Option<&str>) -> Self {
        let context = TimelineContext::of(history, SizeRules::parse(settings.unwrap_or_default()));
        let mut state = TimelineState::of(&history.start, &context.rules);
        let mut snapshots = vec![(0, state.clone())];
        let distance = |state: &TimelineState| {
            let chunks = state.map.chunks.len();
            DISTANCE.max(chunks).max(history.events.len().saturating_mul(chunks) / MAX_STORED_CHUNKS)
        };
        let mut next = distance(&state);
        for (index, event) in history.events.iter().enumerate() {
            if index == next {
                snapshots.push((index, state.clone()));
                next = index + distance(&state);
            }
            state.apply(index, event, &context);
        }
        Self { history, context, snapshots, ignored: state.ignored }
    }

    /// Returns the segments with their blocks, in order of address, right after the event with this index.
    #[must_use]
    pub fn at(&self, event: usize) -> Vec<Segment> {
        self.after(event.saturating_add(1))
    }

    /// Returns the segments with their blocks, in order of address, after the first `events` events. After 0,
    /// this is the start.
    #[must_use]
    pub fn after(&self, events: usize) -> Vec<Segment> {
        let events = events.min(self.history.events.len());
        let nearest = self.snapshots.partition_point(|(index, _)| *index <= events).saturating_sub(1);
        let Some((from, state)) = self.snapshots.get(nearest) else { return Vec::new() };
        let mut state = state.clone();
        for (index, event) in self.history.events.iter().enumerate().take(events).skip(*from) {
            state.apply(index, event, &self.context);
        }
        state.map.segments()
    }

    /// Returns the rules by which blocks and segments are sized.
    #[must_use]
    pub fn rules(&self) -> &SizeRules {
        &self.context.rules
    }

    /// Returns the number of events that were ignored because they match no segment. If the source does not
    /// record segments, these are all events of blocks.
    #[must_use]
    pub fn ignored_events(&self) -> u64 {
        self.ignored
    }
}

impl TimelineContext {
    fn of(history: &DeviceHistory, rules: SizeRules) -> Self {
        let live = |segment: &'_ Segment| {
            let live = segment.blocks.iter().filter(|block| block.state == BlockState::Live);
            live.map(|block| (block.address, *block)).collect::<Vec<_>>()
        };
        let end: HashMap<u64, SegmentBlock> = history.end.iter().flat_map(live).collect();
        let mut last = HashMap::default();
        for (index, event) in history.events.iter().enumerate() {
            if event.action == EventAction::Allocate && end.contains_key(&event.address) {
                last.insert(event.address, index);
            }
        }
        let taken = last.into_iter().filter_map(|(address, index)| {
            let (block, event) = (end.get(&address)?, history.events.get(index)?);
            (block.requested == event.bytes).then_some((index, block.bytes))
        });
        let details = history.details.iter().filter(|detail| detail.pool != (0, 0));
        Self {
            rules,
            pools: details.map(|detail| (detail.event as usize, detail.pool)).collect(),
            taken: taken.collect(),
            end: history.end.iter().map(|segment| (segment.address, SegmentRange::of(segment))).collect(),
            frees_at_once: !history.events.iter().any(|event| event.action == EventAction::FreeCompleted),
        }
    }
}

/// The segments at an instant.
#[derive(Debug, Clone, Default)]
struct TimelineState {
    map: SegmentMap,
    ignored: u64,
}

impl TimelineState {
    fn of(segments: &[Segment], rules: &SizeRules) -> Self {
        let mut state = Self::default();
        for segment in segments {
            state.map.add(segment.address, SegmentRange::of(segment));
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                state.allocate(block, Some(block.bytes), rules);
            }
        }
        state.ignored = 0;
        state
    }

    fn apply(&mut self, index: usize, event: &HistoryEvent, context: &TimelineContext) {
        let &HistoryEvent { address, bytes, stream, site, .. } = event;
        match event.action {
            EventAction::Allocate => {
                let block = SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site };
                self.allocate(&block, context.taken.get(&index).copied(), &context.rules);
            }
            EventAction::FreeRequested if context.frees_at_once => self.free(address),
            EventAction::FreeRequested => match self.map.chunks.get_mut(address) {
                Some(chunk) if chunk.state == BlockState::Live => chunk.state = BlockState::Pending,
                _ => self.ignore(),
            },
            EventAction::FreeCompleted => self.free(address),
            EventAction::RegionReserved | EventAction::Mapped => {
                let mapped = event.action == EventAction::Mapped;
                let end = context.end.range(..=address).next_back();
                let end = end.filter(|(start, end)| address - **start < end.bytes).map(|(_, end)| *end);
                let by_size = match mapped {
                    true => context.rules.is_small_page(bytes),
                    false => context.rules.is_small_segment(bytes),
                };
                let small = end.map_or(by_size, |end| end.small);
                let pool = context.pools.get(&index).copied().or(end.map(|end| end.pool)).unwrap_or((0, 0));
                let expandable = mapped || end.is_some_and(|end| end.expandable);
                self.carve(address, bytes);
                let segment = SegmentRange { bytes, stream, small, expandable, pool, site };
                if !self.map.add(address, segment) {
                    self.ignore();
                } else if mapped {
                    merge_adjacent(&mut self.map.segments, address);
                    self.map.coalesce(address);
                }
            }
            EventAction::RegionReleased | EventAction::Unmapped => self.carve(address, bytes),
            EventAction::Use
            | EventAction::OutOfMemory
            | EventAction::Refused
            | EventAction::ExternalAdopted
            | EventAction::ExternalFreed
            | EventAction::Snapshot
            | EventAction::Annotation => {}
        }
    }

    fn ignore(&mut self) {
        self.ignored = self.ignored.saturating_add(1);
    }

    /// Allocates a block in the free chunk around it: `taken` bytes, or as many as PyTorch would take.
    fn allocate(&mut self, block: &SegmentBlock, taken: Option<u64>, rules: &SizeRules) {
        match self.room(block) {
            Some((chunk, room)) => {
                let at = block.address - chunk.address;
                let taken = taken.unwrap_or_else(|| {
                    let segment = self.map.segment(block.address).map(|(_, segment)| segment);
                    // Small remainders are split off there.
                    let finely = segment.is_some_and(|segment| segment.small || segment.expandable);
                    rules.taken(block.requested, room, finely)
                });
                let taken = taken.clamp(block.requested.max(1), room);
                if at > 0 {
                    self.map.insert(SegmentBlock { bytes: at, ..chunk });
                }
                self.map.insert(SegmentBlock { bytes: taken, ..*block });
                if taken < room {
                    // Free neighbours are merged: what follows the free chunk is not free.
                    self.map.insert(SegmentBlock::free(block.address + taken, room - taken));
                }
            }
            None => self.ignore(),
        }
    }

    /// Returns the free chunk in which a block begins, and its bytes from there on.
    fn room(&mut self, block: &SegmentBlock) -> Option<(SegmentBlock, u64)> {
        let mut chunk = self.map.chunk(block.address)?;
        if self.shorten(&chunk, block.address) {
            chunk = self.map.chunk(block.address)?;
        }
        let at = block.address - chunk.address;
        let room = chunk.bytes.checked_sub(at).filter(|&room| room > 0 && room >= block.requested)?;
        (chunk.state == BlockState::Free).then_some((chunk, room))
    }

    /// Shortens a chunk if it is a live block that extends beyond `address`, where another begins: it was
    /// estimated too long.
    fn shorten(&mut self, chunk: &SegmentBlock, address: u64) -> bool {
        let at = address - chunk.address;
        let is_too_long = chunk.state != BlockState::Free && at >= chunk.requested.max(1) && at < chunk.bytes;
        if is_too_long {
            self.map.insert(SegmentBlock { bytes: at, ..*chunk });
            self.insert_free(address, chunk.bytes - at);
        }
        is_too_long
    }

    fn insert_free(&mut self, address: u64, bytes: u64) {
        self.map.insert(SegmentBlock::free(address, bytes));
        self.map.coalesce(address);
    }

    fn free(&mut self, address: u64) {
        match self.map.chunks.get_mut(address) {
            Some(chunk) if chunk.state != BlockState::Free => {
                (chunk.state, chunk.site) = (BlockState::Free, SiteId::UNKNOWN);
                self.map.coalesce(address);
            }
            _ => self.ignore(),
        }
    }

    /// Removes an address range from all segments.
    fn carve(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        carve(&mut self.map.segments, address, end, |region| region);
        self.map.chunks.carve(address, end);
    }
}

impl AddressRange for SegmentBlock {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn part(&self, address: u64, bytes: u64) -> Self {
        Self { address, bytes, requested: self.requested.min(bytes), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_states_of_a_long_recording_are_limited() {
        const BLOCKS: u64 = 200;
        let mut history = DeviceHistory::default();
        history.events.push(HistoryEvent::new(EventAction::RegionReserved, 0x1000, 512 * (BLOCKS + 1)));
        let event = |action, block: u64| HistoryEvent::new(action, 0x1000 + 512 * block, 512);
        history.events.extend((0..BLOCKS).map(|block| event(EventAction::Allocate, block)));
        for _ in 0..10_000 {
            history.events.push(event(EventAction::Allocate, BLOCKS));
            history.events.push(event(EventAction::FreeCompleted, BLOCKS));
        }
        let timeline = Timeline::new(&history);
        let stored: usize = timeline.snapshots.iter().map(|(_, state)| state.map.chunks.len()).sum();
        assert!((MAX_STORED_CHUNKS / 2..MAX_STORED_CHUNKS * 2).contains(&stored), "{stored}");
        for (events, last) in [(10_000, BlockState::Live), (10_001, BlockState::Free)] {
            let blocks = &timeline.after(events)[0].blocks;
            let found = blocks.last().map(|block| block.state);
            assert_eq!((blocks.len() as u64, found), (BLOCKS + 1, Some(last)), "{events}");
        }
    }
}
