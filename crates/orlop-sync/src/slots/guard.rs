//! The guard of a slot that a thread has entered.

use super::Slots;
use super::slot::LeaveOnDrop;
use crate::primitives::MutPtr;
use crate::primitives::atomic::AtomicU8;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Exclusive access to the value of a thread's slot, until it is dropped.
///
/// As soon as the slot is left another thread may drop the slots, even while a function that received the
/// guard is still running. So the guard has no reference except the one to the `busy` word: an atomic may be
/// freed while a reference to it exists.
pub struct SlotGuard<'a, V, S = ()> {
    // Dropped in this order: the access ends before the slot is left.
    value: MutPtr<V>,
    shared: NonNull<S>,
    sealed: bool,
    _leave: LeaveOnDrop<'a>,
    slots: PhantomData<&'a Slots<V, S>>,
}

impl<'a, V, S> SlotGuard<'a, V, S> {
    /// Creates the guard of a slot that the caller has entered. `value` and `shared` are in the slot's body.
    #[inline(always)]
    pub(super) fn new(value: MutPtr<V>, shared: &'a S, sealed: bool, busy: &'a AtomicU8) -> Self {
        Self { value, shared: NonNull::from(shared), sealed, _leave: LeaveOnDrop(busy), slots: PhantomData }
    }

    /// Returns the shared part of the slot.
    #[inline(always)]
    #[must_use]
    pub fn shared(&self) -> &'a S {
        // SAFETY: in a body, which lives as long as the slots, and those are borrowed for `'a`.
        unsafe { self.shared.as_ref() }
    }

    /// Returns `true` if [`Slots::seal`] visited the slot before it was entered.
    #[inline(always)]
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }
}

impl<V, S> Deref for SlotGuard<'_, V, S> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: by the handshake or the lock (head of `slots/mod.rs`) no other thread is inside until
        // `_leave` has run, and `self` is borrowed for as long as the reference lives.
        unsafe { self.value.deref() }
    }
}

impl<V, S> DerefMut for SlotGuard<'_, V, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { self.value.deref() }
    }
}

impl<V, S> fmt::Debug for SlotGuard<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").finish_non_exhaustive()
    }
}
