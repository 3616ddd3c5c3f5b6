//! External memory in the accounts of a context: mapped files, vectors that became tensors, memory of other
//! frameworks.
//!
//! No engine allocated it, but the process holds it. So a context has accounts for it on each device: an
//! account is an engine without memory that only has counters. An adopted block returns to its account when
//! it is dropped, which runs the block's deleter and counts it out. Statistics, observers, and the rules by
//! which contexts, handles and blocks outlive each other are those of every other allocator.
//!
//! Budgets do not bound it: the memory exists already, and refusing to count it would not free any.

use super::Context;
use crate::block::recycle_record;
use crate::handle::destroy_owner;
use crate::observer::deliver_all;
use crate::{
    AllocationId, Allocator, AllocatorRef, Block, OutOfMemory, RawBlock, Refusal, Request, Result, Usage,
};
use orlop_core::Device;
use orlop_sync::{BlockCounter, OwnerState, ShardedCounters, thread_slot};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The accounts of one device.
#[derive(Debug, Default)]
pub(super) struct ExternalAccounts {
    foreign: OnceLock<AllocatorRef<ExternalAccount>>,
    mapped: OnceLock<AllocatorRef<ExternalAccount>>,
}

impl ExternalAccounts {
    pub(super) fn foreign(&self) -> Option<&AllocatorRef<ExternalAccount>> {
        self.foreign.get()
    }

    pub(super) fn mapped(&self) -> Option<&AllocatorRef<ExternalAccount>> {
        self.mapped.get()
    }

    /// Iterates over both accounts, as far as they exist.
    pub(super) fn all(&self) -> impl Iterator<Item = AllocatorRef> + '_ {
        self.foreign.get().into_iter().chain(self.mapped.get()).map(|account| account.clone().erase())
    }
}

/// An account of external memory.
#[derive(Debug)]
pub(super) struct ExternalAccount {
    device: Device,
    name: &'static str,
    counters: ShardedCounters,
}

impl Context {
    /// LadderCounts external memory under its kind, as long as the block lives: in [`Context::stats`], in
    /// [`Context::memory_map`] as [`Foreign`](super::Source::Foreign), and in events for observers. Blocks of
    /// allocators, blocks that are counted already, and empty blocks are returned unchanged.
    ///
    /// The storages of `orlop-tensor` do this with the context that is current when they are created.
    ///
    /// ```
    /// use orlop_alloc::{Access, Block, Context, Deleter, Record};
    /// use orlop_core::{Device, MemoryKind};
    /// use std::ptr::NonNull;
    ///
    /// let mut bytes = vec![0u8; 1000];
    /// let ptr = NonNull::from(bytes.as_mut_slice()).cast();
    /// let mut record = Record::new(ptr, 1000, Device::CPU, Access::Host);
    /// (record.requested, record.kind) = (1000, MemoryKind::Persistent);
    /// // SAFETY: the vector's bytes stay in place until the block drops them, and are used through it only.
    /// let block = unsafe { Block::foreign(record, Deleter::from_owner(bytes)) };
    /// let context = Context::new();
    /// let block = context.adopt(block);
    /// assert_eq!(context.stats(Device::CPU).kind(MemoryKind::Persistent).live_bytes, 1000);
    /// drop(block);
    /// assert_eq!(context.stats(Device::CPU).live(), 0);
    /// ```
    pub fn adopt(&self, block: Block) -> Block {
        self.adopt_in(block, "foreign", |accounts| &accounts.foreign)
    }

    /// [`Context::adopt`] for a mapped file: its source is [`Mapped`](super::Source::Mapped).
    pub fn adopt_mapped(&self, block: Block) -> Block {
        self.adopt_in(block, "mapped", |accounts| &accounts.mapped)
    }

    fn adopt_in(
        &self,
        block: Block,
        name: &'static str,
        place: impl Fn(&ExternalAccounts) -> &OnceLock<AllocatorRef<ExternalAccount>>,
    ) -> Block {
        if !block.is_uncounted() || block.capacity() == 0 {
            return block;
        }
        let device = block.device();
        let routes = self.inner.routes.get_or_new(device);
        let place = place(&routes.external);
        let account = place.get().unwrap_or_else(|| self.open(place, device, name));
        let mut raw = block.into_raw();
        // Observers distinguish blocks by id.
        // SAFETY: an id does not change what the record says of the memory, and no other allocator has handed
        // the block out.
        unsafe { raw.record_mut() }.id = AllocationId::next();
        account.counters.count_in(thread_slot::current(), raw.kind, raw.granted, raw.requested);
        account.adopt(raw)
    }

    #[cold]
    fn open<'a>(
        &self,
        place: &'a OnceLock<AllocatorRef<ExternalAccount>>,
        device: Device,
        name: &'static str,
    ) -> &'a AllocatorRef<ExternalAccount> {
        let changing = self.changing();
        let mut watches = Vec::new();
        let account = place.get_or_init(|| {
            let account =
                AllocatorRef::new(ExternalAccount { device, name, counters: ShardedCounters::new(true) });
            if let Some(observer) = self.inner.observer.cloned() {
                watches = account.put_observer(Some(observer));
            }
            account
        });
        drop(changing);
        deliver_all(&watches);
        account
    }
}

// SAFETY: it hands no blocks out. A block that it takes back was counted in by `Context::adopt`, and
// `deallocate_counted` counts it out.
unsafe impl Allocator for ExternalAccount {
    /// Always an error: an account has no memory. (Never called: adopted blocks lead to no handle.)
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        Err(OutOfMemory::new(Refusal::Full, self.name, self.device, request).into())
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { Self::deallocate_counted(NonNull::from(self), block) }.map(|_| ())
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the account exists until the block is counted out (the caller's promise).
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
        let state = account.counters.enter(thread_slot::current()).count_out(kind, granted, requested);
        let Some(panic) = panic else { return Ok(state) };
        if let (OwnerState::Unused, Some(owner)) = (state, owner) {
            // The caller is unwound, and does not get the state that says that this was the last block.
            // SAFETY: the cell that counted the block in (`Context::adopt_in`), whose counters just returned
            // `Unused`.
            unsafe { destroy_owner(owner) };
        }
        resume_unwind(panic)
    }

    fn counter(&self) -> Option<&dyn BlockCounter> {
        Some(&self.counters)
    }

    unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: the account exists until it is closed (the caller's promise).
        let counters = NonNull::from(unsafe { &this.as_ref().counters });
        // SAFETY: the caller's promise.
        unsafe { ShardedCounters::close(counters) }
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Access, Deleter, Record};

    /// The context is dropped first, and the account ends with its last block, even if the deleter panics.
    #[test]
    fn an_account_ends_also_with_a_deleter_that_panics() {
        let context = Context::new();
        let mut bytes = [0u8; 64];
        let adopt = |panics: bool, bytes: &mut [u8; 64]| {
            let mut record = Record::new(NonNull::from(bytes).cast(), 64, Device::CPU, Access::Host);
            record.requested = 64;
            let deleter = Deleter::from_closure(move |_| {
                if panics {
                    resume_unwind(Box::new("deleter"));
                }
            });
            // SAFETY: the bytes outlive the blocks, which are not read or written.
            context.adopt(unsafe { Block::foreign(record, deleter) })
        };
        let [first, last] = [adopt(true, &mut bytes), adopt(true, &mut bytes)];
        let routes = context.inner.routes.get_or_new(Device::CPU);
        let account = routes.external.foreign().map(|account| account.clone().erase().downgrade());
        let account = account.unwrap();
        drop(routes);
        drop(context);
        let drops = |block: Block| catch_unwind(AssertUnwindSafe(|| drop(block)));
        assert!(drops(first).is_err() && !account.is_gone());
        assert_eq!(account.totals().unwrap().all.live_bytes, 64);
        assert!(drops(last).is_err() && account.is_gone());
    }
}
