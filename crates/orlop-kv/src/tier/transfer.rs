//! Copies between a pool's pages and host memory.

use orlop_alloc::{Block, CopyRange, DeviceOps, Error, Result};
use orlop_core::StreamId;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Copies between a pool's pages and host memory. Ranges are in bytes from the start of the pool; in `host`
/// they follow each other. A copy is done when the function returns: it reads what steps that have settled
/// have written, and what it writes is there for the next step.
pub trait PageTransfer: Debug + Send {
    /// Copies ranges of the pool to host memory. `pool` is the pool's memory, if it has any.
    ///
    /// # Errors
    /// Those of the copy. The content of `host` does not matter then.
    fn read(&mut self, pool: Option<&Block>, ranges: &[Range<u64>], host: &mut Block) -> Result<()>;

    /// Copies host memory to ranges of the pool.
    ///
    /// # Errors
    /// Those of the copy. The pool gives the pages back then.
    fn write(&mut self, pool: Option<&mut Block>, ranges: &[Range<u64>], host: &Block) -> Result<()>;
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
}

/// The error of a pool without memory.
fn no_memory() -> Error {
    Error::Backend(Box::new(io::Error::from(io::ErrorKind::Unsupported)))
}

/// Returns the ranges as copies to or from consecutive bytes.
fn copies(ranges: &[Range<u64>], is_read: bool) -> Result<Vec<CopyRange>> {
    let out_of_range = |error| Error::Backend(Box::new(error));
    let mut at = 0;
    let mut copies = Vec::with_capacity(ranges.len());
    for range in ranges {
        let start = usize::try_from(range.start).map_err(out_of_range)?;
        let bytes = usize::try_from(range.end - range.start).map_err(out_of_range)?;
        let (to, from) = if is_read { (at, start) } else { (start, at) };
        copies.push(CopyRange { to, from, bytes });
        at += bytes;
    }
    Ok(copies)
}

impl PageTransfer for DeviceTransfer {
    fn read(&mut self, pool: Option<&Block>, ranges: &[Range<u64>], host: &mut Block) -> Result<()> {
        let pool = pool.ok_or_else(no_memory)?;
        // A copy to host memory is done when this returns.
        host.copy_ranges_by(&*self.ops, pool, &copies(ranges, true)?, self.stream)
    }

    fn write(&mut self, pool: Option<&mut Block>, ranges: &[Range<u64>], host: &Block) -> Result<()> {
        let pool = pool.ok_or_else(no_memory)?;
        pool.copy_ranges_by(&*self.ops, host, &copies(ranges, false)?, self.stream)?;
        self.ops.synchronize(self.stream)
    }
}
