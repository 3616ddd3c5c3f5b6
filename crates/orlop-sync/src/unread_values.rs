//! The replaced values of a swap cell, for the caller to drop.

use crate::primitives::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::ptr::NonNull;

/// A value, and the link of the list of replaced ones.
pub(crate) struct Node<T> {
    pub(crate) value: T,
    pub(crate) next: AtomicPtr<Node<T>>,
}

/// Replaced values of a [`SwapCell`](crate::SwapCell) that no reader has. They are dropped with this: their
/// destructors may run any code, so drop it with no lock held.
#[must_use = "to be dropped with no lock held"]
pub struct UnreadValues<T>(Option<NonNull<Node<T>>>);

// SAFETY: it owns the values, and any thread may drop them.
unsafe impl<T: Send> Send for UnreadValues<T> {}
// SAFETY: a reference gives no access to the values.
unsafe impl<T> Sync for UnreadValues<T> {}

impl<T> UnreadValues<T> {
    /// Takes over a list: null, or nodes from `Box::into_raw` that no reader has, and that are in no other
    /// list.
    pub(crate) fn of(first: *mut Node<T>) -> Self {
        Self(NonNull::new(first))
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<T> Default for UnreadValues<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for UnreadValues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadValues").field("is_empty", &self.is_empty()).finish()
    }
}

impl<T> Drop for UnreadValues<T> {
    fn drop(&mut self) {
        // Taken first: the destructor of a value may panic, and the values behind it are then leaked.
        while let Some(node) = self.0.take() {
            // SAFETY: from `Box::into_raw`, in this list once, and no reader has a reference to it.
            let node = unsafe { Box::from_raw(node.as_ptr()) };
            self.0 = NonNull::new(node.next.load(Ordering::Relaxed));
        }
    }
}
