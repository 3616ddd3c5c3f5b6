//! A value that is read often and replaced a few times in a program's life.
//!
//! Reading is one load. A replaced value is retained until the cell is dropped, because another thread may be
//! using it. That is a leak only if values are replaced in a loop; it saves a reference count, a lock or an
//! epoch on every read.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// A cell for a `T`, empty at first.
///
/// It requires `T: Send + Sync`, because the cell shares values between threads, and an `AtomicPtr` is `Send`
/// and `Sync` for every `T`.
pub struct RetainingCell<T: Send + Sync> {
    /// Null, or a pointer to an element of `retained`.
    current: AtomicPtr<T>,
    retained: Mutex<Vec<Box<T>>>,
}

impl<T: Send + Sync> RetainingCell<T> {
    /// Returns the value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the release in `set`, so that the contents of the value are visible.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: null, or a pointer to a box in `retained`, from which nothing is removed or changed before
        // the cell is dropped; `&self` outlives the reference.
        unsafe { current.as_ref() }
    }

    /// Returns every value ever set, the oldest first.
    pub fn all(&self) -> Vec<&T> {
        let retained = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `get`.
        retained.iter().map(|value| unsafe { &*ptr::from_ref::<T>(value) }).collect()
    }

    /// Replaces the value, or removes it. Returns the previous one.
    pub fn set(&self, value: Option<T>) -> Option<&T> {
        let mut retained = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        let current = value.map_or(ptr::null_mut(), |value| {
            retained.push(Box::new(value));
            retained.last_mut().map_or(ptr::null_mut(), |retained| &raw mut **retained)
        });
        // Acquire: pairs with the release of the store of the previous value, so that its contents are
        // visible.
        let before = self.current.swap(current, Ordering::AcqRel);
        // SAFETY: as in `get`.
        unsafe { before.as_ref() }
    }
}

impl<T: Send + Sync> Default for RetainingCell<T> {
    fn default() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), retained: Mutex::default() }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for RetainingCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
