//! [`CaptureCount`]: the captures in progress on a device.

use orlop_sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The number of captures in progress on a device, which its backings share. Clones are the same count.
///
/// While it is not zero, engines record and query no events, make no stream wait, and release no memory: see
/// [`Engine::mark_capture_begin`](crate::Engine::mark_capture_begin).
#[derive(Debug, Clone, Default)]
pub struct CaptureCount(Arc<AtomicU32>);

impl CaptureCount {
    /// Creates a count of zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a capture begins.
    pub fn begin(&self) {
        // Relaxed: a count beside the captures themselves, which the caller begins and ends.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a capture has ended.
    pub fn end(&self) {
        // Relaxed: as above. A count that is zero stays so.
        let _ended = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }

    /// Returns `true` if a capture is in progress.
    #[inline]
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}
