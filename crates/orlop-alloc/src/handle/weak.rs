//! Weak handles: a look at an allocator for as long as it is there, without keeping it.
//!
//! A context counts what allocators hold that were passed to it for some requests, such as the arena of a step. It must not
//! keep them alive: an arena that its user drops gives its memory back then. So a cell has a link, made when somebody first
//! wants a weak handle, that points back to it until the cell goes.
//!
//! # Who may touch the cell
//!
//! Whoever holds the link's lock and finds the pointer there: the cell is destroyed only after [`Link::cut`] has taken the
//! pointer out, under the same lock. (A fourth rule beside those of `cell`.) With the lock held only figures are read.

use super::cell::Shared;
use crate::{Allocator, AllocatorRef, Stats};
use orlop_sync::Totals;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A cell's side.
#[derive(Default)]
pub(super) struct Link {
    target: OnceLock<Arc<Target>>,
    /// The number of the context that noted the allocator last: it need not look into its list.
    noted_by: AtomicU64,
}

/// Where the cell is, until it goes.
struct Target(Mutex<Option<NonNull<Shared<dyn Allocator>>>>);

// SAFETY: what is behind the pointer may be used from any thread, as through a handle, and only under the lock.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    fn lock(&self) -> MutexGuard<'_, Option<NonNull<Shared<dyn Allocator>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// The cell is about to go: nobody looks at it any more when this returns.
    pub(super) fn cut(&self) {
        if let Some(target) = self.target.get() {
            target.lock().take();
        }
    }
}

/// A handle that keeps nothing alive.
#[derive(Clone)]
pub(crate) struct WeakAllocator {
    target: Arc<Target>,
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// A weak handle.
    pub(crate) fn downgrade(&self) -> WeakAllocator {
        let shared = self.shared();
        let make = || Arc::new(Target(Mutex::new(Some(shared.head.shared))));
        WeakAllocator { target: Arc::clone(shared.link.target.get_or_init(make)) }
    }

    /// Whether the context of this number noted the allocator, and no other did since. One relaxed load: a number is
    /// nobody else's, ever, and what is noted is behind a lock.
    #[inline]
    pub(crate) fn is_noted_by(&self, context: u64) -> bool {
        self.shared().link.noted_by.load(Ordering::Relaxed) == context
    }

    pub(crate) fn set_noted_by(&self, context: u64) {
        self.shared().link.noted_by.store(context, Ordering::Relaxed);
    }
}

impl WeakAllocator {
    /// A handle, while there is one.
    pub(crate) fn upgrade(&self) -> Option<AllocatorRef> {
        let target = self.target.lock();
        let shared = (*target)?;
        // SAFETY: the cell is there as long as the lock is held (see the head of this file).
        let joined = unsafe { shared.as_ref() }.handles.join_from_block();
        joined.then(|| AllocatorRef { shared })
    }

    /// Whether the allocator is gone, with its last block.
    pub(crate) fn is_gone(&self) -> bool {
        self.target.lock().is_none()
    }

    /// Whether this leads to that allocator.
    pub(crate) fn is_of(&self, allocator: &AllocatorRef) -> bool {
        // By address only: of one type there may be several tables of methods.
        self.target.lock().is_some_and(|shared| shared.cast() == allocator.owner())
    }

    /// Whether it hands out blocks of `other`: see [`Allocator::is_over`].
    pub(crate) fn is_over(&self, other: &AllocatorRef) -> bool {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        target.is_some_and(|shared| unsafe { shared.as_ref() }.allocator.is_over(other))
    }

    /// Its name and figures, also when only blocks of it are left.
    pub(crate) fn stats(&self) -> Option<(Box<str>, Stats)> {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        let shared = unsafe { (*target)?.as_ref() };
        Some((shared.allocator.name().into(), shared.stats()))
    }

    /// What it handed out.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        let shared = unsafe { (*target)?.as_ref() };
        shared.counter().map(|counter| counter.totals())
    }
}

impl std::fmt::Debug for WeakAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakAllocator").field("gone", &self.is_gone()).finish()
    }
}
