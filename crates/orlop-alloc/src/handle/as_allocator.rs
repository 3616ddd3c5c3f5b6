//! A handle as an [`Allocator`]: for adaptors, which take an allocator below them.

use super::AllocatorRef;
use super::cell::{AllocatorCell, CellHead, Counts};
use crate::observer::Event;
use crate::{Allocator, LookupResult, RawBlock, Request, Result, forward};
use orlop_sync::{OwnerState, ShardedCounters};
use std::ptr::NonNull;

// SAFETY: an `AllocatorRef` called as an allocator does what the engine behind it does, and counts it. The
// engine's promises hold while the engine lives, and it lives at least as long as this handle.
unsafe impl<A: ?Sized + Allocator> Allocator for AllocatorRef<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        match self.head().take_cached_ungated(request) {
            Some(raw) => Ok(raw),
            None => self.cell().take(request),
        }
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let mut refused = None;
        // SAFETY: guaranteed by the caller.
        let Some(block) = (unsafe { CellHead::give_cached(self.cell.cast(), block) }) else { return Ok(()) };
        // SAFETY: guaranteed by the caller.
        let state = unsafe { AllocatorCell::give(self.cell, block, &mut refused) };
        // This handle exists, so the counters are open.
        debug_assert_eq!(state, OwnerState::InUse);
        refused.map_or(Ok(()), Err)
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.cell().grow_in_place(block, bytes) }
    }

    fn trim(&self, target: u64) -> u64 {
        let bytes = self.cell().allocator.trim(target);
        self.cell().deliver_regions();
        bytes
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        let cell = self.cell();
        // SAFETY: guaranteed by the caller.
        match unsafe { cell.allocator.deallocate_raw(ptr, requested) } {
            Ok(found) => {
                if let Some(watches) = cell.watches.cloned() {
                    let (address, allocator) = (ptr.as_ptr().addr(), cell.allocator.name());
                    watches.observe_block(&Event::RawFreed { address, found: &found, allocator });
                    watches.deliver();
                }
                if let Counts::Handle(counters) = &cell.head.counts {
                    let (counters, kind) = (NonNull::from(counters), found.kind);
                    // SAFETY: the block was counted in, and leaves with this call.
                    let state =
                        unsafe { ShardedCounters::count_out(counters, kind, found.granted, found.requested) };
                    // This handle exists, so the counters are open.
                    debug_assert_eq!(state, OwnerState::InUse);
                }
                Ok(found)
            }
            Err(error) => {
                let error = cell.refuse(error);
                if let Some(watches) = cell.watches.cloned() {
                    let allocator = cell.allocator.name();
                    let address = ptr.as_ptr().addr();
                    let event = Event::FreeRefused { error: &error, address, block: None, allocator };
                    watches.observe(&event);
                }
                Err(error)
            }
        }
    }

    fn wraps(&self, other: &AllocatorRef) -> bool {
        self.same_as(other) || self.cell().allocator.wraps(other)
    }

    // It has its handle: an adaptor over that is another allocator.
    fn on_shared(&self, _: &AllocatorRef) {}

    forward!(*; except deallocate, deallocate_raw, grow_in_place, set_statistics, trim, wraps, on_shared);
}
