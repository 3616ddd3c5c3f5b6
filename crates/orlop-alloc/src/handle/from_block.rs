//! What a block does by its pointer to the cell: return to its allocator, grow in place, lead to a handle.

use super::AllocatorRef;
use super::cell::{AllocatorCell, CellHead, destroy};
use crate::RawBlock;
use crate::block::{Owner, leak_unfinished};
use orlop_sync::OwnerState;

/// Returns a handle to the allocator that a block came from, if that still has one.
///
/// # Safety
///
/// `owner` is the cell that a block was counted in, and the block is not returned before this function
/// returns.
pub(crate) unsafe fn handle_of(owner: Owner) -> Option<AllocatorRef> {
    // SAFETY: the cell lives while the block does (rule 2).
    let cell = unsafe { owner.as_ref() }.cell;
    // SAFETY: as above.
    let joined = unsafe { cell.as_ref() }.handles.join_from_block();
    // Created only if it is counted: dropping a handle counts it out.
    joined.then(|| AllocatorRef { cell })
}

/// Grows a block in place. Returns `false` if it cannot grow.
///
/// # Safety
///
/// `owner` is the cell that `raw` was counted in, and `raw` was not returned.
pub(crate) unsafe fn grow_block(owner: Owner, raw: &mut RawBlock, bytes: usize) -> bool {
    // SAFETY: `raw` is not counted out, so the cell lives (rule 2).
    let cell = unsafe { owner.as_ref() }.cell;
    // SAFETY: as above.
    let cell = unsafe { cell.as_ref() };
    // SAFETY: guaranteed by the caller.
    unsafe { cell.grow_in_place(raw, bytes) }
}

/// Returns a block to its allocator, and destroys the cell if that was its last block or handle.
///
/// # Safety
///
/// 1. `owner` is the cell that `raw` was counted in, and `raw` was not returned before;
/// 2. the host uses its bytes no more.
#[inline]
pub(crate) unsafe fn return_block(owner: Owner, raw: RawBlock) {
    // SAFETY: guaranteed by the caller.
    if let Some(raw) = unsafe { CellHead::give_cached(owner, raw) } {
        // SAFETY: guaranteed by the caller; `give_cached` returned the block unchanged.
        unsafe { return_slow(owner, raw) };
    }
}

/// # Safety
///
/// As for [`return_block`].
#[inline(never)]
unsafe fn return_slow(owner: Owner, raw: RawBlock) {
    if raw.uses.is_unfinished() {
        // It stays counted.
        return leak_unfinished(raw);
    }
    // SAFETY: `raw` is not counted out yet, so the cell lives (rule 2).
    let owner = unsafe { owner.as_ref() }.cell;
    // SAFETY: the caller guarantees the obligations of `deallocate`. A refusal was counted and traced; a
    // destructor cannot return it.
    let state = unsafe { AllocatorCell::give(owner, raw, &mut None) };
    if state == OwnerState::Unused {
        // SAFETY: `OwnerState::Unused` is returned once, when no handle and no block is left (rule 3).
        unsafe { destroy(owner) };
    }
}

/// Destroys the cell after its last block was counted out.
///
/// # Safety
///
/// The caller got [`OwnerState::Unused`] from this cell's counters, and nothing else acts on it.
#[cold]
pub(crate) unsafe fn destroy_owner(owner: Owner) {
    // SAFETY: the cell exists until it is destroyed (guaranteed by the caller).
    let cell = unsafe { owner.as_ref() }.cell;
    // SAFETY: guaranteed by the caller.
    unsafe { destroy(cell) };
}
