//! Segments and their chunks by address.

use super::chunk_map::ChunkMap;
use super::{AddressRange, BlockState, Segment, SegmentBlock, SiteId};
use orlop_core::StreamId;
use std::collections::BTreeMap;

/// A segment without its blocks and its address, which is the key of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRange {
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) small: bool,
    pub(crate) expandable: bool,
    pub(crate) pool: (u64, u64),
    pub(crate) site: SiteId,
}

impl SegmentRange {
    pub(crate) fn of(segment: &Segment) -> Self {
        let &Segment { bytes, stream, small, expandable, pool, site, .. } = segment;
        Self { bytes, stream, small, expandable, pool, site }
    }

    /// Creates the segment at `address` with these blocks.
    pub(crate) fn with_blocks(self, address: u64, blocks: Vec<SegmentBlock>) -> Segment {
        let Self { bytes, stream, small, expandable, pool, site } = self;
        Segment { address, bytes, stream, small, expandable, pool, site, blocks }
    }

    /// Returns `true` if adjacent pages of both form one segment.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        self.expandable && other.expandable && self.stream == other.stream && self.pool == other.pool
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

/// Merges the segment at this address with adjacent ones that it joins. The first one determines the size
/// class and the call site.
pub(crate) fn merge_adjacent(segments: &mut BTreeMap<u64, SegmentRange>, address: u64) {
    let Some(mut segment) = segments.get(&address).copied() else { return };
    let end = address + segment.bytes;
    if let Some(next) = segments.get(&end).copied().filter(|next| segment.joins(next)) {
        segments.remove(&end);
        segment.bytes += next.bytes;
        segments.insert(address, segment);
    }
    if let Some((&start, &previous)) = segments.range(..address).next_back()
        && start + previous.bytes == address
        && previous.joins(&segment)
    {
        segments.remove(&address);
        segments.insert(start, SegmentRange { bytes: previous.bytes + segment.bytes, ..previous });
    }
}

/// The segments of a device, which do not overlap, and the chunks that cover each of them without gaps.
#[derive(Debug, Clone, Default)]
pub(super) struct SegmentMap {
    pub(super) segments: BTreeMap<u64, SegmentRange>,
    pub(super) chunks: ChunkMap,
}

impl SegmentMap {
    /// Returns the segments with their chunks as blocks, in order of address.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let mut chunks = self.chunks.iter().peekable();
        let segments = self.segments.iter().map(|(&address, segment)| {
            let mut blocks = Vec::new();
            while let Some(chunk) = chunks.next_if(|chunk| chunk.address - address < segment.bytes) {
                blocks.push(*chunk);
            }
            segment.with_blocks(address, blocks)
        });
        segments.collect()
    }

    /// Returns the segment that covers an address.
    pub(super) fn segment(&self, address: u64) -> Option<(u64, SegmentRange)> {
        let (&start, &segment) = self.segments.range(..=address).next_back()?;
        (address - start < segment.bytes).then_some((start, segment))
    }

    /// Returns the chunk that covers an address.
    pub(super) fn chunk(&mut self, address: u64) -> Option<SegmentBlock> {
        let place = self.chunks.last_up_to(address)?;
        let chunk = *self.chunks.at(place);
        (address - chunk.address < chunk.bytes).then_some(chunk)
    }

    /// Adds a segment of free memory. Returns `false` if it is empty or overlaps another.
    pub(super) fn add(&mut self, address: u64, segment: SegmentRange) -> bool {
        let Some(end) = address.checked_add(segment.bytes).filter(|&end| end > address) else {
            return false;
        };
        let previous = self.segments.range(..end).next_back();
        if previous.is_some_and(|(start, previous)| start + previous.bytes > address) {
            return false;
        }
        self.segments.insert(address, segment);
        self.insert(SegmentBlock::free(address, segment.bytes));
        true
    }

    /// Inserts a chunk.
    pub(super) fn insert(&mut self, chunk: SegmentBlock) {
        self.chunks.insert(chunk);
    }

    /// Removes the chunk at this address.
    pub(super) fn remove(&mut self, address: u64) {
        if let Some(place) = self.chunks.find(address) {
            self.chunks.remove(place);
        }
    }

    /// Returns the chunk that ends at `address`, in the same segment.
    pub(super) fn before(&mut self, address: u64) -> Option<SegmentBlock> {
        if self.segments.contains_key(&address) {
            return None;
        }
        let place = self.chunks.last_up_to(address.checked_sub(1)?)?;
        let chunk = *self.chunks.at(place);
        (address - chunk.address == chunk.bytes).then_some(chunk)
    }

    /// Merges the chunk at this address, if it is free, with its free neighbours in the segment. Returns the
    /// merged chunk.
    pub(super) fn coalesce(&mut self, address: u64) -> Option<SegmentBlock> {
        let is_free = |chunk: &SegmentBlock| chunk.state == BlockState::Free;
        let mut place = self.chunks.find(address)?;
        let mut chunk = Some(*self.chunks.at(place)).filter(is_free)?;
        let end = chunk.address + chunk.bytes;
        if let Some(next) = self.chunks.next(place)
            && let behind = *self.chunks.at(next)
            && behind.address == end
            && is_free(&behind)
            && !self.segments.contains_key(&end)
        {
            self.chunks.remove(next);
            chunk.bytes += behind.bytes;
        }
        if let Some(previous) = self.chunks.previous(place)
            && let before = *self.chunks.at(previous)
            && address - before.address == before.bytes
            && is_free(&before)
            && !self.segments.contains_key(&address)
        {
            self.chunks.remove(place);
            place = previous;
            chunk = SegmentBlock { bytes: before.bytes + chunk.bytes, ..before };
        }
        *self.chunks.at_mut(place) = chunk;
        Some(chunk)
    }
}
