//! Spin loops that back off.

/// A back-off for spin loops: a processor hint first, then a yield to the scheduler. Under loom every wait is
/// a yield.
#[derive(Debug)]
pub struct Backoff {
    #[cfg(not(loom))]
    inner: crossbeam_utils::Backoff,
}

impl Backoff {
    /// Creates a back-off that starts with the shortest wait.
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

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}
