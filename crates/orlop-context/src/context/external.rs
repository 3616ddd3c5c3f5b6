//! External memory in the accounts of a context: mapped files, vectors that became tensors, memory of other
//! frameworks.
//!
//! No engine allocated it, but the process holds it. So a context has an [`ExternalAccount`] of each sort on
//! each device. Its statistics, observers and lifetime are those of every other allocator.
//!
//! Budgets do not bound it: the memory exists already, and refusing to count it would not free any.

use super::Context;
use super::observe::AddedObservers;
use super::routes::DeviceRoutes;
use orlop_alloc::{Allocator, AllocatorRef, Block, ExternalAccount};
use orlop_core::Device;
use std::sync::OnceLock;

/// The accounts of one device.
#[derive(Debug, Default)]
pub(super) struct ExternalAccounts {
    pub(super) foreign: OnceLock<AllocatorRef<ExternalAccount>>,
    pub(super) mapped: OnceLock<AllocatorRef<ExternalAccount>>,
}

impl ExternalAccounts {
    /// Iterates over both accounts, as far as they exist.
    pub(super) fn all(&self) -> impl Iterator<Item = AllocatorRef> + '_ {
        self.foreign.get().into_iter().chain(self.mapped.get()).map(|account| account.clone().erase())
    }
}

impl Context {
    /// Counts external memory under its kind until the block is dropped: in [`Context::stats`], in
    /// [`Context::memory_map`] as [`Foreign`](super::Source::Foreign), and in events for observers. Blocks of
    /// allocators, blocks that are counted already, and empty blocks are returned unchanged.
    ///
    /// The storages of `orlop-tensor` do this with the context that is current when they are created.
    ///
    /// ```
    /// use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
    /// use orlop_context::Context;
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
        let account = place.get().unwrap_or_else(|| self.open(place, &routes, device, name));
        account.adopt(block)
    }

    #[cold]
    fn open<'a>(
        &self,
        place: &'a OnceLock<AllocatorRef<ExternalAccount>>,
        routes: &DeviceRoutes,
        device: Device,
        name: &'static str,
    ) -> &'a AllocatorRef<ExternalAccount> {
        let account = ExternalAccount::new(device, name).into_ref();
        let (erased, mut added) = (account.clone().erase(), AddedObservers::default());
        self.change(|| self.add_observers(routes, &erased, &mut added), |()| place.set(account.clone()).ok());
        place.get_or_init(|| account)
    }
}
