//! Growth: regions, or pages that are mapped at the end of a range of addresses; and the limits of reserved
//! bytes.

use super::chunks::{Chunk, ChunkState, Index, NONE};
use super::pools::{Region, at, is_small};
use super::slow_path::SlowPath;
use super::{Engine, PoolRequest};
use crate::backing::DeviceBacking;
use crate::policy::Growth;
use orlop_alloc::RegionAction;
use orlop_core::torch::SEGMENT_STEP_BYTES;

/// The first range of addresses of a stream is for this share of the device's memory.
const MIN_RANGE_SHARE: usize = 64;

/// The least bytes of a range of addresses.
const MIN_RANGE_BYTES: usize = 256 << 20;

impl<B: DeviceBacking> SlowPath<'_, B> {
    /// Grows for a request: returns a chunk of new memory, or of moved pages, in no index.
    ///
    /// With [`Extensions::hold_to_peak`](crate::Extensions::hold_to_peak), reserved bytes exceed the peak
    /// only if nothing else helps: free pages move; without pages, free neighbours of different streams
    /// merge, and wholly free regions are released. A region that was kept for larger requests is used if the
    /// device has no memory.
    pub(crate) fn grow(&mut self, request: &PoolRequest) -> Option<Index> {
        let mut bytes = self.policy.region_bytes(request.size)?;
        if self.policy.fails_early && self.is_within_limit(bytes) && !self.is_within_memory(bytes) {
            self.failures.is_refused = true;
            return None;
        }
        let paged = matches!(self.policy.growth, Growth::Pages { .. });
        if self.policy.extensions.hold_to_peak.is_some() {
            if paged {
                return self.grow_by_remap(request);
            }
            if self.is_beyond_peak(request, bytes) {
                if self.merge_streams_for(request)
                    && let Some(chunk) = self.search_again(request)
                {
                    return Some(chunk);
                }
                self.note_growth(request);
                self.make_room(request, bytes);
                let peak = self.peak();
                if bytes as u64 > self.max_reserved(peak) - peak && self.is_beyond_peak(request, bytes) {
                    // A region for several requests would be much of what a small program reserves.
                    bytes = bytes.min(request.size.checked_next_multiple_of(SEGMENT_STEP_BYTES)?);
                }
            }
        }
        let grown = match self.is_within_limit(bytes) {
            false => None,
            true if paged => self.grow_in_pages(request),
            true => self.grow_by_region(request, bytes),
        };
        if grown.is_some() {
            let private = self.pools[request.pool as usize].private;
            self.private.count_growth(private);
        }
        grown.or_else(|| self.take_wasteful(request))
    }

    /// Releases wholly free regions until a new one of `bytes` bytes would not exceed the peak: the smallest
    /// first; or, where the waste is bounded, the largest, which serve the fewest requests.
    fn make_room(&mut self, request: &PoolRequest, bytes: usize) {
        // A release waits for streams, which would end a capture.
        if self.is_capturing() {
            return;
        }
        while self.is_beyond_peak(request, bytes) {
            let regions = &self.whole_regions;
            let next = if self.waste.is_set() { regions.largest() } else { regions.smallest() };
            if !next.is_some_and(|region| self.release_region(region)) {
                break;
            }
        }
    }

    fn grow_by_region(&mut self, request: &PoolRequest, bytes: usize) -> Option<Index> {
        let address = self.call(|backing| backing.allocate(bytes));
        let address = self.allocated(address)?;
        let Some(index) = self.add_region(request, address, bytes, None, ChunkState::Live) else {
            // SAFETY: it was allocated above, and is used nowhere.
            let released = self.call(|backing| unsafe { backing.release(address, bytes) });
            let _noted = self.noted(released);
            return None;
        };
        let small = is_small(request.pool);
        self.stats.segment.add(small, 1);
        self.stats.reserved_bytes.add(small, bytes as u64);
        if bytes >= self.policy.max_split {
            self.stats.oversize_segments.add(1);
        }
        self.stats.num_device_alloc += 1;
        self.note(RegionAction::Reserved, self.chunks[index].region, address, bytes);
        Some(index)
    }

    /// Maps as many pages as the request needs after the free memory of the first range that has the
    /// addresses.
    fn grow_in_pages(&mut self, request: &PoolRequest) -> Option<Index> {
        let first = self.ranges(request).next().map(|(_, first)| first);
        let first = match first {
            Some(chunk) => chunk,
            None => self.add_range(request)?,
        };
        let page = self.page(request.pool);
        let mut claim = self.claim_from(first, request.size, page)?;
        while !claim.is_full() {
            if !self.map_hole(&mut claim) {
                self.abandon(&claim);
                return None;
            }
        }
        // Rounded up to pages it can have a free neighbour now.
        self.merge_around(claim.chunk, ChunkState::Free);
        Some(claim.chunk)
    }

    /// Reserves a new range of addresses. PyTorch reserves one in vain for a request that is larger than the
    /// range, in captures too.
    pub(crate) fn add_range(&mut self, request: &PoolRequest) -> Option<Index> {
        let page = self.page(request.pool);
        let bytes = self.range_bytes(request)?.checked_next_multiple_of(page)?;
        let is_enough = bytes >= request.size;
        if !is_enough && self.policy.extensions.quiet_captures {
            return None;
        }
        let address = self.call(|backing| backing.reserve_addresses(bytes));
        let Some(address) = self.allocated(address) else {
            self.failures.lacks_addresses = !self.failures.is_final();
            return None;
        };
        let added = is_enough
            .then(|| self.add_region(request, address, bytes, Some(page), ChunkState::Unmapped))
            .flatten();
        let Some(index) = added else {
            // SAFETY: they were reserved above, and are used nowhere.
            let released = self.call(|backing| unsafe { backing.release_addresses(address, bytes) });
            let _noted = self.noted(released);
            return None;
        };
        self.put_unmapped(index);
        Some(index)
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Returns the bytes of addresses that are reserved for pages.
    pub(crate) fn reserved_addresses(&self) -> u64 {
        self.ranges_of_pages().map(|range| range.bytes as u64).sum()
    }

    fn ranges_of_pages(&self) -> impl Iterator<Item = &Region> + '_ {
        self.regions.iter().map(|(_, region)| region).filter(|region| region.page.is_some())
    }

    /// Returns the bytes of addresses of a new range for a request: an eighth more than the memory of the
    /// device, so that pages can move to its end; or fewer, if ranges grow.
    fn range_bytes(&self, request: &PoolRequest) -> Option<usize> {
        let memory = usize::try_from(self.backing.memory()).ok()?;
        let all = memory.checked_add(memory / 8)?;
        if let Some(reserve) = self.address_reserve(request) {
            let bytes = reserve.bytes(self.backing.memory());
            return Some(usize::try_from(bytes).map_or(all, |bytes| bytes.min(all)));
        }
        if !self.policy.extensions.grow_ranges {
            return Some(all);
        }
        let is_same = |range: &&Region| (range.stream, range.pool) == (request.stream, request.pool);
        let own: usize = self.ranges_of_pages().filter(is_same).map(|range| range.bytes).sum();
        Some(own.max(all / MIN_RANGE_SHARE).max(MIN_RANGE_BYTES).min(all).max(request.size))
    }

    /// Returns `true` if the limit allows `bytes` bytes more.
    pub(crate) fn is_within_limit(&self, bytes: usize) -> bool {
        self.limit.is_none_or(|limit| {
            let reserved = self.stats.reserved_bytes.all.current.checked_add(bytes as u64);
            reserved.is_some_and(|reserved| reserved <= limit)
        })
    }

    /// Returns `true` if the device's memory is enough for `bytes` bytes more.
    fn is_within_memory(&self, bytes: usize) -> bool {
        self.stats.reserved_bytes.all.current.saturating_add(bytes as u64) <= self.backing.memory()
    }

    /// Returns `true` if `bytes` bytes more for a request would take reserved bytes beyond the peak of active
    /// bytes and the slack of the policy.
    pub(crate) fn is_beyond_peak(&self, request: &PoolRequest, bytes: usize) -> bool {
        let reserved = self.stats.reserved_bytes.all.current.saturating_add(bytes as u64);
        reserved > self.max_reserved(self.peak_with(request))
    }

    /// Returns the peak that limits reserved bytes: of requested bytes where the waste is bounded, otherwise
    /// of active ones.
    fn peak(&self) -> u64 {
        if self.waste.is_set() { self.waste.peak } else { self.high_water }
    }

    /// Returns that peak with a request.
    pub(crate) fn peak_with(&self, request: &PoolRequest) -> u64 {
        let stats = &self.stats;
        let used = if self.waste.is_set() { &stats.requested_bytes } else { &stats.active_bytes };
        self.peak().max(used.all.known().saturating_add(request.size as u64))
    }

    /// Returns the bytes that may be reserved for a peak of active bytes.
    pub(crate) fn max_reserved(&self, peak: u64) -> u64 {
        let slack = self.policy.extensions.hold_to_peak.map(|share| peak.checked_shr(share).unwrap_or(0));
        slack.map_or(u64::MAX, |slack| peak.saturating_add(slack).saturating_add(self.waste.allowance()))
    }

    fn add_region(
        &mut self,
        request: &PoolRequest,
        address: usize,
        bytes: usize,
        page: Option<usize>,
        state: ChunkState,
    ) -> Option<Index> {
        let PoolRequest { stream, pool, .. } = *request;
        let region = self.regions.insert(Region { address, bytes, first: NONE, page, stream, pool })?;
        self.chunks.add_region(region, address, bytes);
        let chunk = Chunk::new(region, pool, stream, address, bytes, state);
        let Some(index) = self.chunks.insert(chunk) else {
            self.regions.remove(region);
            return None;
        };
        self.regions.set_first(region, index);
        Some(index)
    }

    /// Returns the size of pages in a pool.
    pub(crate) fn page(&self, pool: u16) -> usize {
        match self.policy.growth {
            Growth::Pages { small, .. } if is_small(pool) => small,
            Growth::Pages { large, .. } => large,
            Growth::Regions => SEGMENT_STEP_BYTES,
        }
    }

    /// Puts a chunk without pages into the index by address.
    pub(crate) fn put_unmapped(&mut self, index: Index) {
        let Chunk { pool, stream, address, .. } = self.chunks[index];
        self.pools[pool as usize].stream_mut(stream).unmapped.insert(at(address, index));
    }

    /// Takes a chunk without pages out of the index by address.
    pub(crate) fn take_unmapped(&mut self, index: Index) {
        let Chunk { pool, stream, address, .. } = self.chunks[index];
        let pool = &mut self.pools[pool as usize];
        let removed = pool.stream_mut(stream).unmapped.remove(at(address, index));
        debug_assert!(removed || pool.has_forgotten, "a chunk without pages that is not in its index");
    }

    pub(crate) fn count_mapped(&mut self, pool: u16, bytes: usize) {
        let small = is_small(pool);
        self.stats.reserved_bytes.add(small, bytes as u64);
        self.stats.num_device_alloc += 1;
    }

    pub(crate) fn merge_around(&mut self, index: Index, state: ChunkState) {
        let Chunk { previous, next, .. } = self.chunks[index];
        self.merge(index, previous, state);
        self.merge(index, next, state);
    }
}
