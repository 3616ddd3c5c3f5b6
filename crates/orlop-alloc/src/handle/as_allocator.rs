//! A handle as an [`Allocator`]: for adaptors, which take an allocator below them.

use super::AllocatorRef;
use super::cell::{AllocatorCell, CellHead, Counts};
use crate::observer::{Event, RegionWatch};
use crate::{
    Allocator, DeviceMemory, LookupResult, OutOfMemory, RawBlock, Request, Result, Semantics, TagUse, Usage,
};
use orlop_core::Device;
use orlop_sync::{OwnerState, ShardedCounters};
use std::ptr::NonNull;
use std::sync::Arc;

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

    fn device(&self) -> Device {
        self.cell().allocator.device()
    }

    fn name(&self) -> &str {
        self.cell().allocator.name()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.cell().allocator.device_memory()
    }

    fn usage(&self) -> Usage {
        self.cell().allocator.usage()
    }

    fn reset_peak(&self) {
        self.cell().allocator.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        self.cell().allocator.semantics()
    }

    fn trim(&self, target: u64) -> u64 {
        let bytes = self.cell().allocator.trim(target);
        self.cell().deliver_regions();
        bytes
    }

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.cell().allocator.find(address)
    }

    fn has_tracked_sizes(&self) -> bool {
        self.cell().allocator.has_tracked_sizes()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.cell().allocator.allocated_size_slow(ptr) }
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

    fn has_raw_deleter(&self) -> bool {
        self.cell().allocator.has_raw_deleter()
    }

    fn has_opaque_handles(&self) -> bool {
        self.cell().allocator.has_opaque_handles()
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.cell().allocator.set_safe_frontier(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.cell().allocator.describe(report);
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        self.cell().allocator.tag_uses()
    }

    fn wraps(&self, other: &AllocatorRef) -> bool {
        self.same_as(other) || self.cell().allocator.wraps(other)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.cell().allocator.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.cell().allocator.verify()
    }
}
