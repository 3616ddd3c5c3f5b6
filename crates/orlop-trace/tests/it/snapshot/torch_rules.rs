//! PyTorch's caching allocator in its default configuration, as far as tests need it: best fit by size and
//! address, splitting, merging, regions, frees that wait for streams. It computes the address of each block
//! and creates recordings.

use orlop_core::StreamId;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SegmentBlock, SiteId,
};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
struct Piece {
    bytes: u64,
    requested: u64,
    state: BlockState,
    /// By address.
    region: u64,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    bytes: u64,
    stream: StreamId,
    small: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Torch {
    /// By pool: stream, size, address.
    free: [BTreeSet<(StreamId, u64, u64)>; 2],
    pieces: BTreeMap<u64, Piece>,
    regions: BTreeMap<u64, Region>,
}

/// The result of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) allocations: usize,
    pub(super) same_address: usize,
    /// The peak of live bytes after rounding.
    pub(super) peak: u64,
}

impl Torch {
    pub(super) fn new(segments: &[Segment]) -> Self {
        let mut torch = Self::default();
        for segment in segments {
            let Segment { address, bytes, stream, small, .. } = *segment;
            torch.regions.insert(address, Region { bytes, stream, small });
            for block in &segment.blocks {
                let SegmentBlock { address: at, bytes, requested, state, .. } = *block;
                torch.piece(at, Piece { bytes, requested, state, region: address });
            }
        }
        torch
    }

    fn piece(&mut self, address: u64, piece: Piece) {
        let region = self.regions[&piece.region];
        self.pieces.insert(address, piece);
        if piece.state == BlockState::Free {
            self.free[usize::from(region.small)].insert((region.stream, piece.bytes, address));
        }
    }

    fn remove(&mut self, address: u64) -> Piece {
        let piece = self.pieces.remove(&address).expect("a piece is there");
        let region = self.regions[&piece.region];
        self.free[usize::from(region.small)].remove(&(region.stream, piece.bytes, address));
        piece
    }

    pub(super) fn gain(&mut self, address: u64, bytes: u64, stream: StreamId) {
        self.regions.insert(address, Region { bytes, stream, small: bytes == 2 * MIB });
        self.piece(address, Piece { bytes, requested: 0, state: BlockState::Free, region: address });
    }

    pub(super) fn lose(&mut self, address: u64) {
        assert_eq!(self.remove(address).bytes, self.regions[&address].bytes);
        self.regions.remove(&address);
    }

    /// Regions that are entirely free.
    pub(super) fn unused(&self) -> Vec<(u64, u64, StreamId)> {
        let whole = |&(&address, region): &(&u64, &Region)| {
            let piece = self.pieces[&address];
            piece.state == BlockState::Free && piece.bytes == region.bytes
        };
        let unused = self.regions.iter().filter(whole);
        unused.map(|(&address, region)| (address, region.bytes, region.stream)).collect()
    }

    /// Takes the smallest free chunk that fits, the one with the lowest address.
    pub(super) fn allocate(&mut self, requested: u64, stream: StreamId) -> Option<u64> {
        let size = requested.max(1).next_multiple_of(512);
        let small = size <= MIB;
        let found = self.free[usize::from(small)].range((stream, size, 0)..).next().copied();
        let (_, bytes, address) = found.filter(|found| found.0 == stream)?;
        let region = self.remove(address).region;
        let rest = bytes - size;
        let split = if small { rest >= 512 } else { rest > MIB };
        let kept = if split { size } else { bytes };
        self.piece(address, Piece { bytes: kept, requested, state: BlockState::Live, region });
        if split {
            let free = Piece { bytes: rest, requested: 0, state: BlockState::Free, region };
            self.piece(address + size, free);
        }
        Some(address)
    }

    /// The block waits for its streams.
    pub(super) fn request_free(&mut self, address: u64) {
        let piece = self.pieces.get_mut(&address).expect("a piece is there");
        assert_eq!(piece.state, BlockState::Live, "{address:#x}");
        piece.state = BlockState::Pending;
    }

    pub(super) fn complete_free(&mut self, address: u64) {
        let Piece { mut bytes, requested, state, region } = self.remove(address);
        assert_eq!(state, BlockState::Pending, "{address:#x}");
        let mut at = address;
        let free = |piece: &Piece| piece.state == BlockState::Free && piece.region == region;
        if let Some(behind) = self.pieces.get(&(address + bytes)).copied().filter(free) {
            self.remove(address + bytes);
            bytes += behind.bytes;
        }
        let ahead = self.pieces.range(..address).next_back().map(|(&start, &piece)| (start, piece));
        if let Some((start, ahead)) = ahead.filter(|(_, piece)| free(piece)) {
            self.remove(start);
            (at, bytes) = (start, bytes + ahead.bytes);
        }
        self.piece(at, Piece { bytes, requested, state: BlockState::Free, region });
    }

    /// Replays the events until an address differs from the recorded one.
    pub(super) fn replay(&mut self, history: &DeviceHistory) -> Score {
        let live = |torch: &Self| -> u64 {
            let used = torch.pieces.values().filter(|piece| piece.state == BlockState::Live);
            used.map(|piece| piece.bytes).sum()
        };
        let mut bytes = live(self);
        let mut score = Score { peak: bytes, ..Score::default() };
        for event in &history.events {
            match event.action {
                EventAction::Allocate => {
                    score.allocations += 1;
                    let address = self.allocate(event.bytes, event.stream);
                    if address != Some(event.address) {
                        return score;
                    }
                    score.same_address += 1;
                    bytes += self.pieces[&event.address].bytes;
                    score.peak = score.peak.max(bytes);
                }
                EventAction::FreeRequested => {
                    bytes -= self.pieces[&event.address].bytes;
                    self.request_free(event.address);
                }
                EventAction::FreeCompleted => self.complete_free(event.address),
                EventAction::RegionReserved => self.gain(event.address, event.bytes, event.stream),
                EventAction::RegionReleased => self.lose(event.address),
                _ => {}
            }
        }
        score
    }

    /// Returns the segments of a snapshot.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let blocks = |region: u64| {
            let pieces = self.pieces.iter().filter(move |(_, piece)| piece.region == region);
            pieces.map(|(&address, &Piece { bytes, requested, state, .. })| SegmentBlock {
                address,
                bytes,
                requested,
                state,
                site: SiteId::UNKNOWN,
            })
        };
        let segment = |(&address, &Region { bytes, stream, small }): (&u64, &Region)| Segment {
            address,
            bytes,
            stream,
            small,
            expandable: false,
            pool: (0, 0),
            site: SiteId::UNKNOWN,
            blocks: blocks(address).collect(),
        };
        self.regions.iter().map(segment).collect()
    }
}

/// An action of a synthetic program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Allocate {
        bytes: u64,
        stream: u64,
    },
    /// The index of the live block, and whether a stream still uses it.
    Free {
        which: usize,
        pending: bool,
    },
    /// The index of the pending block.
    Complete {
        which: usize,
    },
    EmptyCache,
}

/// A recorded run.
#[derive(Debug, Clone, Default)]
pub(super) struct Recording {
    pub(super) torch: Torch,
    pub(super) events: Vec<HistoryEvent>,
    live: Vec<u64>,
    pending: Vec<u64>,
    /// The bytes of all regions so far.
    gained: u64,
}

impl Recording {
    fn record(&mut self, action: EventAction, address: u64, bytes: u64, stream: StreamId) {
        self.events.push(HistoryEvent { stream, ..HistoryEvent::new(action, address, bytes) });
    }

    /// Returns the request and the stream of a block.
    fn of(&self, address: u64) -> (u64, StreamId) {
        let piece = self.torch.pieces[&address];
        (piece.requested, self.torch.regions[&piece.region].stream)
    }

    pub(super) fn run(&mut self, deed: Deed) {
        match deed {
            Deed::Allocate { bytes, stream } => {
                let stream = StreamId::from_raw(stream);
                let address = self.torch.allocate(bytes, stream).unwrap_or_else(|| {
                    let length = match bytes.next_multiple_of(512) {
                        ..=MIB => 2 * MIB,
                        size if size < 10 * MIB => 20 * MIB,
                        size => size.next_multiple_of(2 * MIB),
                    };
                    // Adjacent regions remain separate.
                    let address = (1 << 40) + self.gained;
                    self.gained += length;
                    self.record(EventAction::RegionReserved, address, length, stream);
                    self.torch.gain(address, length, stream);
                    self.torch.allocate(bytes, stream).expect("there is room now")
                });
                self.record(EventAction::Allocate, address, bytes, stream);
                self.live.push(address);
            }
            Deed::Free { which, pending } if !self.live.is_empty() => {
                let address = self.live.swap_remove(which % self.live.len());
                let (bytes, stream) = self.of(address);
                self.record(EventAction::FreeRequested, address, bytes, stream);
                self.torch.request_free(address);
                self.pending.push(address);
                if !pending {
                    self.run(Deed::Complete { which: self.pending.len() - 1 });
                }
            }
            Deed::Complete { which } if !self.pending.is_empty() => {
                let address = self.pending.swap_remove(which % self.pending.len());
                let (bytes, stream) = self.of(address);
                self.record(EventAction::FreeCompleted, address, bytes, stream);
                self.torch.complete_free(address);
            }
            Deed::EmptyCache => {
                for (address, bytes, stream) in self.torch.unused() {
                    self.record(EventAction::RegionReleased, address, bytes, stream);
                    self.torch.lose(address);
                }
            }
            Deed::Free { .. } | Deed::Complete { .. } => {}
        }
    }
}
