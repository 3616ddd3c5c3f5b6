//! What thread caches did since the engine was last told: blocks that they took back and handed out again.

use super::{DeviceStats, Stat, StatByPool};

/// Blocks, their bytes, and their bytes as requested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Amounts {
    blocks: i64,
    bytes: i64,
    requested: i64,
}

impl Amounts {
    /// Returns the amounts of a block.
    #[inline(always)]
    pub(crate) fn of(bytes: usize, requested: usize) -> Self {
        Self { blocks: 1, bytes: bytes.cast_signed() as i64, requested: requested.cast_signed() as i64 }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.wrapping_add(other.blocks),
            bytes: self.bytes.wrapping_add(other.bytes),
            requested: self.requested.wrapping_add(other.requested),
        }
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.wrapping_sub(other.blocks),
            bytes: self.bytes.wrapping_sub(other.bytes),
            requested: self.requested.wrapping_sub(other.requested),
        }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.max(other.blocks),
            bytes: self.bytes.max(other.bytes),
            requested: self.requested.max(other.requested),
        }
    }
}

/// What a cache did with blocks of the small pools, or of the large ones.
#[derive(Debug, Clone, Copy, Default)]
struct Turnover {
    /// All that was freed into the cache.
    freed: Amounts,
    /// What it handed out, less what was freed into it.
    net: Amounts,
    /// The peak of `net`.
    high: Amounts,
}

/// What a thread's cache did since the engine was last told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheTurnover {
    small: Turnover,
    large: Turnover,
    /// The peak of the sum of both.
    high: Amounts,
}

impl CacheTurnover {
    /// Counts a block that the cache handed out.
    #[inline(always)]
    pub(crate) fn count_taken(&mut self, small: bool, block: Amounts) {
        let of = if small { &mut self.small } else { &mut self.large };
        of.net = of.net.plus(block);
        of.high = of.high.max(of.net);
        self.high = self.high.max(self.small.net.plus(self.large.net));
    }

    /// Counts a block that was freed into the cache.
    #[inline(always)]
    pub(crate) fn count_given(&mut self, small: bool, block: Amounts) {
        let of = if small { &mut self.small } else { &mut self.large };
        of.net = of.net.minus(block);
        of.freed = of.freed.plus(block);
    }

    /// Returns the peak of the bytes that it handed out, less those that were freed into it.
    pub(crate) fn high_bytes(&self) -> i64 {
        self.high.bytes
    }
}

impl DeviceStats {
    /// Counts what a thread's cache did.
    pub(crate) fn settle(&mut self, turnover: &CacheTurnover) {
        let count = |stat: &mut StatByPool, amount: fn(&Amounts) -> i64| {
            let CacheTurnover { small, large, high } = turnover;
            let all = Turnover {
                freed: small.freed.plus(large.freed),
                net: small.net.plus(large.net),
                high: *high,
            };
            for (stat, of) in [(&mut stat.all, &all), (&mut stat.small, small), (&mut stat.large, large)] {
                stat.settle(amount(&of.freed).cast_unsigned(), amount(&of.net), amount(&of.high));
            }
        };
        count(&mut self.allocation, |of| of.blocks);
        count(&mut self.active, |of| of.blocks);
        count(&mut self.allocated_bytes, |of| of.bytes);
        count(&mut self.active_bytes, |of| of.bytes);
        count(&mut self.requested_bytes, |of| of.requested);
    }
}

impl Stat {
    /// Counts what was freed, and what was added besides, which was `high` more at its peak.
    fn settle(&mut self, freed: u64, net: i64, high: i64) {
        let high = self.current.wrapping_add_signed(high);
        self.raise_peak(high);
        self.count_freed(freed);
        self.current = self.current.wrapping_add_signed(net);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_counts_as_the_engine_would() {
        let (mut direct, mut cached) = (DeviceStats::default(), DeviceStats::default());
        for stats in [&mut direct, &mut cached] {
            stats.allocation.add(true, 3);
            stats.allocated_bytes.add(true, 1536);
            stats.requested_bytes.add(true, 1200);
        }
        let mut turnover = CacheTurnover::default();
        let block = Amounts::of(512, 400);
        // Two blocks return; one of them, and one that another thread returned, are handed out again.
        for is_taken in [false, false, true, true, true, false] {
            if is_taken {
                turnover.count_taken(true, block);
                direct.allocation.add(true, 1);
                direct.allocated_bytes.add(true, 512);
                direct.requested_bytes.add(true, 400);
            } else {
                turnover.count_given(true, block);
                direct.allocation.sub(true, 1);
                direct.allocated_bytes.sub(true, 512);
                direct.requested_bytes.sub(true, 400);
            }
        }
        cached.settle(&turnover);
        let (direct, cached) = (direct.with_sums(), cached.with_sums());
        assert_eq!(cached.allocation, direct.allocation);
        assert_eq!(cached.allocated_bytes, direct.allocated_bytes);
        assert_eq!(cached.requested_bytes, direct.requested_bytes);
        assert_eq!(cached.allocation.all.peak, 4);
    }
}
