//! [`PendingCopy`]: host memory that a device is still writing to.

use super::copying::{CopyRange, InFlight};
use crate::{Block, DeviceOps, Result};
use orlop_core::StreamId;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copies from a device to a block of host memory, which may not be done: nothing can access the block before
/// [`wait`](Self::wait) returns it. If this is dropped, the host waits, and the block is freed.
///
/// The device writes to pinned memory while the host goes on. Other memory is written when
/// [`copy_ranges`](Self::copy_ranges) returns.
#[derive(Debug)]
#[must_use = "`wait` returns the block"]
pub struct PendingCopy {
    block: ManuallyDrop<Block>,
    ops: Arc<dyn DeviceOps>,
    stream: StreamId,
    is_done: Arc<AtomicBool>,
}

/// Whether a [`PendingCopy`] is done, for others than its owner.
#[derive(Debug, Clone)]
pub struct CopyStatus(Arc<AtomicBool>);

impl CopyStatus {
    /// Returns `true` if the copies were waited for: by [`PendingCopy::wait`], or when it was dropped.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: what follows follows the wait.
        self.0.load(Ordering::Acquire)
    }
}

impl PendingCopy {
    /// Takes a block of host memory for copies by `ops` on `stream`.
    pub fn new(block: Block, ops: Arc<dyn DeviceOps>, stream: StreamId) -> Self {
        Self { block: ManuallyDrop::new(block), ops, stream, is_done: Arc::default() }
    }

    /// Returns the stream of the copies.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns what tells others that the copies are done.
    #[must_use]
    pub fn status(&self) -> CopyStatus {
        CopyStatus(Arc::clone(&self.is_done))
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
        let (ops, stream) = (&*self.ops, self.stream);
        // SAFETY: this keeps its block until the stream was synchronized; the source is borrowed until it was
        // waited for below, unless it is kept.
        let (submitted, in_flight) = unsafe { self.block.submit_ranges(ops, source, ranges, stream) }?;
        in_flight.without_destination().finish(ops, stream, submitted)
    }

    /// Waits for all work that the stream was given so far, and returns the block.
    ///
    /// # Errors
    ///
    /// Those of the wait. The device may still use the block: its memory leaks.
    pub fn wait(self) -> Result<Block> {
        let mut this = ManuallyDrop::new(self);
        let waited = this.synchronize();
        // SAFETY: `this` is not dropped, and its operations are taken here only.
        drop(unsafe { std::ptr::read(&raw const this.ops) });
        // SAFETY: as above, for its status.
        drop(unsafe { std::ptr::read(&raw const this.is_done) });
        // SAFETY: as above, for its block.
        let block = unsafe { ManuallyDrop::take(&mut this.block) };
        waited.map(|()| block)
    }

    fn synchronize(&self) -> Result<()> {
        InFlight::new(&self.block).finish(&*self.ops, self.stream, Ok(()))?;
        // Release: to `CopyStatus::is_done`.
        self.is_done.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        // A block that could not be waited for leaks when it is dropped.
        let _ = self.synchronize();
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
    use crate::{Allocator, Error, HostOps, Request};

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
