//! Settings of the caching engine.

use super::Caching;
use super::classes::GRANULE;
use crate::backing::{Backing, Shielded};
use crate::bfc::heap::Heap;
use crate::bfc::{BfcPolicy, RegionGrowth, Split};
use crossbeam_utils::CachePadded;
use orlop_sync::{GrowableHeap, RemoteFreeList, ShardedCounters, thread_slot::SLOTS};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// The default of [`CachingBuilder::slack`].
const SLACK: usize = 16;

/// Builder of a [`Caching`].
#[derive(Debug)]
pub struct CachingBuilder<B> {
    backing: B,
    limit: usize,
    slack: usize,
    learns: bool,
    name: Box<str>,
}

impl<B: Backing> CachingBuilder<B> {
    pub(super) fn new(backing: B) -> Self {
        Self { backing, limit: usize::MAX, slack: SLACK, learns: true, name: "caching".into() }
    }

    /// Sets the limit of reserved bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets how much a thread may have cached, as one part in `one_in` of the reserved bytes, before it
    /// merges its cache on a miss. The default is sixteen. It shrinks whenever the heap has to grow although
    /// as many bytes are free: then unmerged blocks were in the way.
    #[must_use]
    pub fn slack(mut self, one_in: NonZeroUsize) -> Self {
        self.slack = one_in.get();
        self
    }

    /// Sets whether each thread's period is learned, and served from a plan as long as it repeats. On by
    /// default.
    #[must_use]
    pub fn learning(mut self, on: bool) -> Self {
        self.learns = on;
        self
    }

    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Builds the engine.
    #[must_use]
    pub fn build(self) -> Caching<B> {
        let policy = BfcPolicy {
            name: "caching",
            granule: GRANULE,
            split: Split::Remainder { at_least: GRANULE.bytes() },
            growth: RegionGrowth::Steps { step: 0 },
            release_when_stuck: true,
        };
        Caching {
            counters: ShardedCounters::new(true),
            heap: GrowableHeap::new(Heap::new(policy, self.backing.device(), self.backing.access())),
            backing: Shielded::new(self.backing),
            limit: self.limit,
            slack: AtomicUsize::new(self.slack),
            remote_frees: (0..SLOTS).map(|_| CachePadded::new(RemoteFreeList::new())).collect(),
            learns: self.learns,
            plans: AtomicUsize::new(0),
            grown_beside: AtomicUsize::new(0),
            learning_bytes: AtomicUsize::new(0),
            marks: AtomicU32::new(0),
            #[cfg(all(unix, not(loom)))]
            fork_number: std::sync::atomic::AtomicU64::new(0),
            name: self.name,
        }
    }
}
