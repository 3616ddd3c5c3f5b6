//! Exclusive access to every slot at once: for `fork`, which copies all memory at one instant.
//!
//! Quiescing works as a visit does, but of all slots together, and ends in the parent as a visit does. In the
//! child there are no other threads: an owner that had set `busy` and was about to find the gate closed does
//! not exist there to clear it, so the child clears it.

use super::Slots;
use super::slot::{CLOSED, LeaveOnDrop, OpenOnDrop};
use crate::primitives::atomic::Ordering;
use crate::primitives::{MutexGuard, fence};
use crate::thread_slot::OWNED;
use std::fmt;

/// Slots that no other thread can enter until this is dropped.
pub struct QuiescedSlots<'a, V, S> {
    slots: &'a Slots<V, S>,
    // Released after the gates were opened (see `Drop`).
    visiting: MutexGuard<'a, ()>,
}

impl<V, S> Slots<V, S> {
    /// Waits until no thread is inside any slot, and keeps all threads out.
    pub fn quiesce(&self) -> QuiescedSlots<'_, V, S> {
        self.refuse_if_inside();
        let visiting = self.visitors.lock();
        let (owned, shared) = self.slots.split_at(OWNED);
        for slot in owned {
            slot.gate.fetch_or(CLOSED, Ordering::Relaxed);
        }
        fence::heavy();
        owned.iter().for_each(|slot| slot.wait_for_owner());
        shared.iter().for_each(|slot| slot.lock());
        QuiescedSlots { slots: self, visiting }
    }
}

impl<V, S> QuiescedSlots<'_, V, S> {
    /// Releases the slots in the child of a `fork`, where this thread is the only one.
    pub fn release_alone(self) {
        for slot in &self.slots.slots[..OWNED] {
            slot.busy.store(0, Ordering::Release);
        }
        self.visiting.forget_waiting();
    }
}

impl<V, S> Drop for QuiescedSlots<'_, V, S> {
    fn drop(&mut self) {
        let (owned, shared) = self.slots.slots.split_at(OWNED);
        for slot in owned {
            drop(OpenOnDrop(&slot.gate));
        }
        for slot in shared {
            drop(LeaveOnDrop(&slot.busy));
        }
    }
}

impl<V, S> fmt::Debug for QuiescedSlots<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuiescedSlots").finish_non_exhaustive()
    }
}
