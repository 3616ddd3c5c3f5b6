//! [`Shared`]: a reference-counted pointer with less than `Arc` offers.
//!
//! There are no weak handles, so dropping the last handle takes one step instead of two, and dropping a
//! unique handle, the common case, takes no locked instruction. A tensor has two of these: one to its view
//! and one to its storage.
//!
//! # Ordering
//!
//! As in `Arc`: a handle is cloned from a counted one (relaxed); a dropped handle releases what its thread
//! did (`shared.leave`), and a handle that finds itself unique (`shared.alone`, acquire) sees all of that.

use crate::recycle::{self, Recycled};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::ordering;
use std::ops::Deref;
use std::ptr::NonNull;

/// A counted handle to a `T`, which is dropped with the last handle.
pub(crate) struct Shared<T: Recycled> {
    /// Invariant: it was made by a `Room`, and its count includes this handle.
    inner: NonNull<Counted<T>>,
}

/// A value with its count.
pub(crate) struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

impl<T> Counted<T> {
    #[cfg(all(test, not(loom)))]
    pub(crate) fn new(value: T) -> Self {
        Self { count: AtomicUsize::new(1), value }
    }

    /// Returns the address of the value, which may not be written yet.
    ///
    /// # Safety
    ///
    /// The address has room for a value and its count.
    #[inline(always)]
    pub(crate) unsafe fn value(this: NonNull<Self>) -> *mut T {
        // SAFETY: inside the room (guaranteed by the caller).
        unsafe { &raw mut (*this.as_ptr()).value }
    }
}

/// More handles than can exist without leaking them. Beyond it the process aborts, as with `Arc`.
const MAX_COUNT: usize = isize::MAX as usize;

/// Memory for a value and its count. It leaks if it is never filled.
///
/// It is usually a slot of its own ([`Room::new`]), and can be inside another object ([`Room::inside`]).
///
/// A caller that takes the room first and builds the value afterwards keeps the value in registers until it
/// is stored in its final place; a value that is built elsewhere and moved is stored twice.
pub(crate) struct Room<T: Recycled> {
    /// Invariant: from `recycle::allocate_slot` or by the contract of [`Room::inside`], and used by nothing
    /// else.
    inner: NonNull<Counted<T>>,
}

impl<T: Recycled> Room<T> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { inner: recycle::allocate_slot::<T>() }
    }

    /// Creates a room inside another object.
    ///
    /// # Safety
    ///
    /// 1. it is large enough, aligned, and nothing else uses it;
    /// 2. it stays valid until the value has ended, which does not recycle it ([`Recycled::end`]).
    #[inline(always)]
    pub(crate) unsafe fn inside(room: NonNull<Counted<T>>) -> Self {
        Self { inner: room }
    }

    /// Returns the address of the future value.
    #[inline(always)]
    pub(crate) fn value(&self) -> *mut T {
        // SAFETY: a room is memory for a `Counted<T>`.
        unsafe { Counted::value(self.inner) }
    }

    /// Writes `value` and returns a handle to it.
    #[inline(always)]
    pub(crate) fn fill(self, value: T) -> Shared<T> {
        // SAFETY: room for a value, used by nothing else.
        unsafe { self.value().write(value) };
        // SAFETY: written.
        unsafe { self.filled() }
    }

    /// Returns a handle to the value that the caller has written.
    ///
    /// # Safety
    ///
    /// There is a complete value at the address.
    #[inline(always)]
    pub(crate) unsafe fn filled(self) -> Shared<T> {
        let address = self.inner.as_ptr();
        // SAFETY: inside the room for a `Counted<T>`.
        let count = unsafe { &raw mut (*address).count };
        // SAFETY: nothing else uses it.
        unsafe { count.write(AtomicUsize::new(1)) };
        Shared { inner: self.inner }
    }
}

impl<T: Recycled> Shared<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        Room::new().fill(value)
    }
}

impl<T: Recycled> Shared<T> {
    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: the value is valid while a handle exists.
        unsafe { self.inner.as_ref() }
    }

    /// Returns `true` if this is the only handle. Everything done through other handles then happened before.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        self.has_handles(1)
    }

    /// Counts a handle that is a bitwise copy of this one.
    #[inline]
    pub(crate) fn count_copy(&self) {
        // Relaxed: the new handle is made from a counted one.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) >= MAX_COUNT {
            std::process::abort();
        }
    }

    /// Returns `true` if there are exactly `count` handles. If these are the caller's, everything done
    /// through others happened before.
    #[inline]
    pub(crate) fn has_handles(&self, count: usize) -> bool {
        self.counted().count.load(ordering!("shared.alone", Acquire)) == count
    }

    /// Returns the number of handles, which other threads may change.
    pub(crate) fn count(&self) -> usize {
        self.counted().count.load(Ordering::Relaxed)
    }

    /// Returns the value mutably if this is the only handle.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: no other handle is left, and this one is borrowed exclusively.
        Some(&mut unsafe { self.inner.as_mut() }.value)
    }

    /// Returns the value mutably, without a check.
    ///
    /// # Safety
    ///
    /// There is no other handle: this one was just made.
    #[inline(always)]
    pub(crate) unsafe fn new_mut(&mut self) -> &mut T {
        debug_assert!(self.is_unique());
        // SAFETY: there is no other handle (guaranteed by the caller), and this one is borrowed exclusively.
        &mut unsafe { self.inner.as_mut() }.value
    }

    /// Returns the address of the value with its count, with access to all of it.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> NonNull<Counted<T>> {
        self.inner
    }

    /// Returns `true` if both handles point to the same value.
    #[inline]
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<T: Recycled> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: Recycled> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.count_copy();
        Self { inner: self.inner }
    }
}

impl<T: Recycled> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        let alone = self.is_unique();
        if alone || self.counted().count.fetch_sub(1, ordering!("shared.leave", AcqRel)) == 1 {
            // SAFETY: a room's value, and written (the invariant). No other handle is left, or the last one
            // was dropped after the check; this one is dropped now.
            unsafe { T::end(self.inner) };
        }
    }
}

// SAFETY: a handle gives shared access from any thread, and the last one drops the value on its thread; the
// count orders that after all other accesses.
unsafe impl<T: Recycled + Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Recycled + Send + Sync> Sync for Shared<T> {}

impl<T: Recycled + std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    crate::recycle::recycled!(Arc<()>);

    #[test]
    fn the_last_handle_drops_the_value() {
        let watched = Arc::new(());
        let mut first = Shared::new(Arc::clone(&watched));
        assert!(first.get_mut().is_some());
        let second = first.clone();
        assert!(first.get_mut().is_none() && first.same_as(&second));
        drop(first);
        assert_eq!((Arc::strong_count(&watched), second.count()), (2, 1));
        drop(second);
        assert_eq!(Arc::strong_count(&watched), 1);
    }
}
