//! A mutex that does not poison, and that detects a thread that locks it twice.
//!
//! The data behind it is allocator metadata whose updates do not panic half-way: an engine changes its
//! structures only after everything that can fail has succeeded. A panic elsewhere (in an observer, say)
//! must not turn every later free into an error.
//!
//! Locks that are taken often, of device engines and BFC, are of this type: it is released without a locked
//! instruction. The others are [`ColdMutex`](super::ColdMutex), with the lock of the standard library.
//!
//! User code that runs with a lock held (a device's backing, an inspection of its engine) may call the same
//! allocator again. A thread that waits for itself deadlocks without a message. So the mutex records which
//! thread holds it, and locking it again panics; [`Mutex::lock_unless_held`] lets the caller return an error
//! instead. That costs two plain stores and a comparison.

#[cfg(loom)]
pub use self::modelled::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use self::owned::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(in crate::primitives) use self::owned::{UNLOCKED, reentered, this_thread};

#[cfg(not(loom))]
mod owned {
    use crate::primitives::abort_reentered;
    use crate::primitives::raw_lock::RawLock;
    use std::cell::UnsafeCell;
    use std::fmt;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::panic::{RefUnwindSafe, UnwindSafe};
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local! {
        /// Its address identifies the thread among those that run at the same time.
        static HERE: u8 = const { 0 };
    }

    #[inline(always)]
    pub(in crate::primitives) fn this_thread() -> usize {
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }

    /// The value of `holder` while the mutex is not locked.
    pub(in crate::primitives) const UNLOCKED: usize = 0;

    /// A mutex that does not poison and refuses to be locked twice by a thread.
    #[derive(Default)]
    pub struct Mutex<T> {
        /// The thread that holds the lock, or [`UNLOCKED`]. Relaxed throughout: a thread reads its own
        /// address here only if it wrote that itself and has not unlocked since.
        holder: AtomicUsize,
        lock: RawLock,
        value: UnsafeCell<T>,
    }

    // SAFETY: a `&Mutex` gives access to the value only through the guard, which one thread at a time has:
    // the value moves from thread to thread, so `T: Send` is enough.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    // The head of this file says why a panic leaves the value usable.
    impl<T> UnwindSafe for Mutex<T> {}
    impl<T> RefUnwindSafe for Mutex<T> {}

    /// The guard of a locked [`Mutex`].
    pub struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        /// Locked and unlocked by one thread. Shared if the value may be.
        _thread: PhantomData<*const ()>,
    }

    // SAFETY: a `&MutexGuard` gives access to a `&T` only.
    unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

    impl<T> Mutex<T> {
        /// Creates a mutex that protects `value`.
        pub fn new(value: T) -> Self {
            Self { holder: AtomicUsize::new(UNLOCKED), lock: RawLock::new(), value: UnsafeCell::new(value) }
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
            self.lock.lock();
            Some(self.guard())
        }

        /// Locks the mutex if that is possible at once.
        #[inline]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            // Not as an argument of `then_some`, which would make a guard in any case.
            if self.lock.try_lock() { Some(self.guard()) } else { None }
        }

        /// Unlocks the mutex if a thread holds it that a `fork` has not copied.
        ///
        /// # Safety
        ///
        /// 1. This is the child of a `fork`, and the calling thread is the only one.
        /// 2. The value may be used, whatever that thread was doing.
        pub(crate) unsafe fn release_dead_holder(&self) {
            if self.holder.load(Ordering::Relaxed) != this_thread() {
                // SAFETY: no thread that exists has locked it.
                unsafe { self.lock.reset() };
                self.holder.store(UNLOCKED, Ordering::Relaxed);
            }
        }

        /// Returns the guard of the lock that this thread has just locked.
        #[inline]
        fn guard(&self) -> MutexGuard<'_, T> {
            self.holder.store(this_thread(), Ordering::Relaxed);
            MutexGuard { mutex: self, _thread: PhantomData }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.try_lock() {
                Some(guard) => f.debug_tuple("Mutex").field(&*guard).finish(),
                None => f.write_str("Mutex(<locked>)"),
            }
        }
    }

    #[cold]
    pub(in crate::primitives) fn reentered() -> ! {
        panic!(
            "an allocator was called from inside its own locked section: by a backing, or by code that \
             inspects an engine"
        )
    }

    impl<T> MutexGuard<'_, T> {
        /// Unlocks the mutex, calls `act`, and locks it again, even if `act` panics. The process ends if
        /// `act` leaves it locked.
        ///
        /// ```compile_fail,E0133
        /// let mutex = orlop_sync::Mutex::new(1);
        /// mutex.lock().unlocked(|| ());
        /// ```
        ///
        /// # Safety
        ///
        /// The guard is a local variable. One in a thread-local is dropped while it is not locked if `act`
        /// ends the process: `std::process::exit` runs the destructors of thread-locals.
        pub unsafe fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
            struct Relock<'a, T>(&'a Mutex<T>);

            impl<T> Drop for Relock<'_, T> {
                fn drop(&mut self) {
                    // `act` has left the mutex locked. A panic would drop the guard, which is not locked.
                    if self.0.holder.load(Ordering::Relaxed) == this_thread() {
                        abort_reentered();
                    }
                    self.0.lock.lock();
                    self.0.holder.store(this_thread(), Ordering::Relaxed);
                }
            }

            self.unlock();
            // `self` is borrowed until it is locked again, and `act` cannot reach it (guaranteed by the
            // caller).
            let _relock = Relock(self.mutex);
            act()
        }

        #[inline(always)]
        fn unlock(&self) {
            self.mutex.holder.store(UNLOCKED, Ordering::Relaxed);
            // SAFETY: a guard exists in the thread that locked the mutex (it is not `Send`), and only while
            // it is locked: `unlocked` locks it again, and after `drop` nothing uses it.
            unsafe { self.mutex.lock.unlock() };
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            self.unlock();
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: the mutex is locked while a guard exists, and `self` is borrowed.
            unsafe { &*self.mutex.value.get() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: as in `deref`, and `self` is borrowed exclusively.
            unsafe { &mut *self.mutex.value.get() }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (**self).fmt(f)
        }
    }
}

/// Loom's mutex. Loom itself detects a thread that waits for itself.
#[cfg(loom)]
mod modelled {
    use loom::sync as imp;
    use std::ops::{Deref, DerefMut};

    /// A mutex that ignores poison.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(imp::Mutex<T>);

    /// The guard of a locked [`Mutex`].
    #[derive(Debug)]
    pub struct MutexGuard<'a, T> {
        /// `None` only in `unlocked`.
        inner: Option<imp::MutexGuard<'a, T>>,
        mutex: &'a Mutex<T>,
    }

    impl<T> Mutex<T> {
        /// Creates a mutex that protects `value`.
        pub fn new(value: T) -> Self {
            Self(imp::Mutex::new(value))
        }

        /// Locks the mutex. Waits while another thread holds it.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            let inner = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            MutexGuard { inner: Some(inner), mutex: self }
        }

        /// Does what [`Mutex::lock`] does.
        pub fn lock_unless_held(&self) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }

        /// Locks the mutex if that is possible at once.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let inner = self.0.try_lock().ok()?;
            Some(MutexGuard { inner: Some(inner), mutex: self })
        }
    }

    impl<T> MutexGuard<'_, T> {
        /// Unlocks the mutex, calls `act`, and locks it again.
        ///
        /// # Safety
        ///
        /// As for the other implementation.
        pub unsafe fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
            self.inner = None;
            let result = act();
            self.inner = self.mutex.lock().inner.take();
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.inner.as_ref().expect("the mutex is locked")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().expect("the mutex is locked")
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
    fn only_one_thread_has_the_lock() {
        let mutex = Mutex::new(1);
        let held = mutex.try_lock().unwrap();
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| mutex.try_lock().is_none()).join().unwrap());
        });
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert_eq!(*mutex.try_lock().unwrap(), 1);
    }

    #[test]
    fn a_guard_unlocks_for_a_call() {
        let mutex = Mutex::new(1);
        let mut held = mutex.lock();
        let add = || {
            *mutex.lock() += 1;
            std::thread::scope(|scope| scope.spawn(|| *mutex.lock()).join().unwrap())
        };
        // SAFETY: a local variable.
        let other = unsafe { held.unlocked(add) };
        assert_eq!((*held, other), (2, 2));
        assert!(mutex.try_lock().is_none() && mutex.lock_unless_held().is_none());
        // SAFETY: as above.
        let panics = catch_unwind(AssertUnwindSafe(|| unsafe { held.unlocked(|| panic!("inside")) }));
        assert!(panics.is_err() && mutex.try_lock().is_none(), "it is locked again");
        *held += 1;
        drop(held);
        assert_eq!(*mutex.lock(), 3);
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
