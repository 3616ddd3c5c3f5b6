//! Settings of the caching engine.

use super::Caching;
use super::classes::GRANULE;
use crate::backing::{Backing, Shielded};
use crate::central::heap::Heap;
use crate::central::{BfcPolicy, RegionGrowth, Split};
use crate::{AllocatorRef, Result};
use crossbeam_utils::CachePadded;
use orlop_sync::{GrowableHeap, RemoteFreeList, ShardedCounters, thread_slot::SLOTS};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// What [`CachingBuilder::slack`] is unless set.
const SLACK: usize = 16;

/// Settings of a [`Caching`].
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

    /// Never holding more than so many bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// How much a thread may have cached, one part in so many of what is held, without merging it when it needs
    /// something else; sixteen unless set. It becomes less whenever the heap has to grow although as many bytes are
    /// free: then what waited unmerged was in the way.
    #[must_use]
    pub fn slack(mut self, one_in: NonZeroUsize) -> Self {
        self.slack = one_in.get();
        self
    }

    /// Whether each thread's period is learned, and served from a plan as long as it repeats. On unless set.
    #[must_use]
    pub fn learning(mut self, on: bool) -> Self {
        self.learns = on;
        self
    }

    /// Whether the child of a `fork` gets an allocator that works, whatever other threads were doing. Off unless set; for
    /// [`CachingBuilder::build`] only, and of no meaning where there is no `fork`.
    ///
    /// A fork then waits until no thread is inside the engine and keeps all out while it lasts (`pthread_atfork`): the child
    /// can allocate, return, trim and verify. Without, that holds only for forks while no other thread is inside a call.
    ///
    /// - Fork handlers of others that were registered before the first such engine was made run while it is held: they must
    ///   not use it.
    /// - Private memory is copied when parent or child writes. What is shared between processes, and devices, are the same
    ///   for both, and not looked after.
    /// - Adaptors, and engines of other kinds, have locks of their own.
    /// - Seats of threads that are not in the child stay taken; what they had cached comes back at a trim. A
    ///   [`Maintenance`](super::Maintenance) thread is not there.
    #[must_use]
    pub fn fork_safe(mut self, on: bool) -> Self {
        self.fork_safe = on;
        self
    }

    /// Whether bytes are counted: see [`AllocatorRef::with_statistics`]. On unless set.
    #[must_use]
    pub fn statistics(mut self, on: bool) -> Self {
        self.statistics = on;
        self
    }

    /// Under this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// The engine itself, for putting under an adaptor.
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
            notes: AtomicUsize::new(0),
            marks: AtomicU32::new(0),
            #[cfg(all(unix, not(loom)))]
            forks: std::sync::atomic::AtomicU64::new(0),
            name: self.name,
        }
    }

    /// The engine behind a handle. If it was to be held over forks and cannot be, that is traced:
    /// [`CachingBuilder::try_build`] says so.
    #[must_use]
    pub fn build(self) -> AllocatorRef<Caching<B>> {
        let (allocator, held) = self.build_held();
        if let Err(error) = held {
            tracing::error!(%error, "the allocator is not held over forks");
        }
        allocator
    }

    /// The engine behind a handle.
    ///
    /// # Errors
    ///
    /// [`Error::ForkHandlers`](crate::Error::ForkHandlers) if it was to be held over forks and cannot be.
    pub fn try_build(self) -> Result<AllocatorRef<Caching<B>>> {
        let (allocator, held) = self.build_held();
        held.map(|()| allocator)
    }

    fn build_held(self) -> (AllocatorRef<Caching<B>>, Result<()>) {
        let (fork_safe, statistics) = (self.fork_safe, self.statistics);
        let allocator = AllocatorRef::with_statistics(self.build_engine(), statistics);
        #[cfg(all(unix, not(loom)))]
        if fork_safe {
            // SAFETY: an engine behind a handle does not move.
            let held = unsafe { allocator.hold_over_forks() };
            return (allocator, held);
        }
        #[cfg(any(not(unix), loom))]
        let _there_are_no_forks = fork_safe;
        (allocator, Ok(()))
    }
}
