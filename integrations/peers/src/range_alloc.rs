//! `range-alloc`: best fit over a list of free ranges.

use crate::Placement;
use range_alloc::RangeAllocator;

/// A pool of `range-alloc`, in bytes.
#[derive(Debug)]
pub struct RangeAlloc {
    ranges: RangeAllocator<usize>,
}

// SAFETY: the allocator hands out ranges of the pool that do not overlap; it never sees the memory.
unsafe impl Placement for RangeAlloc {
    const NAME: &'static str = "range-alloc";

    fn new(pool: &'static mut [u8]) -> Self {
        Self { ranges: RangeAllocator::new(0..pool.len()) }
    }

    fn place(&mut self, bytes: usize, align: usize) -> Option<usize> {
        Some(self.ranges.allocate_range_aligned(bytes, align).ok()?.start)
    }

    unsafe fn free(&mut self, offset: usize, bytes: usize, _: usize) {
        self.ranges.free_range(offset..offset + bytes);
    }
}
