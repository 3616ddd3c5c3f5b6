//! Blocks on pages of their own, each ending at an inaccessible page: an access behind such a block, or after
//! its return, stops the process.

use crate::backing::{Backing, HugePages, Mmap, Reservation};
use crate::{Access, RawBlock, Record, Request};
use orlop_core::Device;
use orlop_sync::{Mutex, MutexGuard};
use std::collections::HashMap;

/// The value of the bytes behind a block and its canary.
pub(super) const FILLER: u8 = 0xA5;

/// The guarded blocks of an allocator on the CPU.
#[derive(Debug)]
pub(super) struct GuardPages {
    pages: Mmap,
    blocks: Mutex<GuardedBlocks>,
}

/// The guarded blocks that are in use, by address.
#[derive(Debug, Default)]
pub(super) struct GuardedBlocks {
    by_address: HashMap<usize, GuardedPages>,
    /// The bytes of all accessible pages.
    pub(super) bytes: usize,
    pub(super) peak: usize,
}

/// The pages of one block.
#[derive(Debug)]
struct GuardedPages {
    reservation: Reservation,
    /// The bytes of the accessible pages.
    bytes: usize,
}

impl GuardedBlocks {
    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }
}

impl GuardPages {
    pub(super) fn new() -> Self {
        Self { pages: Mmap::new().huge_pages(HugePages::Never), blocks: Mutex::default() }
    }

    pub(super) fn blocks(&self) -> MutexGuard<'_, GuardedBlocks> {
        self.blocks.lock()
    }

    /// Returns a block that ends at an inaccessible page. `None` if there are no pages for it.
    pub(super) fn allocate(&self, request: &Request) -> Option<RawBlock> {
        let grain = self.pages.commit_granularity();
        if request.align > grain {
            return None;
        }
        let size = request.align.round_up(request.bytes).ok()?;
        let bytes = grain.round_up(size).ok()?;
        let reservation = self.pages.reserve_addresses(bytes.checked_add(grain.bytes())?, grain)?;
        // SAFETY: a new reservation, of which the last page is never committed.
        if !unsafe { self.pages.commit(&reservation, 0, bytes) } {
            // SAFETY: no other code has its address.
            unsafe { self.pages.release_addresses(reservation, 0) };
            return None;
        }
        // SAFETY: inside the committed bytes.
        let ptr = unsafe { reservation.ptr.add(bytes - size) };
        let mut record = Record::new(ptr, request.bytes, Device::CPU, Access::Host);
        record.assign(request);
        let mut block = RawBlock::new(Box::new(record));
        // SAFETY: the last bytes of the pages that alignment allows.
        unsafe { bytes_behind(&mut block, request.bytes, size - request.bytes) }.fill(FILLER);
        let mut blocks = self.blocks.lock();
        blocks.bytes += bytes;
        blocks.peak = blocks.peak.max(blocks.bytes);
        blocks.by_address.insert(ptr.as_ptr().addr(), GuardedPages { reservation, bytes });
        Some(block)
    }

    /// Releases the pages of a block, so that a later access to its address stops the process. Returns
    /// whether the bytes behind the block were intact, or the block if it is not guarded.
    ///
    /// # Safety
    ///
    /// Its owner returned the block, and nothing else uses it.
    pub(super) unsafe fn release(&self, mut block: RawBlock) -> Result<bool, RawBlock> {
        let address = block.address();
        let pages = {
            let mut blocks = self.blocks.lock();
            let Some(pages) = blocks.by_address.remove(&address) else { return Err(block) };
            blocks.bytes -= pages.bytes;
            pages
        };
        let requested = block.requested;
        let left = pages.reservation.ptr.as_ptr().addr() + pages.bytes - address - requested;
        // SAFETY: filled in `allocate`, behind the bytes that the user may access.
        let intact = unsafe { bytes_behind(&mut block, requested, left) }.iter().all(|&byte| byte == FILLER);
        // SAFETY: the record comes from the box made in `allocate`, and the block was returned.
        drop(unsafe { block.into_record() });
        // SAFETY: the block was the only user of these pages.
        unsafe { self.pages.release_addresses(pages.reservation, pages.bytes) };
        Ok(intact)
    }
}

/// Returns the `count` bytes of a block from `offset` on.
///
/// # Safety
///
/// The bytes belong to the block and are initialised, and no valid user accesses them while the slice is
/// live.
pub(super) unsafe fn bytes_behind(block: &mut RawBlock, offset: usize, count: usize) -> &mut [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(block.ptr.as_ptr().wrapping_add(offset), count) }
}
