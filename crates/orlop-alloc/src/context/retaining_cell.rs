//! A value that is read all the time and replaced a few times in a program's life.
//!
//! Reading is one load; replacing keeps the old value until the slot goes, because another thread may be
//! using it just then. That is a leak only for those who replace in a loop, and saves a reference count, a
//! lock or an epoch on every read.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// A slot for a `T`, empty at first. (Bounds, because an `AtomicPtr` has none.)
pub(crate) struct Replaceable<T: Send + Sync> {
    /// Null, or points to an element of `kept`.
    current: AtomicPtr<T>,
    kept: Mutex<Vec<Box<T>>>,
}

impl<T: Send + Sync> Replaceable<T> {
    /// The value, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: pairs with the release in `set`, so that what is inside the value is seen.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: null, or a pointer to a box in `kept`, from which nothing is removed or changed before the
        // slot itself goes; `&self` outlives the reference.
        unsafe { current.as_ref() }
    }

    /// Every value there ever was, the oldest first.
    pub(crate) fn all(&self) -> Vec<&T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `get`.
        kept.iter().map(|value| unsafe { &*ptr::from_ref::<T>(value) }).collect()
    }

    /// Puts a value in the place of the current one, or takes that away, and says what it was.
    pub(crate) fn set(&self, value: Option<T>) -> Option<&T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let current = value.map_or(ptr::null_mut(), |value| {
            kept.push(Box::new(value));
            kept.last_mut().map_or(ptr::null_mut(), |kept| &raw mut **kept)
        });
        // Acquire: pairs with the release of who put it there, so that what is inside the value is seen.
        let before = self.current.swap(current, Ordering::AcqRel);
        // SAFETY: as in `get`.
        unsafe { before.as_ref() }
    }
}

impl<T: Send + Sync> Default for Replaceable<T> {
    fn default() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), kept: Mutex::default() }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Replaceable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
