//! The regions and their chunks at an instant, and undoing events on them.
//!
//! The chunks of a region follow each other without gaps, and free neighbours are merged, as in the
//! allocator.
//!
//! A restored block ([`StartState::take`]) is as long as its request, rounded. It may have kept a rest that
//! was too small to split off, at most [`SizeRules::kept`] bytes. No free chunk is that small: it was split
//! off as a larger one, or was a larger block. So a rest that is too small for a free chunk belongs to the
//! block. If more bytes behind the block are free, they may be its rest and another free chunk, merged when
//! the block was freed. The block is then *open*. It is closed when an earlier event, which is undone later,
//! shows where something behind it began: the bytes between belong to the block if they are too few for a
//! free chunk.

use crate::history::{BlockState, Segment, SegmentBlock, SegmentRange, SiteId, SizeRules};
use std::collections::BTreeMap;

/// A chunk of a region at the start of a recording; the key is its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartChunk {
    pub(super) bytes: u64,
    pub(super) requested: u64,
    pub(super) state: BlockState,
    pub(super) site: SiteId,
    /// Whether the block may be longer: see the module's documentation.
    open: bool,
}

impl StartChunk {
    fn free(bytes: u64) -> Self {
        Self { bytes, requested: 0, state: BlockState::Free, site: SiteId::UNKNOWN, open: false }
    }
}

pub(super) struct StartState {
    rules: SizeRules,
    regions: BTreeMap<u64, SegmentRange>,
    chunks: BTreeMap<u64, StartChunk>,
}

impl StartState {
    /// Ignores segments that overlap earlier ones or are not covered by their blocks.
    pub(super) fn of(segments: &[Segment], rules: SizeRules) -> Self {
        let mut state = Self { rules, regions: BTreeMap::new(), chunks: BTreeMap::new() };
        let mut next = 0;
        for segment in segments {
            let Segment { address, bytes, .. } = *segment;
            let filled = segment.blocks.iter().try_fold(address, |at, block| {
                let begins = block.address == at && block.bytes > 0;
                begins.then(|| at.checked_add(block.bytes)).flatten()
            });
            match filled {
                Some(end) if address >= next && end - address == bytes => next = end,
                _ => continue,
            }
            state.regions.insert(address, SegmentRange::of(segment));
            for block in &segment.blocks {
                let SegmentBlock { address, bytes, requested, state: kind, site } = *block;
                state.chunks.insert(address, StartChunk { bytes, requested, state: kind, site, open: false });
            }
        }
        state
    }

    pub(super) fn rules(&self) -> &SizeRules {
        &self.rules
    }

    pub(super) fn into_segments(self) -> Vec<Segment> {
        let Self { regions, chunks, .. } = self;
        let mut chunks = chunks.into_iter().peekable();
        regions
            .into_iter()
            .map(|(address, region)| {
                let mut blocks = Vec::new();
                while let Some((at, chunk)) = chunks.next_if(|&(at, _)| at < address + region.bytes) {
                    let StartChunk { bytes, requested, state, site, .. } = chunk;
                    blocks.push(SegmentBlock { address: at, bytes, requested, state, site });
                }
                region.with_blocks(address, blocks)
            })
            .collect()
    }

    /// Returns the chunk that begins at `address`, if it is in use.
    pub(super) fn block(&self, address: u64) -> Option<StartChunk> {
        self.chunks.get(&address).copied().filter(|chunk| chunk.state != BlockState::Free)
    }

    /// Returns `true` if a chunk in use covers `address`.
    pub(super) fn is_used(&self, address: u64) -> bool {
        self.covering(address).is_some_and(|(_, chunk)| chunk.state != BlockState::Free)
    }

    /// Returns the chunk that covers `address`.
    fn covering(&self, address: u64) -> Option<(u64, StartChunk)> {
        let (&at, &chunk) = self.chunks.range(..=address).next_back()?;
        (address - at < chunk.bytes).then_some((at, chunk))
    }

    /// Returns the region that covers `address`.
    fn region(&self, address: u64) -> Option<(u64, SegmentRange)> {
        let (&at, &region) = self.regions.range(..=address).next_back()?;
        (address - at < region.bytes).then_some((at, region))
    }

    /// Returns the chunk that ends at `address`, in the same region.
    fn before(&self, address: u64) -> Option<(u64, StartChunk)> {
        if self.regions.contains_key(&address) {
            return None;
        }
        let (&at, &chunk) = self.chunks.range(..address).next_back()?;
        (address - at == chunk.bytes).then_some((at, chunk))
    }

    /// Undoes the request to free a pending block.
    pub(super) fn revive(&mut self, address: u64) {
        if let Some(chunk) = self.chunks.get_mut(&address) {
            chunk.state = BlockState::Live;
        }
    }

    /// Undoes an allocation: the block merges with its free neighbours.
    pub(super) fn free(&mut self, address: u64) {
        let Some(chunk) = self.chunks.get(&address).copied() else { return };
        let (mut at, mut bytes) = (address, chunk.bytes);
        let end = address + bytes;
        if let Some(behind) = self.chunks.get(&end).copied()
            && behind.state == BlockState::Free
            && !self.regions.contains_key(&end)
        {
            self.chunks.remove(&end);
            bytes += behind.bytes;
        }
        if let Some((start, ahead)) = self.before(address)
            && ahead.state == BlockState::Free
            && !self.close(start, ahead.bytes)
        {
            self.chunks.remove(&address);
            at = start;
            bytes += ahead.bytes;
        }
        self.chunks.insert(at, StartChunk::free(bytes));
    }

    /// Adds the free chunk at `address` to the open block before it, if it is too small to be free. Something
    /// is known to begin where the chunk ends.
    fn close(&mut self, address: u64, bytes: u64) -> bool {
        let Some((start, block)) = self.before(address) else { return false };
        let Some((_, region)) = self.region(start) else { return false };
        if !block.open || bytes > self.rules.kept(region.small || region.expandable, block.bytes) {
            return false;
        }
        self.chunks.remove(&address);
        self.chunks.insert(start, StartChunk { bytes: block.bytes + bytes, open: false, ..block });
        true
    }

    /// Undoes a free: restores a block of `requested` bytes in free memory. Returns `false` if it does not
    /// fit.
    pub(super) fn take(&mut self, address: u64, requested: u64, state: BlockState) -> bool {
        let Some((start, free)) = self.covering(address) else { return false };
        let Some((_, region)) = self.region(start) else { return false };
        if free.state != BlockState::Free {
            return false;
        }
        let ahead = address - start;
        let room = free.bytes - ahead;
        // The settings may have been different when it was allocated.
        let sizes = [self.rules.round(requested), self.rules.granules(requested), requested.max(1)];
        let Some(min) = sizes.into_iter().find(|&size| size <= room) else { return false };
        let kept = self.rules.kept(region.small || region.expandable, min);
        let rest = room - min;
        let (bytes, open) = if rest <= kept { (room, false) } else { (min, true) };
        let site = SiteId::UNKNOWN;
        self.chunks.insert(address, StartChunk { bytes, requested, state, site, open });
        if bytes < room {
            self.chunks.insert(address + bytes, StartChunk::free(room - bytes));
        }
        if ahead > 0 {
            self.chunks.insert(start, StartChunk::free(ahead));
            self.close(start, ahead);
        }
        true
    }

    /// Undoes the release of a region: adds it as free memory.
    pub(super) fn add_region(&mut self, address: u64, region: SegmentRange) -> bool {
        let Some(end) = address.checked_add(region.bytes) else { return false };
        let last = self.regions.range(..end).next_back();
        let apart = last.is_none_or(|(&at, last)| at + last.bytes <= address);
        if region.bytes == 0 || !apart {
            return false;
        }
        self.regions.insert(address, region);
        self.chunks.insert(address, StartChunk::free(region.bytes));
        true
    }

    /// Undoes the reservation of a region. Returns `false` unless all of it is free.
    pub(super) fn remove_region(&mut self, address: u64, bytes: u64) -> bool {
        let whole = self.regions.get(&address).is_some_and(|region| region.bytes == bytes);
        let free = self
            .chunks
            .get(&address)
            .is_some_and(|chunk| chunk.state == BlockState::Free && chunk.bytes == bytes);
        if whole && free {
            self.regions.remove(&address);
            self.chunks.remove(&address);
        }
        whole && free
    }

    /// Undoes the unmapping of pages: adds them as free memory, to an adjacent region if there is one.
    pub(super) fn map(&mut self, address: u64, region: SegmentRange) -> bool {
        if !self.add_region(address, region) {
            return false;
        }
        let end = address + region.bytes;
        let mut whole = region;
        if let Some(behind) = self.regions.get(&end).copied().filter(|behind| behind.joins(&region)) {
            self.regions.remove(&end);
            whole = SegmentRange { bytes: region.bytes + behind.bytes, ..behind };
        }
        let ahead = self.regions.range(..address).next_back().map(|(&at, &ahead)| (at, ahead));
        let ahead = ahead.filter(|(at, ahead)| at + ahead.bytes == address && ahead.joins(&region));
        if let Some((at, ahead)) = ahead {
            self.regions.remove(&address);
            self.regions.insert(at, SegmentRange { bytes: ahead.bytes + whole.bytes, ..ahead });
        } else {
            self.regions.insert(address, whole);
        }
        self.free(address);
        true
    }

    /// Undoes the mapping of pages. Returns `false` unless all of them are free.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let (Some((start, region)), Some((at, free))) = (self.region(address), self.covering(address)) else {
            return false;
        };
        let Some(end) = address.checked_add(bytes).filter(|&end| end <= at + free.bytes) else {
            return false;
        };
        if free.state != BlockState::Free || bytes == 0 || !region.expandable {
            return false;
        }
        let (region_end, free_end) = (start + region.bytes, at + free.bytes);
        self.chunks.remove(&at);
        self.regions.remove(&start);
        if at < address {
            self.chunks.insert(at, StartChunk::free(address - at));
        }
        if end < free_end {
            self.chunks.insert(end, StartChunk::free(free_end - end));
        }
        if start < address {
            self.regions.insert(start, SegmentRange { bytes: address - start, ..region });
        }
        if end < region_end {
            self.regions.insert(end, SegmentRange { bytes: region_end - end, ..region });
        }
        true
    }
}
