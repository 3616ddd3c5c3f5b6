//! [`PendingCopy`]: host memory that a device is still writing to.

use super::copying::{CopyRange, InFlight};
use crate::{Block, DeviceOps, Result, StreamEvent};
use orlop_core::StreamId;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Copies from a device to a block of host memory, which may not be done: nothing can access the block before
/// [`wait`](Self::wait) returns it. If this is dropped, the host waits, and the block is freed.
///
/// The device writes to pinned memory while the host goes on. Other memory is written when
/// [`copy_ranges`](Self::copy_ranges) returns.
#[derive(Debug)]
#[must_use = "`wait` returns the block"]
pub struct PendingCopy {
    block: ManuallyDrop<Block>,
    end: Arc<CopyEnd>,
}

/// Whether a [`PendingCopy`] is done, for others than its owner.
#[derive(Debug, Clone)]
pub struct CopyStatus(Arc<CopyEnd>);

/// The end of copies.
#[derive(Debug)]
struct CopyEnd {
    ops: Arc<dyn DeviceOps>,
    stream: StreamId,
    /// Not locked while the backend submits or waits: its code may ask for the status.
    submission: Mutex<Submission>,
    /// Whether all copies so far were waited for. Written under the lock.
    is_done: AtomicBool,
}

/// What was submitted last.
#[derive(Debug, Default)]
struct Submission {
    /// Rises when a submission begins, and when it ends.
    changes: u64,
    is_under_way: bool,
    /// Recorded behind the copies; `None` if only the stream can be waited for.
    event: Option<Arc<dyn StreamEvent>>,
}

impl CopyEnd {
    fn lock(&self) -> MutexGuard<'_, Submission> {
        self.submission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        // Acquire: what follows follows the wait.
        self.is_done.load(Ordering::Acquire)
    }

    fn begin(&self) {
        let mut submission = self.lock();
        // Relaxed: under the lock.
        self.is_done.store(false, Ordering::Relaxed);
        *submission = Submission { changes: submission.changes + 1, is_under_way: true, event: None };
    }

    fn end(&self, event: Option<Box<dyn StreamEvent>>) {
        let mut submission = self.lock();
        let changes = submission.changes + 1;
        *submission = Submission { changes, is_under_way: false, event: event.map(Arc::from) };
    }

    fn wait(&self) -> Result<()> {
        let (changes, event) = {
            let submission = self.lock();
            if self.is_done() {
                return Ok(());
            }
            (submission.changes, submission.event.clone())
        };
        event.map_or_else(|| self.ops.synchronize(self.stream), |event| event.wait())?;
        let submission = self.lock();
        if submission.changes == changes && !submission.is_under_way {
            // Release: to `is_done`.
            self.is_done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl CopyStatus {
    /// Returns `true` if the copies were waited for: by [`wait`](Self::wait), [`PendingCopy::wait`], or when
    /// the copy was dropped.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Waits for the copies that were submitted so far.
    ///
    /// # Errors
    ///
    /// Those of the wait.
    pub fn wait(&self) -> Result<()> {
        self.0.wait()
    }
}

impl PendingCopy {
    /// Takes a block of host memory for copies by `ops` on `stream`.
    pub fn new(block: Block, ops: Arc<dyn DeviceOps>, stream: StreamId) -> Self {
        let (submission, is_done) = (Mutex::default(), AtomicBool::new(false));
        let end = Arc::new(CopyEnd { ops, stream, submission, is_done });
        Self { block: ManuallyDrop::new(block), end }
    }

    /// Returns the stream of the copies.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.end.stream
    }

    /// Returns what tells others that the copies are done.
    #[must_use]
    pub fn status(&self) -> CopyStatus {
        CopyStatus(Arc::clone(&self.end))
    }

    /// Copies ranges of `source`, a block of the device, in this order. The stream waits for the work that
    /// the source's own stream and all that used it were given so far, and likewise for that on the
    /// destination, if it is memory of a device. The host waits if the source's allocator does not wait for
    /// streams.
    ///
    /// # Errors
    ///
    /// As for [`Block::copy_ranges_by`]. Ranges before one that fails may be copied.
    pub fn copy_ranges(&mut self, source: &Block, ranges: &[CopyRange]) -> Result<()> {
        let CopyEnd { ref ops, stream, .. } = *self.end;
        self.end.begin();
        // SAFETY: this keeps its block until the copies were waited for; the source is borrowed until it was
        // waited for below, unless it is kept.
        let submitted = unsafe { self.block.submit_ranges(&**ops, source, ranges, stream) };
        let result = submitted.and_then(|(submitted, in_flight)| {
            in_flight.without_destination().finish(&**ops, stream, submitted)
        });
        // Without an event, the wait is for the stream, whose errors it has.
        let event = result.is_ok().then(|| ops.record_event(stream).unwrap_or_default());
        self.end.end(event.flatten());
        result
    }

    /// Waits for the copies, and returns the block. Where the backend has no [events](StreamEvent), or a copy
    /// has failed, this waits for all work that the stream was given so far.
    ///
    /// # Errors
    ///
    /// Those of the wait. The device may still use the block: its memory leaks.
    pub fn wait(self) -> Result<Block> {
        let mut this = ManuallyDrop::new(self);
        let waited = this.finish();
        // SAFETY: `this` is not dropped, and its end is taken here only.
        drop(unsafe { std::ptr::read(&raw const this.end) });
        // SAFETY: as above, for its block.
        let block = unsafe { ManuallyDrop::take(&mut this.block) };
        waited.map(|()| block)
    }

    fn finish(&self) -> Result<()> {
        // The backend panicked.
        if self.end.lock().is_under_way {
            self.end.end(None);
        }
        InFlight::new(&self.block).finish_by(|| self.end.wait(), Ok(()))
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        // A block that could not be waited for leaks when it is dropped.
        let _ = self.finish();
        // SAFETY: this is its last use.
        unsafe { ManuallyDrop::drop(&mut self.block) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::copying::tests::LostOps;
    use super::*;
    use crate::backing::System;
    use crate::caching::Caching;
    use crate::{Allocator, DevicePtr, Error, HostOps, Request};
    use orlop_core::Device;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::OnceLock;

    /// Operations whose copies wait for the status of the copy that they are part of, and may panic.
    #[derive(Debug, Default)]
    struct AskingOps {
        status: OnceLock<CopyStatus>,
        panics: AtomicBool,
    }

    // SAFETY: they are those of the host.
    unsafe impl DeviceOps for AskingOps {
        fn device(&self) -> Device {
            Device::CPU
        }

        unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
            let status = self.status.get().expect("the copy was made");
            status.wait().expect("the host waits for nothing");
            assert!(!status.is_done(), "it is under way");
            assert!(!self.panics.load(Ordering::Relaxed));
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.copy(to, from, bytes, stream) }
        }

        unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.fill(to, pattern, count, stream) }
        }

        fn synchronize(&self, _: StreamId) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn a_backend_may_ask_for_the_status_and_panic() {
        let host = Caching::new(System::new()).into_ref();
        let source = host.allocate_copy(&Request::new(0), &[1, 2]).unwrap();
        for panics in [false, true] {
            let target = host.allocate_copy(&Request::new(0), &[0; 2]).unwrap();
            let ops = Arc::new(AskingOps { panics: AtomicBool::new(panics), ..AskingOps::default() });
            let mut copy = PendingCopy::new(target, Arc::<AskingOps>::clone(&ops), StreamId::HOST);
            let status = ops.status.get_or_init(|| copy.status());
            let range = CopyRange { to: 0, from: 0, bytes: 2 };
            let copied = catch_unwind(AssertUnwindSafe(|| copy.copy_ranges(&source, &[range])));
            assert_eq!(copied.is_err(), panics);
            assert!(!status.is_done());
            let block = copy.wait().unwrap();
            assert_eq!(block.bytes().ok(), (!panics).then_some(&[1, 2][..]), "after a panic it may change");
            assert!(status.is_done());
        }
    }

    #[test]
    fn a_copy_gives_its_block_back_or_frees_it() {
        let host = Caching::new(System::new()).into_ref();
        let source = host.allocate_copy(&Request::new(0), &[1, 2, 3, 4]).unwrap();
        let live = host.stats().live();
        for is_dropped in [true, false] {
            let target = host.allocate_copy(&Request::new(0), &[0; 4]).unwrap();
            let mut copy = PendingCopy::new(target, Arc::new(HostOps), StreamId::HOST);
            copy.copy_ranges(&source, &[CopyRange { to: 0, from: 2, bytes: 2 }]).unwrap();
            let status = copy.status();
            let outside = copy.copy_ranges(&source, &[CopyRange { to: 3, from: 0, bytes: 2 }]);
            assert!(matches!(outside, Err(Error::OutsideBlock { .. })), "{outside:?}");
            assert!(!status.is_done());
            if is_dropped {
                drop(copy);
            } else {
                assert_eq!(copy.wait().unwrap().bytes().unwrap(), [3, 4, 0, 0]);
            }
            assert!(status.is_done());
        }
        assert_eq!(host.stats().live(), live);
    }

    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn a_block_that_the_device_may_still_write_is_not_given_back() {
        let host = Caching::new(System::new()).into_ref();
        for is_dropped in [true, false] {
            let target = host.allocate(&Request::new(64)).unwrap();
            let live = host.stats().live();
            let copy = PendingCopy::new(target, Arc::new(LostOps), StreamId::from_raw(7));
            let status = copy.status();
            if is_dropped {
                drop(copy);
            } else {
                assert!(copy.wait().is_err());
            }
            assert!(!status.is_done());
            assert_eq!(host.stats().live(), live, "leaked");
        }
    }
}
