//! The functions of an engine that take back its last block, and may so end it, as pointers.

use crate::{Allocator, RawBlock, Result};
use orlop_sync::OwnerState;
use std::mem;
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
        let give_cached: unsafe fn(NonNull<A>, RawBlock) -> Option<RawBlock> = A::give_cached;
        let deallocate_counted: unsafe fn(NonNull<A>, RawBlock) -> Result<OwnerState> = A::deallocate_counted;
        let close: unsafe fn(NonNull<A>) -> OwnerState = A::close;
        // SAFETY: pointers to sized types are ABI-compatible, and nothing else differs between the types.
        // What the functions ask for is their callers' promise.
        unsafe {
            Self {
                give_cached: mem::transmute(give_cached),
                deallocate_counted: mem::transmute(deallocate_counted),
                close: mem::transmute(close),
            }
        }
    }
}
