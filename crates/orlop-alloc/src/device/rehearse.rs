//! Blocks of a round that repeats are placed so that no page has to move.
//!
//! Best fit decides by what is there, and what fits well now may leave holes that nothing fits into later: then pages are
//! moved, in every round again. Once a round is known (see [`rounds`](super::rounds)) the places of all its blocks are
//! planned at once, in the addresses that no longer-lived block has, and each is served from its place if that is free. A
//! plan is taken only if the pages that it needs are no more than may be held. While the program moves over to it pages
//! move once more; from then on they lie where they are needed. What is not as planned goes where it fits best.

use super::backing::DeviceBacking;
use super::chunks::{Chunk, Index, State};
use super::engine::{Ask, DeviceBlock, Engine, LARGE, Search};
use super::error::DeviceError;
use super::pool::{Region, at};
use super::rounds::{Round, Step};
use super::stitch::{Purpose, usable};
use crate::bfc::place::{Life, places};
use std::ops::Range;

/// Placing takes time in the square of this, and the request that finds the round waits for it.
const MOST_PLANNED: usize = 1 << 13;

impl<B: DeviceBacking> Engine<B> {
    /// Whether a free chunk is also kept by address.
    #[inline]
    pub(super) fn rehearses(&self, chunk: &Chunk) -> bool {
        chunk.stream == self.watched && chunk.pool == LARGE && self.rounds.is_planned()
    }

    /// A chunk is in the index of its pool.
    #[inline]
    pub(super) fn remember_place(&mut self, index: Index) {
        if self.rehearses(&self.chunks[index]) {
            self.free_places.insert(self.chunks[index].address, index);
        }
    }

    /// A chunk is no longer in the index of its pool.
    #[inline]
    pub(super) fn forget_place(&mut self, index: Index) {
        if self.rehearses(&self.chunks[index]) {
            self.free_places.remove(&self.chunks[index].address);
        }
    }

    /// A block for a request that may be one of a round.
    pub(super) fn allocate_watched(&mut self, search: Search, ask: Ask) -> Result<DeviceBlock, DeviceError> {
        let (request, address) = self.rounds.asked(search.size);
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
            Err(_) => self.rounds.returned(request),
        }
        if std::mem::take(&mut self.rounds.has_moved) && self.rounds.moved() {
            self.rehearse();
        }
        block
    }

    /// A chunk that begins at an address and is large enough, in no index: if all that is there is free, or without pages
    /// and there are pages for it that nobody needs.
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
            self.fill(search, &mut claim, Purpose::Plan)?;
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

    /// The chunk that covers an address, if it and those behind it are free or without pages as far as a request needs.
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
    pub(super) fn note_move(&mut self, chunk: Index) {
        let Chunk { pool, stream, .. } = self.chunks[chunk];
        if !self.policy.beyond.rehearse {
            return;
        }
        if pool == LARGE && stream != self.watched && !self.rounds.is_planned() {
            self.watched = stream;
            self.rounds = self.rounds.anew();
        }
        self.rounds.has_moved = true;
    }

    /// Looks for a round, and plans it.
    #[cold]
    fn rehearse(&mut self) {
        let Some(round) = self.rounds.find() else { return };
        let allowed = self.allowed();
        let Some((plan, footprint)) = self.plan(&round, allowed) else { return self.rounds.give_up(&round) };
        self.rounds.plan(&round, plan, footprint);
        self.rounds.allowed = allowed;
        self.cool();
        let free = self.pools[LARGE as usize].of(self.watched).free.all(&self.chunks);
        self.free_places = free.into_iter().map(|index| (self.chunks[index].address, index)).collect();
    }

    /// Places for the blocks of a round, and the pages that they need; `None` if that is more than may be held.
    fn plan(&self, round: &Round, allowed: u64) -> Option<(Vec<Step>, Vec<Range<usize>>)> {
        let lives: Vec<Life> = round.lives.iter().filter_map(|&(_, life)| life).collect();
        if lives.len() > MOST_PLANNED {
            return None;
        }
        let (holes, stay) = self.holes(round);
        let allowed = usize::try_from(allowed.saturating_sub(self.held_by_others())).ok()?;
        let page = self.page(LARGE);
        let footprint = |addresses: &Vec<usize>| {
            let blocks = addresses.iter().zip(&lives).map(|(&address, life)| address..address + life.size);
            let blocks: Vec<Range<usize>> = blocks.collect();
            let all = pages(blocks.iter().chain(&stay).cloned(), page);
            let fits = all.iter().map(Range::len).sum::<usize>() <= allowed;
            fits.then(|| pages(blocks.into_iter(), page))
        };
        let fitting = |addresses: Vec<usize>| Some((footprint(&addresses)?, addresses));
        let (footprint, addresses) = places(&lives, &holes).find_map(fitting)?;
        let mut addresses = addresses.into_iter();
        let steps = round.lives.iter().map(|&(size, life)| {
            let address = life.and_then(|_| addresses.next());
            Step { size, address }
        });
        Some((steps.collect(), footprint))
    }

    /// How many bytes may be held for a plan that is made now: as many as were held before, because there was no other way,
    /// and a page of rounding, which is not fragmentation.
    fn allowed(&self) -> u64 {
        let held = self.held_to(self.high_water).max(self.stats.reserved_bytes.all.peak);
        held.saturating_add(self.page(LARGE) as u64)
    }

    /// How many bytes are held that are not in the watched stream's regions.
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

    /// Addresses without blocks that stay, in order; and those blocks.
    fn holes(&self, round: &Round) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let (mut holes, mut stay) = (Vec::new(), Vec::new());
        let mut regions: Vec<_> = self.watched_regions().collect();
        regions.sort_unstable_by_key(|region| region.address);
        for region in regions {
            let mut hole = region.address..region.address;
            for (_, chunk) in self.chunks.walk(region.first) {
                let end = chunk.address + chunk.size;
                if self.stays(chunk, round) {
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

    /// Whether a chunk is a block that the round does not have a place for.
    fn stays(&self, chunk: &Chunk, round: &Round) -> bool {
        // A block of another stream, or of before the log, has a number that is none of the round's.
        let place = chunk.after.wrapping_sub(round.first) as usize;
        chunk.state == State::Live && round.lives.get(place).is_none_or(|(_, life)| life.is_none())
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
