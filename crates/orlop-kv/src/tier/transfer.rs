//! Copies between a pool's pages and host memory.

use crate::PoolMemory;
use orlop_alloc::{Block, DeviceOps, Error, Result};
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
    fn write(&mut self, pool: &mut PoolMemory, ranges: &[Range<u64>], host: &Block) -> Result<()>;
}

/// Calls a transfer. Its panic is an error of the copy.
pub(crate) fn call_transfer(copy: impl FnOnce() -> Result<()>) -> Result<()> {
    let panicked = || Err(Error::Backend(Box::new(io::Error::other("the page transfer panicked"))));
    shielded(copy).unwrap_or_else(panicked)
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
}

impl PageTransfer for DeviceTransfer {
    fn read(&mut self, pool: &PoolMemory, ranges: &[Range<u64>], host: &mut Block) -> Result<()> {
        // A copy to host memory is done when this returns.
        pool.copy_to(&*self.ops, ranges.iter().cloned(), host, self.stream)
    }

    fn write(&mut self, pool: &mut PoolMemory, ranges: &[Range<u64>], host: &Block) -> Result<()> {
        let copied = pool.copy_from(&*self.ops, ranges.iter().cloned(), host, self.stream);
        // Copies that were queued before an error read `host` and write pages that are given back.
        let waited = self.ops.synchronize(self.stream);
        copied.and(waited)
    }
}
