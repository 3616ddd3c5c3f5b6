//! An allocator's cell, for models: handles and blocks use it, and the last of both destroys it.
//!
//! Its memory is freed with the model. Its end is what the destroying thread does: an exclusive access to
//! every word, which loom checks against all uses, before and after.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use orlop_core::MemoryKind;
use orlop_sync::{Handles, OwnerState, ShardedCounters, thread_slot};
use std::ptr::NonNull;

pub(crate) const KIND: MemoryKind = MemoryKind::Default;

/// Runs `f` in a slot. Each test gives an owned one to one thread at a time.
pub(crate) fn in_slot<R>(index: usize, f: impl FnOnce() -> R) -> R {
    // SAFETY: below `SLOTS`; each test gives an owned slot to one thread at a time.
    unsafe { thread_slot::set_index(index) };
    f()
}

/// The cell, created with one handle.
pub(crate) struct Owner {
    handles: std::cell::UnsafeCell<Handles>,
    counters: std::cell::UnsafeCell<ShardedCounters>,
    /// Used by every handle and return, destroyed by the last: loom reports a use that is not ordered before
    /// that.
    pub(crate) memory: UnsafeCell<u32>,
    pub(crate) destroyed: AtomicUsize,
}

// SAFETY: the protocols order uses of `memory` before its destruction; loom checks exactly that.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            handles: Handles::new().into(),
            counters: ShardedCounters::new(true).into(),
            memory: UnsafeCell::new(1),
            destroyed: AtomicUsize::new(0),
        })
    }

    pub(crate) fn handles(&self) -> &Handles {
        // SAFETY: only `finish` borrows it exclusively.
        unsafe { &*self.handles.get() }
    }

    pub(crate) fn counters(&self) -> &ShardedCounters {
        // SAFETY: as above.
        unsafe { &*self.counters.get() }
    }

    /// Closes the counters after the last handle was dropped.
    pub(crate) fn close(&self) {
        // SAFETY: once, and the memory outlives it.
        self.finish(unsafe { ShardedCounters::close(NonNull::from(self.counters())) });
    }

    pub(crate) fn touch(&self) {
        // SAFETY: a handle, or a block that was not counted out, keeps the memory; loom checks.
        self.memory.with(|memory| assert_eq!(unsafe { *memory }, 1));
    }

    pub(crate) fn finish(&self, state: OwnerState) {
        if state == OwnerState::Unused {
            // SAFETY: `Unused` means that no other thread uses it; loom checks.
            self.memory.with_mut(|memory| unsafe { *memory = 0 });
            // SAFETY: as above.
            unsafe { &mut *self.handles.get() }.end();
            // SAFETY: as above.
            unsafe { &mut *self.counters.get() }.end();
            self.destroyed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn return_block(&self, index: usize) {
        self.touch();
        self.finish(in_slot(index, || count_out(self.counters())));
    }
}

/// Counts out a block of 64 bytes.
pub(crate) fn count_out(counters: &ShardedCounters) -> OwnerState {
    // SAFETY: a block that was counted in; loom checks the end of the counters.
    unsafe { ShardedCounters::count_out(NonNull::from(counters), KIND, 64, 10) }
}

/// Counts in a block of 64 bytes, in a slot.
pub(crate) fn count_in(counters: &ShardedCounters, index: usize) {
    in_slot(index, || counters.count_in(KIND, 64, 10));
}
