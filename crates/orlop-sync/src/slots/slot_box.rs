//! The memory of the slots.

use super::slot::Slot;
use crate::thread_slot::SLOTS;
use crossbeam_utils::CachePadded;
use std::array;
use std::ops::Deref;
use std::ptr::NonNull;

/// The slots, by index.
pub(super) type SlotArray<V, S> = [CachePadded<Slot<V, S>>; SLOTS];

/// The slots, in memory of their own. Unlike a `Box`, it claims no exclusive access when it is moved: other
/// pointers to the slots stay valid.
pub(super) struct SlotBox<V, S>(NonNull<SlotArray<V, S>>);

impl<V, S> SlotBox<V, S> {
    /// Creates slots without bodies.
    pub(super) fn new() -> Self {
        let slots = Box::new(array::from_fn(|_| CachePadded::new(Slot::empty())));
        Self(NonNull::from(Box::leak(slots)))
    }

    /// Returns all slots, for their end.
    pub(super) fn exclusive(&mut self) -> impl Iterator<Item = &mut Slot<V, S>> {
        // SAFETY: as in `deref`, and this is borrowed exclusively.
        unsafe { self.0.as_mut() }.iter_mut().map(|slot| &mut **slot)
    }
}

impl<V, S> Deref for SlotBox<V, S> {
    type Target = SlotArray<V, S>;

    #[inline(always)]
    fn deref(&self) -> &SlotArray<V, S> {
        // SAFETY: from a box, which is freed when this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<V, S> Drop for SlotBox<V, S> {
    fn drop(&mut self) {
        // SAFETY: from a box, and freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
