//! Weak handles: access to an allocator while it exists, without keeping it alive.
//!
//! A context counts the memory of allocators that were passed to it for single requests, such as the arena of
//! a step. It must not keep them alive: an arena that its user drops should give its memory back then. So a
//! cell has a link, created with the first weak handle, that points back to the cell until that is destroyed.
//!
//! # Who may access the cell
//!
//! A fourth rule beside those of `cell`: the code that holds the link's lock and finds the pointer there, and
//! a visit that begins so, until it ends. The cell is destroyed after [`WeakTarget::cut`] has removed the
//! pointer under the same lock: by the caller of that, or by the last visit if there is one.
//!
//! No method of the allocator runs while the lock is held: its author's code may do anything, also drop what
//! keeps the allocator alive. Such code runs in a visit.

use super::cell::{AllocatorCell, free};
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

type CellPointer = NonNull<AllocatorCell<dyn Allocator>>;

/// The cell as weak handles reach it.
pub(super) struct WeakTarget(Mutex<TargetState>);

struct TargetState {
    /// The cell, until it is about to be destroyed.
    cell: Option<CellPointer>,
    visits: usize,
    /// The cell, if the last visit has to destroy it.
    abandoned: Option<CellPointer>,
}

// SAFETY: the allocator behind the pointers may be used from any thread, as through a handle, and only as the
// module documentation says.
unsafe impl Send for WeakTarget {}
// SAFETY: as above.
unsafe impl Sync for WeakTarget {}

impl WeakTarget {
    fn lock(&self) -> MutexGuard<'_, TargetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the pointer, because the cell is about to be destroyed. Returns `true` if the caller destroys
    /// it; otherwise the last visit does, at any time from now on.
    pub(super) fn cut(&self) -> bool {
        let mut state = self.lock();
        let cell = state.cell.take();
        if state.visits > 0 {
            state.abandoned = cell;
        }
        state.visits == 0
    }
}

impl WeakLink {
    /// Returns the target, if there are weak handles.
    pub(super) fn target(&self) -> Option<Arc<WeakTarget>> {
        self.target.get().cloned()
    }
}

/// Keeps a cell from being destroyed, without its handle.
struct Visit<'a> {
    target: &'a WeakTarget,
    cell: CellPointer,
}

impl Visit<'_> {
    fn cell(&self) -> &AllocatorCell<dyn Allocator> {
        // SAFETY: the cell is not destroyed before the visit ends (see the module documentation).
        unsafe { self.cell.as_ref() }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut state = self.target.lock();
        state.visits -= 1;
        let abandoned = if state.visits == 0 { state.abandoned.take() } else { None };
        drop(state);
        if let Some(cell) = abandoned {
            // SAFETY: the owner of this pointer left it to the last visit, which this one is: the pointer is
            // gone, so that none begins.
            unsafe { free(cell) };
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
        let state = TargetState { cell: Some(cell.head.cell), visits: 0, abandoned: None };
        let make = || Arc::new(WeakTarget(Mutex::new(state)));
        WeakAllocator { target: Arc::clone(cell.link.target.get_or_init(make)) }
    }
}

impl WeakAllocator {
    /// Begins a visit, if the allocator still exists.
    fn visit(&self) -> Option<Visit<'_>> {
        let mut state = self.target.lock();
        let cell = state.cell?;
        state.visits += 1;
        Some(Visit { target: &self.target, cell })
    }

    /// Returns a handle, if the allocator still has one.
    #[must_use]
    pub fn upgrade(&self) -> Option<AllocatorRef> {
        let state = self.target.lock();
        let cell = state.cell?;
        // SAFETY: the cell exists as long as the lock is held (see the module documentation).
        let joined = unsafe { cell.as_ref() }.handles.join_from_block();
        joined.then(|| AllocatorRef { cell })
    }

    /// Returns `true` if the allocator and all its blocks are gone.
    #[must_use]
    pub fn is_destroyed(&self) -> bool {
        self.target.lock().cell.is_none()
    }

    /// Returns `true` if this is a weak handle of `allocator`.
    #[must_use]
    pub fn refers_to(&self, allocator: &AllocatorRef) -> bool {
        // Compared by address only: a type may have several vtables.
        self.target.lock().cell.is_some_and(|cell| cell.cast() == allocator.owner())
    }

    /// Returns `true` if the allocator hands out blocks of `other`: see [`Allocator::wraps`]. As with
    /// [`WeakAllocator::stats`], the allocator may be destroyed here: hold no lock that its destructor needs.
    #[must_use]
    pub fn wraps(&self, other: &AllocatorRef) -> bool {
        self.visit().is_some_and(|visit| visit.cell().allocator.wraps(other))
    }

    /// Returns the name and the statistics, also when only blocks are left. If the last of them is dropped
    /// meanwhile, the allocator is destroyed here.
    #[must_use]
    pub fn stats(&self) -> Option<(Box<str>, Stats)> {
        let visit = self.visit()?;
        let cell = visit.cell();
        Some((cell.allocator.name().into(), cell.stats()))
    }

    /// Returns the sums of what was allocated. It only reads counters.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        let state = self.target.lock();
        // SAFETY: as in `upgrade`.
        Some(unsafe { state.cell?.as_ref() }.totals())
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
