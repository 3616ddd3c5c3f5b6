//! Search, split and merge: chunks are taken out of their index and put back.

use super::chunks::{Chunk, ChunkState, Index, NONE};
use super::free_index::FreeChunks;
use super::pools::is_small;
use super::{DeviceBlock, Engine, PoolRequest};
use crate::backing::DeviceBacking;
use crate::policy::Growth;
use orlop_alloc::engine_support::{FreeChunk, Position};

impl<B: DeviceBacking> Engine<B> {
    /// Takes the free chunk for a request out of the index of its pool and stream.
    #[inline]
    pub(crate) fn search(&mut self, request: &PoolRequest) -> Option<Index> {
        if self.collects_garbage() {
            self.pools[request.pool as usize].searches += 1;
        }
        if self.waste.is_set() {
            return self.search_within_bound(request);
        }
        let (found, position) = self.find(request)?;
        let of = self.pools[request.pool as usize].stream_mut(request.stream);
        of.free.remove_found(&mut self.chunks, found, position);
        self.forget_address(found);
        if self.whole_regions.is_kept() && self.chunks[found].is_whole() {
            self.remove_whole_region(found);
        }
        Some(found)
    }

    #[inline]
    fn find(&self, request: &PoolRequest) -> Option<(Index, Option<Position>)> {
        let of = self.pools[request.pool as usize].stream(request.stream)?;
        let (found, position) = match (&of.free, self.policy.growth) {
            (FreeChunks::Ordered { runs, .. }, Growth::Pages { .. })
                if self.policy.extensions.hold_to_peak.is_none() =>
            {
                // A chunk that can grow in place counts by the size that it can grow to: the first minimum of
                // those.
                let mut next =
                    runs.from(FreeChunk { size: request.size, address: 0, chunk: 0 }).map(|free| free.chunk);
                let mut best = next.next()?;
                for other in next {
                    if self.growable(other) >= self.growable(best) {
                        break;
                    }
                    best = other;
                }
                (best, None)
            }
            (free, _) => free.find(&self.chunks, request.size)?,
        };
        self.policy.serves(self.chunks[found].size, request.size).then_some((found, position))
    }

    /// Returns the size that a chunk can grow to in place.
    fn growable(&self, chunk: Index) -> usize {
        let Chunk { size, next, .. } = self.chunks[chunk];
        match self.chunks.get(next) {
            Some(behind) if behind.state == ChunkState::Unmapped => size + behind.size,
            _ => size,
        }
    }

    /// Takes a free chunk out of its index.
    #[inline]
    pub(crate) fn take(&mut self, index: Index) {
        let chunk = &self.chunks[index];
        let (pool, stream, is_whole) = (chunk.pool, chunk.stream, chunk.is_whole());
        let pool = &mut self.pools[pool as usize];
        let removed = pool.stream_mut(stream).free.remove(&mut self.chunks, index);
        debug_assert!(removed || pool.has_forgotten, "a free chunk that is not in its index");
        self.forget_address(index);
        if is_whole && self.whole_regions.is_kept() {
            self.remove_whole_region(index);
        }
    }

    /// Puts a free chunk into the index of its pool and stream.
    #[inline]
    pub(crate) fn put(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        let pool = &mut self.pools[chunk.pool as usize];
        (chunk.state, chunk.note) = (ChunkState::Free, pool.searches);
        let (stream, is_whole) = (chunk.stream, chunk.is_whole());
        pool.stream_mut(stream).free.insert(&mut self.chunks, index);
        self.remember_address(index);
        if is_whole && self.whole_regions.is_kept() {
            self.add_whole_region(index);
        }
    }

    /// Makes a chunk that is in no index a block of `size` bytes. The rest is split off if the policy allows
    /// it.
    #[inline]
    pub(crate) fn hand_out(&mut self, found: Index, size: usize, requested: usize) -> DeviceBlock {
        let chunk = self.chunks[found];
        let small = is_small(chunk.pool);
        let paged = self.is_paged(&chunk);
        let was_split = !chunk.is_whole();
        debug_assert!(chunk.size >= size, "a chunk that is too small for its request");
        let remaining = chunk.size - size;
        let mut index = found;
        if remaining > self.policy.kept_rest(small, size)
            && (was_split || !self.keeps_rest(small, size, remaining))
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

    /// Splits the first `size` bytes off a chunk. Returns the new chunk, which has them.
    pub(crate) fn cut_front(&mut self, index: Index, size: usize) -> Option<Index> {
        let chunk = self.chunks[index];
        let front = self.chunks.insert(chunk.sibling(chunk.address, size, ChunkState::Live))?;
        self.chunks.link_before(index, front);
        if chunk.previous == NONE {
            self.regions.set_first(chunk.region, front);
        }
        let rest = &mut self.chunks[index];
        rest.address += size;
        rest.size -= size;
        Some(front)
    }

    /// Splits a chunk after its first `size` bytes. Returns the new chunk, which has the rest.
    pub(crate) fn cut_back(&mut self, index: Index, size: usize, state: ChunkState) -> Option<Index> {
        let chunk = self.chunks[index];
        let back = self.chunks.insert(chunk.sibling(chunk.address + size, chunk.size - size, state))?;
        self.chunks.link_after(index, back);
        self.chunks[index].size = size;
        Some(back)
    }

    /// Makes a chunk that is in no index a block as it is.
    #[inline]
    pub(crate) fn reuse(&mut self, index: Index, requested: usize) -> DeviceBlock {
        self.count_live(index, requested);
        DeviceBlock(index)
    }

    /// Counts a new block.
    #[inline(always)]
    fn count_live(&mut self, index: Index, requested: usize) {
        let chunk = &mut self.chunks[index];
        (chunk.state, chunk.requested, chunk.note, chunk.after) = (ChunkState::Live, requested, 0, NONE);
        let size = chunk.size;
        let small = is_small(chunk.pool);
        let stats = &mut self.stats;
        stats.allocation.add(small, 1);
        stats.allocated_bytes.add(small, size as u64);
        stats.active.add(small, 1);
        stats.active_bytes.add(small, size as u64);
        let active = stats.active_bytes.all.current;
        if active.cast_signed() > self.high_water.cast_signed() {
            self.high_water = active;
        }
        stats.requested_bytes.add(small, requested as u64);
        if size >= self.policy.max_split {
            stats.oversize_allocations.add(1);
        }
    }

    /// Counts a block as no longer active. Its chunk still has its size.
    #[inline(always)]
    pub(crate) fn count_inactive(&mut self, index: Index) {
        let Chunk { size, requested, pool, .. } = self.chunks[index];
        self.stats.count_inactive(is_small(pool), size, requested);
    }

    /// Frees the chunk of a block that no stream uses any more.
    #[inline]
    pub(crate) fn make_free(&mut self, index: Index) {
        self.count_inactive(index);
        self.insert_free(index);
    }

    /// Merges a chunk that is in no index with its free neighbours, and puts it into the index of its pool.
    pub(crate) fn insert_free(&mut self, index: Index) {
        let chunk = self.chunks[index];
        let small = is_small(chunk.pool);
        let (mut merged, mut merged_bytes) = (0_u64, 0_u64);
        for neighbour in [chunk.previous, chunk.next] {
            let bytes = self.merge(index, neighbour, ChunkState::Free);
            if bytes > 0 {
                merged += 1;
                merged_bytes += bytes as u64;
            }
        }
        self.put(index);
        if self.is_paged(&chunk) {
            return;
        }
        // One split more, unless it is a whole region, and fewer by those that it merged with.
        let now = &self.chunks[index];
        let (splits, bytes) = if now.is_whole() { (0, 0) } else { (1, now.size as u64) };
        self.stats.inactive_split.replace(small, merged, splits);
        self.stats.inactive_split_bytes.replace(small, merged_bytes, bytes);
    }

    /// Merges a neighbour into a chunk if it is in this state and of the same pool and stream. Returns its
    /// bytes.
    pub(crate) fn merge(&mut self, index: Index, neighbour: Index, state: ChunkState) -> usize {
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
            ChunkState::Unmapped => self.take_unmapped(neighbour),
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
                self.regions.set_first(chunk.region, index);
            }
        }
        self.chunks[index].size += other.size;
        other.size
    }

    /// Returns `true` if a chunk is in a reservation that pages are mapped into.
    #[inline]
    pub(crate) fn is_paged(&self, chunk: &Chunk) -> bool {
        self.regions.get(chunk.region).is_some_and(|region| region.page.is_some())
    }
}
