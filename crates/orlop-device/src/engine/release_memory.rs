//! Release of one region, of the pages of one chunk, or of one range of addresses.

use super::Engine;
use super::chunks::{Chunk, ChunkState, Index};
use super::pools::is_small;
use super::slow_path::SlowPath;
use crate::backing::{BackingError, DeviceBacking};
use orlop_alloc::RegionAction;
use orlop_alloc::engine_support::trace_guarded;
use std::ops::Range;

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Releases the region of a free chunk. Returns `false`, and the region stays, if the chunk is not free
    /// or is not all of its region (the rest may have blocks), or if its stream could not be waited for, or
    /// the release failed.
    pub(crate) fn release_region(&mut self, index: Index) -> bool {
        let chunk = self.chunks[index];
        let Chunk { address, size, pool, region, stream, .. } = chunk;
        let is_all = self
            .regions
            .get(region)
            .is_some_and(|whole| (whole.address, whole.bytes, whole.page) == (address, size, None));
        if chunk.state != ChunkState::Free || !chunk.is_whole() || !is_all {
            return self.keep_corrupt(address);
        }
        self.take(index);
        self.chunks[index].state = ChunkState::Claimed;
        if !self.finish(stream) {
            self.put(index);
            return false;
        }
        // SAFETY: the chunk is all of its region, as it came from `allocate`: it has the region's address and
        // size, and no neighbours. It was free, so that no stream uses it but its own, which is done; and it
        // is in no index, so that nothing else can use it.
        let released = self.call(|backing| unsafe { backing.release(address, size) });
        if let Err(error) = self.noted(released) {
            if error.had_no_effect() {
                self.put(index);
            } else {
                self.leak(index);
            }
            return false;
        }
        let small = is_small(pool);
        self.count_release(pool);
        self.note(RegionAction::Released, region, address, size);
        self.chunks.remove(index);
        self.regions.remove(region);
        self.stats.segment.sub(small, 1);
        self.stats.reserved_bytes.sub(small, size as u64);
        if size >= self.policy.max_split {
            self.stats.oversize_segments.sub(1);
        }
        true
    }

    /// Unmaps pages that lie wholly in a free chunk: the last ones, as many as `bytes` bytes need, or all.
    /// Returns the chunk without pages, if there were any.
    pub(crate) fn unmap_free(&mut self, index: Index, bytes: usize) -> Option<Index> {
        let Chunk { address, size, region, pool, stream, .. } = self.chunks[index];
        let page = self.regions.get(region)?.page?;
        let Range { start, end } = self.whole_pages(region, address..address + size)?;
        let bytes = bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX);
        let begin = self.large_pages.start_of(start.max(end.saturating_sub(bytes)));
        let carved = self.carve(index, begin, end)?;
        if !self.finish(stream) {
            self.insert_free(carved);
            return None;
        }
        // SAFETY: the pages lay in a free chunk; the stream that it was kept for is done; and they are now in
        // a chunk that is in no index.
        let unmapped = self.call(|backing| unsafe { backing.unmap(begin, end - begin, page) });
        match self.noted(unmapped) {
            Ok(()) => {
                let small = is_small(pool);
                self.stats.reserved_bytes.sub(small, (end - begin) as u64);
                self.count_release(pool);
                self.note(RegionAction::Unmapped, region, begin, end - begin);
                self.large_pages.remove(begin..end);
                self.make_unmapped(carved);
                Some(carved)
            }
            Err(error) => {
                if error.had_no_effect() {
                    self.insert_free(carved);
                } else {
                    self.leak(carved);
                }
                None
            }
        }
    }

    /// Waits until all work of a stream is complete: then its free chunks are unused. Returns `false` if the
    /// call failed, and during a capture, which a wait would end: what needs the wait is not done then.
    #[must_use]
    pub(crate) fn finish(&mut self, stream: u32) -> bool {
        if self.is_captured(stream) {
            return false;
        }
        let stream = self.streams.id(stream);
        let finished = self.call(|backing| backing.finish(stream));
        self.noted(finished).is_ok()
    }

    /// Releases a range of addresses. Returns `false`, and it stays, if there are pages in it.
    pub(crate) fn release_range(&mut self, index: Index) -> bool {
        let chunk = self.chunks[index];
        let Chunk { address, size, region, .. } = chunk;
        let range = self.regions.get(region).filter(|range| range.page.is_some());
        let is_all = range.is_some_and(|range| (range.address, range.bytes) == (address, size));
        if chunk.state != ChunkState::Unmapped || !chunk.is_whole() || !is_all {
            return self.keep_corrupt(address);
        }
        // SAFETY: the chunk is all of the range, as it was reserved, and has no pages. Only a slow path
        // uses chunks without pages.
        let released = self.call(|backing| unsafe { backing.release_addresses(address, size) });
        let released = self.noted(released);
        if released.is_err_and(BackingError::had_no_effect) {
            return false;
        }
        // Where it failed, addresses are lost, and no memory.
        self.take_unmapped(index);
        self.chunks.remove(index);
        self.regions.remove(region);
        true
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Counts that memory of a pool was released.
    fn count_release(&mut self, pool: u16) {
        self.stats.num_device_free += 1;
        let private = self.pools[pool as usize].private;
        self.private.count_release(private);
    }

    /// Keeps a chunk that is in no index, and whose release failed, out of use for ever.
    pub(crate) fn leak(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        chunk.state = ChunkState::Leaked;
        self.stats.leaked_bytes = self.stats.leaked_bytes.saturating_add(chunk.size as u64);
    }

    /// Counts and traces that memory was to be released that is not wholly free. It stays.
    #[cold]
    fn keep_corrupt(&mut self, address: usize) -> bool {
        self.stats.num_corrupt_releases += 1;
        trace_guarded(|| {
            tracing::error!(address, "a region that is not wholly free was not released");
        });
        false
    }

    /// Cuts the middle out of a free chunk. It is in no index: the caller unmaps or moves its pages.
    pub(crate) fn carve(&mut self, index: Index, begin: usize, end: usize) -> Option<Index> {
        self.take(index);
        let Chunk { address, size, .. } = self.chunks[index];
        let before = begin - address;
        let after = address + size - end;
        if before > 0 {
            let Some(front) = self.cut_front(index, before) else {
                self.put(index);
                return None;
            };
            self.inherit_border(index, front);
            self.put(front);
        }
        if after > 0 {
            let Some(back) = self.cut_back(index, end - begin, ChunkState::Free) else {
                self.put(index);
                return None;
            };
            self.inherit_border(index, back);
            self.put(back);
        }
        self.chunks[index].state = ChunkState::Claimed;
        Some(index)
    }

    /// Makes a chunk that is in no index, and whose pages are gone, a chunk without pages. It merges with
    /// such neighbours.
    pub(crate) fn make_unmapped(&mut self, index: Index) {
        let region = self.chunks[index].region;
        let made_for = self.regions.get(region).map(|region| (region.stream, region.pool));
        let chunk = &mut self.chunks[index];
        chunk.state = ChunkState::Unmapped;
        if let Some((stream, pool)) = made_for {
            // Addresses without pages belong to the stream that their range was made for.
            (chunk.stream, chunk.pool) = (stream, pool);
        }
        self.merge_around(index, ChunkState::Unmapped);
        self.put_unmapped(index);
    }
}
