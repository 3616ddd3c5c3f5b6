//! The end of an atomic word's lifetime, which loom checks.
//!
//! Freeing an atomic is an access to it like any other: every use by another thread must happen before.
//! Loom's atomics do not check that when they are dropped, but an exclusive access does, against every
//! earlier and later load and store. So every type with atomics that several threads share ends each of them
//! in its `Drop`.

/// A word whose lifetime can be ended.
pub trait End {
    /// Ends the lifetime. Under loom this is an exclusive access, and the model fails if a use is not ordered
    /// before it; otherwise it does nothing.
    fn end(&mut self);
}

#[cfg(not(loom))]
impl<T> End for T {
    #[inline(always)]
    fn end(&mut self) {}
}

#[cfg(loom)]
mod imp {
    use super::End;
    use crate::primitives::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

    macro_rules! ends {
        ($($atomic:ty),*) => {$(
            impl End for $atomic {
                fn end(&mut self) {
                    // While a model fails, values are dropped in any order.
                    if !std::thread::panicking() {
                        self.with_mut(|_| ());
                    }
                }
            }
        )*};
    }
    ends!(AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize);

    impl<T> End for AtomicPtr<T> {
        fn end(&mut self) {
            if !std::thread::panicking() {
                self.with_mut(|_| ());
            }
        }
    }
}
