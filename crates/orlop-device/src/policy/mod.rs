//! The rules of a device engine, as data.

use orlop_core::torch::{
    AddressReserve, MIN_BLOCK_BYTES, ROUNDING_INTERVALS, ReserveClasses, SEGMENT_STEP_BYTES,
    SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, TieRule, TorchConf, UNSPLIT_REST_BYTES, kept_rest, round_size,
    segment_size,
};

/// Where the waste is bounded, regions for one large request are multiples of this many bytes.
const OWN_REGION_STEP: usize = 64 << 10;

/// The rules of an engine, where allocators differ. One engine runs them all: "what would have fitted?" is a
/// loop over policies.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// The name of the policy, and of allocators with it.
    pub name: &'static str,
    /// Sizes are multiples of this many bytes; a power of two.
    pub granule: usize,
    /// The number of steps that a power of two is divided into when sizes are rounded up, by interval from 1
    /// MiB; 0 and 1: none.
    pub rounding: [usize; ROUNDING_INTERVALS],
    /// Requests of up to this many bytes are small: they have pools of their own.
    pub small_limit: usize,
    /// How the engine grows.
    pub growth: Growth,
    /// The addresses of a new range for pages, at most nine eighths of the device's memory. `None`: as many,
    /// or what [`Extensions::grow_ranges`] says.
    pub address_reserve: Option<AddressReserve>,
    /// The same for streams of a class: [`Engine::set_reserve_class`](crate::Engine::set_reserve_class).
    pub address_reserve_by_class: ReserveClasses,
    /// The bytes of a region for large requests below 10 MiB, or as many as the request needs; the rest
    /// serves others.
    pub large_region: usize,
    /// The largest rest that is not split off a large block, in bytes.
    pub large_rest: usize,
    /// Blocks of this many bytes and more are never split, and serve no smaller request.
    pub max_split: usize,
    /// A request of `max_split` and more takes a block that is larger by less than this many bytes.
    pub max_non_split_rounding: usize,
    /// The share of the limit from which on old regions are released before the engine grows; 0: never.
    pub collect_from: f64,
    /// The limit of reserved bytes, as a share of the device's memory.
    pub fraction: Option<f64>,
    /// A request that would take reserved bytes beyond the device's memory, and not beyond the limit, fails
    /// before anything is released for it, and is not counted as out of memory (PyTorch:
    /// `throw_on_cudamalloc_oom`).
    pub fails_early: bool,
    /// The index of free chunks in the small pools.
    pub small_index: IndexKind,
    /// Which of several free chunks of one size an ordered index returns.
    pub ties: TieRule,
    /// What the engine does beyond PyTorch's rules.
    pub extensions: Extensions,
}

/// How an engine gets memory from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// In regions of their own: see [`Policy::region_bytes`].
    Regions,
    /// In pages that are mapped into a range of addresses, which grows in place. On a device without pages:
    /// in regions.
    Pages {
        /// The size of pages in small pools, in bytes; rounded up to a multiple of the granule and of the
        /// device's [granularity](crate::DeviceBacking::page_granularity).
        small: usize,
        /// In large pools.
        large: usize,
    },
}

/// How free chunks are indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKind {
    /// By size: the best fit, and of several the one that [`Policy::ties`] says.
    Ordered,
    /// In lists by size, 32 to a power of two: a good fit, in constant time.
    Segregated,
}

/// Extensions: what PyTorch's allocator does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Extensions {
    /// Query one event for each request, instead of one of each stream.
    pub poll_one: bool,
    /// A request that two blocks fit which were freed while other streams may still use them takes the older
    /// one, and its stream waits for those on the device. Otherwise it gets other memory as long as the
    /// streams are not done, however far the host runs ahead. It needs `steal`. Not for memory of the host,
    /// which cannot wait there; and not for streams whose work waits for work that is submitted later.
    pub limit_run_ahead: bool,
    /// Take a free chunk of another stream, and make the request's stream wait for that one on the device.
    pub steal: bool,
    /// Limit reserved bytes to the peak of active bytes and this share of it (one over a power of two: 7 is a
    /// 128th). Beyond that, make room before growing: move wholly free pages to where they are needed, or
    /// release wholly free regions. The peak is that since the engine was new, or since its last
    /// [`empty_cache`](crate::Engine::empty_cache); resetting the peaks of the statistics does not reset it.
    pub hold_to_peak: Option<u32>,
    /// Search once more after waiting for all streams, before all free memory is released.
    pub search_after_wait: bool,
    /// Keep the block that was freed last out of the index: the next request is often for the same size.
    pub keep_last_freed: bool,
    /// Separate long-lived blocks from others.
    pub by_lifetime: bool,
    /// On a device without pages, bound what is reserved and not requested, too: to the share of
    /// `hold_to_peak`, of the peak of requested bytes. A large request gets a region of its own, of its size
    /// to 64 KiB, unless free memory fits without more waste than that: then its block may be larger than
    /// the request. In a program that repeats itself reserved bytes grow instead, by up to the peak,
    /// until it allocates and releases no region any more.
    pub bound_waste: bool,
    /// While a graph is captured, keep the calls for every stream to the rules of a capture. PyTorch keeps
    /// those for streams that capture ([`DeviceBacking::is_capturing`](crate::DeviceBacking::is_capturing)).
    pub quiet_captures: bool,
    /// Keep the blocks that a thread frees in a cache of its own, where it gets them again without a lock: in
    /// a [`DeviceAllocator`](crate::DeviceAllocator), not in a bare engine.
    pub thread_caches: bool,
    /// Map growth by 128 MiB and more in pages of 4 to 32 MiB, which takes fewer calls of the driver.
    pub large_pages: bool,
    /// Reserve addresses for pages as they are used: a stream's first range for a 64th of the device's memory
    /// and at least 256 MiB, and each further one for as much as it has. Otherwise for all of the device's
    /// memory at once.
    pub grow_ranges: bool,
    /// When pages had to move, look for a period in the requests, and plan its blocks so that none will.
    pub plan_periods: bool,
}

impl Policy {
    /// Returns the policy of PyTorch's CUDACachingAllocator with these settings: every address and every
    /// figure is the same.
    ///
    /// Source: PyTorch's `CUDACachingAllocator.cpp`; checked against the binary (`testdata/torch-golden`).
    #[must_use]
    pub fn torch(conf: &TorchConf) -> Self {
        let growth = match conf.expandable_segments {
            true => Growth::Pages { small: SMALL_SEGMENT_BYTES, large: conf.large_segment_size },
            false => Growth::Regions,
        };
        Self {
            name: "torch",
            granule: MIN_BLOCK_BYTES,
            rounding: conf.roundup_power2_divisions,
            small_limit: SMALL_REQUEST_BYTES,
            growth,
            address_reserve: conf.address_reserve,
            address_reserve_by_class: conf.address_reserve_by_class.clone(),
            large_region: conf.large_segment_size,
            large_rest: UNSPLIT_REST_BYTES,
            max_split: conf.max_split_size.unwrap_or(usize::MAX),
            max_non_split_rounding: conf.max_non_split_rounding,
            collect_from: conf.garbage_collection_threshold,
            fraction: conf.memory_fraction,
            fails_early: conf.throw_on_oom,
            small_index: IndexKind::Ordered,
            ties: conf.ties,
            extensions: Extensions::default(),
        }
    }

    /// Returns orlop's policy: best fit in pages of 2 MiB that move to where they are needed. No request
    /// fails while there is a way to serve it.
    #[must_use]
    pub fn orlop() -> Self {
        Self {
            name: "orlop",
            growth: Growth::Pages { small: SEGMENT_STEP_BYTES, large: SEGMENT_STEP_BYTES },
            large_rest: MIN_BLOCK_BYTES - 1,
            small_index: IndexKind::Segregated,
            ties: TieRule::LowestAddress,
            extensions: Extensions {
                poll_one: true,
                limit_run_ahead: true,
                steal: true,
                hold_to_peak: Some(7),
                search_after_wait: true,
                keep_last_freed: true,
                by_lifetime: true,
                bound_waste: false,
                quiet_captures: true,
                thread_caches: true,
                large_pages: true,
                grow_ranges: true,
                plan_periods: true,
            },
            ..Self::torch(&TorchConf::default())
        }
    }

    /// Returns orlop's policy for a device without pages that can move.
    #[must_use]
    pub fn orlop_without_pages() -> Self {
        let ours = Self::orlop();
        Self {
            name: "orlop-segments",
            growth: Growth::Regions,
            extensions: Extensions { hold_to_peak: Some(6), ..ours.extensions },
            ..ours
        }
    }

    /// Returns orlop's policy for scarce memory without pages that can move, such as pinned memory: at most
    /// 1.13 of the peak of requested bytes is reserved in random replacements of blocks of 4 KiB to 64 MiB,
    /// where [`Policy::orlop_without_pages`] reserves 1.2 on average; but 2 to 7 requests of 100 allocate
    /// memory of the device, instead of 1 to 3 (docs/benchmarks.md has the figures). A program that repeats
    /// itself allocates none after its first periods, and may reserve more.
    #[must_use]
    pub fn orlop_bounded_waste() -> Self {
        let ours = Self::orlop_without_pages();
        // A block may be larger than its request, and the peak is of requested bytes.
        let extensions =
            Extensions { hold_to_peak: Some(3), bound_waste: true, thread_caches: false, ..ours.extensions };
        Self { name: "orlop-bounded-waste", extensions, ..ours }
    }

    /// Rounds the size of a request, in bytes. `None` if no memory is so large.
    #[must_use]
    #[inline]
    pub fn round(&self, bytes: usize) -> Option<usize> {
        round_size(bytes, self.granule, &self.rounding)
    }

    /// Returns the mask of the bits below the granule, if sizes are rounded to multiples of that only and it
    /// is a power of two; otherwise 0.
    pub(crate) fn plain_mask(&self) -> usize {
        let is_plain = self.granule.is_power_of_two() && self.rounding.iter().all(|&steps| steps <= 1);
        let mask = if is_plain { self.granule - 1 } else { 0 };
        if mask < isize::MAX.unsigned_abs() { mask } else { 0 }
    }

    /// Returns `true` if a free block of `block` bytes may serve a request of `size` bytes, rounded: the one
    /// rule of fit, for every search. Large blocks are kept for large requests, and not wasted on much
    /// smaller ones.
    #[must_use]
    #[inline]
    pub fn serves(&self, block: usize, size: usize) -> bool {
        let too_large = if size < self.max_split {
            block >= self.max_split
        } else {
            block >= size.saturating_add(self.max_non_split_rounding)
        };
        size <= block && !too_large
    }

    /// Returns the bytes of a region for a request of `size` bytes, rounded. `None` if no memory is so large.
    #[must_use]
    pub fn region_bytes(&self, size: usize) -> Option<usize> {
        if self.extensions.bound_waste && size > self.small_limit {
            return size.checked_next_multiple_of(OWN_REGION_STEP);
        }
        segment_size(size, self.small_limit, self.large_region)
    }

    /// Returns `true` if free chunks of one region can belong to different streams.
    pub(crate) fn mixes_streams(&self) -> bool {
        let Extensions { steal, hold_to_peak, search_after_wait, .. } = self.extensions;
        steal || search_after_wait || hold_to_peak.is_some()
    }

    /// Returns `true` if private pools can lend free memory: not by PyTorch's rules with expandable segments.
    pub(crate) fn lends_pools(&self) -> bool {
        self.growth == Growth::Regions || self.extensions.hold_to_peak.is_some()
    }

    /// Returns the policy with valid sizes, since its fields can be set to anything: the granule is a power
    /// of two, and pages are multiples of it and of the device's granularity. Without pages it grows in
    /// regions.
    pub(crate) fn normalized(mut self, granularity: Option<usize>) -> Self {
        self.granule = self.granule.max(1).checked_next_power_of_two().unwrap_or(MIN_BLOCK_BYTES);
        if let Growth::Pages { small, large } = &mut self.growth {
            let Some(granularity) = granularity else {
                self.growth = Growth::Regions;
                return self;
            };
            let granularity = granularity.max(1).checked_next_power_of_two().unwrap_or(SEGMENT_STEP_BYTES);
            let unit = self.granule.max(granularity);
            for page in [small, large] {
                *page = (*page).max(1).checked_next_multiple_of(unit).unwrap_or(unit);
            }
        }
        self
    }

    /// Returns the largest rest that stays with a block of `size` bytes instead of being split off.
    #[must_use]
    #[inline]
    pub fn kept_rest(&self, small: bool, size: usize) -> usize {
        let finely = small || matches!(self.growth, Growth::Pages { .. });
        kept_rest(size, finely, self.granule, self.max_split, self.large_rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_pytorch_rounds_them() {
        let plain = Policy::torch(&TorchConf::default());
        for (bytes, size) in [(0, 512), (1, 512), (512, 512), (513, 1024), (1_000_000, 1_000_448)] {
            assert_eq!(plain.round(bytes), Some(size));
        }
        assert_eq!(plain.round(usize::MAX), None);
        let quarters = "roundup_power2_divisions:4".parse().unwrap();
        let quarters = Policy::torch(&quarters);
        // Above 2048 bytes: steps of a quarter of the power of two below.
        for (bytes, size) in
            [(2048, 2048), (2049, 2560), (4096, 4096), (4097, 5120), (1200 << 10, 1280 << 10)]
        {
            assert_eq!(quarters.round(bytes), Some(size), "{bytes}");
        }
    }

    #[test]
    fn invalid_sizes_are_corrected() {
        for (granule, expected) in [(0, 1), (1, 1), (100, 128), (usize::MAX, 512)] {
            for granularity in [0, 1, 4096, 2 << 20] {
                let growth = Growth::Pages { small: 0, large: (3 << 20) + 1 };
                let policy = Policy { granule, growth, ..Policy::orlop() };
                let regions = policy.clone().normalized(None);
                let policy = policy.normalized(Some(granularity));
                assert_eq!((policy.granule, regions.growth), (expected, Growth::Regions));
                let Growth::Pages { small, large } = policy.growth else { unreachable!("it grows in pages") };
                for unit in [expected, granularity.max(1)] {
                    assert!(small > 0 && small.is_multiple_of(unit) && large.is_multiple_of(unit));
                }
            }
        }
    }

    #[test]
    fn regions_are_as_large_as_pytorchs() {
        let plain = Policy::torch(&TorchConf::default());
        let sizes = [
            (512, 2),
            (1 << 20, 2),
            ((1 << 20) + 512, 20),
            ((10 << 20) - 512, 20),
            (10 << 20, 10),
            ((10 << 20) + 512, 12),
        ];
        for (size, mib) in sizes {
            assert_eq!(plain.region_bytes(size), Some(mib << 20));
        }
    }
}
