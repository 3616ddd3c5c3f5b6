//! Whether handles of a part's tensors are held: clones, views, and what else outlasts an access.
//!
//! A storage counts its views, but not the clones of a tensor, so tensors are searched for clones. A part can
//! have thousands of tensors, each written over the one before, of which few are live at a time. A clone can
//! only be made while its tensor is live: so those that have ended, and have no clone, are not searched again
//! in the same run.

use super::{NEVER, PlannedMemory, Slot, is_live};
use crate::storage::Storage;

/// The maximum number of slots that are all searched. Tests have short lists of slots.
const MAX_SEARCHED: usize = if cfg!(test) { 1 } else { 8 };

/// The slots of a part whose tensors may have clones.
#[derive(Debug)]
pub(super) struct LentSlots {
    first: usize,
    /// All slots of the part, by the beginnings of their lifetimes.
    by_start: Box<[usize]>,
    /// The number of slots in `by_start` that have begun in this run.
    begun: usize,
    /// Those that are live or have a clone, and maybe others; no slot twice. There is room for all.
    lent: Vec<usize>,
    /// By slot of the part, whether it is in `lent`.
    is_lent: Box<[bool]>,
}

impl LentSlots {
    /// Creates the list for the slots from `first` on, unless they are few.
    pub(super) fn of(slots: &[Slot], first: usize) -> Option<Self> {
        let mut by_start: Box<[_]> = (first..slots.len()).collect();
        let count = by_start.len();
        by_start.sort_by_key(|&slot| slots[slot].lifetime.start);
        let (lent, is_lent) = (Vec::with_capacity(count), vec![false; count].into());
        (count > MAX_SEARCHED).then_some(Self { first, by_start, begun: 0, lent, is_lent })
    }

    /// Returns `true` if a tensor has a clone.
    fn has_clones(&mut self, slots: &[Slot], now: u64) -> bool {
        while let Some(&slot) = self.by_start.get(self.begun)
            && slots[slot].lifetime.start <= now
        {
            self.begun += 1;
            if !std::mem::replace(&mut self.is_lent[slot - self.first], true) {
                self.lent.push(slot);
            }
        }
        let mut any = false;
        self.lent.retain(|&slot| {
            let has_clone = !slots[slot].tensor.has_one_handle();
            any |= has_clone;
            let stays = has_clone || is_live(&slots[slot].lifetime, now);
            self.is_lent[slot - self.first] = stays;
            stays
        });
        any
    }

    /// Begins the next run. Clones of the one before may still be held.
    pub(super) fn restart(&mut self) {
        self.begun = 0;
    }

    /// Returns the slots that are live, and maybe others: as of the last search.
    pub(super) fn lent(&self) -> &[usize] {
        &self.lent
    }
}

impl PlannedMemory {
    /// Returns `true` if nothing but the prepared tensors is left of what was done with a part.
    #[inline]
    pub(super) fn is_part_settled(&mut self, part: usize) -> bool {
        let part = &mut self.parts[part];
        let slots = &self.slots[part.slots.clone()];
        let Some(first) = slots.first() else { return true };
        let has_clones = match &mut part.lent {
            None => slots.iter().any(|slot| !slot.tensor.has_one_handle()),
            Some(lent) => lent.has_clones(&self.slots, self.now),
        };
        // SAFETY: each tensor of the part has one handle, and this function borrows them exclusively.
        let is_settled = |storage: &Storage| unsafe { storage.is_settled(slots.len()) };
        !has_clones && first.tensor.imp().is_ok_and(|imp| is_settled(imp.storage()))
    }

    /// Returns `true` if the bytes of a part are not in use, as far as is known. The address of one that ends
    /// is for the step that lends it; that of one that never ends may be used at any time.
    pub(super) fn is_part_unheld(&mut self, part: usize) -> bool {
        if self.parts[part].lifetime.end == NEVER {
            return self.is_part_settled(part);
        }
        let slots = self.parts[part].slots.clone();
        let handles = slots.len();
        self.slots[slots].iter().all(|Slot { tensor, .. }| {
            // SAFETY: each tensor of the part has one handle, and this function borrows them exclusively.
            let is_unheld = || tensor.imp().is_ok_and(|imp| unsafe { imp.storage().is_unheld(handles) });
            tensor.has_one_handle() && is_unheld()
        })
    }
}
