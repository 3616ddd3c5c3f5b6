//! [`BlockTable`]: the live blocks of a device, by their addresses. PyTorch returns addresses, not handles.

use orlop_alloc::Block;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table is in parts with a lock each, so that threads seldom wait for each other.
const PARTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    parts: [Mutex<HashMap<usize, Block>>; PARTS],
}

impl BlockTable {
    /// Keeps a block, and returns its address.
    pub(crate) fn insert(&self, block: Block) -> usize {
        let address = block.as_ptr().as_ptr().addr();
        let former = self.part(address).insert(address, block);
        debug_assert!(former.is_none(), "two live blocks at {address:#x}");
        address
    }

    /// Removes the block at an address.
    pub(crate) fn remove(&self, address: usize) -> Option<Block> {
        self.part(address).remove(&address)
    }

    /// Calls `read` with the block at an address.
    pub(crate) fn with<R>(&self, address: usize, read: impl FnOnce(&Block) -> R) -> Option<R> {
        self.part(address).get(&address).map(read)
    }

    fn part(&self, address: usize) -> MutexGuard<'_, HashMap<usize, Block>> {
        // Blocks begin at multiples of 512; larger ones at multiples of pages.
        let place = ((address >> 9) ^ (address >> 21)) % PARTS;
        self.parts[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
