//! The way of a request, in order of the functions: [`Engine::allocate_cached`] chooses the pool;
//! [`Engine::best_fit`] takes the last-freed block if it fits, or the first step of the ladder;
//! [`SlowPath::find_elsewhere`] has all other steps; and [`Engine::hand_out`] makes the chunk a block.
//!
//! Most requests end with the last-freed block or on the first rung. A policy leaves rungs out (PyTorch's has
//! neither 2, nor 3, nor 9); none changes their order. Requests of a stream with a period plan first try
//! their planned address ([`Engine::allocate_planned_cached`]).

use super::slow_path::SlowPath;
use super::{COMMON, DeviceBlock, DeviceRequest, Engine, Index, LARGE, LONG_LIVED, NONE, PoolRequest, SMALL};
use crate::DeviceError;
use crate::backing::DeviceBacking;

/// A request in the log of the watched stream: its number, and its planned address, which was not tried yet.
pub(crate) type LoggedRequest = (u32, Option<usize>);

/// A request that no cached memory serves.
#[derive(Debug)]
pub(crate) enum CacheMiss {
    /// It ends with this error.
    Refused(DeviceError),
    /// It is made again after the streams that have ended were retired.
    Crowded(DeviceRequest),
    /// The slow path serves it.
    Request {
        request: PoolRequest,
        /// Its bytes, as requested.
        requested: usize,
        /// Of the watched stream.
        logged: Option<LoggedRequest>,
        /// The foreign stream that it is for, served from the memory of the default stream; or `NONE`.
        foreign: u32,
    },
}

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
        match self.allocate_cached(&request) {
            Ok(block) => Ok(block),
            Err(miss) => SlowPath::new(self).allocate(&miss),
        }
    }

    /// Allocates a block of cached memory, without a wait for the device.
    ///
    /// It is inlined, with all that most requests need: see [`allocate_again`](Self::allocate_again).
    #[inline(always)]
    pub(crate) fn allocate_cached(&mut self, request: &DeviceRequest) -> Result<DeviceBlock, CacheMiss> {
        self.allocate_logged(request, None)
    }

    /// [`allocate_cached`](Self::allocate_cached), for slow paths: the request was made before, and missed.
    /// It stays one request of the log.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_again(
        &mut self,
        request: &DeviceRequest,
        miss: &CacheMiss,
    ) -> Result<DeviceBlock, CacheMiss> {
        let logged = if let CacheMiss::Request { logged, .. } = miss { *logged } else { None };
        let again = self.allocate_logged(request, logged);
        if let (Some((number, _)), Err(CacheMiss::Refused(_) | CacheMiss::Crowded(_))) = (logged, &again) {
            self.period.log_free(number);
        }
        again
    }

    #[inline(always)]
    fn allocate_logged(
        &mut self,
        request: &DeviceRequest,
        logged: Option<LoggedRequest>,
    ) -> Result<DeviceBlock, CacheMiss> {
        let stream = self.streams.number(request.stream);
        self.poll(stream);
        if let Some(loss) = self.backing.loss() {
            return Err(CacheMiss::Refused(loss.into()));
        }
        if self.streams.is_uncommon {
            if let Some(new) = self.streams.take_new()
                && !self.backing.knows_stream(new)
            {
                self.streams.forget_new(new);
                return Err(CacheMiss::Refused(DeviceError::UnknownStream { stream: new }));
            }
            if self.streams.is_crowded && !self.is_capturing() {
                return Err(CacheMiss::Crowded(*request));
            }
            if self.streams.is_foreign(stream) {
                return self.allocate_foreign(request, stream, logged);
            }
        }
        self.allocate_on(request, stream, logged)
    }

    /// Allocates a block of the cached memory of a stream.
    #[inline(always)]
    pub(crate) fn allocate_on(
        &mut self,
        request: &DeviceRequest,
        stream: u32,
        mut logged: Option<LoggedRequest>,
    ) -> Result<DeviceBlock, CacheMiss> {
        let requested = request.bytes;
        let Some(size) = self.round(requested) else {
            return Err(CacheMiss::Refused(self.out_of_memory(requested, usize::MAX)));
        };
        let pool = self.pool_for(request, size);
        let request = PoolRequest { size, stream, pool };
        if pool == LARGE && stream == self.watched_stream {
            let (number, address) = logged.unwrap_or_else(|| self.period.log_request(size));
            if let Some(address) = address {
                return self.allocate_planned_cached(request, requested, number, address);
            }
            logged = Some((number, None));
        } else if let Some((number, _)) = logged.take() {
            // Its stream is not watched any more, or its pool is another.
            self.period.log_free(number);
        }
        let Some(block) = self.best_fit(&request, requested) else {
            return Err(CacheMiss::Request { request, requested, logged, foreign: NONE });
        };
        if let Some((number, _)) = logged {
            self.note_logged(block, number);
        }
        Ok(block)
    }

    /// [`Policy::round`](crate::Policy::round), without a division where it needs none.
    #[inline(always)]
    fn round(&self, bytes: usize) -> Option<usize> {
        let mask = self.plain_mask;
        if mask == 0 {
            return self.policy.round(bytes);
        }
        let size = bytes.max(1).checked_add(mask)? & !mask;
        (size <= isize::MAX.unsigned_abs()).then_some(size)
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

    /// Allocates the last-freed block if that is what the request needs, else a block of the best fit among
    /// the free chunks of the request's stream: the first step of the ladder.
    ///
    /// The request is passed by reference: the copy of a structure that was just written field by field is
    /// one wide load, which has to wait for all of these stores.
    #[inline(always)]
    pub(crate) fn best_fit(&mut self, request: &PoolRequest, requested: usize) -> Option<DeviceBlock> {
        let PoolRequest { size, stream, pool } = *request;
        if self.last_freed != NONE {
            let last_freed = std::mem::replace(&mut self.last_freed, NONE);
            let chunk = &self.chunks[last_freed];
            if chunk.size == size && chunk.stream == stream && chunk.pool == pool {
                return Some(self.reuse(last_freed, requested));
            }
            self.insert_free(last_freed);
        }
        // 1. Most requests end there.
        let chunk = self.search(request)?;
        Some(self.hand_out(chunk, size, requested))
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

    /// Returns the same request in the other common pools: of the other lifetime, then of the other size. A
    /// private pool has no others.
    fn in_other_pools(request: &PoolRequest) -> impl Iterator<Item = PoolRequest> + use<B> {
        let request = *request;
        let others = [LONG_LIVED, 1, LONG_LIVED + 1].into_iter().filter(move |_| request.pool < COMMON);
        // The pools of one lifetime are a pair that begins at an even number.
        others.map(move |other| PoolRequest { pool: request.pool ^ other, ..request })
    }

    /// Returns the error of a request that found no chunk: the first failed call, or out of memory.
    #[cold]
    fn refusal(&mut self, requested: usize, size: usize) -> DeviceError {
        match self.failures.first() {
            Some(failure) => failure.into(),
            None => self.out_of_memory(requested, size),
        }
    }

    /// Counts a request that finds no memory, and returns the error with the figures. One that the policy
    /// refused is not counted.
    #[cold]
    fn out_of_memory(&mut self, requested: usize, size: usize) -> DeviceError {
        self.failures.is_counted = !std::mem::take(&mut self.failures.is_refused);
        self.stats.num_ooms += u64::from(self.failures.is_counted);
        let reserved = self.stats.reserved_bytes.all.current;
        let (live, active) = (self.stats.allocated_bytes.all.known(), self.stats.active_bytes.all.known());
        DeviceError::OutOfMemory {
            requested: requested as u64,
            rounded: size as u64,
            live,
            pending: active.saturating_sub(live),
            reserved,
            cached: reserved.saturating_sub(active).saturating_sub(self.stats.leaked_bytes),
            largest_free: self.largest_free(),
            limit: self.limit.unwrap_or(u64::MAX).min(self.backing.memory()),
            addresses: self.failures.lacks_addresses.then(|| self.reserved_addresses()),
        }
    }
}

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Allocates a block for a request that no cached memory serves.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate(&mut self, miss: &CacheMiss) -> Result<DeviceBlock, DeviceError> {
        let (request, requested, logged, foreign) = match miss {
            CacheMiss::Refused(error) => return Err(*error),
            CacheMiss::Crowded(request) => {
                self.retire_ended(request.stream);
                return match self.allocate_again(request, miss) {
                    Ok(block) => Ok(block),
                    Err(miss) => self.allocate(&miss),
                };
            }
            CacheMiss::Request { request, requested, logged, foreign } => {
                (request, *requested, *logged, *foreign)
            }
        };
        let block = match logged {
            Some((number, address)) => self.allocate_planned(request, requested, number, address),
            None => self.allocate_elsewhere(request, requested),
        }?;
        if foreign == NONE { Ok(block) } else { self.lend(block, foreign) }
    }

    /// Allocates a block of the chunk that the other steps of the ladder find. If a call of the device fails,
    /// so does the request where it would have got new memory, and wherever the device is lost.
    pub(crate) fn allocate_elsewhere(
        &mut self,
        request: &PoolRequest,
        requested: usize,
    ) -> Result<DeviceBlock, DeviceError> {
        self.failures.begin();
        let found = self.find_elsewhere(request);
        match found {
            Some(chunk) if !self.is_lost() => {
                let block = self.hand_out(chunk, request.size, requested);
                self.note_requested(0);
                // It may have been another stream's. What remained of it still is.
                self.chunks[block.0].stream = request.stream;
                Ok(block)
            }
            Some(chunk) => {
                // Nothing is reused once the device is lost.
                self.put(chunk);
                Err(self.refusal(requested, request.size))
            }
            None => Err(self.refusal(requested, request.size)),
        }
    }

    /// Searches after the lock was given up: the last-freed chunk may fit.
    pub(crate) fn search_again(&mut self, request: &PoolRequest) -> Option<Index> {
        self.index_last_freed();
        self.search(request)
    }

    /// The ladder, from its second step on.
    fn find_elsewhere(&mut self, request: &PoolRequest) -> Option<Index> {
        // 2. Free neighbours of different streams merge. Where pages cannot move, a chunk that is cut too
        //    small stays so: hence before another stream's chunk is cut.
        if self.whole_regions.is_kept()
            && self.is_beyond_peak(request, request.size)
            && self.merge_streams_for(request)
            && let Some(chunk) = self.search_again(request)
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
        // 4. Callbacks, which may free memory.
        if self.run_callbacks()
            && let Some(chunk) = self.search_again(request)
        {
            return Some(chunk);
        }
        // 5. Garbage collection: with a limit and a threshold, old regions are released.
        self.collect_garbage();
        // 6. Growth: a new region, or new pages. Beyond the peak the policy may merge, release or move first.
        if let Some(chunk) = self.grow(request) {
            return Some(chunk);
        }
        // 7. Free memory of private pools that lend theirs.
        if !self.failures.is_final()
            && let Some(chunk) = self.search_lending_pools(request)
        {
            return Some(chunk);
        }
        // 8. Large regions that are never split are released, and growth is tried again.
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
        // What follows waits for streams and releases memory: neither is legal during a capture.
        if self.is_captured(request.stream) {
            return None;
        }
        // 9. All streams are waited for; a block that was pending may fit, or a chunk of another pool.
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

    /// Takes the last pending block that fits. If there is none, waits for all streams and searches
    /// everywhere, in the end in the pools of the other size, whose chunks are otherwise kept apart. PyTorch
    /// does not search again: it releases all free memory at once, and fails if that does not help.
    fn search_after_wait(&mut self, request: &PoolRequest) -> Option<Index> {
        if self.policy.extensions.steal
            && let Some(chunk) = self.steal_but(request, 0)
        {
            return Some(chunk);
        }
        self.wait_for_all();
        if let Some(chunk) = self.search_again(request).or_else(|| self.steal(request)) {
            return Some(chunk);
        }
        self.merge_streams(request.stream);
        let mut others = Engine::<B>::in_other_pools(request);
        let other_lifetime = others.next();
        self.search_again(request)
            .or_else(|| other_lifetime.and_then(|other| self.search_or_steal(&other)))
            .or_else(|| self.grow(request))
            .or_else(|| others.find_map(|other| self.search_or_steal(&other)))
    }

    fn search_or_steal(&mut self, request: &PoolRequest) -> Option<Index> {
        self.search_again(request).or_else(|| self.steal(request))
    }
}
