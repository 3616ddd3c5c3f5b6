//! Regions and their pieces at one moment, and how they were a moment before.
//!
//! Pieces follow each other without gaps in a region, and free neighbours are one piece, as in the allocator.
//!
//! A block that comes back ([`StartState::take`]) is as long as its request, rounded. Behind it there may
//! have been a rest that was not worth splitting off, at most [`SizeRules::kept`] bytes; then no free piece
//! can begin there, since every free piece is longer than that: it was split off as longer, or was a block
//! that was longer. So a rest that is too short for a free piece is the block's. If more is free behind the
//! block, it may be the block's rest and another free piece that merged when the block was freed. The block
//! is *open* then. It closes when something before, that is, met later, is found to have begun behind it:
//! what lies between is the block's if it is too short to be free.

use crate::history::{BlockState, Segment, SegmentBlock, SiteId, SizeRules};
use orlop_core::StreamId;
use std::collections::BTreeMap;

/// A region at the start of a recording; the key is its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartRegion {
    pub(super) bytes: u64,
    pub(super) stream: StreamId,
    pub(super) small: bool,
    pub(super) expandable: bool,
    pub(super) pool: (u64, u64),
    pub(super) site: SiteId,
}

impl StartRegion {
    /// Whether pages of both are of one range.
    fn is_like(&self, other: &Self) -> bool {
        self.expandable && other.expandable && self.stream == other.stream && self.pool == other.pool
    }
}

/// A chunk of a region at the start of a recording; the key is its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartChunk {
    pub(super) bytes: u64,
    pub(super) requested: u64,
    pub(super) state: BlockState,
    pub(super) site: SiteId,
    /// Whether it may have been longer: see the head of this module.
    open: bool,
}

impl StartChunk {
    fn free(bytes: u64) -> Self {
        Self { bytes, requested: 0, state: BlockState::Free, site: SiteId::UNKNOWN, open: false }
    }
}

pub(super) struct StartState {
    rules: SizeRules,
    regions: BTreeMap<u64, StartRegion>,
    pieces: BTreeMap<u64, StartChunk>,
}

impl StartState {
    /// Segments that overlap those before, or that their blocks do not fill, are left out.
    pub(super) fn of(segments: &[Segment], rules: SizeRules) -> Self {
        let mut state = Self { rules, regions: BTreeMap::new(), pieces: BTreeMap::new() };
        let mut next = 0;
        for segment in segments {
            let Segment { address, bytes, stream, small, expandable, pool, site, .. } = *segment;
            let filled = segment.blocks.iter().try_fold(address, |at, block| {
                let begins = block.address == at && block.bytes > 0;
                begins.then(|| at.checked_add(block.bytes)).flatten()
            });
            match filled {
                Some(end) if address >= next && end - address == bytes => next = end,
                _ => continue,
            }
            state.regions.insert(address, StartRegion { bytes, stream, small, expandable, pool, site });
            for block in &segment.blocks {
                let SegmentBlock { address, bytes, requested, state: kind, site } = *block;
                state.pieces.insert(address, StartChunk { bytes, requested, state: kind, site, open: false });
            }
        }
        state
    }

    pub(super) fn rules(&self) -> &SizeRules {
        &self.rules
    }

    pub(super) fn into_segments(self) -> Vec<Segment> {
        let Self { regions, pieces, .. } = self;
        let mut pieces = pieces.into_iter().peekable();
        regions
            .into_iter()
            .map(|(address, region)| {
                let mut blocks = Vec::new();
                while let Some((at, piece)) = pieces.next_if(|&(at, _)| at < address + region.bytes) {
                    let StartChunk { bytes, requested, state, site, .. } = piece;
                    blocks.push(SegmentBlock { address: at, bytes, requested, state, site });
                }
                let StartRegion { bytes, stream, small, expandable, pool, site } = region;
                Segment { address, bytes, stream, small, expandable, pool, site, blocks }
            })
            .collect()
    }

    /// The piece that begins at `address`, if it is not free.
    pub(super) fn block(&self, address: u64) -> Option<StartChunk> {
        self.pieces.get(&address).copied().filter(|piece| piece.state != BlockState::Free)
    }

    /// Whether a block that is in use covers `address`.
    pub(super) fn is_used(&self, address: u64) -> bool {
        self.covering(address).is_some_and(|(_, piece)| piece.state != BlockState::Free)
    }

    /// The piece that covers `address`.
    fn covering(&self, address: u64) -> Option<(u64, StartChunk)> {
        let (&at, &piece) = self.pieces.range(..=address).next_back()?;
        (address - at < piece.bytes).then_some((at, piece))
    }

    /// The region that covers `address`.
    fn region(&self, address: u64) -> Option<(u64, StartRegion)> {
        let (&at, &region) = self.regions.range(..=address).next_back()?;
        (address - at < region.bytes).then_some((at, region))
    }

    /// The piece that ends at `address`, in the same region.
    fn before(&self, address: u64) -> Option<(u64, StartChunk)> {
        if self.regions.contains_key(&address) {
            return None;
        }
        let (&at, &piece) = self.pieces.range(..address).next_back()?;
        (address - at == piece.bytes).then_some((at, piece))
    }

    /// A block that waits for streams was in use.
    pub(super) fn revive(&mut self, address: u64) {
        if let Some(piece) = self.pieces.get_mut(&address) {
            piece.state = BlockState::Live;
        }
    }

    /// A block was free, and one piece with what is free beside it.
    pub(super) fn free(&mut self, address: u64) {
        let Some(piece) = self.pieces.get(&address).copied() else { return };
        let (mut at, mut bytes) = (address, piece.bytes);
        let end = address + bytes;
        if let Some(behind) = self.pieces.get(&end).copied()
            && behind.state == BlockState::Free
            && !self.regions.contains_key(&end)
        {
            self.pieces.remove(&end);
            bytes += behind.bytes;
        }
        if let Some((start, ahead)) = self.before(address)
            && ahead.state == BlockState::Free
            && !self.close(start, ahead.bytes)
        {
            self.pieces.remove(&address);
            at = start;
            bytes += ahead.bytes;
        }
        self.pieces.insert(at, StartChunk::free(bytes));
    }

    /// Gives the free piece at `address` to the open block that it follows, if it is too short to be free. It
    /// ends where something is known to begin.
    fn close(&mut self, address: u64, bytes: u64) -> bool {
        let Some((start, block)) = self.before(address) else { return false };
        let Some((_, region)) = self.region(start) else { return false };
        if !block.open || bytes > self.rules.kept(region.small || region.expandable, block.bytes) {
            return false;
        }
        self.pieces.remove(&address);
        self.pieces.insert(start, StartChunk { bytes: block.bytes + bytes, open: false, ..block });
        true
    }

    /// A block of so many requested bytes was there, in free memory. `false` if there is none.
    pub(super) fn take(&mut self, address: u64, requested: u64, state: BlockState) -> bool {
        let Some((start, free)) = self.covering(address) else { return false };
        let Some((_, region)) = self.region(start) else { return false };
        if free.state != BlockState::Free {
            return false;
        }
        let ahead = address - start;
        let room = free.bytes - ahead;
        // The settings may have been others when it was allocated.
        let sizes = [self.rules.round(requested), self.rules.granules(requested), requested.max(1)];
        let Some(least) = sizes.into_iter().find(|&size| size <= room) else { return false };
        let kept = self.rules.kept(region.small || region.expandable, least);
        let rest = room - least;
        let (bytes, open) = if rest <= kept { (room, false) } else { (least, true) };
        let site = SiteId::UNKNOWN;
        self.pieces.insert(address, StartChunk { bytes, requested, state, site, open });
        if bytes < room {
            self.pieces.insert(address + bytes, StartChunk::free(room - bytes));
        }
        if ahead > 0 {
            self.pieces.insert(start, StartChunk::free(ahead));
            self.close(start, ahead);
        }
        true
    }

    /// A region was there, all free.
    pub(super) fn add_region(&mut self, address: u64, region: StartRegion) -> bool {
        let Some(end) = address.checked_add(region.bytes) else { return false };
        let last = self.regions.range(..end).next_back();
        let apart = last.is_none_or(|(&at, last)| at + last.bytes <= address);
        if region.bytes == 0 || !apart {
            return false;
        }
        self.regions.insert(address, region);
        self.pieces.insert(address, StartChunk::free(region.bytes));
        true
    }

    /// A region was not there. Nothing in it was in use.
    pub(super) fn remove_region(&mut self, address: u64, bytes: u64) -> bool {
        let whole = self.regions.get(&address).is_some_and(|region| region.bytes == bytes);
        let free = self
            .pieces
            .get(&address)
            .is_some_and(|piece| piece.state == BlockState::Free && piece.bytes == bytes);
        if whole && free {
            self.regions.remove(&address);
            self.pieces.remove(&address);
        }
        whole && free
    }

    /// Pages were mapped, all free: of the region beside them, if there is one.
    pub(super) fn map(&mut self, address: u64, region: StartRegion) -> bool {
        if !self.add_region(address, region) {
            return false;
        }
        let end = address + region.bytes;
        let mut whole = region;
        if let Some(behind) = self.regions.get(&end).copied().filter(|behind| behind.is_like(&region)) {
            self.regions.remove(&end);
            whole = StartRegion { bytes: region.bytes + behind.bytes, ..behind };
        }
        let ahead = self.regions.range(..address).next_back().map(|(&at, &ahead)| (at, ahead));
        let ahead = ahead.filter(|(at, ahead)| at + ahead.bytes == address && ahead.is_like(&region));
        if let Some((at, ahead)) = ahead {
            self.regions.remove(&address);
            self.regions.insert(at, StartRegion { bytes: ahead.bytes + whole.bytes, ..ahead });
        } else {
            self.regions.insert(address, whole);
        }
        self.free(address);
        true
    }

    /// Pages were not mapped. Nothing in them was in use.
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
        self.pieces.remove(&at);
        self.regions.remove(&start);
        if at < address {
            self.pieces.insert(at, StartChunk::free(address - at));
        }
        if end < free_end {
            self.pieces.insert(end, StartChunk::free(free_end - end));
        }
        if start < address {
            self.regions.insert(start, StartRegion { bytes: address - start, ..region });
        }
        if end < region_end {
            self.regions.insert(end, StartRegion { bytes: region_end - end, ..region });
        }
        true
    }
}
