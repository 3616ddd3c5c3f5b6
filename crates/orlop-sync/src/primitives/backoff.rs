//! Spin loops that back off.

#[cfg(not(loom))]
use std::{cell::Cell, hint, thread};

/// The waits that spin: 1, 2, 4, … processor hints. Later ones yield to the scheduler.
#[cfg(not(loom))]
const SPINNING_WAITS: u32 = 7;

/// A back-off for spin loops: processor hints first, then a yield to the scheduler. Under loom every wait is a
/// yield.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// The number of waits so far, as far as it counts.
    #[cfg(not(loom))]
    waits: Cell<u32>,
}

impl Backoff {
    /// Waits, longer each time.
    #[cfg(not(loom))]
    pub(crate) fn wait(&self) {
        let waits = self.waits.get();
        if waits == SPINNING_WAITS {
            thread::yield_now();
            return;
        }
        for _ in 0..1u32 << waits {
            hint::spin_loop();
        }
        self.waits.set(waits + 1);
    }

    /// Waits.
    #[cfg(loom)]
    pub(crate) fn wait(&self) {
        loom::thread::yield_now();
    }
}
