//! What a drain has written, and what it has not.

use std::sync::atomic::{AtomicU64, Ordering};

/// The result of [`Recorder::drain`](super::Recorder::drain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DrainReport {
    /// The number of events written.
    pub events: u64,
    /// The number of events that were overwritten before.
    pub lost: u64,
    /// The number of events of the recorder's own blocks, which are not recorded: what a thread allocates and
    /// frees while it records or drains. They are in no other number.
    pub own: u64,
}

/// Events that a drain has taken and not written: they are counted as lost when this is dropped, also by a
/// panic of the writer.
pub(super) struct UnwrittenEvents<'a> {
    pub(super) count: u64,
    pub(super) lost: &'a AtomicU64,
}

impl Drop for UnwrittenEvents<'_> {
    fn drop(&mut self) {
        self.lost.fetch_add(self.count, Ordering::Relaxed);
    }
}
