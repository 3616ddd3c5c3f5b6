//! Spin loops that back off.

/// A back-off for spin loops: a processor hint first, then a yield to the scheduler. Under loom every wait is
/// a yield.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    #[cfg(not(loom))]
    inner: crossbeam_utils::Backoff,
}

impl Backoff {
    /// Waits, longer each time.
    pub(crate) fn wait(&self) {
        #[cfg(not(loom))]
        self.inner.snooze();
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}
