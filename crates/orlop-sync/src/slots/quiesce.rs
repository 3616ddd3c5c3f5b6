//! Exclusive access to every slot at once: for `fork`, which copies all memory at one instant.
//!
//! Slots that were not quiesced before the `fork` stay in use where a thread was inside, which does not exist
//! in the child: see [`inherited`](crate::inherited).
//!
//! Quiescing works as a visit does, but of all slots together, and ends in the parent as a visit does. In the
//! child there are no other threads: an owner that had set `busy` and was about to find the gate closed does
//! not exist there to clear it, so the child clears it.

use super::Slots;
use super::slot::{CLOSED, LeaveOnDrop, OpenOnDrop, QUIESCED};
#[cfg(not(loom))]
use super::slot_box::SlotArray;
#[cfg(not(loom))]
use crate::inherited::{ForkedChild, Inherited};
use crate::primitives::atomic::Ordering;
use crate::primitives::{ColdMutexGuard, fence};
use crate::thread_slot::OWNED;
use std::fmt;

/// Slots that no other thread can enter until this is dropped.
pub struct QuiescedSlots<'a, V, S> {
    slots: &'a Slots<V, S>,
    // Released after the gates were opened (see `Drop`).
    _visiting: ColdMutexGuard<'a, ()>,
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
        for slot in owned {
            slot.gate.fetch_or(QUIESCED, Ordering::Relaxed);
        }
        QuiescedSlots { slots: self, _visiting: visiting }
    }
}

impl<V, S> QuiescedSlots<'_, V, S> {
    /// Releases the slots in the child of a `fork`.
    ///
    /// # Safety
    ///
    /// The slots were quiesced before the `fork`, and this is its child, where the calling thread is the only
    /// one. With other threads, one that is about to enter would lose its mark.
    pub unsafe fn release_in_child(self) {
        for slot in &self.slots.slots[..OWNED] {
            slot.busy.store(0, Ordering::Release);
        }
    }
}

#[cfg(not(loom))]
impl<V, S> Inherited for SlotArray<V, S> {
    unsafe fn clean(&self, child: &mut ForkedChild) {
        for (index, slot) in self[..OWNED].iter().enumerate() {
            let is_inside = slot.busy.load(Ordering::Relaxed) != 0;
            if is_inside && slot.gate.load(Ordering::Relaxed) & QUIESCED == 0 {
                child.inside |= 1 << index;
            }
        }
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
