//! The primitives the protocol types are built from: `std`'s, or loom's under `--cfg loom`.
//!
//! Only the types in [`crate::protocol`] go through this module. They carry every concurrent argument of
//! the crate, and loom checks them verbatim; the engines around them hold plain data behind a mutex, or
//! behind one of these types, and need no model of their own.

mod cell;
mod end;
pub(crate) mod fence;
mod mutex;
mod ordering;

pub use self::cell::{MutPtr, UnsafeCell};
pub(crate) use self::end::End;
pub use self::mutex::{Mutex, MutexGuard};
#[cfg(loom)]
pub use self::ordering::mutation::mutated;
pub use self::ordering::ordering;

#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(loom))]
pub use std::sync::atomic;

/// Waits a little: a processor hint first, then the scheduler. Under loom every wait is a switch.
#[derive(Debug)]
pub(crate) struct Backoff {
    #[cfg(not(loom))]
    inner: crossbeam_utils::Backoff,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            inner: crossbeam_utils::Backoff::new(),
        }
    }

    pub(crate) fn wait(&self) {
        #[cfg(not(loom))]
        self.inner.snooze();
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}
