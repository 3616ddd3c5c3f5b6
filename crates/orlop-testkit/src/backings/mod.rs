//! Backings for tests: one counts, one fails on request, one returns dirty memory.
//!
//! Each wraps another backing and shares its state with the test through an `Arc`, because the backing itself
//! is moved into an engine.

/// Implements the methods of [`Backing`] that every wrapper forwards.
macro_rules! pass_on {
    () => {
        fn device(&self) -> Device {
            self.inner.device()
        }
        fn access(&self) -> Access {
            self.inner.access()
        }
        fn name(&self) -> &str {
            self.inner.name()
        }
        fn node(&self) -> Option<u32> {
            self.inner.node()
        }
        fn commit_granularity(&self) -> Alignment {
            self.inner.commit_granularity()
        }
    };
}

pub(crate) use pass_on;

mod counting;
mod failing;
mod poison;

pub use self::counting::{BackingCounters, BackingStats, CountingBacking};
pub use self::failing::{FailingBacking, FailureSchedule};
pub use self::poison::PoisonBacking;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poison: after a panic elsewhere the records are still useful.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
