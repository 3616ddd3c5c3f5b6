//! `offset-allocator`: segregated free lists of offsets. It knows no alignment, so a request asks for more
//! bytes and is aligned within them.

use crate::Placement;
use offset_allocator::{Allocation, Allocator};
use std::collections::HashMap;
use std::fmt;

/// A pool of `offset-allocator`, in bytes.
pub struct OffsetAllocator {
    offsets: Allocator<u32>,
    /// By the offset of the block, which is aligned.
    live: HashMap<usize, Allocation<u32>>,
}

// SAFETY: the allocator hands out ranges of the pool's offsets that do not overlap; it never sees the memory.
unsafe impl Placement for OffsetAllocator {
    const NAME: &'static str = "offset-allocator";

    /// A pool of 4 GiB and more is used up to there: offsets have 32 bits.
    fn new(pool: &'static mut [u8]) -> Self {
        let bytes = u32::try_from(pool.len()).unwrap_or(u32::MAX);
        Self { offsets: Allocator::new(bytes), live: HashMap::new() }
    }

    fn place(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let allocation = self.offsets.allocate(u32::try_from(bytes.checked_add(align - 1)?).ok()?)?;
        let offset = usize::try_from(allocation.offset).ok()?.next_multiple_of(align);
        self.live.insert(offset, allocation);
        Some(offset)
    }

    unsafe fn free(&mut self, offset: usize, _: usize, _: usize) {
        if let Some(allocation) = self.live.remove(&offset) {
            self.offsets.free(allocation);
        }
    }
}

impl fmt::Debug for OffsetAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offsets, live } = self;
        let report = offsets.storage_report();
        f.debug_struct("OffsetAllocator").field("report", &report).field("live", &live.len()).finish()
    }
}
