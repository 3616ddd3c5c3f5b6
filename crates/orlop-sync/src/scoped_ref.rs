//! A reference that is lent to a thread-local for the duration of a call.
//!
//! A thread-local cannot hold a reference to a caller's variable, because the compiler cannot see that the
//! call returns before the variable ends. Here [`ScopedRef::lend`] restores the previous reference when its
//! call returns or unwinds, so the stored one is always valid. Reading it is one load: no reference count.

use std::cell::Cell;
use std::ptr::NonNull;
use std::thread::LocalKey;

/// A thread-local reference to a `T`, empty at first. Use it in a `thread_local!`.
///
/// ```
/// use orlop_sync::ScopedRef;
///
/// thread_local! {
///     static NAME: ScopedRef<String> = const { ScopedRef::new() };
/// }
///
/// let name = String::from("worker");
/// ScopedRef::lend(&NAME, &name, || {
///     assert_eq!(ScopedRef::with(&NAME, |name| name.cloned()), Some("worker".into()));
/// });
/// assert!(ScopedRef::with(&NAME, |name| name.is_none()));
/// ```
#[derive(Debug)]
pub struct ScopedRef<T> {
    /// Invariant: the value is alive until the call of `lend` that stored it restores the previous one.
    current: Cell<Option<NonNull<T>>>,
}

impl<T> ScopedRef<T> {
    /// Creates an empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: Cell::new(None) }
    }

    /// Runs `f` with `value` as the thread's current reference, and restores the previous one when `f`
    /// returns or panics.
    pub fn lend<R>(local: &'static LocalKey<Self>, value: &T, f: impl FnOnce() -> R) -> R {
        struct RestoreGuard<T: 'static>(&'static LocalKey<ScopedRef<T>>, Option<NonNull<T>>);
        impl<T> Drop for RestoreGuard<T> {
            fn drop(&mut self) {
                self.0.with(|this| this.current.set(self.1));
            }
        }
        let before = local.with(|this| this.current.replace(Some(NonNull::from(value))));
        let _restore = RestoreGuard(local, before);
        f()
    }

    /// Runs `f` with the innermost reference lent on this thread, if there is one.
    #[inline(always)]
    pub fn with<R>(local: &'static LocalKey<Self>, f: impl FnOnce(Option<&T>) -> R) -> R {
        let current = local.with(|this| this.current.get());
        // SAFETY: the value is alive until its `lend` returns (the invariant). That call is on this thread
        // and began earlier, so it returns after `f` does.
        f(current.as_ref().map(|value| unsafe { value.as_ref() }))
    }
}

impl<T> Default for ScopedRef<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    thread_local! {
        static NUMBER: ScopedRef<u32> = const { ScopedRef::new() };
    }

    fn number() -> Option<u32> {
        ScopedRef::with(&NUMBER, |number| number.copied())
    }

    #[test]
    fn the_previous_reference_returns_after_a_call_and_after_a_panic() {
        ScopedRef::lend(&NUMBER, &1, || {
            ScopedRef::lend(&NUMBER, &2, || assert_eq!(number(), Some(2)));
            let panics = || ScopedRef::lend(&NUMBER, &3, || panic!("inside"));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert_eq!(number(), Some(1));
            std::thread::scope(|threads| {
                threads.spawn(|| assert_eq!(number(), None));
            });
        });
        assert_eq!(number(), None);
    }
}
