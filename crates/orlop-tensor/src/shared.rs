//! A counted pointer: `Arc` without what tensors do not need.
//!
//! No weak handles, so the last one to go makes one step and not two; and whoever is the only owner, as most are, goes
//! without a locked instruction (T1). There are two per tensor: to its view and to its storage.
//!
//! # Ordering
//!
//! As in `Arc`: a new owner is counted by one that is counted (relaxed); who goes releases what it did
//! (`shared.leave`), and who finds itself alone (`shared.alone`, acquire) has seen all of that.

use crate::recycle::{self, Recycled};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::ordering;
use std::ops::Deref;
use std::ptr::NonNull;

/// A handle to a `T` that lives until the last handle goes.
pub(crate) struct Shared<T: Recycled> {
    /// Invariant: it was a room's, and its count counts this handle.
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

    /// Where the value is, or will be.
    ///
    /// # Safety
    ///
    /// There is room for a value and its count.
    #[inline(always)]
    pub(crate) unsafe fn value(this: NonNull<Self>) -> *mut T {
        // SAFETY: inside of the room (the caller's promise).
        unsafe { &raw mut (*this.as_ptr()).value }
    }
}

/// More handles than there can be without leaking them: the process ends, as with `Arc`.
const MOST: usize = isize::MAX as usize;

/// Room for a value and its count. Not given back if nothing comes of it.
///
/// Mostly it is a place of its own ([`Room::new`]); it can be inside of something else ([`Room::inside`]).
///
/// Who has it first, and then makes the value, has the value in registers until it is written where it will be: what is
/// made elsewhere and moved has to wait until it was written there.
pub(crate) struct Room<T: Recycled> {
    /// Invariant: from `recycle::place`, or what [`Room::inside`] was promised; and ours alone.
    inner: NonNull<Counted<T>>,
}

impl<T: Recycled> Room<T> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { inner: recycle::place::<T>() }
    }

    /// Room inside of something else.
    ///
    /// # Safety
    ///
    /// 1. it is large enough, aligned, and nobody else's;
    /// 2. it is there until the value has ended, which gives no place back ([`Recycled::end`]).
    #[inline(always)]
    pub(crate) unsafe fn inside(room: NonNull<Counted<T>>) -> Self {
        Self { inner: room }
    }

    /// Where the value will be.
    #[inline(always)]
    pub(crate) fn value(&self) -> *mut T {
        // SAFETY: that is what the room is for.
        unsafe { Counted::value(self.inner) }
    }

    /// A handle to this value.
    #[inline(always)]
    pub(crate) fn fill(self, value: T) -> Shared<T> {
        // SAFETY: room for a value, ours alone.
        unsafe { self.value().write(value) };
        // SAFETY: written.
        unsafe { self.filled() }
    }

    /// A handle to the value that was written.
    ///
    /// # Safety
    ///
    /// There is a whole value at the address.
    #[inline(always)]
    pub(crate) unsafe fn filled(self) -> Shared<T> {
        let place = self.inner.as_ptr();
        // SAFETY: inside the room for a `Counted<T>`.
        let count = unsafe { &raw mut (*place).count };
        // SAFETY: ours alone.
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
        // SAFETY: it lives while a handle does.
        unsafe { self.inner.as_ref() }
    }

    /// Whether this is the only handle. What was done through others has happened.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        self.counted().count.load(ordering!("shared.alone", Acquire)) == 1
    }

    /// Counts a handle that is a copy of this one's bytes.
    #[inline]
    pub(crate) fn count_copy(&self) {
        // Relaxed: the new handle is made from one that is counted.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) >= MOST {
            std::process::abort();
        }
    }

    /// How many handles there are, at some moment.
    pub(crate) fn count(&self) -> usize {
        self.counted().count.load(Ordering::Relaxed)
    }

    /// The value, to be changed, if this is the only handle.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: no other handle is left, and this one is borrowed exclusively.
        Some(&mut unsafe { self.inner.as_mut() }.value)
    }

    /// The value, to be changed.
    ///
    /// # Safety
    ///
    /// There is no other handle: this one was made just now.
    #[inline(always)]
    pub(crate) unsafe fn new_mut(&mut self) -> &mut T {
        debug_assert!(self.is_unique());
        // SAFETY: no other handle is left (the caller's promise), and this one is borrowed exclusively.
        &mut unsafe { self.inner.as_mut() }.value
    }

    /// Where the value is, with its count; allowed to reach all of it.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> NonNull<Counted<T>> {
        self.inner
    }

    /// Whether both lead to the same value.
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
            // SAFETY: a room's and written (the invariant). No other handle was left, or the last one went since we looked;
            // and this one goes.
            unsafe { T::end(self.inner) };
        }
    }
}

// SAFETY: a handle gives shared access from any thread, and the last one drops the value wherever it is; the count
// orders that after all else.
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
