//! An allocator's cell, for models: what handles and blocks use, and the last of both destroys.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use orlop_alloc::protocol::thread_slot::Seat;
use orlop_alloc::protocol::{Entry, Handles, Ledger};
use orlop_core::MemoryKind;

pub(crate) const KIND: MemoryKind = MemoryKind::Default;

/// The seat of a slot. Each test gives an owned one to one thread at a time.
pub(crate) fn seat(index: usize) -> Seat {
    // SAFETY: as said.
    unsafe { Seat::new(index) }
}

/// One handle at first.
pub(crate) struct Owner {
    pub(crate) handles: Handles,
    pub(crate) ledger: Ledger,
    /// Used by every handle and return, destroyed by the last: loom sees if one use is not ordered before that.
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
            handles: Handles::new(),
            ledger: Ledger::new(true),
            memory: UnsafeCell::new(1),
            destroyed: AtomicUsize::new(0),
        })
    }

    pub(crate) fn touch(&self) {
        // SAFETY: a handle, or a block that has not left, keeps the memory; loom checks.
        self.memory.with(|memory| assert_eq!(unsafe { *memory }, 1));
    }

    pub(crate) fn finish(&self, entry: Entry) {
        if entry == Entry::Last {
            // SAFETY: `Last` means that nobody uses it any more; loom checks.
            self.memory.with_mut(|memory| unsafe { *memory = 0 });
            self.destroyed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn return_block(&self, slot: usize) {
        self.touch();
        self.finish(self.ledger.leave(seat(slot), KIND, 64, 10));
    }
}
