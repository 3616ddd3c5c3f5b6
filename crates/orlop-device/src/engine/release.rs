//! Release: free memory is returned to the device, by age, for a larger request, or all of it.

use super::chunks::{ChunkState, Index};
use super::private_pools::PoolId;
use super::slow_path::SlowPath;
use super::{Engine, LARGE, PoolRequest};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use orlop_core::StreamId;

/// A segment to release is in one of this many free chunks: they are in order of size, and the chunk is
/// little larger.
const CANDIDATES: usize = 1 << 8;

impl<B: DeviceBacking> Engine<B> {
    /// Waits for all streams and releases all free regions and pages (PyTorch: `empty_cache`). The peak that
    /// limits reserved bytes is that from now on.
    ///
    /// During a capture, in which neither is legal, it does nothing.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Backing`] if a call of the device failed. What does not depend on it is released.
    pub fn empty_cache(&mut self) -> Result<(), DeviceError> {
        SlowPath::new(self).empty_cache()
    }

    /// Waits for the streams that used blocks of a private pool without users, and releases all its free
    /// memory (PyTorch: `empty_cache` of a pool). Does nothing for a pool with users, for one that does not
    /// exist, and during a capture.
    ///
    /// # Errors
    ///
    /// As for [`empty_cache`](Self::empty_cache).
    pub fn empty_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        SlowPath::new(self).empty_pool(id)
    }

    /// Releases free memory until at most `target` bytes are reserved, as far as live blocks allow. Returns
    /// the released bytes.
    ///
    /// If more is reserved it waits for all streams, and lowers the peak that limits reserved bytes. During a
    /// capture, which a wait would end, it does nothing.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Backing`] if a call of the device failed. What does not depend on it is released.
    pub fn trim(&mut self, target: u64) -> Result<u64, DeviceError> {
        SlowPath::new(self).trim(target)
    }

    /// Releases the free region of a stream at an address, or the pages of the free chunk around this range:
    /// to follow a recorded allocator that did so, by PyTorch's rules. Returns `false` if there is none, and
    /// during a capture; complete events are polled.
    pub fn release_segment(&mut self, stream: StreamId, address: usize, bytes: usize) -> bool {
        SlowPath::new(self).release_segment(stream, address, bytes)
    }

    /// Returns the first failure of a release as an error.
    fn first_failure(&self) -> Result<(), DeviceError> {
        self.failures.first().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Lowers the peak that limits reserved bytes, to `target` bytes or the active bytes.
    fn lower_high_water(&mut self, target: u64) {
        self.high_water = self.high_water.min(target.max(self.stats.active_bytes.all.known()));
        self.waste.lower(target.max(self.stats.requested_bytes.all.known()));
    }

    /// Returns `true` if there is garbage collection: only with a limit.
    #[inline]
    pub(crate) fn collects_garbage(&self) -> bool {
        self.policy.collect_from > 0.0 && self.limit.is_some()
    }

    /// Returns `true` if a chunk is still free and in this pool. After a call of the device its index may be
    /// another chunk's.
    fn is_free_in(&self, pool: usize, index: Index) -> bool {
        let chunk = &self.chunks[index];
        chunk.state == ChunkState::Free && usize::from(chunk.pool) == pool
    }

    /// Returns `true` if a chunk is free in this pool, and all of a region, which came in one allocation.
    fn is_region(&self, pool: usize, index: Index) -> bool {
        let chunk = &self.chunks[index];
        self.is_free_in(pool, index) && chunk.is_whole() && !self.is_paged(chunk)
    }

    fn is_paged_around(&self, index: Index, address: usize, bytes: usize) -> bool {
        let chunk = &self.chunks[index];
        let Some(before) = address.checked_sub(chunk.address) else { return false };
        let fits = before.checked_add(bytes).is_some_and(|end| 0 < bytes && end <= chunk.size);
        fits && self.is_paged(chunk)
    }

    /// Returns the reserved bytes beyond `target`.
    fn excess(&self, target: u64) -> u64 {
        self.stats.reserved_bytes.all.current.saturating_sub(target)
    }
}

impl<B: DeviceBacking> SlowPath<'_, B> {
    pub(crate) fn empty_cache(&mut self) -> Result<(), DeviceError> {
        if self.is_capturing() {
            return Ok(());
        }
        self.failures.begin();
        self.index_last_freed();
        self.release_cached(0);
        self.lower_high_water(0);
        self.first_failure()
    }

    pub(crate) fn empty_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let Some(pools) = self.private.unused(id).filter(|_| !self.is_capturing()) else {
            return Ok(());
        };
        self.failures.begin();
        self.index_last_freed();
        self.wait_for_pools(pools);
        for pool in pools {
            self.release_pool_memory(pool.into(), 0);
        }
        self.drop_empty_private(Some(id));
        self.first_failure()
    }

    pub(crate) fn trim(&mut self, target: u64) -> Result<u64, DeviceError> {
        self.failures.begin();
        let before = self.stats.reserved_bytes.all.current;
        if before > target && !self.is_capturing() {
            self.index_last_freed();
            self.release_cached(target);
            self.lower_high_water(target);
        }
        self.first_failure()?;
        Ok(before.saturating_sub(self.stats.reserved_bytes.all.current))
    }

    /// Releases regions of the large pool that are older than the average, until reserved bytes are below the
    /// policy's share of the limit.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "shares and means of sizes and ages, rounded as PyTorch rounds them"
    )]
    pub(crate) fn collect_garbage(&mut self) {
        let Some(limit) = self.limit.filter(|_| self.policy.collect_from > 0.0) else { return };
        let threshold = (self.policy.collect_from * limit as f64) as u64;
        let reserved = self.stats.reserved_bytes.all.current;
        if reserved <= threshold {
            return;
        }
        let target = reserved - threshold;
        let pool = &self.pools[LARGE as usize];
        let searches = pool.searches;
        let mut old: Vec<(Index, u64)> = pool
            .free(&self.chunks)
            .into_iter()
            .filter(|&index| self.chunks[index].is_whole())
            .map(|index| (index, searches - self.chunks[index].note))
            .collect();
        let mut total: u64 = old.iter().map(|&(_, age)| age).sum();
        let mut reclaimed = 0;
        while reclaimed < target && !old.is_empty() {
            let mean = total as f64 / old.len() as f64;
            let is_young =
                |&(index, age): &(Index, u64)| (age as f64) < mean || self.is_paged(&self.chunks[index]);
            let (young, aged): (Vec<_>, Vec<_>) = old.into_iter().partition(is_young);
            if aged.is_empty() {
                break;
            }
            for (index, age) in aged {
                total -= age;
                // It may have been handed out while another was released.
                if self.is_region(LARGE.into(), index) {
                    reclaimed += self.chunks[index].size as u64;
                    self.release_region(index);
                }
            }
            old = young;
        }
    }

    /// Releases regions that are never split: one that is large enough, or several from the largest down.
    /// Returns `true` if that makes room for the request.
    pub(crate) fn release_oversize(&mut self, request: &PoolRequest) -> bool {
        let max = self.policy.max_split;
        if max == usize::MAX {
            return false;
        }
        let needed = request.size.max(max);
        let Some(of) = self.pools[request.pool as usize].stream(request.stream) else { return false };
        let oversize: Vec<Index> = of.free.at_least(max).collect();
        let smaller = oversize.partition_point(|&index| self.chunks[index].size < needed);
        let pool = usize::from(request.pool);
        if let Some(&index) = oversize.get(smaller)
            && self.is_region(pool, index)
        {
            return self.release_region(index);
        }
        let mut released = 0;
        for &index in oversize[..smaller].iter().rev() {
            if released >= needed {
                break;
            }
            let size = self.chunks[index].size;
            // Pages stay, and so do chunks that are not all of their region.
            if self.is_region(pool, index) && self.release_region(index) {
                released += size;
            }
        }
        released >= needed
    }

    fn release_segment(&mut self, stream: StreamId, address: usize, bytes: usize) -> bool {
        if self.is_capturing() {
            return false;
        }
        let stream = self.streams.number(stream);
        self.poll(stream);
        let free = self.pools.iter().filter_map(|pool| pool.stream(stream)).map(|of| &of.free);
        let mut found = free.filter_map(|free| {
            free.at(&self.chunks, bytes, address).or_else(|| {
                let mut larger = free.at_least(bytes).take(CANDIDATES);
                larger.find(|&index| self.is_paged_around(index, address, bytes))
            })
        });
        let Some(index) = found.next() else { return false };
        let chunk = self.chunks[index];
        if !self.is_paged(&chunk) {
            return chunk.is_whole() && self.release_region(index);
        }
        self.release_pages(index, usize::MAX)
    }

    /// Waits for all streams and releases free regions and pages until at most `target` bytes are reserved.
    pub(crate) fn release_cached(&mut self, target: u64) {
        self.wait_for_all();
        if self.policy.mixes_streams() {
            // Regions and pages that lie in free chunks of several streams are whole only together.
            let stream = self.streams.existing_number();
            self.merge_streams(stream);
        }
        let common = (0..self.pools.len()).filter(|&pool| self.pools[pool].private.is_none());
        let pools: Vec<usize> = common.chain(self.private.freeable()).collect();
        for pool in pools {
            self.release_pool_memory(pool, target);
        }
        self.drop_empty_private(None);
    }

    fn release_pool_memory(&mut self, pool: usize, target: u64) {
        let engine: &Engine<B> = self;
        let free = engine.pools[pool].free(&engine.chunks);
        let mut paged = Vec::new();
        // Chunks may be handed out while others are released.
        for index in free {
            if self.is_paged(&self.chunks[index]) {
                paged.push(index);
            } else if self.is_region(pool, index) && self.excess(target) > 0 {
                self.release_region(index);
            }
        }
        for index in paged {
            let excess = usize::try_from(self.excess(target)).unwrap_or(usize::MAX);
            if excess > 0 && self.is_free_in(pool, index) {
                self.release_pages(index, excess);
            }
        }
        // A request that failed can leave a reservation, and all pages of one can have moved away. PyTorch
        // keeps these.
        if self.policy.extensions.hold_to_peak.is_some() {
            for index in self.pools[pool].unmapped() {
                if self.chunks[index].is_whole() {
                    self.release_range(index);
                }
            }
        }
    }

    /// Releases pages of a free chunk, as `unmap_free` does, and their reservation if it
    /// has no others. Returns `false` if there were none.
    fn release_pages(&mut self, index: Index, bytes: usize) -> bool {
        let unmapped = self.unmap_free(index, bytes);
        if let Some(whole) = unmapped.filter(|&index| self.chunks[index].is_whole()) {
            self.release_range(whole);
        }
        unmapped.is_some()
    }
}
