//! What other threads bring back: a list that all add to and that is only ever taken whole.
//!
//! Taking all at once leaves no room for the mistake that such lists are known for: nobody compares with an element
//! that may have gone and come again.
//!
//! # Ordering
//!
//! * `returns.push` (release, an element and its link were written) pairs with `returns.take` (acquire).

use crate::ordering;
use crate::primitives::Backoff;
use crate::primitives::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::ptr::{self, NonNull};

/// What can be in the list: it has room for a link.
///
/// # Safety
///
/// `link` gives what `set_link` last set.
pub unsafe trait Linked {
    /// The element after this one.
    fn link(&self) -> Option<NonNull<Self>>;
    /// Sets it.
    fn set_link(&mut self, link: Option<NonNull<Self>>);
}

/// The list. Owns what is in it.
pub struct Returns<T: Linked> {
    head: AtomicPtr<T>,
}

impl<T: Linked> Returns<T> {
    /// With nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds an element.
    #[inline]
    pub fn push(&self, mut element: Box<T>) {
        let backoff = Backoff::new();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            element.set_link(NonNull::new(head));
            let added = Box::into_raw(element);
            let push = ordering!("returns.push", Release);
            match self.head.compare_exchange(head, added, push, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
            // SAFETY: leaked above, and not added.
            element = unsafe { Box::from_raw(added) };
            backoff.wait();
        }
    }

    /// Whether there is something, as far as can be seen.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Takes all, latest first.
    #[inline]
    pub fn take(&self) -> Taken<T> {
        // Under loom a load need not see the newest store; what is not seen would not be taken.
        let next = if !cfg!(loom) && self.is_empty() {
            ptr::null_mut()
        } else {
            self.head.swap(ptr::null_mut(), ordering!("returns.take", Acquire))
        };
        Taken { next: NonNull::new(next) }
    }
}

/// What was taken. Owns what is left in it.
pub struct Taken<T: Linked> {
    next: Option<NonNull<T>>,
}

impl<T: Linked> Iterator for Taken<T> {
    type Item = Box<T>;

    fn next(&mut self) -> Option<Box<T>> {
        // SAFETY: leaked by `push`, and the list up to its end is ours since `take`.
        let element = unsafe { Box::from_raw(self.next?.as_ptr()) };
        self.next = element.link();
        Some(element)
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}

impl<T: Linked> Drop for Returns<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: Linked> Default for Returns<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> fmt::Debug for Returns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returns").field("empty", &self.is_empty()).finish()
    }
}

impl<T: Linked> fmt::Debug for Taken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").finish_non_exhaustive()
    }
}

// SAFETY: elements go from thread to thread, and are reached by one at a time: as in a channel.
unsafe impl<T: Linked + Send> Sync for Returns<T> {}
// SAFETY: it owns its elements.
unsafe impl<T: Linked + Send> Send for Returns<T> {}
// SAFETY: it owns its elements.
unsafe impl<T: Linked + Send> Send for Taken<T> {}
