//! Copies between a pool's pages and host memory.

use crate::{PoolMemory, PoolMemoryMut};
use orlop_alloc::{Block, DeviceOps, Error, PendingCopy, Result};
use orlop_core::StreamId;
use orlop_host::shield::shielded;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Copies between a pool's pages and host memory. Ranges are in bytes from the start of the pool; in `host`
/// they follow each other. A copy is done when the function returns: it reads what steps that have settled
/// have written, and what it writes is there for the next step.
pub trait PageTransfer: Debug + Send {
    /// Copies ranges of the pool to host memory.
    ///
    /// # Errors
    /// Those of the copy. The content of `host` does not matter then.
    fn read(&mut self, pool: &PoolMemory, ranges: &[Range<u64>], host: &mut Block) -> Result<()>;

    /// Copies host memory to ranges of the pool.
    ///
    /// # Errors
    /// Those of the copy. The pool gives the pages back then.
    fn write(&mut self, pool: PoolMemoryMut<'_>, ranges: &[Range<u64>], host: &Block) -> Result<()>;
}

/// Copies ranges of the pool to host memory by a transfer, whose panic is an error of the copy. It is
/// one, too, if the transfer has put another block in the place of `host`.
pub(crate) fn read_pages(
    transfer: &mut dyn PageTransfer,
    pool: &PoolMemory,
    ranges: &[Range<u64>],
    host: &mut Block,
) -> Result<()> {
    let place = |block: &Block| (block.as_ptr(), block.len());
    let before = place(host);
    shielded(|| transfer.read(pool, ranges, host)).unwrap_or_else(|| Err(failed("panicked")))?;
    if place(host) == before { Ok(()) } else { Err(failed("exchanged its destination")) }
}

/// As [`read_pages`], from host memory.
pub(crate) fn write_pages(
    transfer: &mut dyn PageTransfer,
    pool: &mut PoolMemory,
    ranges: &[Range<u64>],
    host: &Block,
) -> Result<()> {
    let copied = shielded(|| transfer.write(PoolMemoryMut(pool), ranges, host));
    copied.unwrap_or_else(|| Err(failed("panicked")))
}

fn failed(how: &str) -> Error {
    Error::Backend(Box::new(io::Error::other(format!("the page transfer {how}"))))
}

/// Copies by the operations of a device on a stream of their own, for pools with memory.
#[derive(Debug, Clone)]
pub struct DeviceTransfer {
    ops: Arc<dyn DeviceOps>,
    stream: StreamId,
}

impl DeviceTransfer {
    /// Creates a transfer by these operations on this stream.
    #[must_use]
    pub fn new(ops: Arc<dyn DeviceOps>, stream: StreamId) -> Self {
        Self { ops, stream }
    }

    pub(crate) fn ops(&self) -> &dyn DeviceOps {
        &*self.ops
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    /// Starts a copy to host memory that the host does not wait for.
    pub(crate) fn start_copy(&self, host: Block) -> PendingCopy {
        PendingCopy::new(host, Arc::clone(&self.ops), self.stream)
    }
}

impl PageTransfer for DeviceTransfer {
    fn read(&mut self, pool: &PoolMemory, ranges: &[Range<u64>], host: &mut Block) -> Result<()> {
        // A copy to host memory is done when this returns.
        pool.copy_to(&*self.ops, ranges.iter().cloned(), host, self.stream)
    }

    fn write(&mut self, mut pool: PoolMemoryMut<'_>, ranges: &[Range<u64>], host: &Block) -> Result<()> {
        let copied = pool.copy_from(&*self.ops, ranges.iter().cloned(), host, self.stream);
        // Copies that were queued before an error read `host` and write pages that are given back.
        let waited = self.ops.synchronize(self.stream);
        copied.and(waited)
    }
}
