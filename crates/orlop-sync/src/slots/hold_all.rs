//! Being inside of every slot at once: for `fork`, which copies all memory as it is at one moment.
//!
//! As a visit, but of all slots together. It ends in the parent as a visit does. In the child there are no other threads:
//! an owner that had said `busy` and was about to find the gate closed is not there to take it back, so that is done for it.

use super::{CLOSED, LeaveWhenDone, OpenWhenDone, Slots};
use crate::primitives::atomic::Ordering;
use crate::primitives::{MutexGuard, fence};
use crate::thread_slot::OWNED;
use std::fmt;

/// All slots, which nobody else is inside of until this is dropped.
pub struct AllHeld<'a, V, S> {
    slots: &'a Slots<V, S>,
    // After the gates were opened (see `Drop`).
    _visiting: MutexGuard<'a, ()>,
}

impl<V, S> Slots<V, S> {
    /// Waits until nobody is inside of any slot, and keeps everybody out.
    pub fn hold_all(&self) -> AllHeld<'_, V, S> {
        self.refuse_if_inside();
        let visiting = self.visitors.lock();
        let (owned, shared) = self.slots.split_at(OWNED);
        for slot in owned {
            slot.gate.fetch_or(CLOSED, Ordering::Relaxed);
        }
        fence::heavy();
        owned.iter().for_each(|slot| slot.wait_for_owner());
        shared.iter().for_each(|slot| slot.lock());
        AllHeld { slots: self, _visiting: visiting }
    }
}

impl<V, S> AllHeld<'_, V, S> {
    /// Lets go where this thread is the only one left: in the child of a `fork`.
    pub fn release_alone(self) {
        for slot in &self.slots.slots[..OWNED] {
            slot.busy.store(0, Ordering::Release);
        }
    }
}

impl<V, S> Drop for AllHeld<'_, V, S> {
    fn drop(&mut self) {
        let (owned, shared) = self.slots.slots.split_at(OWNED);
        for slot in owned {
            drop(OpenWhenDone(&slot.gate));
        }
        for slot in shared {
            drop(LeaveWhenDone(&slot.busy));
        }
    }
}

impl<V, S> fmt::Debug for AllHeld<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllHeld").finish_non_exhaustive()
    }
}
