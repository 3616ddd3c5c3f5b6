//! A live block of the model, and the contents of blocks.

use crate::fake_device::FakeDeviceBacking;
use crate::fault::ConformanceFault;
use crate::pattern;
use orlop_alloc::{Access, Block};
use std::slice;

/// A live block, filled with the pattern of `seed`.
#[derive(Debug)]
pub(super) struct ModelBlock {
    pub(super) block: Block,
    pub(super) seed: u64,
}

impl ModelBlock {
    /// Checks that the contents are those that were written.
    pub(super) fn check(&self) -> Result<(), ConformanceFault> {
        check_contents(&self.block, self.seed)
    }
}

/// Checks that a block has the pattern of `seed`, if a test can access its bytes.
pub(crate) fn check_contents(block: &Block, seed: u64) -> Result<(), ConformanceFault> {
    match contents(block).and_then(|bytes| pattern::difference(seed, bytes)) {
        None => Ok(()),
        Some((offset, expected, found)) => {
            let address = block.as_ptr().as_ptr().addr();
            Err(ConformanceFault::Changed { address, offset, expected, found })
        }
    }
}

/// Returns `true` for host memory that is declared as device memory.
fn is_in_disguise(block: &Block) -> bool {
    block.access() == Access::Device && block.device() == FakeDeviceBacking::DEVICE
}

/// Returns a block's bytes, if a test can access them.
fn contents(block: &Block) -> Option<&[u8]> {
    if is_in_disguise(block) {
        // SAFETY: host memory, valid as long as the block, and written only by its owner.
        return Some(unsafe { slice::from_raw_parts(block.as_ptr().as_ptr(), block.len()) });
    }
    block.bytes().ok()
}

/// Returns a block's bytes for writing, if a test can access them.
pub(crate) fn contents_mut(block: &mut Block) -> Option<&mut [u8]> {
    if is_in_disguise(block) {
        // SAFETY: as in `contents`, and the block is borrowed exclusively.
        return Some(unsafe { slice::from_raw_parts_mut(block.as_ptr().as_ptr(), block.len()) });
    }
    block.bytes_mut().ok()
}
