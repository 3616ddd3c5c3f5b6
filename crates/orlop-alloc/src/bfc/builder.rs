//! Settings of the BFC engine.

use super::Bfc;
use super::heap::Heap;
use super::policy::{BfcPolicy, RegionGrowth};
use crate::backing::{Backing, Shielded};
use orlop_sync::GrowableHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Builder of a [`Bfc`].
#[derive(Debug)]
pub struct BfcBuilder<B: Backing> {
    backing: B,
    policy: BfcPolicy,
    limit: usize,
    name: Option<Box<str>>,
    clock: Option<Arc<AtomicU64>>,
}

impl<B: Backing> BfcBuilder<B> {
    pub(super) fn new(backing: B) -> Self {
        let policy = BfcPolicy::tensorflow();
        Self { backing, policy, limit: usize::MAX, name: None, clock: None }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: BfcPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the limit of reserved bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets the name. The default is the policy's name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Stamps each free with the next tick of `clock`: see
    /// [`Allocator::set_safe_frontier`](crate::Allocator::set_safe_frontier).
    #[must_use]
    pub fn clock(mut self, clock: Arc<AtomicU64>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the engine.
    #[must_use]
    pub fn build(self) -> Bfc<B> {
        let granule = self.policy.granule;
        let (device, access) = (self.backing.device(), self.backing.access());
        // As in TensorFlow, the first region is rounded up; a single region for the whole limit is rounded
        // down.
        let first = match self.policy.growth {
            RegionGrowth::WholeLimit => granule.round_down(self.limit),
            RegionGrowth::Doubling { first } => {
                granule.round_up(first.min(self.limit)).unwrap_or_else(|_| granule.round_down(first))
            }
            RegionGrowth::Steps { .. } => 0,
        };
        Bfc {
            name: self.name.unwrap_or_else(|| self.policy.name.into()),
            backing: Shielded::new(self.backing),
            limit: self.limit,
            region_align: granule,
            heap: GrowableHeap::new(Heap::new(self.policy, device, access)),
            first_region: first,
            next_region: AtomicUsize::new(first),
            backpedalled: AtomicBool::new(false),
            clock: self.clock,
        }
    }
}
