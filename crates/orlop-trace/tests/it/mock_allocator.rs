//! A mock allocator that follows PyTorch's rules, records its events, and knows the state after each of them.

use orlop_core::StreamId;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SegmentBlock, SiteId,
};

const MIB: u64 = 1 << 20;

/// A mock allocator over a mock device, with the events that it recorded.
#[derive(Debug, Default)]
pub(crate) struct MockAllocator {
    /// Whether segments are expandable.
    pub(crate) expandable: bool,
    pub(crate) events: Vec<HistoryEvent>,
    /// The segments after each event.
    pub(crate) truth: Vec<Vec<Segment>>,
    segments: Vec<Segment>,
    gained: u64,
}

impl MockAllocator {
    pub(crate) fn allocate(&mut self, bytes: u64, stream: u64, site: SiteId) -> u64 {
        let rounded = bytes.max(1).next_multiple_of(512);
        let (small, stream) = (rounded <= MIB, StreamId::from_raw(stream));
        let (segment, block) = match self.best_fit(rounded, small, stream) {
            Some(found) => found,
            None => {
                self.gain(rounded, small, stream, site);
                self.best_fit(rounded, small, stream).expect("what was gained is large enough")
            }
        };
        let blocks = &mut self.segments[segment].blocks;
        let piece = blocks[block];
        let rest = piece.bytes - rounded;
        let split = if small || self.expandable { rest >= 512 } else { rest > MIB };
        let taken = if split { rounded } else { piece.bytes };
        blocks[block] =
            SegmentBlock { bytes: taken, requested: bytes, state: BlockState::Live, site, ..piece };
        if split {
            blocks.insert(block + 1, free_piece(piece.address + taken, rest));
        }
        self.happens(EventAction::Allocate, piece.address, bytes, stream, site);
        piece.address
    }

    pub(crate) fn request_free(&mut self, address: u64) {
        self.change(address, BlockState::Pending, EventAction::FreeRequested);
    }

    pub(crate) fn complete_free(&mut self, address: u64) {
        self.change(address, BlockState::Free, EventAction::FreeCompleted);
    }

    pub(crate) fn free(&mut self, address: u64) {
        self.request_free(address);
        self.complete_free(address);
    }

    pub(crate) fn fail(&mut self, bytes: u64, stream: u64, device_free: u64) {
        self.happens(
            EventAction::OutOfMemory,
            device_free,
            bytes,
            StreamId::from_raw(stream),
            SiteId::UNKNOWN,
        );
    }

    /// Releases segments that are entirely free, and free ends of expandable ones.
    pub(crate) fn empty_cache(&mut self) {
        for place in (0..self.segments.len()).rev() {
            let segment = &mut self.segments[place];
            let last = *segment.blocks.last().expect("segments have blocks");
            if last.state != BlockState::Free || (segment.blocks.len() > 1 && !segment.expandable) {
                continue;
            }
            // Whole pages are unmapped.
            let from = last.address.next_multiple_of(2 * MIB);
            let end = segment.address + segment.bytes;
            if from >= end {
                continue;
            }
            let (stream, site) = (segment.stream, segment.site);
            let action = if segment.expandable { EventAction::Unmapped } else { EventAction::RegionReleased };
            if from == segment.address {
                self.segments.remove(place);
            } else {
                segment.bytes = from - segment.address;
                segment.blocks.pop();
                if from > last.address {
                    segment.blocks.push(free_piece(last.address, from - last.address));
                }
            }
            self.happens(action, from, end - from, stream, site);
        }
    }

    /// Returns the recording from this event on, with or without the end.
    pub(crate) fn history(&self, cut: usize, with_end: bool) -> DeviceHistory {
        let start = cut.checked_sub(1).map_or_else(Vec::new, |last| self.truth[last].clone());
        let end = if with_end { self.truth.last().cloned().unwrap_or_default() } else { Vec::new() };
        let mut history = DeviceHistory::from_events(self.events[cut..].to_vec());
        (history.start, history.end) = (start, end);
        history
    }

    fn best_fit(&self, bytes: u64, small: bool, stream: StreamId) -> Option<(usize, usize)> {
        let segments = self.segments.iter().enumerate();
        let served = segments.filter(|(_, segment)| segment.small == small && segment.stream == stream);
        let blocks = served.flat_map(|(at, segment)| {
            segment.blocks.iter().enumerate().map(move |(place, block)| ((at, place), block))
        });
        blocks
            .filter(|(_, block)| block.state == BlockState::Free && block.bytes >= bytes)
            .min_by_key(|(_, block)| (block.bytes, block.address))
            .map(|(place, _)| place)
    }

    fn gain(&mut self, bytes: u64, small: bool, stream: StreamId, site: SiteId) {
        if self.expandable {
            let page = if small { 2 * MIB } else { 20 * MIB };
            let grown = bytes.next_multiple_of(page);
            let place = self.segments.iter().position(|own| own.small == small && own.stream == stream);
            if let Some(place) = place {
                let segment = &mut self.segments[place];
                let end = segment.address + segment.bytes;
                segment.bytes += grown;
                match segment.blocks.last_mut() {
                    Some(last) if last.state == BlockState::Free => last.bytes += grown,
                    _ => segment.blocks.push(free_piece(end, grown)),
                }
                return self.happens(EventAction::Mapped, end, grown, stream, site);
            }
            let address = self.push(grown, small, stream, site);
            return self.happens(EventAction::Mapped, address, grown, stream, site);
        }
        let bytes = match bytes {
            bytes if bytes <= MIB => 2 * MIB,
            bytes if bytes < 10 * MIB => 20 * MIB,
            bytes => bytes.next_multiple_of(2 * MIB),
        };
        let address = self.push(bytes, small, stream, site);
        self.happens(EventAction::RegionReserved, address, bytes, stream, site);
    }

    /// Far from all others, and in no order of address.
    fn push(&mut self, bytes: u64, small: bool, stream: StreamId, site: SiteId) -> u64 {
        self.gained += 1;
        let address = ((self.gained * 7) % 64 + 1) << 40 | (self.gained << 46);
        let blocks = vec![free_piece(address, bytes)];
        let expandable = self.expandable;
        self.segments.push(Segment { address, bytes, stream, small, expandable, pool: (0, 0), site, blocks });
        self.segments.sort_by_key(|segment| segment.address);
        address
    }

    fn change(&mut self, address: u64, state: BlockState, action: EventAction) {
        let found = self.segments.iter_mut().find_map(|segment| {
            let place = segment.blocks.iter().position(|block| block.address == address)?;
            Some((segment.stream, &mut segment.blocks, place))
        });
        let (stream, blocks, place) = found.expect("the block is there");
        let bytes = blocks[place].requested;
        blocks[place].state = state;
        if state == BlockState::Free {
            let free = |block: &SegmentBlock| block.state == BlockState::Free;
            if blocks.get(place + 1).is_some_and(free) {
                blocks[place].bytes += blocks.remove(place + 1).bytes;
            }
            if place > 0 && free(&blocks[place - 1]) {
                blocks[place - 1].bytes += blocks.remove(place).bytes;
            }
        }
        self.happens(action, address, bytes, stream, SiteId::UNKNOWN);
    }

    fn happens(&mut self, action: EventAction, address: u64, bytes: u64, stream: StreamId, site: SiteId) {
        self.events.push(HistoryEvent {
            time: self.events.len() as u64 * 1000,
            stream,
            site,
            ..HistoryEvent::new(action, address, bytes)
        });
        self.truth.push(plain(self.segments.clone()));
    }
}

fn free_piece(address: u64, bytes: u64) -> SegmentBlock {
    SegmentBlock { address, bytes, requested: 0, state: BlockState::Free, site: SiteId::UNKNOWN }
}

/// Without what free chunks remember.
pub(crate) fn plain(mut segments: Vec<Segment>) -> Vec<Segment> {
    for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
        if block.state == BlockState::Free {
            *block = free_piece(block.address, block.bytes);
        }
    }
    segments
}
