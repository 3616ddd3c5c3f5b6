//! Taking chunks out of the indexes and putting them back: search, split, merge.

use super::backing::DeviceBacking;
use super::chunks::{Chunk, Index, NONE, State};
use super::engine::{DeviceBlock, Engine, Search};
use super::index::FreeChunks;
use super::policy::Growth;
use crate::bfc::{Free, Position};

impl<B: DeviceBacking> Engine<B> {
    /// The free chunk that a request gets, out of its index.
    #[inline]
    pub(super) fn search(&mut self, search: Search) -> Option<Index> {
        if self.collects() {
            self.pools[search.pool as usize].searches += 1;
        }
        let (found, position) = self.find(search)?;
        let of = self.pools[search.pool as usize].of(search.stream);
        of.free.remove_found(&mut self.chunks, found, position);
        self.forget_place(found);
        if self.keeps_whole {
            self.forget_whole(found);
        }
        Some(found)
    }

    #[inline]
    fn find(&self, search: Search) -> Option<(Index, Option<Position>)> {
        let of = self.pools[search.pool as usize].get(search.stream)?;
        let (found, position) = match (&of.free, self.policy.growth) {
            (FreeChunks::Ordered(runs), Growth::Pages { .. })
                if self.policy.beyond.hold_to_peak.is_none() =>
            {
                // What can grow in place counts as what it can grow to: the smallest of those, as far as they descend.
                let mut next =
                    runs.from(Free { size: search.size, address: 0, chunk: 0 }).map(|free| free.chunk);
                let mut best = next.next()?;
                for other in next {
                    if self.growable(other) >= self.growable(best) {
                        break;
                    }
                    best = other;
                }
                (best, None)
            }
            (free, _) => free.find(&self.chunks, search.size)?,
        };
        self.policy.serves(self.chunks[found].size, search.size).then_some((found, position))
    }

    fn growable(&self, chunk: Index) -> usize {
        let Chunk { size, next, .. } = self.chunks[chunk];
        match self.chunks.get(next) {
            Some(behind) if behind.state == State::Unmapped => size + behind.size,
            _ => size,
        }
    }

    /// Takes a free chunk out of its index.
    #[inline]
    pub(super) fn take(&mut self, index: Index) {
        let Chunk { pool, stream, .. } = self.chunks[index];
        self.pools[pool as usize].of(stream).free.remove(&mut self.chunks, index);
        self.forget_place(index);
        if self.keeps_whole {
            self.forget_whole(index);
        }
    }

    /// Puts a chunk into the index of its pool.
    #[inline]
    pub(super) fn put(&mut self, index: Index) {
        let Chunk { pool, stream, .. } = self.chunks[index];
        let pool = &mut self.pools[pool as usize];
        let chunk = &mut self.chunks[index];
        (chunk.state, chunk.note) = (State::Free, pool.searches);
        pool.of(stream).free.insert(&mut self.chunks, index);
        self.remember_place(index);
        if self.keeps_whole {
            self.remember_whole(index);
        }
    }

    /// Makes a chunk that is in no index a block of so many bytes; what remains of it may stay free.
    #[inline]
    pub(super) fn hand_out(&mut self, found: Index, size: usize, requested: usize) -> DeviceBlock {
        let chunk = self.chunks[found];
        let small = self.pools[chunk.pool as usize].small;
        let paged = self.is_paged(&chunk);
        let was_split = !chunk.is_whole();
        debug_assert!(chunk.size >= size, "a chunk that is too small for its request");
        let remaining = chunk.size - size;
        let mut index = found;
        if remaining > self.policy.kept_rest(small, size)
            && let Some(front) = self.cut_front(found, size)
        {
            index = front;
            self.put(found);
            if !paged {
                if was_split {
                    self.stats.inactive_split_bytes.sub(small, size as u64);
                } else {
                    self.stats.inactive_split_bytes.add(small, remaining as u64);
                    self.stats.inactive_split.add(small, 1);
                }
            }
        } else if was_split && !paged {
            self.stats.inactive_split_bytes.sub(small, chunk.size as u64);
            self.stats.inactive_split.sub(small, 1);
        }
        self.count_live(index, requested);
        DeviceBlock(index)
    }

    /// Cuts the first bytes off a chunk: the new chunk has them.
    pub(super) fn cut_front(&mut self, index: Index, size: usize) -> Option<Index> {
        let chunk = self.chunks[index];
        let front = self.chunks.insert(chunk.sibling(chunk.address, size, State::Live))?;
        self.chunks.link_before(index, front);
        if chunk.previous == NONE {
            self.regions.begins(chunk.region, front);
        }
        let rest = &mut self.chunks[index];
        rest.address += size;
        rest.size -= size;
        Some(front)
    }

    /// Cuts a chunk after its first bytes: the new chunk has what follows.
    pub(super) fn cut_back(&mut self, index: Index, size: usize, state: State) -> Option<Index> {
        let chunk = self.chunks[index];
        let back = self.chunks.insert(chunk.sibling(chunk.address + size, chunk.size - size, state))?;
        self.chunks.link_after(index, back);
        self.chunks[index].size = size;
        Some(back)
    }

    /// The chunk that was freed last is a block again.
    #[inline]
    pub(super) fn reuse(&mut self, index: Index, requested: usize) -> DeviceBlock {
        self.count_live(index, requested);
        DeviceBlock(index)
    }

    #[inline]
    fn count_live(&mut self, index: Index, requested: usize) {
        let chunk = &mut self.chunks[index];
        (chunk.state, chunk.requested, chunk.note, chunk.after) = (State::Live, requested, 0, NONE);
        let size = chunk.size;
        let small = self.pools[chunk.pool as usize].small;
        let stats = &mut self.stats;
        stats.allocation.add(small, 1);
        stats.allocated_bytes.add(small, size as u64);
        stats.active.add(small, 1);
        stats.active_bytes.add(small, size as u64);
        self.high_water = self.high_water.max(stats.active_bytes.all.current);
        stats.requested_bytes.add(small, requested as u64);
        if size >= self.policy.max_split {
            stats.oversize_allocations.add(1);
        }
    }

    /// A block is no longer active; the chunk still has its size.
    #[inline]
    pub(super) fn count_inactive(&mut self, index: Index) {
        let Chunk { size, requested, pool, .. } = self.chunks[index];
        let small = self.pools[pool as usize].small;
        self.stats.active.sub(small, 1);
        self.stats.active_bytes.sub(small, size as u64);
        self.stats.requested_bytes.sub(small, requested as u64);
    }

    /// A block that no stream uses any more becomes free.
    #[inline]
    pub(super) fn settle(&mut self, index: Index) {
        self.count_inactive(index);
        self.insert_free(index);
    }

    /// Merges a chunk that is in no index with its free neighbours, and puts it into the index.
    pub(super) fn insert_free(&mut self, index: Index) {
        let chunk = self.chunks[index];
        let small = self.pools[chunk.pool as usize].small;
        let (mut merged, mut merged_bytes) = (0_u64, 0_u64);
        for neighbour in [chunk.previous, chunk.next] {
            let bytes = self.merge(index, neighbour, State::Free);
            if bytes > 0 {
                merged += 1;
                merged_bytes += bytes as u64;
            }
        }
        self.put(index);
        if self.is_paged(&chunk) {
            return;
        }
        // One piece more if it is not a whole region, and fewer by those that it took in; what changes is counted once.
        let now = &self.chunks[index];
        let (pieces, bytes) = if now.is_whole() { (0, 0) } else { (1, now.size as u64) };
        let count = &mut self.stats.inactive_split;
        match pieces.cmp(&merged) {
            std::cmp::Ordering::Greater => count.add(small, pieces - merged),
            std::cmp::Ordering::Less => count.sub(small, merged - pieces),
            std::cmp::Ordering::Equal => {}
        }
        let count = &mut self.stats.inactive_split_bytes;
        if bytes > merged_bytes {
            count.add(small, bytes - merged_bytes);
        } else if merged_bytes > bytes {
            count.sub(small, merged_bytes - bytes);
        }
    }

    /// Takes a neighbour into a chunk if it is in this state and for the same stream. How many bytes that is.
    pub(super) fn merge(&mut self, index: Index, neighbour: Index, state: State) -> usize {
        let Some(other) = self.chunks.get(neighbour).copied() else { return 0 };
        let chunk = self.chunks[index];
        if other.state != state || other.pool != chunk.pool {
            return 0;
        }
        if other.stream != chunk.stream {
            self.borders.add(&mut self.chunks, index);
            return 0;
        }
        match state {
            State::Unmapped => self.take_unmapped(neighbour),
            _ => self.take(neighbour),
        }
        if other.border {
            self.borders.add(&mut self.chunks, index);
        }
        self.chunks.unlink(neighbour);
        self.chunks.remove(neighbour);
        if chunk.previous == neighbour {
            self.chunks[index].address = other.address;
            if other.previous == NONE {
                self.regions.begins(chunk.region, index);
            }
        }
        self.chunks[index].size += other.size;
        other.size
    }

    /// Whether a chunk is in a range of addresses that pages are mapped into.
    #[inline]
    pub(super) fn is_paged(&self, chunk: &Chunk) -> bool {
        self.regions.get(chunk.region).is_some_and(|region| region.page.is_some())
    }
}
