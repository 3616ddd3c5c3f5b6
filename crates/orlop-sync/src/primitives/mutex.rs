//! A mutex that does not poison, and that detects a thread that locks it twice.
//!
//! The data behind it is allocator metadata whose updates do not panic half-way: an engine changes its
//! structures only after everything that can fail has succeeded. A panic elsewhere (in an observer, say)
//! must not turn every later free into an error.
//!
//! User code that runs with a lock held (a device's backing, an inspection of its engine) may call the same
//! allocator again. A thread that waits for itself deadlocks without a message. So the mutex records which
//! thread holds it, and locking it again panics; [`Mutex::lock_unless_held`] lets the caller return an error
//! instead. That costs two plain stores and a comparison.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

#[cfg(loom)]
pub use self::modelled::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use self::owned::{Mutex, MutexGuard};

#[cfg(not(loom))]
mod owned {
    use super::imp;
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local! {
        /// Its address identifies the thread among those that run at the same time.
        static HERE: u8 = const { 0 };
    }

    #[inline(always)]
    fn this_thread() -> usize {
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }

    /// The value of `holder` while the mutex is not locked.
    const UNLOCKED: usize = 0;

    /// A mutex that ignores poison and refuses to be locked twice by a thread.
    #[derive(Debug, Default)]
    pub struct Mutex<T> {
        /// The thread that holds the lock, or [`UNLOCKED`]. Relaxed throughout: a thread reads its own
        /// address here only if it wrote that itself and has not unlocked since.
        holder: AtomicUsize,
        inner: imp::Mutex<T>,
    }

    /// The guard of a locked [`Mutex`].
    pub struct MutexGuard<'a, T> {
        // Unlocked after `Drop` has reset `holder`.
        inner: imp::MutexGuard<'a, T>,
        holder: &'a AtomicUsize,
    }

    impl<T> Mutex<T> {
        /// Creates a mutex that protects `value`.
        pub fn new(value: T) -> Self {
            Self { holder: AtomicUsize::new(UNLOCKED), inner: imp::Mutex::new(value) }
        }

        /// Locks the mutex. Waits while another thread holds it.
        ///
        /// # Panics
        ///
        /// If this thread holds the mutex already.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.lock_unless_held().unwrap_or_else(|| reentered())
        }

        /// Locks the mutex as [`Mutex::lock`] does, or returns `None` if this thread holds it already.
        #[inline]
        pub fn lock_unless_held(&self) -> Option<MutexGuard<'_, T>> {
            if self.holder.load(Ordering::Relaxed) == this_thread() {
                return None;
            }
            let inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.holder.store(this_thread(), Ordering::Relaxed);
            Some(MutexGuard { inner, holder: &self.holder })
        }
    }

    #[cold]
    fn reentered() -> ! {
        panic!(
            "an allocator was called from inside its own locked section: by a backing, or by code that \
             inspects an engine"
        )
    }

    impl<T> Drop for MutexGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            self.holder.store(UNLOCKED, Ordering::Relaxed);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        #[inline(always)]
        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }

    impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.inner.fmt(f)
        }
    }
}

/// Loom's mutex. Loom itself detects a thread that waits for itself.
#[cfg(loom)]
mod modelled {
    use super::imp;

    pub use super::imp::MutexGuard;

    /// A mutex that ignores poison.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(imp::Mutex<T>);

    impl<T> Mutex<T> {
        /// Creates a mutex that protects `value`.
        pub fn new(value: T) -> Self {
            Self(imp::Mutex::new(value))
        }

        /// Locks the mutex. Waits while another thread holds it.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        /// Does what [`Mutex::lock`] does.
        pub fn lock_unless_held(&self) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn locking_twice_is_detected() {
        let mutex = Mutex::new(1);
        let held = mutex.lock();
        assert!(mutex.lock_unless_held().is_none());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(mutex.lock()))).is_err());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *mutex.lock());
            drop(held);
            assert_eq!(other.join().unwrap(), 1);
        });
        assert_eq!(*mutex.lock_unless_held().unwrap(), 1);
    }

    #[test]
    fn a_panic_inside_does_not_poison() {
        let mutex = Mutex::new(1);
        let inside = || {
            let _held = mutex.lock();
            panic!("inside");
        };
        assert!(catch_unwind(AssertUnwindSafe(inside)).is_err());
        assert_eq!(*mutex.lock(), 1);
    }
}
