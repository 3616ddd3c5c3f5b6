//! The timeline: all segments and blocks of a device at any instant of its history.
//!
//! Events are about blocks, not about the free pieces between them. So they are applied to the start, by
//! address: an allocation takes its part of the free piece around it, a freed block merges with its free
//! neighbours, and regions are added and removed. Recordings have the *requested* bytes, not those that the
//! allocator took. These follow from PyTorch's rules (512 bytes at least, and small rests stay with the
//! block), from the end, where the block is still there, and from later blocks that begin before this one
//! would end.
//!
//! Tools look at many instants of one history. So snapshots of the state are kept, at distances that grow
//! with their size: together they take no more memory than the events, and every instant is near one.

use super::{
    AddressRange, BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SegmentBlock, SiteId,
    SizeRules, carve,
};
use orlop_core::StreamId;
use std::collections::{BTreeMap, HashMap};

/// The shortest distance between kept states, in events.
const DISTANCE: usize = 256;

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
    known: TimelineContext,
    /// Snapshots of the state, each with the number of events before it; the first is the start.
    kept: Vec<(usize, TimelineState)>,
    strays: u64,
}

/// Facts about a recording that its events do not carry.
#[derive(Debug)]
struct TimelineContext {
    /// How long blocks are.
    rules: SizeRules,
    /// The private pools that events belong to, by event.
    pools: HashMap<usize, (u64, u64)>,
    /// Bytes of the blocks that are still there in the end, by the event that allocates them.
    taken: HashMap<usize, u64>,
    /// The segments in the end: pool and size class of those that the events only give an address and a size.
    end: BTreeMap<u64, SegmentRange>,
    /// Whether there are no completions, so that a request to free is all there is.
    at_once: bool,
}

impl<'a> Timeline<'a> {
    /// Applies all events once, under PyTorch's default settings.
    #[must_use]
    pub fn new(history: &'a DeviceHistory) -> Self {
        Self::with_settings(history, None)
    }

    /// The same under the [settings](crate::history::History::settings) of the history.
    #[must_use]
    pub fn with_settings(history: &'a DeviceHistory, settings: Option<&str>) -> Self {
        let known = TimelineContext::of(history, SizeRules::parse(settings.unwrap_or_default()));
        let mut state = TimelineState::of(&history.start, &known.rules);
        let mut kept = vec![(0, state.clone())];
        let mut next = DISTANCE.max(state.pieces.len());
        for (place, event) in history.events.iter().enumerate() {
            if place == next {
                kept.push((place, state.clone()));
                next = place + DISTANCE.max(state.pieces.len());
            }
            state.apply(place, event, &known);
        }
        Self { history, known, kept, strays: state.strays }
    }

    /// Returns the segments with their blocks, in order of address, right after the event with this index.
    #[must_use]
    pub fn at(&self, event: usize) -> Vec<Segment> {
        self.after(event.saturating_add(1))
    }

    /// Returns the segments with their blocks, in order of address, after this many events: after 0, the
    /// start.
    #[must_use]
    pub fn after(&self, events: usize) -> Vec<Segment> {
        let events = events.min(self.history.events.len());
        let nearest = self.kept.partition_point(|(place, _)| *place <= events).saturating_sub(1);
        let Some((from, state)) = self.kept.get(nearest) else { return Vec::new() };
        let mut state = state.clone();
        for (place, event) in self.history.events.iter().enumerate().take(events).skip(*from) {
            state.apply(place, event, &self.known);
        }
        state.segments()
    }

    /// Returns the rules by which blocks and segments are sized.
    #[must_use]
    pub fn rules(&self) -> &SizeRules {
        &self.known.rules
    }

    /// Returns the number of events that fit no segment and were ignored: all events of blocks, if the source
    /// does not record segments.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

impl TimelineContext {
    fn of(history: &DeviceHistory, rules: SizeRules) -> Self {
        let live = |segment: &'_ Segment| {
            let live = segment.blocks.iter().filter(|block| block.state == BlockState::Live);
            live.map(|block| (block.address, *block)).collect::<Vec<_>>()
        };
        let end: HashMap<u64, SegmentBlock> = history.end.iter().flat_map(live).collect();
        let mut last = HashMap::new();
        for (place, event) in history.events.iter().enumerate() {
            if event.action == EventAction::Allocate && end.contains_key(&event.address) {
                last.insert(event.address, place);
            }
        }
        let taken = last.into_iter().filter_map(|(address, place)| {
            let (block, event) = (end.get(&address)?, history.events.get(place)?);
            (block.requested == event.bytes).then_some((place, block.bytes))
        });
        let details = history.details.iter().filter(|detail| detail.pool != (0, 0));
        Self {
            rules,
            pools: details.map(|detail| (detail.event as usize, detail.pool)).collect(),
            taken: taken.collect(),
            end: history.end.iter().map(|segment| (segment.address, SegmentRange::of(segment))).collect(),
            at_once: !history.events.iter().any(|event| event.action == EventAction::FreeCompleted),
        }
    }
}

/// A segment without its blocks.
#[derive(Debug, Clone, Copy)]
struct SegmentRange {
    bytes: u64,
    stream: StreamId,
    small: bool,
    expandable: bool,
    pool: (u64, u64),
    site: SiteId,
}

impl SegmentRange {
    fn of(segment: &Segment) -> Self {
        let &Segment { bytes, stream, small, expandable, pool, site, .. } = segment;
        Self { bytes, stream, small, expandable, pool, site }
    }

    /// Whether pages mapped after it are part of it.
    fn goes_on_in(&self, next: &Self) -> bool {
        self.expandable && next.expandable && self.stream == next.stream && self.pool == next.pool
    }
}

/// Regions do not overlap, and the pieces of each cover it without gaps.
#[derive(Debug, Clone, Default)]
struct TimelineState {
    regions: BTreeMap<u64, SegmentRange>,
    pieces: BTreeMap<u64, SegmentBlock>,
    strays: u64,
}

impl TimelineState {
    fn of(segments: &[Segment], rules: &SizeRules) -> Self {
        let mut state = Self::default();
        for segment in segments {
            state.gain(segment.address, SegmentRange::of(segment));
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                state.place(block, Some(block.bytes), rules);
            }
        }
        state.strays = 0;
        state
    }

    fn segments(&self) -> Vec<Segment> {
        let mut pieces = self.pieces.values().peekable();
        let regions = self.regions.iter().map(|(&address, region)| {
            let mut blocks = Vec::new();
            while let Some(piece) = pieces.next_if(|piece| piece.address - address < region.bytes) {
                blocks.push(*piece);
            }
            let &SegmentRange { bytes, stream, small, expandable, pool, site } = region;
            Segment { address, bytes, stream, small, expandable, pool, site, blocks }
        });
        regions.collect()
    }

    fn apply(&mut self, place: usize, event: &HistoryEvent, known: &TimelineContext) {
        let &HistoryEvent { address, bytes, stream, site, .. } = event;
        match event.action {
            EventAction::Allocate => {
                let block = SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site };
                self.place(&block, known.taken.get(&place).copied(), &known.rules);
            }
            EventAction::FreeRequested if known.at_once => self.free(address),
            EventAction::FreeRequested => match self.pieces.get_mut(&address) {
                Some(piece) if piece.state == BlockState::Live => piece.state = BlockState::Pending,
                _ => self.stray(),
            },
            EventAction::FreeCompleted => self.free(address),
            EventAction::RegionReserved | EventAction::Mapped => {
                let mapped = event.action == EventAction::Mapped;
                let end = known.end.range(..=address).next_back();
                let end = end.filter(|(start, end)| address - **start < end.bytes).map(|(_, end)| *end);
                let by_size = match mapped {
                    true => known.rules.is_small_page(bytes),
                    false => known.rules.is_small_segment(bytes),
                };
                let small = end.map_or(by_size, |end| end.small);
                let pool = known.pools.get(&place).copied().or(end.map(|end| end.pool)).unwrap_or((0, 0));
                let expandable = mapped || end.is_some_and(|end| end.expandable);
                self.carve(address, bytes);
                self.gain(address, SegmentRange { bytes, stream, small, expandable, pool, site });
                if mapped {
                    self.join(address);
                }
            }
            EventAction::RegionReleased | EventAction::Unmapped => self.carve(address, bytes),
            EventAction::Use | EventAction::OutOfMemory | EventAction::Snapshot | EventAction::Annotation => {
            }
        }
    }

    fn stray(&mut self) {
        self.strays = self.strays.saturating_add(1);
    }

    /// The region around an address.
    fn region(&self, address: u64) -> Option<(u64, &SegmentRange)> {
        let (&start, region) = self.regions.range(..=address).next_back()?;
        (address - start < region.bytes).then_some((start, region))
    }

    /// A block takes its part of the free piece around it: `taken` bytes, or what PyTorch would.
    fn place(&mut self, block: &SegmentBlock, taken: Option<u64>, rules: &SizeRules) {
        self.cut_short(block.address);
        match self.room(block) {
            Some((piece, room, finely)) => {
                let at = block.address - piece.address;
                let taken = taken.unwrap_or_else(|| rules.taken(block.requested, room, finely));
                let taken = taken.clamp(block.requested.max(1), room);
                if at > 0 {
                    self.pieces.insert(piece.address, SegmentBlock { bytes: at, ..piece });
                }
                self.pieces.insert(block.address, SegmentBlock { bytes: taken, ..*block });
                if taken < room {
                    self.insert_free(block.address + taken, room - taken);
                }
            }
            None => self.stray(),
        }
    }

    /// A block that is in use ends where another begins: it had less than was thought.
    fn cut_short(&mut self, address: u64) {
        let Some((start, _)) = self.region(address) else { return };
        let Some(piece) = self.pieces.range(start..address).next_back().map(|(_, piece)| *piece) else {
            return;
        };
        let at = address - piece.address;
        if piece.state != BlockState::Free && at >= piece.requested.max(1) && at < piece.bytes {
            self.pieces.insert(piece.address, SegmentBlock { bytes: at, ..piece });
            self.insert_free(address, piece.bytes - at);
        }
    }

    /// The piece in which a block begins, how many bytes it has from there on, and whether small rests
    /// are split off there.
    fn room(&self, block: &SegmentBlock) -> Option<(SegmentBlock, u64, bool)> {
        let (_, region) = self.region(block.address)?;
        let (_, &piece) = self.pieces.range(..=block.address).next_back()?;
        let at = block.address - piece.address;
        let room = piece.bytes.checked_sub(at).filter(|&room| room > 0 && room >= block.requested)?;
        let free = piece.state == BlockState::Free;
        free.then_some((piece, room, region.small || region.expandable))
    }

    fn insert_free(&mut self, address: u64, bytes: u64) {
        let free =
            SegmentBlock { address, bytes, requested: 0, state: BlockState::Free, site: SiteId::UNKNOWN };
        self.pieces.insert(address, free);
        self.coalesce(address);
    }

    fn free(&mut self, address: u64) {
        match self.pieces.get(&address) {
            Some(&piece) if piece.state != BlockState::Free => {
                let free = SegmentBlock { state: BlockState::Free, site: SiteId::UNKNOWN, ..piece };
                self.pieces.insert(address, free);
                self.coalesce(address);
            }
            _ => self.stray(),
        }
    }

    /// Joins the piece at this address, if it is free, with those beside it in its region.
    fn coalesce(&mut self, address: u64) {
        let Some((start, region)) = self.region(address) else { return };
        let length = region.bytes;
        let piece = self.pieces.get(&address).copied().filter(|piece| piece.state == BlockState::Free);
        let Some(mut piece) = piece else { return };
        let next = piece.address + piece.bytes;
        if next - start < length
            && let Some(after) = self.pieces.get(&next).copied()
            && after.state == BlockState::Free
        {
            self.pieces.remove(&next);
            piece.bytes += after.bytes;
        }
        let before = self.pieces.range(start..address).next_back().map(|(_, before)| *before);
        if let Some(before) = before.filter(|before| before.state == BlockState::Free) {
            self.pieces.remove(&address);
            piece = SegmentBlock { bytes: before.bytes + piece.bytes, ..before };
        }
        self.pieces.insert(piece.address, piece);
    }

    /// A new region, free all through. Where there is something already, or no address, there is none.
    fn gain(&mut self, address: u64, region: SegmentRange) {
        let Some(end) = address.checked_add(region.bytes).filter(|&end| end > address) else {
            return self.stray();
        };
        let before = self.regions.range(..end).next_back();
        if before.is_some_and(|(start, before)| start + before.bytes > address) {
            return self.stray();
        }
        self.regions.insert(address, region);
        self.insert_free(address, region.bytes);
    }

    /// Pages that lie beside others of the same pool are one region with them.
    fn join(&mut self, address: u64) {
        let mut start = address;
        let before = self.regions.range(..address).next_back().map(|(&start, before)| (start, *before));
        if let Some((at, before)) = before
            && let Some(region) = self.regions.get(&address).copied()
            && at + before.bytes == address
            && before.goes_on_in(&region)
        {
            self.regions.remove(&address);
            self.regions.insert(at, SegmentRange { bytes: before.bytes + region.bytes, ..before });
            self.coalesce(address);
            start = at;
        }
        if let Some(region) = self.regions.get(&start).copied()
            && let Some(after) = self.regions.get(&(start + region.bytes)).copied()
            && region.goes_on_in(&after)
        {
            self.regions.remove(&(start + region.bytes));
            self.regions.insert(start, SegmentRange { bytes: region.bytes + after.bytes, ..region });
            self.coalesce(start + region.bytes);
        }
    }

    /// Takes everything out of an address range.
    fn carve(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        carve(&mut self.regions, address, end, |region| region);
        carve(&mut self.pieces, address, end, |piece| piece);
    }
}

impl AddressRange for SegmentRange {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn part(&self, _: u64, bytes: u64) -> Self {
        Self { bytes, ..*self }
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
