//! Growth by remapping: free pages move to where they are needed.
//!
//! Memory is fragmented when enough is free, but not contiguous. Pages are not bound to an address: those
//! that lie wholly in free chunks can be mapped elsewhere, one after the other (the technique is called
//! stitching: GMLake). That costs a wait for the streams that may still use them, and calls of the driver. So
//! the engine first maps new pages, until reserved bytes reach the peak of active bytes. From then on, only
//! fragmentation can keep a request from finding a block, and free pages move.

use super::large::page_for_growth;
use crate::backing::DeviceBacking;
use crate::engine::{Chunk, ChunkState, Index};
use crate::engine::{Engine, PoolRequest, SlowPath};
use orlop_alloc::RegionAction;
use std::collections::BTreeSet;
use std::ops::Range;

/// A range of addresses without pages, to be filled, or of pages to fill it with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hole {
    pub(super) address: usize,
    pub(crate) bytes: usize,
}

/// The purpose of pages, which decides how many may be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagePurpose {
    /// A request that finds no block: reserved bytes exceed the peak if there is no other way.
    Request,
    /// A planned place of a block: as many as the period plan was made for.
    Plan,
}

/// A range of addresses that is being filled with pages: in no index.
#[derive(Debug)]
pub(crate) struct PageClaim {
    pub(crate) chunk: Index,
    pub(super) page: usize,
    /// The parts without pages, in order of address.
    pub(crate) holes: Vec<Hole>,
}

impl PageClaim {
    pub(crate) fn is_full(&self) -> bool {
        self.holes.is_empty()
    }

    pub(super) fn missing(&self) -> usize {
        self.holes.iter().map(|hole| hole.bytes).sum()
    }

    /// Notes that the first bytes of a hole have pages.
    pub(super) fn fill_start(&mut self, place: usize, bytes: usize) {
        let hole = &mut self.holes[place];
        *hole = Hole { address: hole.address + bytes, bytes: hole.bytes - bytes };
        if hole.bytes == 0 {
            self.holes.remove(place);
        }
    }
}

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Returns a chunk for a request, in no index, of new pages or of moved ones.
    pub(crate) fn grow_by_remap(&mut self, request: &PoolRequest) -> Option<Index> {
        // No page moves, and no address is reserved, for a request beyond the limit.
        let max = self.limit.unwrap_or(u64::MAX).min(self.backing.memory());
        if request.size as u64 > max {
            return None;
        }
        // The first range with the fewest missing bytes.
        let cheapest = |engine: &Self| engine.ranges(request).min_by_key(|&(missing, _)| missing);
        let mut range = cheapest(self);
        let missing = range.map_or(request.size, |(missing, _)| missing);
        if self.is_beyond_peak(request, missing) && self.merge_streams_for(request) {
            if let Some(chunk) = self.search_again(request) {
                return Some(chunk);
            }
            range = cheapest(self);
        }
        let first = match range {
            Some((_, first)) => first,
            None => self.add_range(request)?,
        };
        let page = self.page(request.pool);
        let mut claim = self.claim_from(first, request.size, page)?;
        self.fill(request, &mut claim, PagePurpose::Request)?;
        // Rounded up to pages it can have a free neighbour now.
        self.merge_around(claim.chunk, ChunkState::Free);
        Some(claim.chunk)
    }

    /// Fills all of a claim with pages. `None` if there are not enough: the claim is then abandoned.
    pub(crate) fn fill(
        &mut self,
        request: &PoolRequest,
        claim: &mut PageClaim,
        purpose: PagePurpose,
    ) -> Option<()> {
        if claim.holes.is_empty() {
            return Some(());
        }
        if !self.may_map(request, claim, purpose) || !self.fill_with_new(claim) {
            // If a call failed, no page moves in place of new ones. A move waits for streams, which would end
            // a capture.
            if !self.failures.is_final() && !self.is_capturing() {
                self.fill_by_remap(claim);
            }
            // Pages that fit into no hole were given back: new ones may take their place.
            let may_map = purpose == PagePurpose::Request || self.may_map(request, claim, purpose);
            let may_map = may_map && !self.failures.is_final();
            let complete = claim.holes.is_empty() || (may_map && self.fill_with_new(claim));
            if !complete {
                self.abandon(claim);
                return None;
            }
        }
        Some(())
    }

    /// Returns `true` if new pages may fill the holes of a claim.
    fn may_map(&self, request: &PoolRequest, claim: &PageClaim, purpose: PagePurpose) -> bool {
        match purpose {
            // A page of rounding is not fragmentation.
            PagePurpose::Request => !self.is_beyond_peak(request, claim.missing().saturating_sub(claim.page)),
            PagePurpose::Plan => {
                let reserved = self.stats.reserved_bytes.all.current.saturating_add(claim.missing() as u64);
                reserved <= self.period.allowed
            }
        }
    }

    /// Fills all holes with new pages. Returns `false` if there is no memory; filled holes stay filled.
    fn fill_with_new(&mut self, claim: &mut PageClaim) -> bool {
        while let Some(&Hole { bytes, .. }) = claim.holes.first() {
            if !self.is_within_limit(bytes) || !self.map_hole(claim) {
                return false;
            }
        }
        true
    }

    /// Maps new pages in the first hole of a claim, or in as much of it as large pages fill. Returns `false`
    /// if there is no memory.
    pub(crate) fn map_hole(&mut self, claim: &mut PageClaim) -> bool {
        let Chunk { pool, region, .. } = self.chunks[claim.chunk];
        let Some(&Hole { address, bytes }) = claim.holes.first() else { return true };
        let large = self.policy.extensions.large_pages;
        let page = if large { page_for_growth(bytes, claim.page) } else { claim.page };
        let bytes = bytes - bytes % page;
        // SAFETY: nothing is mapped in a hole of the claim, and nothing else can map there; its ends are
        // multiples of the claim's page.
        let mapped = self.call(|backing| unsafe { backing.map(address, bytes, page) });
        if self.allocated(mapped).is_none() {
            return false;
        }
        self.count_mapped(pool, bytes);
        self.note(RegionAction::Mapped, region, address, bytes);
        if page > claim.page {
            self.large_pages.insert(address..address + bytes, page);
        }
        claim.fill_start(0, bytes);
        true
    }

    /// Fills holes with pages that lie wholly in free chunks: first with those that no block of a period plan
    /// needs.
    fn fill_by_remap(&mut self, claim: &mut PageClaim) {
        let mut left = usize::MAX;
        while self.period.is_planned() && claim.missing() < left {
            left = claim.missing();
            let sources = self.sources(claim.page).into_iter();
            let sources = sources.filter_map(|source| self.unplanned(source)).collect();
            self.fill_from(claim, sources);
        }
        let sources = self.sources(claim.page);
        self.fill_from(claim, sources);
    }

    /// Fills holes with pages of these sources, the smallest first.
    fn fill_from(&mut self, claim: &mut PageClaim, mut sources: Vec<(Index, Hole)>) {
        sources.sort_unstable_by_key(|&(_, pages)| pages.bytes);
        let mut missing = claim.missing();
        let mut carved = Vec::new();
        for (index, pages) in sources {
            let bytes = pages.bytes.min(missing);
            if bytes == 0 {
                break;
            }
            let end = self.large_pages.end_of(pages.address + bytes);
            if let Some(source) = self.carve(index, pages.address, end) {
                missing -= bytes;
                carved.push(source);
            }
        }
        let streams: BTreeSet<u32> = carved.iter().map(|&source| self.chunks[source].stream).collect();
        let running: BTreeSet<u32> = streams.into_iter().filter(|&stream| !self.finish(stream)).collect();
        for source in carved {
            if running.contains(&self.chunks[source].stream) {
                self.insert_free(source);
            } else {
                self.move_pages(claim, source);
            }
        }
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Takes chunks out of their indexes for a claim of `needed` bytes that begins with `first`: it and the
    /// following ones are free or without pages.
    pub(crate) fn claim_from(&mut self, first: Index, needed: usize, page: usize) -> Option<PageClaim> {
        let mut claim = PageClaim { chunk: first, page, holes: Vec::new() };
        let mut bytes = 0;
        let mut next = first;
        while bytes < needed {
            let index = next;
            let Chunk { address, size, state, .. } = *self.chunks.get(index)?;
            let mut size = size;
            if state == ChunkState::Unmapped {
                self.take_unmapped(index);
                let wanted = (needed - bytes).checked_next_multiple_of(page)?;
                if wanted < size
                    && let Some(rest) = self.cut_back(index, wanted, ChunkState::Unmapped)
                {
                    self.put_unmapped(rest);
                    size = wanted;
                }
                claim.holes.push(Hole { address, bytes: size });
            } else {
                self.take(index);
            }
            bytes += size;
            next = self.chunks[index].next;
            self.chunks[index].state = ChunkState::Claimed;
            if index != first {
                self.chunks.unlink(index);
                self.chunks.remove(index);
                self.chunks[first].size += size;
            }
        }
        Some(claim)
    }

    /// Returns the chunks, free or without pages, from which on a request has enough contiguous addresses, in
    /// order of address, and the bytes without pages among them.
    pub(crate) fn ranges(&self, request: &PoolRequest) -> impl Iterator<Item = (usize, Index)> + '_ {
        let request = *request;
        let of = self.pools[request.pool as usize].stream(request.stream);
        of.into_iter().flat_map(|of| of.unmapped.iter()).filter_map(move |place| {
            let previous = self.chunks[place.chunk].previous;
            let free_before = self.chunks.get(previous).is_some_and(|chunk| usable(chunk, &request));
            let from = if free_before { previous } else { place.chunk };
            Some((self.missing_from(from, &request, request.size)?, from))
        })
    }

    /// Returns how many of the next `bytes` bytes from a chunk on have no pages. `None` if these are not all
    /// free for the request or without pages.
    pub(crate) fn missing_from(&self, first: Index, request: &PoolRequest, bytes: usize) -> Option<usize> {
        let (mut passed, mut missing) = (0, 0);
        for (_, chunk) in self.chunks.walk(first) {
            if chunk.state == ChunkState::Unmapped {
                missing += chunk.size.min(bytes - passed);
            } else if !usable(chunk, request) {
                return None;
            }
            passed += chunk.size;
            if passed >= bytes {
                return Some(missing);
            }
        }
        None
    }

    /// Returns the first pages of a source that no block of the period plan needs.
    fn unplanned(&self, (index, pages): (Index, Hole)) -> Option<(Index, Hole)> {
        let part = self.period.outside(pages.address..pages.address + pages.bytes);
        // A plan counts pages from address zero, a region from its start.
        let part = self.whole_pages(self.chunks[index].region, part)?;
        Some((index, Hole { address: part.start, bytes: part.len() }))
    }

    /// Returns the pages that lie wholly in a part of a region, if there are any.
    pub(crate) fn whole_pages(&self, region: Index, part: Range<usize>) -> Option<Range<usize>> {
        self.large_pages.whole(self.regions.get(region)?.whole_pages(part)?)
    }

    /// Returns the free chunks with whole pages in them, and these pages.
    pub(crate) fn sources(&self, page: usize) -> Vec<(Index, Hole)> {
        let common = self.pools.iter().filter(|pool| pool.private.is_none());
        let free = common.flat_map(|pool| pool.at_least(&self.chunks, page));
        free.filter_map(|index| {
            let chunk = &self.chunks[index];
            self.regions.get(chunk.region).filter(|region| region.page == Some(page))?;
            let pages = self.whole_pages(chunk.region, chunk.address..chunk.address + chunk.size)?;
            Some((index, Hole { address: pages.start, bytes: pages.len() }))
        })
        .collect()
    }

    /// Abandons a claim: parts with pages become free chunks, the others chunks without pages.
    pub(crate) fn abandon(&mut self, claim: &PageClaim) {
        for hole in claim.holes.iter().rev() {
            let Chunk { address, size, .. } = self.chunks[claim.chunk];
            let end = hole.address + hole.bytes;
            if end < address + size
                && let Some(behind) = self.cut_back(claim.chunk, end - address, ChunkState::Live)
            {
                self.insert_free(behind);
            }
            if hole.address == address {
                self.unmapped_again(claim.chunk);
                return;
            }
            if let Some(empty) = self.cut_back(claim.chunk, hole.address - address, ChunkState::Live) {
                self.unmapped_again(empty);
            }
        }
        self.insert_free(claim.chunk);
    }

    fn unmapped_again(&mut self, index: Index) {
        self.chunks[index].state = ChunkState::Unmapped;
        self.merge_around(index, ChunkState::Unmapped);
        self.put_unmapped(index);
    }
}

/// Returns `true` if a chunk is free in the pool and stream of a request.
fn usable(chunk: &Chunk, request: &PoolRequest) -> bool {
    chunk.state == ChunkState::Free && chunk.stream == request.stream && chunk.pool == request.pool
}
