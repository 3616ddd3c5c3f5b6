//! The guards of a slot that a thread has entered.

use super::Slots;
use super::slot::{BUSY, Body, LeaveOnDrop, Slot};
#[cfg(loom)]
use crate::primitives::MutPtr;
use crate::primitives::atomic::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Exclusive access to the value of a thread's slot, until it is dropped. An entry by the same thread
/// meanwhile is refused.
///
/// It stays in this crate: one that outlives its thread's right to the slot would not exclude the next owner.
pub(crate) struct SlotGuard<'a, V, S = ()>(FastSlotGuard<'a, V, S>);

/// Exclusive access to the value of a thread's slot, until it is dropped, for code that calls nothing.
///
/// As soon as the slot is left another thread may drop the slots, even while a function that received the
/// guard is still running. So the guard has pointers and no references.
///
/// It is two words long: a function gets it in registers.
#[must_use = "the slot is left at once"]
pub struct FastSlotGuard<'a, V, S = ()> {
    // Dropped in this order: the access ends before the slot is left.
    #[cfg(loom)]
    value: MutPtr<V>,
    body: NonNull<Body<V, S>>,
    leave: Leave<V, S>,
    slots: PhantomData<&'a Slots<V, S>>,
}

/// Leaves a slot that was entered when it is dropped.
struct Leave<V, S>(NonNull<Slot<V, S>>);

impl<V, S> Drop for Leave<V, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: until the slot is left the slots exist. The reference is to one atomic, which may be freed
        // while a reference to it exists.
        drop(LeaveOnDrop(unsafe { &(*self.0.as_ptr()).busy }));
    }
}

impl<'a, V, S> FastSlotGuard<'a, V, S> {
    /// Creates the guard of a slot that the caller has entered, with the slot's body.
    #[inline(always)]
    pub(super) fn new(slot: &'a Slot<V, S>, body: &'a Body<V, S>) -> Self {
        Self {
            #[cfg(loom)]
            value: body.value.get_mut(),
            body: NonNull::from(body),
            leave: Leave(NonNull::from(slot)),
            slots: PhantomData,
        }
    }

    /// Returns the shared part of the slot.
    #[inline(always)]
    #[must_use]
    pub fn shared(&self) -> &'a S {
        // SAFETY: a body lives as long as the slots, and those are borrowed for `'a`.
        unsafe { &(*self.body.as_ptr()).shared }
    }

    /// Runs `f` on the value. An entry by this thread meanwhile is refused, so `f` may call anything.
    #[inline]
    pub fn call<R>(&mut self, f: impl FnOnce(&mut V) -> R) -> R {
        struct Unmark<'a, 'b, V, S>(&'a mut FastSlotGuard<'b, V, S>);
        impl<V, S> Drop for Unmark<'_, '_, V, S> {
            fn drop(&mut self) {
                self.0.set_entered(0);
            }
        }
        self.set_entered(BUSY);
        f(Unmark(self).0)
    }

    #[inline(always)]
    fn set_entered(&self, entered: u8) {
        // SAFETY: the slots exist until the slot is left. Relaxed: only the owner uses it.
        unsafe { self.leave.0.as_ref() }.entered.store(entered, Ordering::Relaxed);
    }

    #[inline(always)]
    fn value(&self) -> *mut V {
        #[cfg(loom)]
        // SAFETY: as in `deref_mut`.
        return unsafe { self.value.deref() };
        #[cfg(not(loom))]
        // SAFETY: as in `shared`.
        return unsafe { self.body.as_ref() }.value.with_mut(|value| value);
    }
}

impl<V, S> Deref for FastSlotGuard<'_, V, S> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: by the handshake or the lock (head of `slots/mod.rs`) no other thread is inside until
        // `leave` is dropped; this thread does not enter again (`Slots::try_enter`, `SlotGuard`); and `self`
        // is borrowed for as long as the reference lives.
        unsafe { &*self.value() }
    }
}

impl<V, S> DerefMut for FastSlotGuard<'_, V, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { &mut *self.value() }
    }
}

impl<'a, V, S> SlotGuard<'a, V, S> {
    /// Refuses further entries by this thread.
    #[inline(always)]
    pub(super) fn new(inside: FastSlotGuard<'a, V, S>) -> Self {
        inside.set_entered(BUSY);
        Self(inside)
    }

    /// Returns the shared part of the slot.
    #[inline(always)]
    pub(crate) fn shared(&self) -> &'a S {
        self.0.shared()
    }

    /// Returns `true` if [`Slots::seal`] visited the slot before it was entered.
    #[inline(always)]
    pub(crate) fn is_sealed(&self) -> bool {
        // SAFETY: the slots exist until the slot is left.
        unsafe { self.0.leave.0.as_ref() }.is_sealed()
    }
}

impl<V, S> Drop for SlotGuard<'_, V, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // Then the slot is left.
        self.0.set_entered(0);
    }
}

impl<V, S> Deref for SlotGuard<'_, V, S> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        &self.0
    }
}

impl<V, S> DerefMut for SlotGuard<'_, V, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        &mut self.0
    }
}

impl<V, S> fmt::Debug for FastSlotGuard<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastSlotGuard").finish_non_exhaustive()
    }
}

impl<V, S> fmt::Debug for SlotGuard<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").finish_non_exhaustive()
    }
}
