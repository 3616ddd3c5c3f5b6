//! Settings of the caching engine.

use super::Caching;
use super::classes::GRANULE;
use crate::backing::{Backing, Shielded};
use crate::bfc::heap::Heap;
use crate::bfc::{BfcPolicy, RegionGrowth, Split};
use crate::{AllocatorRef, Result};
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
    fork_safe: bool,
    statistics: bool,
    name: Box<str>,
}

impl<B: Backing> CachingBuilder<B> {
    pub(super) fn new(backing: B) -> Self {
        Self {
            backing,
            limit: usize::MAX,
            slack: SLACK,
            learns: true,
            fork_safe: false,
            statistics: true,
            name: "caching".into(),
        }
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

    /// Sets whether the child of a `fork` gets a working allocator, whatever other threads were doing. Off by
    /// default. It applies to [`CachingBuilder::build`] and [`CachingBuilder::try_build`] only, and has no
    /// effect where there is no `fork`.
    ///
    /// A fork then waits until no thread is inside the engine, and keeps all threads out of it until it is
    /// done (`pthread_atfork`): the child can allocate, free, trim and verify. Without this, that holds only
    /// for forks while no other thread is inside a call.
    ///
    /// - Fork handlers that were registered before the first such engine was made run while it is locked:
    ///   they must not use it.
    /// - Private memory is copied when parent or child writes to it. Memory shared between processes, and
    ///   devices, are the same for both, and the engine does not handle them.
    /// - Adaptors, and engines of other kinds, have locks of their own.
    /// - The slots of threads that are not in the child stay taken; what they had cached comes back at a
    ///   trim. There is no [`Maintenance`](super::Maintenance) thread in the child.
    #[must_use]
    pub fn fork_safe(mut self, on: bool) -> Self {
        self.fork_safe = on;
        self
    }

    /// Sets whether bytes are counted: see [`AllocatorRef::with_statistics`]. On by default.
    #[must_use]
    pub fn statistics(mut self, on: bool) -> Self {
        self.statistics = on;
        self
    }

    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Builds the engine itself, to be put under an adaptor.
    #[must_use]
    pub fn build_engine(self) -> Caching<B> {
        let policy = BfcPolicy {
            name: "caching",
            granule: GRANULE,
            split: Split::Remainder { at_least: GRANULE.bytes() },
            growth: RegionGrowth::Steps { step: 0 },
            release_when_stuck: true,
        };
        Caching {
            counters: ShardedCounters::new(self.statistics),
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

    /// Builds the engine behind a handle. If [`fork_safe`](CachingBuilder::fork_safe) was set and the fork
    /// handlers cannot be registered, that is traced; [`CachingBuilder::try_build`] returns the error.
    #[must_use]
    pub fn build(self) -> AllocatorRef<Caching<B>> {
        let (allocator, registered) = self.build_registered();
        if let Err(error) = registered {
            tracing::error!(
                %error,
                "the fork handlers were not registered: a forked child must not use the allocator"
            );
        }
        allocator
    }

    /// Builds the engine behind a handle.
    ///
    /// # Errors
    ///
    /// [`Error::ForkHandlers`](crate::Error::ForkHandlers) if [`fork_safe`](CachingBuilder::fork_safe) was
    /// set and the fork handlers cannot be registered.
    pub fn try_build(self) -> Result<AllocatorRef<Caching<B>>> {
        let (allocator, registered) = self.build_registered();
        registered.map(|()| allocator)
    }

    fn build_registered(self) -> (AllocatorRef<Caching<B>>, Result<()>) {
        let (fork_safe, statistics) = (self.fork_safe, self.statistics);
        let allocator = AllocatorRef::with_statistics(self.build_engine(), statistics);
        #[cfg(all(unix, not(loom)))]
        if fork_safe {
            // SAFETY: an engine behind a handle does not move.
            let registered = unsafe { allocator.hold_over_forks() };
            return (allocator, registered);
        }
        #[cfg(any(not(unix), loom))]
        let _there_are_no_forks = fork_safe;
        (allocator, Ok(()))
    }
}
