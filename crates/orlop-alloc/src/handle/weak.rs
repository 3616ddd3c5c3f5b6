//! Weak handles: access to an allocator while it exists, without keeping it alive.
//!
//! A context counts the memory of allocators that were passed to it for single requests, such as the arena of
//! a step. It must not keep them alive: an arena that its user drops should give its memory back then. So a
//! cell has a link, created with the first weak handle, that points back to the cell until that is destroyed.
//!
//! # Who may access the cell
//!
//! The code that holds the link's lock and finds the pointer there: the cell is destroyed only after
//! [`WeakLink::cut`] has removed the pointer under the same lock. (A fourth rule beside those of `cell`.)
//! Only statistics are read while the lock is held.

use super::cell::AllocatorCell;
use crate::{Allocator, AllocatorRef, Stats};
use orlop_sync::Totals;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The cell's side of the link.
#[derive(Default)]
pub(super) struct WeakLink {
    target: OnceLock<Arc<WeakTarget>>,
    /// The number of the context that recorded the allocator last: that one need not search its list.
    pub(super) context: AtomicU64,
    /// See `for_contexts`.
    pub(super) gate: Mutex<Option<WeakAllocator>>,
}

/// The pointer to the cell, until that is destroyed.
struct WeakTarget(Mutex<Option<NonNull<AllocatorCell<dyn Allocator>>>>);

// SAFETY: the allocator behind the pointer may be used from any thread, as through a handle, and only under
// the lock.
unsafe impl Send for WeakTarget {}
// SAFETY: as above.
unsafe impl Sync for WeakTarget {}

impl WeakTarget {
    fn lock(&self) -> MutexGuard<'_, Option<NonNull<AllocatorCell<dyn Allocator>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakLink {
    /// Removes the pointer, because the cell is about to be destroyed. No thread reads the cell through the
    /// link after this returns.
    pub(super) fn cut(&self) {
        if let Some(target) = self.target.get() {
            target.lock().take();
        }
    }
}

/// A handle that keeps nothing alive; from [`AllocatorRef::downgrade`].
#[derive(Clone)]
pub struct WeakAllocator {
    target: Arc<WeakTarget>,
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// Returns a weak handle.
    #[must_use]
    pub fn downgrade(&self) -> WeakAllocator {
        let cell = self.cell();
        let make = || Arc::new(WeakTarget(Mutex::new(Some(cell.head.cell))));
        WeakAllocator { target: Arc::clone(cell.link.target.get_or_init(make)) }
    }
}

impl WeakAllocator {
    /// Returns a handle, if the allocator still has one.
    #[must_use]
    pub fn upgrade(&self) -> Option<AllocatorRef> {
        let target = self.target.lock();
        let cell = (*target)?;
        // SAFETY: the cell exists as long as the lock is held (see the module documentation).
        let joined = unsafe { cell.as_ref() }.handles.join_from_block();
        joined.then(|| AllocatorRef { cell })
    }

    /// Returns `true` if the allocator and all its blocks are gone.
    #[must_use]
    pub fn is_destroyed(&self) -> bool {
        self.target.lock().is_none()
    }

    /// Returns `true` if this is a weak handle of `allocator`.
    #[must_use]
    pub fn refers_to(&self, allocator: &AllocatorRef) -> bool {
        // Compared by address only: a type may have several vtables.
        self.target.lock().is_some_and(|cell| cell.cast() == allocator.owner())
    }

    /// Returns `true` if the allocator hands out blocks of `other`: see [`Allocator::wraps`].
    #[must_use]
    pub fn wraps(&self, other: &AllocatorRef) -> bool {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        target.is_some_and(|cell| unsafe { cell.as_ref() }.allocator.wraps(other))
    }

    /// Returns the name and the statistics, also when only blocks are left.
    #[must_use]
    pub fn stats(&self) -> Option<(Box<str>, Stats)> {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        let cell = unsafe { (*target)?.as_ref() };
        Some((cell.allocator.name().into(), cell.stats()))
    }

    /// Returns the sums of what was allocated.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        let target = self.target.lock();
        // SAFETY: as in `upgrade`.
        let cell = unsafe { (*target)?.as_ref() };
        Some(cell.totals())
    }
}

/// Handles are equal if they are of the same allocator.
impl PartialEq for WeakAllocator {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target, &other.target)
    }
}

impl std::fmt::Debug for WeakAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakAllocator").field("gone", &self.is_destroyed()).finish()
    }
}
