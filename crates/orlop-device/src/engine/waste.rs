//! The bound of wasted memory: see [`Extensions::bound_waste`](crate::Extensions::bound_waste).
//!
//! Reserved memory is requested, in wholly free regions, or wasted: free parts of regions in use, and what
//! blocks are larger than their requests. Wholly free regions can be released when memory is wanted, wasted
//! memory cannot, and no page moves. So reserved bytes stay within the share of
//! [`hold_to_peak`](crate::Extensions::hold_to_peak) only if the waste does. Two rules keep it there:
//!
//! 1. A large request takes a wholly free region that is larger than its own would be only while the waste
//!    stays within seven eighths of that share. The last eighth is for frees, which make waste too.
//! 2. A block of half a wholly free region or more gets all of it. So the region is wholly free when that
//!    block is, and not when the last of several is.
//!
//! Then regions are released and reserved for requests that others could have served. A program that
//! repeats itself would do so in every period. It is recognized by the sizes of these requests, which recur:
//! with each, more may be reserved, up to the peak again, until nothing is released any more. Sizes that do
//! not recur reduce it again.

use super::chunks::{Chunk, Index};
use super::pools::{StreamPool, is_small};
use super::{COMMON, Engine, PoolRequest};
use crate::backing::DeviceBacking;

/// The number of sizes that are remembered.
const REMEMBERED: usize = 64;

/// What the bound needs to know of the past.
#[derive(Debug)]
pub(crate) struct WasteBound {
    /// Whether there is a bound.
    is_set: bool,
    /// The peak of requested bytes.
    pub(crate) peak: u64,
    /// The bytes that may be reserved beyond the share, because sizes recurred.
    allowance: u64,
    /// The sizes of the last requests for which regions had to be released, and the place of the oldest.
    sizes: [usize; REMEMBERED],
    oldest: usize,
    /// Whether the last of them was among the others.
    has_recurred: bool,
}

impl WasteBound {
    pub(crate) fn new(is_set: bool) -> Self {
        Self { is_set, peak: 0, allowance: 0, sizes: [0; REMEMBERED], oldest: 0, has_recurred: false }
    }

    /// Returns `true` if there is a bound.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set
    }

    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Limits the peak from now on.
    pub(crate) fn lower(&mut self, peak: u64) {
        *self = Self { peak: self.peak.min(peak), ..Self::new(self.is_set) };
    }

    /// Notes a request of `size` bytes for which regions have to be released.
    fn note(&mut self, size: usize) {
        let step = size as u64 / 8;
        let recurs = self.sizes.contains(&size);
        // One equal size may be chance.
        self.allowance = match (std::mem::replace(&mut self.has_recurred, recurs), recurs) {
            (true, true) => self.allowance.saturating_add(step).min(self.peak),
            (false, true) => self.allowance,
            (_, false) => self.allowance.saturating_sub(step),
        };
        self.sizes[self.oldest] = size;
        self.oldest = (self.oldest + 1) % REMEMBERED;
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// [`search`](Self::search), where there is a bound. It is apart, because its variables would be stored
    /// and loaded in every search.
    #[inline(never)]
    pub(crate) fn search_within_bound(&mut self, request: &PoolRequest) -> Option<Index> {
        let of = self.pools[request.pool as usize].stream(request.stream)?;
        let found = self.fit_of(of, request)?;
        self.take(found);
        self.note_requested(request.size);
        Some(found)
    }

    /// Notes the peak of requested bytes, with a block of `size` bytes that is not counted yet. The
    /// last-freed block, which a request gets without a search, makes no peak.
    pub(crate) fn note_requested(&mut self, size: usize) {
        let requested = self.stats.requested_bytes.all.known().saturating_add(size as u64);
        self.waste.peak = self.waste.peak.max(requested);
    }

    /// Returns the best fitting free chunk among those of a stream that the bound allows for a request.
    pub(crate) fn fit_of(&self, of: &StreamPool, request: &PoolRequest) -> Option<Index> {
        let (found, _) = of.free.find(&self.chunks, request.size)?;
        let is_allowed = !self.is_wasteful(&self.chunks[found], request);
        let found = if is_allowed { Some(found) } else { self.fit_in_use(of, request) };
        found.filter(|&chunk| self.policy.serves(self.chunks[chunk].size, request.size))
    }

    /// Returns the best fitting free chunk in a region with blocks.
    fn fit_in_use(&self, of: &StreamPool, request: &PoolRequest) -> Option<Index> {
        of.free.at_least(request.size).find(|&chunk| !self.chunks[chunk].is_whole())
    }

    /// Returns `true` if a chunk is a region that is kept for larger requests. (It may be pending.)
    pub(crate) fn is_wasteful(&self, chunk: &Chunk, request: &PoolRequest) -> bool {
        let is_bounded = self.waste.is_set && !is_small(request.pool) && request.pool < COMMON;
        if !is_bounded || !chunk.is_whole() {
            return false;
        }
        if self.policy.region_bytes(request.size).is_none_or(|own| chunk.size <= own) {
            return false;
        }
        let peak = self.peak_with(request);
        let share = self.max_reserved(peak) - peak;
        let more = chunk.size.saturating_sub(request.size) as u64;
        self.wasted().saturating_add(more) > share - share / 8
    }

    /// Returns the reserved bytes that are neither requested nor in wholly free regions.
    fn wasted(&self) -> u64 {
        let requested = self.stats.requested_bytes.all.known();
        let used =
            requested.saturating_add(self.whole_regions.bytes()).saturating_add(self.stats.leaked_bytes);
        self.stats.reserved_bytes.all.current.saturating_sub(used)
    }

    /// Returns `true` if a block of `size` bytes gets all of a wholly free region with `rest` bytes more.
    #[inline]
    pub(crate) fn keeps_rest(&self, small: bool, size: usize, rest: usize) -> bool {
        self.waste.is_set && !small && rest <= size
    }

    /// Notes a request for which regions have to be released, if there is a bound.
    pub(crate) fn note_growth(&mut self, request: &PoolRequest) {
        if self.waste.is_set {
            self.waste.note(request.size);
        }
    }

    /// Takes the best fitting free chunk, whatever it wastes: there is no memory for another region.
    pub(crate) fn take_wasteful(&mut self, request: &PoolRequest) -> Option<Index> {
        if !self.waste.is_set {
            return None;
        }
        let of = self.pools[request.pool as usize].stream(request.stream)?;
        let (found, _) = of.free.find(&self.chunks, request.size)?;
        let serves = self.policy.serves(self.chunks[found].size, request.size);
        serves.then(|| self.take(found)).map(|()| found)
    }
}
