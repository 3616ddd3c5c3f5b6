//! An engine in the middle of a run: with the segments that a snapshot shows, over a device that is addresses only.
//!
//! A snapshot does not show the addresses that a range may still grow into. What it shows of one range (segments that grow
//! in place, of one pool and stream) is taken to begin where the range does; the range is as long as PyTorch makes them, or
//! ends where something else begins.

use super::backing::DeviceBacking;
use super::chunks::{Chunk, Index, NONE, State};
use super::engine::{DeviceBlock, Engine, LARGE, SMALL};
use super::inspect::{DevicePiece, DeviceSegment, PieceState};
use super::null::NullDevice;
use super::policy::Growth;
use super::pool::Region;
use super::private::PoolId;
use orlop_core::StreamId;
use std::collections::{BTreeMap, HashMap};

/// The blocks of a restored engine, by address.
type Blocks = HashMap<usize, DeviceBlock>;

/// What makes segments parts of one range.
type Range = (StreamId, bool, PoolId);

/// A piece to restore: a segment's, or addresses without pages.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Of(DevicePiece),
    Unmapped { address: usize, bytes: usize },
}

impl Piece {
    fn place(self) -> (usize, usize) {
        match self {
            Self::Of(piece) => (piece.address, piece.bytes),
            Self::Unmapped { address, bytes } => (address, bytes),
        }
    }
}

impl Engine<NullDevice> {
    /// Takes segments over as they are, and gives their blocks by address. Call it before anything else is asked.
    ///
    /// Pieces that wait for a stream are taken for free. Segments whose pieces do not cover them are left out.
    pub fn restore(&mut self, segments: &[DeviceSegment]) -> Blocks {
        let mut blocks = Blocks::new();
        let mut ranges: BTreeMap<Range, Vec<&DeviceSegment>> = BTreeMap::new();
        let paged = matches!(self.policy.growth, Growth::Pages { .. });
        let mut starts: Vec<usize> = Vec::new();
        for segment in segments.iter().filter(|segment| is_covered(segment)) {
            if segment.expandable && paged {
                ranges.entry((segment.stream, segment.small, segment.pool)).or_default().push(segment);
            } else {
                starts.push(segment.address);
                let pieces: Vec<Piece> = segment.pieces.iter().copied().map(Piece::Of).collect();
                self.restore_region(segment, segment.bytes, None, &pieces, &mut blocks);
            }
        }
        starts.extend(ranges.values().filter_map(|range| range.iter().map(|segment| segment.address).min()));
        starts.sort_unstable();
        for range in ranges.into_values() {
            self.restore_range(range, &starts, &mut blocks);
        }
        blocks
    }

    /// Restores the segments of one range, or each for itself if they overlap or do not lie in pages of one.
    fn restore_range(&mut self, mut segments: Vec<&DeviceSegment>, starts: &[usize], blocks: &mut Blocks) {
        segments.sort_unstable_by_key(|segment| segment.address);
        let (Some(&first), Some(&last)) = (segments.first(), segments.last()) else { return };
        let page = self.page(if first.small { SMALL } else { LARGE });
        let memory = usize::try_from(self.backing.memory()).unwrap_or(usize::MAX / 4);
        let next = starts.partition_point(|&start| start <= first.address);
        let room = starts.get(next).map_or(isize::MAX.unsigned_abs(), |&next| next) - first.address;
        let most = memory.saturating_add(memory / 8).min(room);
        let bytes = most - most % page;
        let in_pages = |segment: &&DeviceSegment| {
            (segment.address - first.address).is_multiple_of(page) && segment.bytes.is_multiple_of(page)
        };
        let apart = segments.windows(2).all(|pair| pair[0].address + pair[0].bytes <= pair[1].address);
        if !apart || !segments.iter().all(in_pages) || last.address + last.bytes > first.address + bytes {
            for segment in segments {
                let pieces: Vec<Piece> = segment.pieces.iter().copied().map(Piece::Of).collect();
                self.restore_region(segment, segment.bytes, None, &pieces, blocks);
            }
            return;
        }
        let mut pieces = Vec::new();
        let mut at = first.address;
        for segment in segments {
            if segment.address > at {
                pieces.push(Piece::Unmapped { address: at, bytes: segment.address - at });
            }
            pieces.extend(segment.pieces.iter().copied().map(Piece::Of));
            at = segment.address + segment.bytes;
        }
        let end = first.address + bytes;
        if end > at {
            pieces.push(Piece::Unmapped { address: at, bytes: end - at });
        }
        self.restore_region(first, bytes, Some(page), &pieces, blocks);
    }

    fn restore_region(
        &mut self,
        like: &DeviceSegment,
        bytes: usize,
        page: Option<usize>,
        pieces: &[Piece],
        blocks: &mut Blocks,
    ) {
        let DeviceSegment { address, stream, small, .. } = *like;
        let mapped = pieces.iter().filter(|piece| matches!(piece, Piece::Of(_)));
        let held: usize = mapped.map(|piece| piece.place().1).sum();
        let Some(pool) = self.pool_of(like) else { return };
        if !self.backing.hold(address, bytes, held) {
            return;
        }
        let stream = self.streams.number(stream);
        let region = Region { address, bytes, first: NONE, page, stream, pool };
        let Some(region) = self.regions.insert(region) else { return };
        if page.is_none() {
            self.stats.segment.add(small, 1);
        }
        self.stats.reserved_bytes.add(small, held as u64);
        let like = Chunk {
            address,
            size: 0,
            requested: 0,
            note: 0,
            previous: NONE,
            next: NONE,
            before: NONE,
            after: NONE,
            region,
            stream,
            events: 0,
            pool,
            state: State::Live,
            border: false,
        };
        let mut previous = NONE;
        let mut free: Vec<Index> = Vec::new();
        for &piece in pieces {
            let (address, size) = piece.place();
            let Some(index) = self.chunks.insert(Chunk { address, size, previous, ..like }) else { return };
            match previous {
                NONE => self.regions.begins(region, index),
                previous => self.chunks[previous].next = index,
            }
            previous = index;
            match piece {
                Piece::Of(piece) if piece.state == PieceState::Live => {
                    self.reuse(index, piece.requested);
                    blocks.insert(address, DeviceBlock(index));
                }
                Piece::Of(piece) => {
                    self.chunks[index].requested = piece.requested;
                    free.push(index);
                }
                Piece::Unmapped { .. } => {
                    self.chunks[index].state = State::Unmapped;
                    self.put_unmapped(index);
                }
            }
        }
        for index in free {
            // It may have been taken in by the one before it.
            if self.chunks[index].state == State::Live {
                self.insert_free(index);
            }
        }
    }

    /// The pool that a segment belongs to; private ones are made, and have a user.
    fn pool_of(&mut self, segment: &DeviceSegment) -> Option<u16> {
        if segment.pool == PoolId::default() {
            return Some(if segment.small { SMALL } else { LARGE });
        }
        let (small, large) = self.private_pools(segment.pool).ok()?;
        Some(if segment.small { small } else { large })
    }
}

/// Whether a segment's pieces cover it in order, and addresses may be so great.
fn is_covered(segment: &DeviceSegment) -> bool {
    let end = segment.pieces.iter().try_fold(segment.address, |at, piece| {
        if piece.address == at && piece.bytes > 0 { at.checked_add(piece.bytes) } else { None }
    });
    end.is_some_and(|end| isize::try_from(end).is_ok()) && end == segment.address.checked_add(segment.bytes)
}
