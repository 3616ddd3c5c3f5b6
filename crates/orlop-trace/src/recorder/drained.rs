//! What a drain has written, and what it has not.

use std::sync::atomic::{AtomicU64, Ordering};

/// The result of [`Recorder::drain`](super::Recorder::drain).
///
/// A recording of the global allocator sees its own memory, too, and does not count it as lost:
///
/// ```
/// use orlop_alloc::bare::GlobalAllocator;
/// use orlop_trace::history::History;
/// use orlop_trace::recorder::Recorder;
///
/// #[global_allocator]
/// static GLOBAL: GlobalAllocator = GlobalAllocator;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("run.orlop");
/// let recording = Recorder::builder().capacity(1 << 18).to_file(&path)?;
/// assert!(GlobalAllocator::observe(recording.observer()));
/// (0..1000).for_each(|bytes| drop(vec![0u8; bytes]));
/// let report = recording.finish()?;
/// assert!(report.events > 1000 && report.own > 0);
/// assert_eq!(report.lost, 0);
/// assert!(History::read(&path)?.warnings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
