//! Accounts of external memory: memory that no engine allocated, such as mapped files, vectors that became
//! tensors, and memory of other frameworks.
//!
//! An account is an engine without memory that only has counters. An adopted block returns to its account
//! when it is dropped, which runs the block's deleter and counts it out. Statistics, observers, and the rules
//! by which handles and blocks outlive each other are those of every other allocator.

use super::destroy_owner;
use crate::block::recycle_record;
use crate::handle::CountingEngine;
use crate::{
    AllocationId, Allocator, AllocatorRef, Block, OutOfMemory, RawBlock, Refusal, Request, Result, Usage,
};
use orlop_core::Device;
use orlop_sync::{OwnerState, ShardedCounters};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// An account of external memory on one device. It hands out no blocks: [`AllocatorRef::adopt`] counts
/// existing ones in.
#[derive(Debug)]
pub struct ExternalAccount {
    device: Device,
    name: &'static str,
    counters: ShardedCounters,
}

impl ExternalAccount {
    /// Creates an account of this name, for reports.
    #[must_use]
    pub fn new(device: Device, name: &'static str) -> Self {
        Self { device, name, counters: ShardedCounters::new(true) }
    }
}

impl AllocatorRef<ExternalAccount> {
    /// Counts a block of external memory under its kind as long as it exists. Blocks of allocators, blocks
    /// that are counted already, and empty blocks are returned unchanged.
    pub fn adopt(&self, block: Block) -> Block {
        if !block.is_uncounted() || block.capacity() == 0 {
            return block;
        }
        let mut raw = block.into_raw();
        // Observers distinguish blocks by id.
        // SAFETY: an id does not change what the record says of the memory, and no other allocator has handed
        // the block out.
        unsafe { raw.record_mut() }.id = AllocationId::next();
        self.counters.count_in(raw.kind, raw.granted, raw.requested);
        self.adopt_raw(raw)
    }
}

// SAFETY: it hands no blocks out. A block that it takes back was counted in by `AllocatorRef::adopt`, and
// `deallocate_counted` counts it out.
unsafe impl Allocator for ExternalAccount {
    /// Always an error: an account has no memory. (Never called: adopted blocks lead to no handle.)
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        Err(OutOfMemory::new(Refusal::Full, self.name, self.device, request).into())
    }

    crate::handle::counts_itself!(counters);

    fn device(&self) -> Device {
        self.device
    }

    fn name(&self) -> &str {
        self.name
    }

    /// Live bytes count as reserved.
    fn usage(&self) -> Usage {
        let all = self.counters.totals().all;
        Usage {
            reserved: all.live_bytes,
            peak_reserved: all.peak_bytes,
            regions: all.live_blocks(),
            ..Usage::default()
        }
    }

    fn reset_peak(&self) {
        self.counters.reset_peaks();
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl CountingEngine for ExternalAccount {
    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the account exists until the block is counted out (guaranteed by the caller).
        let account = unsafe { this.as_ref() };
        let owner = block.owner;
        // SAFETY: the record is the block's own (`Block::foreign`, `Block::borrowed`).
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        let (ptr, deleter) = (record.ptr, record.deleter.take());
        recycle_record(record);
        // Counted out after the memory is freed, and also if the deleter panics. The deleter may drop handles
        // and other blocks of this account: this block is still counted, so the account exists.
        let run = AssertUnwindSafe(|| {
            if let Some(deleter) = deleter {
                deleter.run(ptr);
            }
        });
        let panic = catch_unwind(run).err();
        let counters = NonNull::from(&account.counters);
        // SAFETY: the block was counted in (`adopt`), and leaves with this call.
        let state = unsafe { ShardedCounters::count_out(counters, kind, granted, requested) };
        let Some(panic) = panic else { return Ok(state) };
        if let (OwnerState::Unused, Some(owner)) = (state, owner) {
            // The caller is unwound, and does not get the state that says that this was the last block.
            // SAFETY: the cell that counted the block in (`AllocatorRef::adopt`), whose counters just
            // returned `Unused`.
            unsafe { destroy_owner(owner) };
        }
        resume_unwind(panic)
    }

    crate::handle::counted_by!(counters);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Access, Deleter, Record};

    /// The handle is dropped first, and the account ends with its last block, even if the deleter panics.
    #[test]
    fn an_account_ends_also_with_a_deleter_that_panics() {
        let mut bytes = [0u8; 64];
        let account = ExternalAccount::new(Device::CPU, "foreign").into_ref();
        let adopt = |bytes: &mut [u8; 64]| {
            let mut record = Record::new(NonNull::from(bytes).cast(), 64, Device::CPU, Access::Host);
            record.requested = 64;
            let deleter = Deleter::from_closure(|_| resume_unwind(Box::new("deleter")));
            // SAFETY: the bytes outlive the blocks, which are not read or written.
            account.adopt(unsafe { Block::foreign(record, deleter) })
        };
        let [first, last] = [adopt(&mut bytes), adopt(&mut bytes)];
        let weak = account.downgrade();
        drop(account);
        let drops = |block: Block| catch_unwind(AssertUnwindSafe(|| drop(block)));
        assert!(drops(first).is_err() && !weak.is_destroyed());
        assert_eq!(weak.totals().unwrap().all.live_bytes, 64);
        assert!(drops(last).is_err() && weak.is_destroyed());
    }
}
