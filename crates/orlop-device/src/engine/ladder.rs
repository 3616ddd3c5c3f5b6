//! The way of a request, in order of the functions: [`Engine::allocate`] chooses the pool;
//! [`Engine::allocate_best_fit`] takes the last-freed block if it fits; [`Engine::find_chunk`] is the ladder,
//! with all other steps; and [`Engine::hand_out`] makes the chunk a block.
//!
//! Most requests end with the last-freed block or on the first rung. A policy leaves rungs out (PyTorch's has
//! neither 2, nor 3, nor 9); none changes their order. Requests of a stream with a period plan first try
//! their planned address ([`Engine::allocate_planned`]).

use super::{COMMON, DeviceBlock, DeviceRequest, Engine, Index, LARGE, LONG_LIVED, NONE, PoolRequest, SMALL};
use crate::DeviceError;
use crate::backing::DeviceBacking;

impl<B: DeviceBacking> Engine<B> {
    /// Allocates a block.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] with the figures, or [`DeviceError::Backing`] if a call of the device
    /// failed. The engine remains usable, unless the device is lost: then every request fails with that
    /// error.
    #[inline]
    pub fn allocate(&mut self, request: DeviceRequest) -> Result<DeviceBlock, DeviceError> {
        let stream = self.streams.number(request.stream);
        self.poll();
        if let Some(loss) = self.backing.loss() {
            return Err(loss.into());
        }
        let Some(size) = self.policy.round(request.bytes) else {
            return Err(self.out_of_memory(request.bytes, usize::MAX));
        };
        let pool = self.pool_for(&request, size);
        let pooled = PoolRequest { size, stream, pool };
        if pool == LARGE && stream == self.watched_stream {
            return self.allocate_planned(&pooled, request.bytes);
        }
        self.allocate_best_fit(&pooled, request.bytes)
    }

    /// Returns the pool for a request of `size` bytes, rounded.
    #[inline(always)]
    fn pool_for(&self, request: &DeviceRequest, size: usize) -> u16 {
        let is_small = size <= self.policy.small_limit;
        if let Some((small, large)) = self.private.route(request.stream) {
            return if is_small { small } else { large };
        }
        let pool = if is_small { SMALL } else { LARGE };
        let is_apart = request.long_lived && self.policy.extensions.by_lifetime;
        if is_apart { pool + LONG_LIVED } else { pool }
    }

    /// Allocates the last-freed block if that is what the request needs, else a block of the chunk that the
    /// ladder finds.
    ///
    /// The request is passed by reference: the copy of a structure that was just written field by field is
    /// one wide load, which has to wait for all of these stores.
    #[inline]
    pub(crate) fn allocate_best_fit(
        &mut self,
        request: &PoolRequest,
        requested: usize,
    ) -> Result<DeviceBlock, DeviceError> {
        let PoolRequest { size, stream, pool } = *request;
        if self.last_freed != NONE {
            let last_freed = std::mem::replace(&mut self.last_freed, NONE);
            let chunk = &self.chunks[last_freed];
            if chunk.size == size && chunk.stream == stream && chunk.pool == pool {
                return Ok(self.reuse(last_freed, requested));
            }
            self.insert_free(last_freed);
        }
        match self.find_chunk(request) {
            Some(chunk) => {
                let block = self.hand_out(chunk, size, requested);
                // It may have been another stream's. What remained of it still is.
                self.chunks[block.0].stream = stream;
                Ok(block)
            }
            None => Err(self.refusal(requested, size)),
        }
    }

    /// Finds a chunk for a request and takes it out of its index: the whole ladder.
    #[inline]
    fn find_chunk(&mut self, request: &PoolRequest) -> Option<Index> {
        // 1. The best fit among the free chunks of the request's stream. Most requests end there: what
        //    follows is not in the code of their path.
        self.search(request).or_else(|| self.find_elsewhere(request))
    }

    /// The other steps of the ladder. If a call of the device fails, so does the request where it would have
    /// got new memory, and wherever the device is lost.
    #[cold]
    #[inline(never)]
    fn find_elsewhere(&mut self, request: &PoolRequest) -> Option<Index> {
        self.failures.begin();
        let found = self.climb(request);
        if let Some(chunk) = found
            && self.is_lost()
        {
            // Nothing is reused once the device is lost.
            self.put(chunk);
            return None;
        }
        found
    }

    fn climb(&mut self, request: &PoolRequest) -> Option<Index> {
        // 2. Free neighbours of different streams merge. Where pages cannot move, a chunk that is cut too
        //    small stays so: hence before another stream's chunk is cut.
        if self.whole_regions.is_kept()
            && self.is_beyond_peak(request, request.size)
            && self.merge_streams_for(request)
            && let Some(chunk) = self.search(request)
        {
            return Some(chunk);
        }
        // 3. The best fit among the free chunks of other streams, and among the blocks that they may still
        //    use. The request's stream waits for them, on the device.
        if self.policy.extensions.steal
            && let Some(chunk) = self.steal(request)
        {
            return Some(chunk);
        }
        // The others become free when their events are complete.
        self.record_unrecorded();
        // 4. Callbacks, which may free memory.
        if self.run_callbacks()
            && let Some(chunk) = self.search(request)
        {
            return Some(chunk);
        }
        // 5. Garbage collection: with a limit and a threshold, old regions are released.
        self.collect_garbage();
        // 6. Growth: a new region, or new pages. Beyond the peak the policy may merge, release or move first.
        if let Some(chunk) = self.grow(request) {
            return Some(chunk);
        }
        // 7. Large regions that are never split are released, and growth is tried again.
        if !self.failures.is_final()
            && self.release_oversize(request)
            && let Some(chunk) = self.grow(request)
        {
            return Some(chunk);
        }
        if self.failures.is_final() {
            // The device did not refuse memory, but failed: more room does not help.
            return None;
        }
        // 8. Free memory of private pools that lend theirs.
        if let Some(chunk) = self.search_lending_pools(request) {
            return Some(chunk);
        }
        // What follows waits for streams and releases memory: neither is legal during a capture.
        if self.private.is_capturing() {
            return None;
        }
        // 9. All streams are waited for; a block that was pending may fit.
        if self.policy.extensions.search_after_wait
            && let Some(chunk) = self.search_after_wait(request)
        {
            return Some(chunk);
        }
        // 10. All streams are waited for, all free memory is released, and growth is tried a last time.
        self.release_cached(0);
        self.stats.num_alloc_retries += 1;
        self.grow(request)
    }

    /// Runs all pressure callbacks. Returns `true` if one of them freed memory.
    fn run_callbacks(&mut self) -> bool {
        // All of them: what one frees may not be enough.
        let mut freed = false;
        for callback in &mut self.callbacks {
            freed |= callback();
        }
        freed
    }

    /// Waits for all streams and searches everywhere. PyTorch does not search again: it releases all free
    /// memory at once, and fails if that does not help.
    fn search_after_wait(&mut self, request: &PoolRequest) -> Option<Index> {
        self.wait_for_all();
        if let Some(chunk) = self.search(request).or_else(|| self.steal(request)) {
            return Some(chunk);
        }
        self.merge_streams(request.stream);
        let other = Self::other_lifetime(request);
        self.search(request)
            .or_else(|| self.search(&other))
            .or_else(|| self.steal(&other))
            .or_else(|| self.grow(request))
    }

    /// Returns the same request in the pool of the other lifetime.
    fn other_lifetime(request: &PoolRequest) -> PoolRequest {
        let pool = if request.pool < COMMON { (request.pool + LONG_LIVED) % COMMON } else { request.pool };
        PoolRequest { pool, ..*request }
    }

    /// Returns the error of a request that found no chunk: the first failed call, or out of memory.
    #[cold]
    fn refusal(&mut self, requested: usize, size: usize) -> DeviceError {
        match self.failures.first() {
            Some(failure) => failure.into(),
            None => self.out_of_memory(requested, size),
        }
    }

    /// Counts a request that finds no memory, and returns the error with the figures.
    #[cold]
    fn out_of_memory(&mut self, requested: usize, size: usize) -> DeviceError {
        self.stats.num_ooms += 1;
        let reserved = self.stats.reserved_bytes.all.current;
        let active = self.stats.active_bytes.all.current;
        DeviceError::OutOfMemory {
            requested: requested as u64,
            rounded: size as u64,
            live: self.stats.allocated_bytes.all.current,
            pending: active - self.stats.allocated_bytes.all.current,
            reserved,
            cached: reserved - active - self.stats.leaked_bytes,
            largest_free: self.largest_free(),
            limit: self.limit.unwrap_or(u64::MAX).min(self.backing.memory()),
        }
    }
}
