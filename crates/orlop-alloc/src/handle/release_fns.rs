//! The functions of an engine that take back its last block, and may so end it, as pointers.

use crate::{Allocator, RawBlock, Result};
use orlop_sync::OwnerState;
use std::mem;
use std::ptr::NonNull;

type GiveCached<A> = unsafe fn(NonNull<A>, RawBlock) -> Option<RawBlock>;
type DeallocateCounted<A> = unsafe fn(NonNull<A>, RawBlock) -> Result<OwnerState>;
type Close<A> = unsafe fn(NonNull<A>) -> OwnerState;

/// The functions of an engine after which it may have been destroyed: see [`Allocator::deallocate_counted`].
/// They take pointers, while a `dyn Allocator` has methods only. Each must be called with the address of an
/// engine of the type it was made for.
#[derive(Clone, Copy)]
pub(super) struct ReleaseFns {
    pub(super) give_cached: GiveCached<()>,
    pub(super) deallocate_counted: DeallocateCounted<()>,
    pub(super) close: Close<()>,
}

impl ReleaseFns {
    pub(super) fn of<A: Allocator>() -> Self {
        // SAFETY: the types differ in what a `NonNull` points to, and pointers to sized types are
        // ABI-compatible. The address that callers pass is of an engine of type `A`, by their promise.
        let give_cached = unsafe { mem::transmute::<GiveCached<A>, GiveCached<()>>(A::give_cached) };
        // SAFETY: as above.
        let deallocate_counted =
            unsafe { mem::transmute::<DeallocateCounted<A>, DeallocateCounted<()>>(A::deallocate_counted) };
        // SAFETY: as above.
        let close = unsafe { mem::transmute::<Close<A>, Close<()>>(A::close) };
        Self { give_cached, deallocate_counted, close }
    }
}
