//! [`OrlopController`]: a block of orlop behind burn's `Bytes`.

use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use orlop::memory::Block;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The largest alignment of an element in burn: it copies memory with the same alignment, and makes none with
/// a larger one.
const MAX_ALIGN: usize = align_of::<u128>();

/// A block of host memory that burn reads and writes. It returns to its allocator when this is dropped.
///
/// It neither grows nor splits in place: burn copies into memory of its own where it needs that.
#[derive(Debug)]
pub struct OrlopController {
    block: Block,
    range: Range<usize>,
}

impl OrlopController {
    /// Takes the bytes `range` of a block that host code can access. `None` if the block does not have them.
    pub(crate) fn new(block: Block, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= block.len()).then_some(Self { block, range })
    }
}

impl AllocationController for OrlopController {
    fn alloc_align(&self) -> usize {
        let address = self.block.as_ptr().addr().get() + self.range.start;
        1 << address.trailing_zeros().min(MAX_ALIGN.trailing_zeros())
    }

    fn property(&self) -> AllocationProperty {
        if self.block.is_pinned() { AllocationProperty::Pinned } else { AllocationProperty::Other }
    }

    fn capacity(&self) -> usize {
        self.range.len()
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let first = self.block.as_ptr().as_ptr().wrapping_add(self.range.start);
        // SAFETY: the bytes are in the block, which this owns; they change only through `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(first.cast(), self.range.len()) })
    }

    unsafe fn memory_mut(&mut self, _policy: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let first = self.block.as_ptr().as_ptr().wrapping_add(self.range.start);
        // SAFETY: the bytes are in the block, which this owns and has exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(first.cast(), self.range.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::OrlopController;
    use orlop::prelude::*;

    #[test]
    fn a_range_outside_of_the_block_is_refused() {
        let block = || Context::new().allocate(Device::CPU, &Request::new(16)).expect("16 bytes");
        assert!(OrlopController::new(block(), 4..16).is_some());
        assert!(OrlopController::new(block(), 0..1024).is_none());
    }
}
