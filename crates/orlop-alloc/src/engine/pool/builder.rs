//! Settings of a pool.

use super::Pool;
use super::bound::Bound;
use crate::backing::Backing;
use crate::engine::region_source::{RegionSource, cached_align};
use orlop_core::Alignment;
use orlop_sync::{ColdMutex, ShardedCounters};

/// The rule by which requests are rounded before a lookup.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Rounding {
    /// To the next multiple of an alignment.
    Multiple(Alignment),
    /// To the next power of two.
    Pow2,
    /// By a function. A result below the request is raised to the request.
    Custom(fn(usize) -> usize),
}

impl Rounding {
    #[inline]
    pub(super) fn round(self, bytes: usize) -> usize {
        match self {
            Self::Multiple(align) => {
                let mask = align.bytes() - 1;
                bytes.checked_add(mask).map_or(bytes, |bytes| bytes & !mask)
            }
            Self::Pow2 => bytes.checked_next_power_of_two().unwrap_or(bytes),
            Self::Custom(rule) => rule(bytes).max(bytes),
        }
    }
}

/// Settings of a [`Pool`].
#[derive(Debug)]
pub struct PoolBuilder<B> {
    pub(super) backing: B,
    pub(super) rounding: Rounding,
    pub(super) bound: usize,
    pub(super) grows: bool,
}

impl<B: Backing> PoolBuilder<B> {
    /// Sets the rounding.
    #[must_use]
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Sets the initial bound on cached blocks.
    #[must_use]
    pub fn bound(mut self, blocks: usize) -> Self {
        self.bound = blocks;
        self
    }

    /// Prevents the bound from growing.
    #[must_use]
    pub fn fixed_bound(mut self) -> Self {
        self.grows = false;
        self
    }

    /// Builds the engine.
    #[must_use]
    pub fn build(self) -> Pool<B> {
        let bound = Bound::new(self.bound, self.grows);
        let source = RegionSource::new(self.backing);
        Pool {
            align: cached_align(source.device()),
            source,
            rounding: self.rounding,
            bound: ColdMutex::new(bound),
            counters: ShardedCounters::default(),
        }
    }
}
