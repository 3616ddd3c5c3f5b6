//! The segments and their chunks at an instant, and undoing events on them.
//!
//! The chunks of a segment follow each other without gaps, and free neighbours are merged, as in the
//! allocator.
//!
//! A restored block ([`StartState::take`]) has the length of its request, rounded, plus a remainder that was
//! too small to split off ([`SizeRules::max_remainder`]). Free chunks are larger than any such remainder, so
//! a remainder that is too small for a free chunk belongs to the block. If more bytes behind the block are
//! free, they may be its remainder and a free chunk, which were merged when the block was freed. The block is
//! then *open*. An earlier event, which is undone later, closes it by showing where the next chunk began: the
//! bytes between belong to the block if they are too few for a free chunk.

use crate::history::{
    BlockState, Segment, SegmentBlock, SegmentMap, SegmentRange, SiteId, SizeRules, carve, merge_adjacent,
};
use foldhash::HashSet;

pub(super) struct StartState {
    rules: SizeRules,
    map: SegmentMap,
    /// The addresses of open blocks: see the module's documentation.
    open: HashSet<u64>,
}

impl StartState {
    /// Ignores segments that overlap earlier ones or are not covered by their blocks.
    pub(super) fn of(segments: &[Segment], rules: SizeRules) -> Self {
        let mut state = Self { rules, map: SegmentMap::default(), open: HashSet::default() };
        for segment in segments {
            let filled = segment.blocks.iter().try_fold(segment.address, |at, block| {
                let begins = block.address == at && block.bytes > 0;
                begins.then(|| at.checked_add(block.bytes)).flatten()
            });
            let is_covered = filled.is_some_and(|end| end - segment.address == segment.bytes);
            if is_covered && state.map.add(segment.address, SegmentRange::of(segment)) {
                segment.blocks.iter().for_each(|&block| state.map.insert(block));
            }
        }
        state
    }

    pub(super) fn rules(&self) -> &SizeRules {
        &self.rules
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        self.map.segments()
    }

    /// Returns the chunk that begins at `address`, if it is in use.
    pub(super) fn block(&mut self, address: u64) -> Option<SegmentBlock> {
        self.map.chunks.get(address).copied().filter(|chunk| chunk.state != BlockState::Free)
    }

    /// Returns `true` if a chunk in use covers `address`.
    pub(super) fn is_used(&mut self, address: u64) -> bool {
        self.map.chunk(address).is_some_and(|chunk| chunk.state != BlockState::Free)
    }

    /// Undoes the request to free a pending block.
    pub(super) fn revive(&mut self, address: u64) {
        if let Some(chunk) = self.map.chunks.get_mut(address) {
            chunk.state = BlockState::Live;
        }
    }

    /// Undoes an allocation: the block merges with its free neighbours.
    pub(super) fn free(&mut self, address: u64) {
        let chunks = &mut self.map.chunks;
        let Some(place) = chunks.find(address) else { return };
        *chunks.at_mut(place) = SegmentBlock::free(address, chunks.at(place).bytes);
        if let Some(previous) = chunks.previous(place)
            && let Some(block) = chunks.previous(previous)
            && self.open.contains(&chunks.at(block).address)
            && let Some(free) = self.map.before(address).filter(|chunk| chunk.state == BlockState::Free)
        {
            self.close(free.address, free.bytes);
        }
        self.open.remove(&address);
        if let Some(merged) = self.map.coalesce(address) {
            // It has the site and the request of the first chunk.
            let free = SegmentBlock::free(merged.address, merged.bytes);
            if merged != free {
                self.map.insert(free);
            }
        }
    }

    /// Adds the free chunk at `address` to the open block before it, if it is too small to be free. Something
    /// is known to begin where the chunk ends.
    fn close(&mut self, address: u64, bytes: u64) {
        let Some(block) = self.map.before(address).filter(|block| self.open.contains(&block.address)) else {
            return;
        };
        let Some((_, segment)) = self.map.segment(address) else { return };
        if bytes <= self.rules.max_remainder(segment.small || segment.expandable, block.bytes) {
            self.map.remove(address);
            self.map.insert(SegmentBlock { bytes: block.bytes + bytes, ..block });
            self.open.remove(&block.address);
        }
    }

    /// Undoes a free: restores a block of `requested` bytes in free memory. Returns `false` if it does not
    /// fit.
    pub(super) fn take(&mut self, address: u64, requested: u64, state: BlockState) -> bool {
        let chunks = &mut self.map.chunks;
        let Some(place) = chunks.last_up_to(address) else { return false };
        let free = *chunks.at(place);
        if free.state != BlockState::Free {
            return false;
        }
        let block = chunks.previous(place).map(|block| chunks.at(block).address);
        let may_close = block.is_some_and(|block| self.open.contains(&block));
        let Some((_, segment)) = self.map.segment(address) else { return false };
        let before = address - free.address;
        let Some(room) = free.bytes.checked_sub(before).filter(|&room| room > 0) else { return false };
        // The settings may have been different when it was allocated.
        let sizes = [self.rules.round(requested), self.rules.granules(requested), requested.max(1)];
        let Some(min) = sizes.into_iter().find(|&size| size <= room) else { return false };
        let max_remainder = self.rules.max_remainder(segment.small || segment.expandable, min);
        let bytes = if room - min <= max_remainder { room } else { min };
        let block = SegmentBlock { address, bytes, requested, state, site: SiteId::UNKNOWN };
        if before > 0 {
            *self.map.chunks.at_mut(place) = SegmentBlock::free(free.address, before);
            self.map.insert(block);
        } else {
            *self.map.chunks.at_mut(place) = block;
        }
        if bytes < room {
            self.open.insert(address);
            self.map.insert(SegmentBlock::free(address + bytes, room - bytes));
        }
        if before > 0 && may_close {
            self.close(free.address, before);
        }
        true
    }

    /// Undoes the release of a segment: adds it as free memory.
    pub(super) fn add_segment(&mut self, address: u64, segment: SegmentRange) -> bool {
        self.map.add(address, segment)
    }

    /// Undoes the reservation of a segment. Returns `false` unless all of it is free.
    pub(super) fn remove_segment(&mut self, address: u64, bytes: u64) -> bool {
        let whole = self.map.segments.get(&address).is_some_and(|segment| segment.bytes == bytes);
        let free = SegmentBlock::free(address, bytes);
        let is_free = |chunk: &SegmentBlock| (chunk.state, chunk.bytes) == (free.state, free.bytes);
        if !whole || !self.map.chunks.get(address).is_some_and(is_free) {
            return false;
        }
        self.map.segments.remove(&address);
        self.map.remove(address);
        true
    }

    /// Undoes the unmapping of pages: adds them as free memory, to an adjacent segment if there is one.
    pub(super) fn map(&mut self, address: u64, pages: SegmentRange) -> bool {
        let next = address.checked_add(pages.bytes).and_then(|end| self.map.segments.get(&end));
        let next = next.filter(|next| next.joins(&pages));
        let segment = next.map_or(pages, |&next| SegmentRange { bytes: pages.bytes, ..next });
        if !self.map.add(address, segment) {
            return false;
        }
        merge_adjacent(&mut self.map.segments, address);
        self.free(address);
        true
    }

    /// Undoes the mapping of pages. Returns `false` unless all of them are free.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let (Some((_, segment)), Some(free)) = (self.map.segment(address), self.map.chunk(address)) else {
            return false;
        };
        let free_end = free.address + free.bytes;
        let Some(end) = address.checked_add(bytes).filter(|&end| end <= free_end) else { return false };
        if free.state != BlockState::Free || bytes == 0 || !segment.expandable {
            return false;
        }
        carve(&mut self.map.segments, address, end, |segment| segment);
        self.map.remove(free.address);
        if free.address < address {
            self.map.insert(SegmentBlock::free(free.address, address - free.address));
        }
        if end < free_end {
            self.map.insert(SegmentBlock::free(end, free_end - end));
        }
        true
    }
}
