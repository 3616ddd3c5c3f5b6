//! [`PoolMemory`]: the memory of a pool's pages, in segments that can be returned and allocated again.

mod copies;

use crate::{KvError, Result};
use orlop_alloc::{AllocatorRef, Block, Error, Request, Tag};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use std::io;

/// Where segments come from.
#[derive(Debug)]
pub(crate) enum MemorySource {
    Context(Context, Device),
    Allocator(AllocatorRef),
    /// The engine has arenas of its own.
    Detached,
}

/// The memory of a pool's pages. It consists of segments of equal size, one by default: byte `at` of the pool
/// is byte `at % segment_bytes` of segment `at / segment_bytes`. No page is in two segments.
#[derive(Debug)]
pub struct PoolMemory {
    source: MemorySource,
    segments: Vec<Option<Block>>,
    /// Bytes of a segment; the last one may have fewer.
    segment_bytes: u64,
    total_bytes: u64,
}

/// The memory of a pool's pages, for a [transfer](crate::PageTransfer) that writes to it. It is not the
/// memory itself, which therefore cannot be exchanged for another pool's.
#[derive(Debug)]
pub struct PoolMemoryMut<'a>(pub(crate) &'a mut PoolMemory);

impl PoolMemory {
    /// Allocates all segments.
    pub(crate) fn new(source: MemorySource, segment_bytes: u64, total_bytes: u64) -> Result<Self> {
        let mut memory = Self { source, segments: Vec::new(), segment_bytes, total_bytes };
        if memory.is_detached() {
            return Ok(memory);
        }
        let count = usize::try_from(total_bytes.div_ceil(segment_bytes));
        let count = count.map_err(|_| KvError::OutOfRange { what: "the segments of the pool" })?;
        for index in 0..count {
            let segment = memory.allocate(index)?;
            memory.segments.push(Some(segment));
        }
        Ok(memory)
    }

    fn is_detached(&self) -> bool {
        matches!(self.source, MemorySource::Detached)
    }

    /// Returns the bytes of a segment; the last one may have fewer.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns a segment; `None` if it was returned, or the pool has no memory of its own.
    #[must_use]
    pub fn segment(&self, index: usize) -> Option<&Block> {
        self.segments.get(index)?.as_ref()
    }

    /// Returns the segments, those that were returned included.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    fn allocate(&self, index: usize) -> Result<Block> {
        let start = index as u64 * self.segment_bytes;
        let bytes = self.segment_bytes.min(self.total_bytes - start);
        let too_large = |_| KvError::OutOfRange { what: "the bytes of the pool" };
        let bytes = usize::try_from(bytes).map_err(too_large)?;
        let request = Request::new(bytes).kind(MemoryKind::KvCache).tag(Tag::new("kv pool"));
        match &self.source {
            MemorySource::Context(context, device) => Ok(context.allocate(*device, &request)?),
            MemorySource::Allocator(allocator) => Ok(allocator.allocate(&request)?),
            MemorySource::Detached => Err(no_memory().into()),
        }
    }

    /// Returns a segment to its allocator.
    pub(crate) fn release(&mut self, index: usize) {
        if let Some(segment) = self.segments.get_mut(index) {
            *segment = None;
        }
    }

    /// Allocates a segment again, if it was returned.
    pub(crate) fn acquire(&mut self, index: usize) -> Result<()> {
        if self.is_detached() || self.segment(index).is_some() {
            return Ok(());
        }
        let segment = self.allocate(index)?;
        self.segments[index] = Some(segment);
        Ok(())
    }
}

/// The error of memory that is not there.
fn no_memory() -> Error {
    Error::Backend(Box::new(io::Error::from(io::ErrorKind::Unsupported)))
}
