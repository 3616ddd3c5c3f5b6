//! The caching engine: nearly as fast as a free list, nearly as tight as best fit.
//!
//! ```text
//!  allocate ─► the thread cache ─► the heap: best fit ─► merge caches ─► grow in place
//!               (no lock,           (one lock)           (own, then others')
//!  free ─────►  nothing shared)
//! ```
//!
//! A freed block goes onto a stack of the thread that freed it, and serves the next request of its size
//! class. Merging it with its neighbours is deferred. But unmerged blocks are in the way of requests that the
//! merged space would fit, and the heap grows: so before a block is cut from the heap, the thread merges its
//! cache if that holds more than a part of the reserved bytes, the *slack*. Whenever the heap has to grow
//! although as many bytes are free, the slack is halved. Nothing is reserved while cached memory would do.
//!
//! | module | what it holds |
//! |---|---|
//! | `allocate` | the steps of a request, from the thread cache to a refusal |
//! | `free` | the ways of a freed block: thread cache, plan, remote free list, heap |
//! | `allocator` | the [`Allocator`](crate::Allocator) implementation, with both fast paths |
//! | `thread_cache`, `tags` | a thread's cache, with what it learned of periods; its counts by tag |
//! | `token` | the engine's word in the record of a block |
//! | `plan`, `follow` | the plan of a period; starting and ending it |
//! | `index`, `classes` | the heap's index of free chunks; the size classes |
//! | `growth`, `release` | obtaining memory from the backing, and giving it back |
//! | `maintenance`, `fork` | giving back at intervals; the child of a `fork` |
//!
//! `docs/caching.md` has the reasons, and the alternatives.

mod allocate;
mod allocator;
mod builder;
mod classes;
mod follow;
#[cfg(all(unix, not(loom)))]
mod fork;
mod free;
mod growth;
mod index;
mod maintenance;
mod plan;
mod release;
mod tags;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread_cache;
mod token;

pub use self::builder::CachingBuilder;
pub use self::maintenance::{Maintenance, MaintenanceBuilder, PressureReport};

use self::classes::CLASSES;
use self::index::ClassIndex;
use self::thread_cache::ThreadCache;
use crate::Record;
use crate::backing::{Backing, BackingRef, Shielded};
use crate::bfc::heap::Heap;
use crossbeam_utils::CachePadded;
use orlop_sync::{GrowableHeap, RemoteFreeList, ShardedCounters};
#[cfg(all(unix, not(loom)))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// The class of blocks that are not cached: they go to the heap at once.
const UNCACHED: usize = CLASSES;

/// The caching engine; see [the module](self).
///
/// ```
/// use orlop_alloc::backing::Mmap;
/// use orlop_alloc::caching::Caching;
/// use orlop_alloc::{Allocator, Request};
///
/// let allocator = Caching::new(Mmap::new()).into_ref();
/// let block = allocator.allocate(&Request::new(10_000))?;
/// assert!(block.capacity() <= 10_000 + 10_000 / 32 + 64);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Caching<B: Backing = BackingRef> {
    /// The statistics, and each thread's cache.
    counters: ShardedCounters<ThreadCache>,
    heap: GrowableHeap<Heap<ClassIndex>>,
    backing: Shielded<B>,
    limit: usize,
    /// A thread may have one part in `slack` of the reserved bytes cached when it cuts a block from the heap.
    /// It only ever increases: see `growth`.
    slack: AtomicUsize,
    /// By slot: its blocks that other threads freed.
    remote_frees: Box<[CachePadded<RemoteFreeList<Record>>]>,
    /// Whether periods are learned.
    learns: bool,
    /// The number of plans.
    plans: AtomicUsize,
    /// Bytes by which the heap grew beside plans, since one ended last.
    grown_beside: AtomicUsize,
    /// Bytes of plans and logs.
    learning_bytes: AtomicUsize,
    /// The number of plans ever made.
    marks: AtomicU32,
    /// The engine's number in the list of fork-safe engines; zero if it is not in the list.
    #[cfg(all(unix, not(loom)))]
    fork_number: AtomicU64,
    name: Box<str>,
}

impl<B: Backing> Caching<B> {
    /// Creates an engine with the defaults of [`Caching::builder`].
    #[must_use]
    pub fn new(backing: B) -> Self {
        Self::builder(backing).build()
    }

    /// Returns a builder without a limit.
    pub fn builder(backing: B) -> CachingBuilder<B> {
        CachingBuilder::new(backing)
    }

    /// Returns the limit of reserved bytes; `usize::MAX` without one.
    pub fn limit(&self) -> usize {
        self.limit
    }
}
