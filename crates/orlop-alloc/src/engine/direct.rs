//! The plain engine: every block is a region of its own.

use super::supply::Supply;
use crate::backing::{Backing, BackingRef};
use crate::{Allocator, AllocatorRef, RawBlock, RegionWatch, Request, Result, Semantics, Usage};
use orlop_core::Device;
use std::ptr::NonNull;
use std::sync::Arc;

/// Asks the backing for every block and gives it back at once. Nothing is cached.
#[derive(Debug)]
pub struct Direct<B: Backing = BackingRef> {
    name: Box<str>,
    supply: Supply<B>,
}

impl<B: Backing> Direct<B> {
    /// Over this backing, under its name.
    #[must_use]
    pub fn engine(backing: B) -> Self {
        Self { name: backing.name().into(), supply: Supply::new(backing) }
    }

    /// The same behind a handle.
    #[must_use]
    pub fn new(backing: B) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing))
    }
}

// SAFETY: a block is a whole region, with the backing's promises; it is zeroed again only if the backing did
// not promise zeros. Regions go back when their blocks do.
unsafe impl<B: Backing> Allocator for Direct<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device())?;
        let record = self.supply.gain(&self.name, request, request.bytes.max(1), request.align, || 0)?;
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: every block of this engine has a record from `allocate`.
        let record = unsafe { block.into_record() };
        // SAFETY: the caller's promise: gained in `allocate` with its alignment, once, and used by nobody.
        unsafe { self.supply.lose(&record, record.align) };
        Ok(())
    }

    fn device(&self) -> Device {
        self.supply.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        self.supply.usage(0)
    }

    fn reset_peak(&self) {
        self.supply.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        self.supply.semantics()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.supply.block_bytes(ptr) }
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.supply.watch(watch);
    }
}
