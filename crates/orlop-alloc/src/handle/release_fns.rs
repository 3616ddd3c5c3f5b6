//! The functions of an engine that take back its last block, and may so end it, as pointers.

use crate::{Allocator, RawBlock, Result};
use orlop_sync::OwnerState;
use std::ptr::NonNull;

/// The functions of an engine after which it may have been destroyed: see [`Allocator::deallocate_counted`].
/// They take pointers, while a `dyn Allocator` has methods only. Each must be called with the address of an
/// engine of the type it was made for.
#[derive(Clone, Copy)]
pub(super) struct ReleaseFns {
    pub(super) give_cached: unsafe fn(NonNull<()>, RawBlock) -> Option<RawBlock>,
    pub(super) deallocate_counted: unsafe fn(NonNull<()>, RawBlock) -> Result<OwnerState>,
    pub(super) close: unsafe fn(NonNull<()>) -> OwnerState,
}

impl ReleaseFns {
    pub(super) fn of<A: Allocator>() -> Self {
        unsafe fn give_cached<A: Allocator>(engine: NonNull<()>, block: RawBlock) -> Option<RawBlock> {
            // SAFETY: the address is that of an engine of type `A`; the rest is the caller's promise.
            unsafe { A::give_cached(engine.cast(), block) }
        }
        unsafe fn deallocate_counted<A: Allocator>(
            engine: NonNull<()>,
            block: RawBlock,
        ) -> Result<OwnerState> {
            // SAFETY: as above.
            unsafe { A::deallocate_counted(engine.cast(), block) }
        }
        unsafe fn close<A: Allocator>(engine: NonNull<()>) -> OwnerState {
            // SAFETY: as above.
            unsafe { A::close(engine.cast()) }
        }
        Self { give_cached: give_cached::<A>, deallocate_counted: deallocate_counted::<A>, close: close::<A> }
    }
}
