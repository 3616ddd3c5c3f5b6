//! The direct engine: a region per block.

use super::region_source::{RegionSource, answered_by_source};
use crate::backing::{Backing, BackingRef};
use crate::{Allocator, RawBlock, Request, Result, Usage};

/// Reserves a region for every block and releases it at once when the block returns. It caches nothing.
#[derive(Debug)]
pub struct Direct<B: Backing = BackingRef> {
    name: Box<str>,
    source: RegionSource<B>,
}

impl<B: Backing> Direct<B> {
    /// Creates an engine over this backing, with the backing's name.
    #[must_use]
    pub fn new(backing: B) -> Self {
        Self { name: backing.name().into(), source: RegionSource::new(backing) }
    }
}

// SAFETY: a block is a whole region, with the guarantees of the backing. A request for zeros is zeroed unless
// the backing reported the region as zeroed. Regions are released when their blocks return.
unsafe impl<B: Backing> Allocator for Direct<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device())?;
        let record =
            self.source.reserve_block(&self.name, request, request.bytes.max(1), request.align, || 0)?;
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: every block of this engine has a record from `allocate`.
        let record = unsafe { block.into_record() };
        // SAFETY: guaranteed by the caller: the block came from `allocate`, with this alignment, and is
        // returned once.
        unsafe { self.source.release(&record, record.align) };
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        self.source.usage(0)
    }

    answered_by_source!();
}
