//! The statistics of an engine, under PyTorch's names and by its rules.

mod summary;
mod turnover;

pub(crate) use self::turnover::{Amounts, CacheTurnover};

use std::fmt;

/// A figure with its peak and its sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The peak since the last reset.
    pub peak: u64,
    /// The sum of all additions.
    pub allocated: u64,
    /// The sum of all subtractions. Both sums end at 2^64 - 1, which address space without memory reaches.
    pub freed: u64,
}

impl Stat {
    /// Adds to the current value, which stays below 2^63 as addresses do. The sum of additions follows from
    /// the other figures: [`Stat::with_sum`].
    #[inline]
    pub(crate) fn add(&mut self, amount: u64) {
        self.current = self.current.wrapping_add(amount);
        self.raise_peak(self.current);
    }

    /// Raises the peak to a value. The value may be negative, while what a thread's cache handed out is not
    /// counted yet and another thread has freed it.
    #[inline(always)]
    fn raise_peak(&mut self, value: u64) {
        // Not `max`: peaks are rare, and a branch that is predicted stores nothing.
        if value.cast_signed() > self.peak.cast_signed() {
            self.peak = value;
        }
    }

    /// Returns the current value, or zero if it is negative (see [`raise_peak`](Self::raise_peak)).
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        if self.current.cast_signed() < 0 { 0 } else { self.current }
    }

    #[inline]
    pub(crate) fn sub(&mut self, amount: u64) {
        self.current = self.current.wrapping_sub(amount);
        self.count_freed(amount);
    }

    #[inline(always)]
    fn count_freed(&mut self, amount: u64) {
        let (freed, carry) = self.freed.overflowing_add(amount);
        self.freed = freed;
        // In the engine this field has the carries of the other, which cost less than a saturating addition.
        self.allocated = self.allocated.wrapping_add(u64::from(carry));
    }

    fn with_sum(&mut self) {
        if self.allocated > 0 {
            self.freed = u64::MAX;
        }
        self.allocated = self.freed.saturating_add(self.current);
    }
}

/// A figure for all pools, for the small ones and for the large ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatByPool {
    /// All pools.
    pub all: Stat,
    /// Pools for requests of up to 1 MiB.
    pub small: Stat,
    /// Pools for larger requests.
    pub large: Stat,
}

impl StatByPool {
    #[inline]
    pub(crate) fn add(&mut self, small: bool, amount: u64) {
        self.all.add(amount);
        self.of(small).add(amount);
    }

    #[inline]
    pub(crate) fn sub(&mut self, small: bool, amount: u64) {
        self.all.sub(amount);
        self.of(small).sub(amount);
    }

    /// Replaces an amount by another. Only the difference is counted.
    #[inline]
    pub(crate) fn replace(&mut self, small: bool, old: u64, new: u64) {
        if new > old {
            self.add(small, new - old);
        } else if old > new {
            self.sub(small, old - new);
        }
    }

    /// Moves an amount from the small pools to the large ones, or back.
    pub(crate) fn transfer(&mut self, from_small: bool, amount: u64) {
        self.of(from_small).sub(amount);
        self.of(!from_small).add(amount);
    }

    fn of(&mut self, small: bool) -> &mut Stat {
        if small { &mut self.small } else { &mut self.large }
    }

    fn each(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small, &mut self.large]
    }
}

/// The statistics of a device engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Live blocks.
    pub allocation: StatByPool,
    /// Regions, without reservations that grow in place.
    pub segment: StatByPool,
    /// Live blocks, and blocks that were freed while a stream may still use them.
    pub active: StatByPool,
    /// Free chunks that are not all of their region.
    pub inactive_split: StatByPool,
    /// Bytes of `allocation`, rounded.
    pub allocated_bytes: StatByPool,
    /// Bytes reserved from the device.
    pub reserved_bytes: StatByPool,
    /// Bytes of `active`.
    pub active_bytes: StatByPool,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: StatByPool,
    /// Bytes of `active`, as requested.
    pub requested_bytes: StatByPool,
    /// Live blocks that are too large to be split.
    pub oversize_allocations: Stat,
    /// Regions too large to be split.
    pub oversize_segments: Stat,
    /// Times that all free memory was released for a request.
    pub num_alloc_retries: u64,
    /// Requests that failed.
    pub num_ooms: u64,
    /// Allocations from the device.
    pub num_device_alloc: u64,
    /// Frees to the device.
    pub num_device_free: u64,
    /// Times that all streams were waited for.
    pub num_sync_all_streams: u64,
    /// Chunks of one stream that another took, which waits for the first. PyTorch has none.
    pub num_stream_steals: u64,
    /// Times that a stream was made to wait for another, on the device, before it took its memory. PyTorch
    /// has none.
    pub num_stream_waits: u64,
    /// Bytes of moved pages. PyTorch moves none.
    pub remapped_bytes: u64,
    /// Bytes whose release failed: reserved, and never used again.
    pub leaked_bytes: u64,
    /// Failed calls of the device. That there is no memory, or no such call, is no failure.
    pub num_failed_calls: u64,
    /// Regions that were not released because they were not wholly free: a fault of the engine.
    pub num_corrupt_releases: u64,
}

impl DeviceStats {
    /// Returns the figures by pool with PyTorch's names, in PyTorch's order.
    #[must_use]
    pub fn by_pool(&self) -> [(&'static str, &StatByPool); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    /// Counts a block as no longer active.
    #[inline(always)]
    pub(crate) fn count_inactive(&mut self, small: bool, size: usize, requested: usize) {
        self.active.sub(small, 1);
        self.active_bytes.sub(small, size as u64);
        self.requested_bytes.sub(small, requested as u64);
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        self.for_each(|stat| stat.peak = stat.current);
    }

    /// Returns the statistics with the sums of additions.
    pub(crate) fn with_sums(mut self) -> Self {
        self.for_each(Stat::with_sum);
        self
    }

    fn for_each(&mut self, call: impl FnMut(&mut Stat)) {
        let pools = [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        let single = [&mut self.oversize_allocations, &mut self.oversize_segments];
        pools.into_iter().flat_map(StatByPool::each).chain(single).for_each(call);
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, peak, allocated, freed } = self;
        write!(f, "current {current} peak {peak} allocated {allocated} freed {freed}")
    }
}

/// Writes a line for each figure, under PyTorch's names.
impl fmt::Display for DeviceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, stat) in self.by_pool() {
            writeln!(f, "{name}.all {}", stat.all)?;
            writeln!(f, "{name}.small_pool {}", stat.small)?;
            writeln!(f, "{name}.large_pool {}", stat.large)?;
        }
        writeln!(f, "oversize_allocations {}", self.oversize_allocations)?;
        writeln!(f, "oversize_segments {}", self.oversize_segments)?;
        // PyTorch prints the `max_split_size` from before its allocator was made, when no settings were read.
        write!(
            f,
            "num_alloc_retries {} num_ooms {} num_device_alloc {} num_device_free {} num_sync_all_streams {} \
             max_split_size -1",
            self.num_alloc_retries,
            self.num_ooms,
            self.num_device_alloc,
            self.num_device_free,
            self.num_sync_all_streams,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_end_at_the_largest_number() {
        let mut stats = DeviceStats::default();
        for _ in 0..5 {
            stats.active.add(true, 1 << 62);
            stats.active.sub(true, 1 << 62);
        }
        stats.active.add(true, 7);
        let Stat { current, peak, allocated, freed } = stats.with_sums().active.all;
        assert_eq!((current, peak, allocated, freed), (7, 1 << 62, u64::MAX, u64::MAX));
    }
}
