//! Planned places: the blocks of a period are placed so that no page has to move.
//!
//! Best fit decides by what is free now, and may leave holes into which no later block fits: then pages move,
//! in every period again. Once a period is known (see [`StreamPeriod`](super::StreamPeriod)), the addresses
//! of all its blocks are planned at once, among those without longer-lived blocks. Each block is then
//! allocated at its planned address if that is free, and by best fit if not. A plan is used only if its pages
//! fit into the bytes that may be reserved. When a plan begins, pages move once more to where it needs them,
//! and then no more.

use crate::backing::DeviceBacking;
use crate::engine::{CacheMiss, DeviceBlock, Engine, LARGE, NONE, PoolRequest, SlowPath};
use crate::engine::{Chunk, ChunkState, Index};
use crate::engine::{Region, at};
use crate::error::DeviceError;
use crate::pages::PagePurpose;
use orlop_plan::Problem;
use orlop_plan::period::{Period, PeriodPlan};
use orlop_plan::placement::placements;
use std::ops::Range;

/// The maximum of planned blocks. Planning takes time in its square, during the request that finds the
/// period.
const MAX_PLANNED: usize = 1 << 13;

impl<B: DeviceBacking> Engine<B> {
    /// Returns `true` if a free chunk belongs into the index by address: of the watched stream, while there
    /// is a plan.
    #[inline]
    pub(crate) fn tracks_address(&self, chunk: &Chunk) -> bool {
        chunk.stream == self.watched_stream && chunk.pool == LARGE && self.period.is_planned()
    }

    /// Adds a free chunk to the index by address if it belongs there.
    #[inline]
    pub(crate) fn remember_address(&mut self, index: Index) {
        if self.tracks_address(&self.chunks[index]) {
            self.free_by_address.insert(self.chunks[index].address, index);
        }
    }

    /// Removes a free chunk from the index by address if it belongs there.
    #[inline]
    pub(crate) fn forget_address(&mut self, index: Index) {
        if self.tracks_address(&self.chunks[index]) {
            self.free_by_address.remove(&self.chunks[index].address);
        }
    }

    /// Allocates a block for a request of the watched stream, which has a number in the log, at its planned
    /// address, or by best fit.
    #[inline(never)]
    pub(crate) fn allocate_planned_cached(
        &mut self,
        request: PoolRequest,
        requested: usize,
        number: u32,
        address: usize,
    ) -> Result<DeviceBlock, CacheMiss> {
        self.index_last_freed();
        let miss = |address| {
            Err(CacheMiss::Request { request, requested, logged: Some((number, address)), foreign: NONE })
        };
        let block = match self.available_at(&request, address) {
            // Pages are missing there.
            Some((_, missing)) if missing > 0 => return miss(Some(address)),
            Some((chunk, _)) => {
                let chunk = self.take_free_at(&request, chunk, address);
                chunk.map(|chunk| self.hand_out(chunk, request.size, requested))
            }
            None => None,
        };
        let Some(block) = block.or_else(|| self.best_fit(&request, requested)) else { return miss(None) };
        self.note_logged(block, number);
        Ok(block)
    }

    /// Notes the number of a block in the log, and plans the period if pages were moved.
    #[inline(always)]
    pub(crate) fn note_logged(&mut self, block: DeviceBlock, number: u32) {
        self.chunks[block.0].after = number;
        if self.period.has_moved {
            self.plan_if_moved();
        }
    }

    /// Takes chunks with pages at an address for a request, from the chunk that covers it.
    fn take_free_at(&mut self, request: &PoolRequest, chunk: Index, address: usize) -> Option<Index> {
        let needed = address - self.chunks[chunk].address + request.size;
        let page = self.page(request.pool);
        let claim = self.claim_from(chunk, needed, page)?;
        self.cut_at(claim.chunk, address)
    }

    /// Cuts off the part of a chunk, which is in no index, below an address. It becomes free.
    fn cut_at(&mut self, chunk: Index, address: usize) -> Option<Index> {
        let before = address - self.chunks[chunk].address;
        if before > 0 {
            let Some(front) = self.cut_front(chunk, before) else {
                self.insert_free(chunk);
                return None;
            };
            self.inherit_border(chunk, front);
            self.put(front);
        }
        Some(chunk)
    }

    /// Plans the period if pages were moved.
    #[cold]
    fn plan_if_moved(&mut self) {
        if std::mem::take(&mut self.period.has_moved) {
            self.plan_period();
        }
    }

    /// Finds the chunk that covers an address, if it and the following ones are free or without pages as far
    /// as a request needs. Returns it and how many bytes have no pages.
    fn available_at(&self, request: &PoolRequest, address: usize) -> Option<(Index, usize)> {
        let covers = |&index: &Index| {
            let chunk = &self.chunks[index];
            chunk.address <= address && address - chunk.address < chunk.size
        };
        let free = self.free_by_address.range(..=address).next_back().map(|(_, &index)| index);
        let unmapped = &self.pools[request.pool as usize].stream(request.stream)?.unmapped;
        let unmapped = || unmapped.last_below(at(address + 1, 0)).map(|place| place.chunk);
        let first = free.filter(covers).or_else(|| unmapped().filter(covers))?;
        let bytes = (address - self.chunks[first].address).checked_add(request.size)?;
        self.missing_from(first, request, bytes).map(|missing| (first, missing))
    }

    /// Notes that pages moved for a chunk. The stream of the first large one is watched.
    pub(crate) fn note_move(&mut self, chunk: Index) {
        let Chunk { pool, stream, .. } = self.chunks[chunk];
        if !self.policy.extensions.plan_periods {
            return;
        }
        if pool == LARGE && stream != self.watched_stream && !self.period.is_planned() {
            self.watched_stream = stream;
            self.period = self.period.cleared();
        }
        self.period.has_moved = true;
        self.period.needs_all |= pool == LARGE && stream == self.watched_stream;
    }

    /// Searches for a period, and plans it.
    #[cold]
    fn plan_period(&mut self) {
        let Some(period) = self.period.find() else { return };
        let allowed = self.allowed();
        let Some((plan, footprint)) = self.plan(&period, allowed) else {
            return self.period.postpone(&period);
        };
        self.period.follow(plan, footprint, allowed);
        self.index_last_freed();
        let free = self.pools[LARGE as usize].stream_mut(self.watched_stream).free.all(&self.chunks);
        self.free_by_address = free.into_iter().map(|index| (self.chunks[index].address, index)).collect();
    }

    /// Plans addresses for the blocks of a period. Returns them and the pages that they need; `None` if these
    /// are more than may be reserved.
    fn plan(&self, period: &Period, allowed: u64) -> Option<(PeriodPlan, Vec<Range<usize>>)> {
        let requests = period.requests();
        let problem = Problem::new(requests.iter().filter_map(|request| request.buffer)).ok()?;
        if problem.len() > MAX_PLANNED {
            return None;
        }
        let (holes, stay) = self.holes(period);
        let holes: Vec<_> = holes.into_iter().map(|hole| hole.start as u64..hole.end as u64).collect();
        let allowed = usize::try_from(allowed.saturating_sub(self.reserved_by_others())).ok()?;
        let page = self.page(LARGE);
        let fitting = |addresses: Vec<u64>| {
            let block = |(address, size): (u64, u64)| {
                Some(usize::try_from(address).ok()?..usize::try_from(address.checked_add(size)?).ok()?)
            };
            let sizes = problem.buffers().iter().map(|buffer| buffer.size);
            let blocks: Option<Vec<Range<usize>>> = addresses.into_iter().zip(sizes).map(block).collect();
            let blocks = blocks?;
            let all = pages(blocks.iter().chain(&stay).cloned(), page);
            let fits = all.iter().map(Range::len).sum::<usize>() <= allowed;
            fits.then(|| (pages(blocks.iter().cloned(), page), blocks))
        };
        let (footprint, blocks) = placements(&problem, &holes).find_map(fitting)?;
        let mut blocks = blocks.into_iter();
        let addresses = requests
            .iter()
            .map(|request| request.buffer.and_then(|_| blocks.next()).map(|block| block.start));
        Some((PeriodPlan::new(period, addresses), footprint))
    }

    /// Returns the bytes that may be reserved for a plan that is made now: as many as there were, and a page
    /// of rounding, which is not fragmentation.
    fn allowed(&self) -> u64 {
        let reserved = self.max_reserved(self.high_water).max(self.stats.reserved_bytes.all.peak);
        reserved.saturating_add(self.page(LARGE) as u64)
    }

    /// Returns the reserved bytes outside the regions of the watched stream.
    fn reserved_by_others(&self) -> u64 {
        let mapped = |region: &Region| {
            let chunks =
                self.chunks.walk(region.first).filter(|(_, chunk)| chunk.state != ChunkState::Unmapped);
            chunks.map(|(_, chunk)| chunk.size as u64).sum::<u64>()
        };
        let now: u64 = self.watched_regions().map(mapped).sum();
        self.stats.reserved_bytes.all.current.saturating_sub(now)
    }

    fn watched_regions(&self) -> impl Iterator<Item = &Region> + '_ {
        let regions = self.regions.iter().map(|(_, region)| region);
        regions.filter(|region| {
            region.page.is_some() && region.pool == LARGE && region.stream == self.watched_stream
        })
    }

    /// Returns the addresses between blocks that stay, in order, and these blocks.
    fn holes(&self, period: &Period) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let (mut holes, mut stay) = (Vec::new(), Vec::new());
        let mut regions: Vec<_> = self.watched_regions().collect();
        regions.sort_unstable_by_key(|region| region.address);
        for region in regions {
            let mut hole = region.address..region.address;
            for (_, chunk) in self.chunks.walk(region.first) {
                let end = chunk.address + chunk.size;
                if Self::stays(chunk, period) {
                    stay.push(chunk.address..end);
                    holes.push(std::mem::replace(&mut hole, end..end));
                } else {
                    hole.end = end;
                }
            }
            holes.push(hole);
        }
        holes.retain(|hole| !hole.is_empty());
        (holes, stay)
    }

    /// Returns `true` if a chunk is a block without a place in the period.
    fn stays(chunk: &Chunk, period: &Period) -> bool {
        // A block of another stream, or from before the log, has a number outside the period.
        let planned = period.request(chunk.after).is_some_and(|request| request.buffer.is_some());
        chunk.state == ChunkState::Live && !planned
    }
}

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Allocates a block for a request of the watched stream: at its planned address, or by best fit.
    pub(crate) fn allocate_planned(
        &mut self,
        request: &PoolRequest,
        requested: usize,
        number: u32,
        address: Option<usize>,
    ) -> Result<DeviceBlock, DeviceError> {
        let planned = address.and_then(|address| self.take_at(request, address));
        let mut block = planned.map(|chunk| self.hand_out(chunk, request.size, requested));
        if address.is_some() && block.is_none() && !self.is_lost() {
            // Best fit was not tried yet.
            block = self.best_fit(request, requested);
        }
        let block = match (block, self.loss()) {
            (Some(block), _) => Ok(block),
            (None, Some(loss)) => Err(loss),
            (None, None) => self.allocate_elsewhere(request, requested),
        };
        match block {
            Ok(block) => self.chunks[block.0].after = number,
            Err(_) => self.period.log_free(number),
        }
        self.plan_if_moved();
        block
    }

    /// Takes a chunk at an address for a request. `None` if the addresses are not free, or have no pages and
    /// there are none that the plan does not need.
    fn take_at(&mut self, request: &PoolRequest, address: usize) -> Option<Index> {
        let (mut chunk, _) = self.available_at(request, address)?;
        let page = self.page(request.pool);
        let Chunk { address: begin, state, .. } = self.chunks[chunk];
        // Whole pages are filled: the part of the first one that is below the block becomes free.
        let before = (address - begin) / page * page;
        if state == ChunkState::Unmapped && before > 0 {
            self.take_unmapped(chunk);
            let behind = self.cut_back(chunk, before, ChunkState::Unmapped);
            self.put_unmapped(chunk);
            chunk = behind?;
            self.put_unmapped(chunk);
        }
        let needed = address - self.chunks[chunk].address + request.size;
        let mut claim = self.claim_from(chunk, needed, page)?;
        if !claim.holes.is_empty() {
            self.fill(request, &mut claim, PagePurpose::Plan)?;
            // Rounded up to pages it can have free neighbours now.
            self.merge_around(chunk, ChunkState::Free);
        }
        self.cut_at(chunk, address)
    }
}

/// Returns all pages with a part of any of these blocks, in order of address and joined.
fn pages(blocks: impl Iterator<Item = Range<usize>>, page: usize) -> Vec<Range<usize>> {
    let mut pages: Vec<Range<usize>> =
        blocks.map(|block| block.start / page * page..block.end.div_ceil(page) * page).collect();
    pages.sort_unstable_by_key(|pages| pages.start);
    pages.dedup_by(|next, pages| {
        let touches = next.start <= pages.end;
        if touches {
            pages.end = pages.end.max(next.end);
        }
        touches
    });
    pages
}
