//! Waiting for another thread for a moment.

/// Waits a little: a processor hint first, then the scheduler. Under loom every wait is a switch.
#[derive(Debug)]
pub struct Backoff {
    #[cfg(not(loom))]
    inner: crossbeam_utils::Backoff,
}

impl Backoff {
    /// Starts with the shortest wait.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            inner: crossbeam_utils::Backoff::new(),
        }
    }

    /// Waits, longer each time.
    pub fn wait(&self) {
        #[cfg(not(loom))]
        self.inner.snooze();
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}
