//! [`DropQueue`]: what other threads dropped, for an owner that collects it later.

use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicBool, Ordering};

/// Values that handles leave when they are dropped, on any thread, for the one owner that collects them.
/// Looking whether there are any takes no lock.
///
/// What was left before the owner looks, in the order of the threads' own synchronization, is found. What is
/// left at the same time is found then or the next time.
#[derive(Debug)]
pub struct DropQueue<T> {
    /// Written under the lock. The lock orders the values, so the flag need not.
    has_values: AtomicBool,
    values: Mutex<Vec<T>>,
}

impl<T> Default for DropQueue<T> {
    fn default() -> Self {
        Self { has_values: AtomicBool::new(false), values: Mutex::new(Vec::new()) }
    }
}

impl<T> DropQueue<T> {
    /// Leaves a value.
    pub fn leave(&self, value: T) {
        let mut values = self.values.lock();
        values.push(value);
        self.has_values.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if there are values.
    #[inline]
    pub fn has_values(&self) -> bool {
        self.has_values.load(Ordering::Relaxed)
    }

    /// Moves the values to the end of `to`, in the order in which they were left.
    pub fn collect(&self, to: &mut Vec<T>) {
        let mut values = self.values.lock();
        self.has_values.store(false, Ordering::Relaxed);
        to.append(&mut values);
    }
}
