//! Free pages on their way into the holes of a claim.

use super::remap::{Hole, PageClaim};
use crate::backing::DeviceBacking;
use crate::engine::{Chunk, ChunkState, Index, SlowPath, is_small};
use orlop_alloc::RegionAction;

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Moves the pages of a chunk that is in no index into holes that have room for them. Pages that fit into
    /// no hole go back to the device.
    pub(super) fn move_pages(&mut self, claim: &mut PageClaim, source: Index) {
        let Chunk { address, size, region: of, pool: source_pool, .. } = self.chunks[source];
        let Chunk { pool, region: to, .. } = self.chunks[claim.chunk];
        let [from_small, small] = [source_pool, pool].map(is_small);
        let mut pages = Hole { address, bytes: size };
        while pages.bytes > 0 {
            let Some((place, bytes)) = self.place_for(claim, pages) else {
                return self.drop_pages(source, pages, claim.page);
            };
            let (from, to_address, page) = (pages.address, claim.holes[place].address, claim.page);
            // SAFETY: the pages were in a free chunk whose stream was waited for; nothing is mapped in the
            // hole.
            let moved = self.call(|backing| unsafe { backing.remap(from, to_address, bytes, page) });
            if self.noted(moved).is_err() {
                return self.drop_pages(source, pages, claim.page);
            }
            self.large_pages.relocate(from..from + bytes, to_address);
            claim.fill_start(place, bytes);
            if from_small != small {
                self.stats.reserved_bytes.transfer(from_small, bytes as u64);
            }
            self.stats.remapped_bytes = self.stats.remapped_bytes.saturating_add(bytes as u64);
            self.note_move(claim.chunk);
            self.note(RegionAction::Unmapped, of, from, bytes);
            self.note(RegionAction::Mapped, to, to_address, bytes);
            pages = Hole { address: from + bytes, bytes: pages.bytes - bytes };
        }
        self.make_unmapped(source);
    }

    /// Returns the first hole that has room for the first page, and how many bytes of whole pages it takes.
    fn place_for(&self, claim: &PageClaim, pages: Hole) -> Option<(usize, usize)> {
        claim.holes.iter().enumerate().find_map(|(place, hole)| {
            let end = self.large_pages.start_of(pages.address + pages.bytes.min(hole.bytes));
            (end > pages.address).then(|| (place, end - pages.address))
        })
    }

    /// Returns pages to the device that cannot move: the last ones of a chunk that is in no index. New ones
    /// are mapped in their place.
    fn drop_pages(&mut self, source: Index, pages: Hole, page: usize) {
        let Chunk { address, pool, region, .. } = self.chunks[source];
        let small = is_small(pool);
        // SAFETY: they were in a free chunk whose stream was waited for, and could not be moved.
        let unmapped = self.call(|backing| unsafe { backing.unmap(pages.address, pages.bytes, page) });
        if self.noted(unmapped).is_ok() {
            self.stats.reserved_bytes.sub(small, pages.bytes as u64);
            self.stats.num_device_free += 1;
            self.note(RegionAction::Unmapped, region, pages.address, pages.bytes);
            self.large_pages.remove(pages.address..pages.address + pages.bytes);
            return self.make_unmapped(source);
        }
        // Their contents may be lost, so that even pages that were certainly not unmapped cannot be used.
        let moved = pages.address - address;
        if moved == 0 {
            return self.leak(source);
        }
        match self.cut_back(source, moved, ChunkState::Live) {
            Some(rest) => {
                self.leak(rest);
                self.make_unmapped(source);
            }
            None => {
                // There are 2^32 chunks: the addresses of pages that moved are leaked with the others.
                self.stats.reserved_bytes.add(small, moved as u64);
                self.leak(source);
            }
        }
    }
}
