//! Period plans: the blocks of a period are placed so that no page has to move.
//!
//! Best fit decides by what is free now, and a block that fits well may leave holes that nothing fits into
//! later: then pages are moved, in every period again. Once a period is known (see [`rounds`](super::rounds))
//! the addresses of all its blocks are planned at once, where no longer-lived block is, and each block is
//! served from its address if that is free. A plan is accepted only if it needs no more pages than may be
//! held. While the program moves over to it pages move once more; from then on they are where they are
//! needed. After a divergence blocks go where they fit best.

use crate::backing::DeviceBacking;
use crate::engine::{Ask, DeviceBlock, Engine, LARGE, Search};
use crate::engine::{Chunk, Index, State};
use crate::engine::{Region, at};
use crate::error::DeviceError;
use crate::pages::{PagePurpose, usable};
use orlop_plan::Problem;
use orlop_plan::period::{Period, PeriodPlan};
use orlop_plan::placement::placements;
use std::ops::Range;

/// Placing takes time in the square of this, and the request that finds the period waits for it.
const MAX_PLANNED: usize = 1 << 13;

impl<B: DeviceBacking> Engine<B> {
    /// Whether a free chunk is also kept by address.
    #[inline]
    pub(crate) fn is_kept_by_address(&self, chunk: &Chunk) -> bool {
        chunk.stream == self.watched && chunk.pool == LARGE && self.period.is_planned()
    }

    /// A chunk is in the index of its pool.
    #[inline]
    pub(crate) fn remember_place(&mut self, index: Index) {
        if self.is_kept_by_address(&self.chunks[index]) {
            self.free_places.insert(self.chunks[index].address, index);
        }
    }

    /// A chunk is no longer in the index of its pool.
    #[inline]
    pub(crate) fn forget_place(&mut self, index: Index) {
        if self.is_kept_by_address(&self.chunks[index]) {
            self.free_places.remove(&self.chunks[index].address);
        }
    }

    /// Allocates a block for a request of the watched stream, which may be one of a period.
    pub(crate) fn allocate_watched(&mut self, search: Search, ask: Ask) -> Result<DeviceBlock, DeviceError> {
        let (request, address) = self.period.request(search.size);
        if address.is_some() {
            self.cool();
        }
        let planned = address.and_then(|address| self.take_at(search, address));
        let block = match planned {
            Some(chunk) => Ok(self.hand_out(chunk, search.size, ask.bytes)),
            None => self.allocate_anywhere(search, ask),
        };
        match block {
            Ok(block) => self.chunks[block.0].after = request,
            Err(_) => self.period.free(request),
        }
        if std::mem::take(&mut self.period.has_moved) {
            self.plan_period();
        }
        block
    }

    /// Takes a chunk that begins at an address and is large enough out of the indexes: if all that is there
    /// is free, or without pages and there are unused pages for it.
    fn take_at(&mut self, search: Search, address: usize) -> Option<Index> {
        let mut chunk = self.available_at(search, address)?;
        let page = self.page(search.pool);
        let Chunk { address: begin, state, .. } = self.chunks[chunk];
        // Whole pages: what is before the block in the first one becomes free.
        let before = (address - begin) / page * page;
        if state == State::Unmapped && before > 0 {
            self.take_unmapped(chunk);
            let behind = self.cut_back(chunk, before, State::Unmapped);
            self.put_unmapped(chunk);
            chunk = behind?;
            self.put_unmapped(chunk);
        }
        let needed = address - self.chunks[chunk].address + search.size;
        let mut claim = self.claim_from(chunk, needed, page)?;
        if !claim.holes.is_empty() {
            self.fill(search, &mut claim, PagePurpose::Plan)?;
            // Rounded up to pages it may have come to free chunks.
            self.merge_around(chunk, State::Free);
        }
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

    /// The chunk that covers an address, if it and those behind it are free or without pages as far as a
    /// request needs.
    fn available_at(&self, search: Search, address: usize) -> Option<Index> {
        let covers = |&index: &Index| {
            let chunk = &self.chunks[index];
            chunk.address <= address && address - chunk.address < chunk.size
        };
        let free = self.free_places.range(..=address).next_back().map(|(_, &index)| index);
        let unmapped = &self.pools[search.pool as usize].get(search.stream)?.unmapped;
        let unmapped = || unmapped.last_below(at(address + 1, 0)).map(|place| place.chunk);
        let first = free.filter(covers).or_else(|| unmapped().filter(covers))?;
        let end = address.checked_add(search.size)?;
        for (_, chunk) in self.chunks.walk(first) {
            if chunk.state != State::Unmapped && !usable(chunk, search) {
                return None;
            }
            if chunk.address + chunk.size >= end {
                return Some(first);
            }
        }
        None
    }

    /// Pages were moved for a chunk. The stream of the first large one is the one to watch.
    pub(crate) fn note_move(&mut self, chunk: Index) {
        let Chunk { pool, stream, .. } = self.chunks[chunk];
        if !self.policy.beyond.plan_periods {
            return;
        }
        if pool == LARGE && stream != self.watched && !self.period.is_planned() {
            self.watched = stream;
            self.period = self.period.restart();
        }
        self.period.has_moved = true;
    }

    /// Searches for a period if it is time to, and plans it.
    #[cold]
    fn plan_period(&mut self) {
        let Some(period) = self.period.find() else { return };
        let allowed = self.allowed();
        let Some((plan, footprint)) = self.plan(&period, allowed) else { return self.period.reject(&period) };
        self.period.follow(plan, footprint, allowed);
        self.cool();
        let free = self.pools[LARGE as usize].of(self.watched).free.all(&self.chunks);
        self.free_places = free.into_iter().map(|index| (self.chunks[index].address, index)).collect();
    }

    /// Returns a plan for a period and the pages that it needs; `None` if that is more than may be held.
    fn plan(&self, period: &Period, allowed: u64) -> Option<(PeriodPlan, Vec<Range<usize>>)> {
        let requests = period.requests();
        let problem = Problem::new(requests.iter().filter_map(|request| request.buffer)).ok()?;
        if problem.len() > MAX_PLANNED {
            return None;
        }
        let (holes, stay) = self.holes(period);
        let holes: Vec<_> = holes.into_iter().map(|hole| hole.start as u64..hole.end as u64).collect();
        let allowed = usize::try_from(allowed.saturating_sub(self.held_by_others())).ok()?;
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

    /// Returns the bytes that may be held for a plan that is made now: as many as were held before, because
    /// there was no other way, and a page of rounding, which is not fragmentation.
    fn allowed(&self) -> u64 {
        let held = self.held_to(self.high_water).max(self.stats.reserved_bytes.all.peak);
        held.saturating_add(self.page(LARGE) as u64)
    }

    /// Returns the bytes that are held outside the watched stream's regions.
    fn held_by_others(&self) -> u64 {
        let mapped = |region: &Region| {
            let chunks = self.chunks.walk(region.first).filter(|(_, chunk)| chunk.state != State::Unmapped);
            chunks.map(|(_, chunk)| chunk.size as u64).sum::<u64>()
        };
        let now: u64 = self.watched_regions().map(mapped).sum();
        self.stats.reserved_bytes.all.current.saturating_sub(now)
    }

    fn watched_regions(&self) -> impl Iterator<Item = &Region> + '_ {
        let regions = self.regions.iter().map(|(_, region)| region);
        regions
            .filter(|region| region.page.is_some() && region.pool == LARGE && region.stream == self.watched)
    }

    /// Returns the addresses without blocks that stay, in order; and those blocks.
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

    /// Whether a chunk is a block that the period has no place for.
    fn stays(chunk: &Chunk, period: &Period) -> bool {
        // A block of another stream, or of before the log, has a number that is none of the period's.
        let planned = period.request(chunk.after).is_some_and(|request| request.buffer.is_some());
        chunk.state == State::Live && !planned
    }
}

/// All pages that have a part of any of these, in order of address; none touches the next.
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
