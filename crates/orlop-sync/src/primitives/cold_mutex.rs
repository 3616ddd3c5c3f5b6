//! The mutex of locks that are seldom taken: the standard library's, with the rules of
//! [`Mutex`](super::Mutex).
//!
//! It does not poison, and detects a thread that locks it twice, for the same reasons.

#[cfg(not(loom))]
pub use self::checked::{ColdMutex, ColdMutexGuard};
#[cfg(loom)]
pub use super::mutex::{Mutex as ColdMutex, MutexGuard as ColdMutexGuard};

#[cfg(not(loom))]
mod checked {
    use crate::primitives::mutex::{UNLOCKED, reentered, this_thread};
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::panic::{RefUnwindSafe, UnwindSafe};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{self, PoisonError, TryLockError};

    /// A mutex for cold paths that does not poison and refuses to be locked twice by a thread.
    #[derive(Default)]
    pub struct ColdMutex<T> {
        /// The thread that holds the lock, or [`UNLOCKED`]. Relaxed throughout: a thread reads its own
        /// address here only if it wrote that itself and has not unlocked since.
        holder: AtomicUsize,
        inner: sync::Mutex<T>,
    }

    // As for `Mutex`: a panic leaves the value usable.
    impl<T> UnwindSafe for ColdMutex<T> {}
    impl<T> RefUnwindSafe for ColdMutex<T> {}

    /// The guard of a locked [`ColdMutex`].
    pub struct ColdMutexGuard<'a, T> {
        holder: &'a AtomicUsize,
        // Unlocks after `drop` has run.
        inner: sync::MutexGuard<'a, T>,
    }

    impl<T> ColdMutex<T> {
        /// Creates a mutex that protects `value`.
        pub const fn new(value: T) -> Self {
            Self { holder: AtomicUsize::new(UNLOCKED), inner: sync::Mutex::new(value) }
        }

        /// Locks the mutex. Waits while another thread holds it.
        ///
        /// # Panics
        ///
        /// If this thread holds the mutex already.
        pub fn lock(&self) -> ColdMutexGuard<'_, T> {
            self.lock_unless_held().unwrap_or_else(|| reentered())
        }

        /// Locks the mutex as [`ColdMutex::lock`] does, or returns `None` if this thread holds it already.
        pub fn lock_unless_held(&self) -> Option<ColdMutexGuard<'_, T>> {
            if self.is_held() {
                return None;
            }
            Some(self.guard(self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        /// Returns `true` if this thread holds the mutex.
        pub fn is_held(&self) -> bool {
            self.holder.load(Ordering::Relaxed) == this_thread()
        }

        /// Locks the mutex if that is possible at once.
        pub fn try_lock(&self) -> Option<ColdMutexGuard<'_, T>> {
            match self.inner.try_lock() {
                Ok(inner) => Some(self.guard(inner)),
                Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        fn guard<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> ColdMutexGuard<'a, T> {
            self.holder.store(this_thread(), Ordering::Relaxed);
            ColdMutexGuard { holder: &self.holder, inner }
        }
    }

    impl<T> Drop for ColdMutexGuard<'_, T> {
        fn drop(&mut self) {
            self.holder.store(UNLOCKED, Ordering::Relaxed);
        }
    }

    impl<T> Deref for ColdMutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for ColdMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }

    impl<T: fmt::Debug> fmt::Debug for ColdMutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.try_lock() {
                Some(guard) => f.debug_tuple("ColdMutex").field(&*guard).finish(),
                None => f.write_str("ColdMutex(<locked>)"),
            }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for ColdMutexGuard<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (**self).fmt(f)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::ColdMutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn locking_twice_is_detected_and_a_panic_inside_does_not_poison() {
        let mutex = ColdMutex::new(1);
        let mut held = mutex.lock();
        *held += 1;
        assert!(mutex.is_held() && mutex.lock_unless_held().is_none() && mutex.try_lock().is_none());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(mutex.lock()))).is_err());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| (mutex.is_held(), *mutex.lock()));
            drop(held);
            assert_eq!(other.join().unwrap(), (false, 2));
        });
        let inside = || {
            let _held = mutex.lock();
            panic!("inside");
        };
        assert!(catch_unwind(AssertUnwindSafe(inside)).is_err());
        assert!(mutex.try_lock().is_some_and(|held| *held == 2));
        assert_eq!(*mutex.lock(), 2);
    }
}
