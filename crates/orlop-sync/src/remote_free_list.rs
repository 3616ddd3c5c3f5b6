//! A lock-free list of blocks freed by other threads: any thread pushes, one swap takes the whole list.
//!
//! Because the list is only ever taken whole, it has no ABA problem: no thread compares the head with an
//! element that may have been removed and pushed again.
//!
//! # Ordering
//!
//! * `remote.push` (release: the element and its link are written) pairs with `remote.take` (acquire).

use crate::ordering;
use crate::primitives::Backoff;
use crate::primitives::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::ptr::{self, NonNull};

/// An element of a [`RemoteFreeList`]: it has room for a link to the next one.
///
/// # Safety
///
/// `link` returns what `set_link` last set.
pub unsafe trait Linked {
    /// Returns the element after this one.
    fn link(&self) -> Option<NonNull<Self>>;
    /// Sets the element after this one.
    fn set_link(&mut self, link: Option<NonNull<Self>>);
}

/// A list that any thread adds to and that is taken whole. It owns its elements.
pub struct RemoteFreeList<T: Linked> {
    head: AtomicPtr<T>,
}

impl<T: Linked> RemoteFreeList<T> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds an element.
    #[inline]
    pub fn push(&self, mut element: Box<T>) {
        let backoff = Backoff::default();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            element.set_link(NonNull::new(head));
            let added = Box::into_raw(element);
            let push = ordering!("remote.push", Release);
            match self.head.compare_exchange(head, added, push, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
            // SAFETY: from `Box::into_raw` above, and not added to the list.
            element = unsafe { Box::from_raw(added) };
            backoff.wait();
        }
    }

    /// Returns `true` if the list looks empty. Another thread may push at the same moment.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Takes all elements. The iterator returns the one pushed last first.
    #[inline]
    pub fn take(&self) -> Taken<T> {
        // Under loom a load need not see the newest store, and an element that it misses would not be taken.
        let next = if !cfg!(loom) && self.is_empty() {
            ptr::null_mut()
        } else {
            self.head.swap(ptr::null_mut(), ordering!("remote.take", Acquire))
        };
        Taken { next: NonNull::new(next) }
    }
}

/// The elements taken from a [`RemoteFreeList`]: an iterator that owns those it has not returned yet.
pub struct Taken<T: Linked> {
    next: Option<NonNull<T>>,
}

impl<T: Linked> Iterator for Taken<T> {
    type Item = Box<T>;

    fn next(&mut self) -> Option<Box<T>> {
        // Cleared first: `link` may panic, and the elements behind this one are then leaked.
        let next = self.next.take()?;
        // SAFETY: from `Box::into_raw` in `push`; `take` made this the owner of the list up to its end, and
        // no other pointer to the element is left.
        let element = unsafe { Box::from_raw(next.as_ptr()) };
        self.next = element.link();
        Some(element)
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}

impl<T: Linked> Drop for RemoteFreeList<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: Linked> Default for RemoteFreeList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> fmt::Debug for RemoteFreeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFreeList").field("empty", &self.is_empty()).finish()
    }
}

impl<T: Linked> fmt::Debug for Taken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").finish_non_exhaustive()
    }
}

// SAFETY: elements move between threads, and one thread at a time can reach each, as in a channel: `T: Send`
// is enough.
unsafe impl<T: Linked + Send> Sync for RemoteFreeList<T> {}
// SAFETY: it owns its elements, and sends them along.
unsafe impl<T: Linked + Send> Send for RemoteFreeList<T> {}
// SAFETY: it owns its elements, and sends them along.
unsafe impl<T: Linked + Send> Send for Taken<T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    struct Element {
        link: Option<NonNull<Self>>,
        panics: bool,
        _counted: Arc<()>,
    }

    // SAFETY: a field of its own; a call that panics returns nothing.
    unsafe impl Linked for Element {
        fn link(&self) -> Option<NonNull<Self>> {
            assert!(!self.panics, "in `link`");
            self.link
        }

        fn set_link(&mut self, link: Option<NonNull<Self>>) {
            self.link = link;
        }
    }

    #[test]
    fn an_element_whose_link_panics_is_dropped_once() {
        let counted = Arc::new(());
        let list = RemoteFreeList::new();
        let push = |panics| list.push(Box::new(Element { link: None, panics, _counted: counted.clone() }));
        push(true);
        push(false);
        let mut taken = list.take();
        assert!(taken.next().is_some());
        assert!(catch_unwind(AssertUnwindSafe(|| taken.next().is_some())).is_err());
        assert!(taken.next().is_none() && list.is_empty());
        drop(taken);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
