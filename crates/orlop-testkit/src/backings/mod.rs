//! Backings for tests: one counts, one fails on request, one returns dirty memory.
//!
//! Each wraps another backing and shares its state with the test through an `Arc`, because the backing itself
//! is moved into an engine.

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
