//! [`KvTiers`]: blocks in host memory within a budget, and the store that they leave it for.

use super::frame::{HEADER, decode, encode};
use super::transfer::{read_pages, write_pages};
use super::{BlockKey, BlockStore, KvTier, PageTransfer, TierFault};
use crate::event_log::EventLog;
use crate::{PoolMemory, RemovalReason};
use orlop_alloc::{Block, Request, Tag};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use orlop_host::shield::shielded;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The numbers of the tiers below the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TierStats {
    /// Bytes of blocks in host memory.
    pub host_bytes: u64,
    /// Blocks in host memory.
    pub host_blocks: u64,
    /// Tokens of admitted prompts that the device did not have.
    pub query_tokens: u64,
    /// Of these, tokens that were loaded.
    pub hit_tokens: u64,
    /// Bytes that were copied to host memory from the device.
    pub stored_bytes: u64,
    /// Bytes that were copied from host memory to the device.
    pub loaded_bytes: u64,
    /// Blocks that were read from the store.
    pub store_reads: u64,
    /// Blocks that were written to the store.
    pub store_writes: u64,
    /// Blocks that the store did not take.
    pub failed_writes: u64,
    /// Questions whether the store has a block that it did not answer.
    pub failed_lookups: u64,
    faults: [u64; TierFault::ALL.len()],
}

impl TierStats {
    /// Returns the blocks that could not be used for this cause.
    #[must_use]
    pub fn faults(&self, cause: TierFault) -> u64 {
        self.faults[cause as usize]
    }
}

#[derive(Debug)]
struct HostBlock {
    memory: Block,
    /// The last use.
    tick: u64,
    /// Whether the store has it, too.
    is_stored: bool,
}

/// A block that entered or left a tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TierEvent {
    pub(crate) tier: KvTier,
    pub(crate) key: BlockKey,
    pub(crate) bytes: u64,
    /// The reason, if it left.
    pub(crate) removed: Option<RemovalReason>,
}

/// The tiers below a pool's pages: host memory of kind [`MemoryKind::HostPinned`] within a budget, and a
/// store that takes what does not fit there any more.
#[derive(Debug)]
pub struct KvTiers {
    context: Context,
    budget: u64,
    pub(crate) transfer: Box<dyn PageTransfer>,
    store: Option<Box<dyn BlockStore>>,
    blocks: HashMap<BlockKey, HostBlock>,
    /// Keys by last use.
    order: BTreeMap<u64, BlockKey>,
    clock: u64,
    /// A hash that differs between layouts.
    layout: u128,
    pub(crate) stats: TierStats,
    /// Events, if the pool records them.
    events: Option<EventLog<TierEvent>>,
}

impl KvTiers {
    /// Creates a host tier of at most `bytes` bytes of this context's memory.
    #[must_use]
    pub fn new(context: &Context, bytes: u64, transfer: Box<dyn PageTransfer>) -> Self {
        Self {
            context: context.clone(),
            budget: bytes,
            transfer,
            store: None,
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            layout: 0,
            stats: TierStats::default(),
            events: None,
        }
    }

    /// Adds a store behind host memory.
    #[must_use]
    pub fn with_store(mut self, store: Box<dyn BlockStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Returns the numbers.
    #[must_use]
    pub fn stats(&self) -> TierStats {
        self.stats
    }

    /// Records events from here on, at most `limit` at a time, or does not. Those that were not taken are
    /// forgotten.
    pub(crate) fn record_events(&mut self, limit: Option<usize>) {
        self.events = limit.map(EventLog::new);
    }

    /// Takes the events since the last call.
    ///
    /// # Errors
    /// The number of events that were dropped, if these are not all.
    pub(crate) fn take_events(&mut self) -> Result<Vec<TierEvent>, u64> {
        self.events.as_mut().map_or(Ok(Vec::new()), EventLog::take)
    }

    /// Announces the blocks in host memory.
    pub(crate) fn announce_host(&self) -> impl Iterator<Item = TierEvent> + '_ {
        let block = |(&key, block): (&BlockKey, &HostBlock)| TierEvent {
            tier: KvTier::Host,
            key,
            bytes: block.memory.len() as u64,
            removed: None,
        };
        self.blocks.iter().map(block)
    }

    /// Sets the layout of the pool. Blocks of another one are dropped: they are of no use to this pool.
    pub(crate) fn set_layout(&mut self, layout: u128) {
        if self.layout != layout {
            self.layout = layout;
            self.clear_host(RemovalReason::Discarded);
        }
    }

    /// Returns `true` if a tier has the block, as far as that is known without reading it.
    pub(crate) fn contains(&mut self, key: BlockKey) -> bool {
        if self.blocks.contains_key(&key) {
            return true;
        }
        let Some(store) = &mut self.store else { return false };
        match shielded(|| store.contains(key)) {
            Some(Ok(is_there)) => is_there,
            Some(Err(_)) | None => {
                self.stats.failed_lookups += 1;
                false
            }
        }
    }

    /// Copies a block's ranges of the pool to host memory. Returns the bytes copied: 0 if a tier has the
    /// block already.
    pub(crate) fn save(
        &mut self,
        pool: &PoolMemory,
        key: BlockKey,
        ranges: &[Range<u64>],
    ) -> orlop_alloc::Result<u64> {
        if self.contains(key) {
            self.touch(key);
            return Ok(0);
        }
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut memory = self.allocate(bytes)?;
        read_pages(&mut *self.transfer, pool, ranges, &mut memory)?;
        self.stats.stored_bytes += bytes;
        self.insert(key, memory, false);
        Ok(bytes)
    }

    /// Brings a block of `bytes` bytes to host memory. A block that no reader could use is removed from the
    /// store; one that could not be read this time stays.
    pub(crate) fn fetch(&mut self, key: BlockKey, bytes: u64) -> Result<(), TierFault> {
        if self.blocks.contains_key(&key) {
            self.touch(key);
            return Ok(());
        }
        let fetched = self.read(key, bytes);
        if let Err(fault) = fetched {
            self.stats.faults[fault as usize] += 1;
            if matches!(fault, TierFault::Torn | TierFault::Stale | TierFault::Foreign)
                && let Some(store) = &mut self.store
            {
                // It is a miss either way.
                let _removed = shielded(|| store.remove(key));
            }
            if fault != TierFault::Failed {
                self.event(KvTier::Store, key, bytes, Some(RemovalReason::Invalidated));
            }
        }
        fetched
    }

    fn read(&mut self, key: BlockKey, bytes: u64) -> Result<(), TierFault> {
        let Some(store) = &mut self.store else { return Err(TierFault::Missing) };
        let mut frame = Vec::new();
        let expected = usize::try_from(bytes).map_err(|_| TierFault::Failed)?;
        // A byte more shows that the block is too long.
        let limit = expected.saturating_add(HEADER + 1);
        match shielded(|| store.get(key, limit, &mut frame)) {
            Some(Ok(true)) => self.stats.store_reads += 1,
            Some(Ok(false)) => return Err(TierFault::Missing),
            Some(Err(_)) | None => return Err(TierFault::Failed),
        }
        let content = decode(self.layout, key, expected, &frame)?;
        let mut memory = self.allocate(bytes).map_err(|_| TierFault::Failed)?;
        memory.bytes_mut().map_err(|_| TierFault::Failed)?.copy_from_slice(content);
        self.insert(key, memory, true);
        Ok(())
    }

    /// Copies a block that was fetched to ranges of the pool.
    pub(crate) fn load(
        &mut self,
        pool: &mut PoolMemory,
        key: BlockKey,
        ranges: &[Range<u64>],
    ) -> orlop_alloc::Result<bool> {
        let Some(block) = self.blocks.get(&key) else { return Ok(false) };
        let loaded = write_pages(&mut *self.transfer, pool, ranges, &block.memory);
        if loaded.is_err() {
            self.stats.faults[TierFault::Failed as usize] += 1;
        } else {
            self.stats.loaded_bytes += block.memory.len() as u64;
        }
        loaded.map(|()| true)
    }

    /// Moves blocks to the store until host memory is within its budget. Blocks that the store does not take
    /// are dropped.
    pub(crate) fn shrink_to_budget(&mut self) {
        self.shrink_to(self.budget);
    }

    fn shrink_to(&mut self, limit: u64) {
        while self.stats.host_bytes > limit {
            let Some((_, key)) = self.order.pop_first() else { return };
            let reason =
                if self.write_to_store(key) { RemovalReason::Demoted } else { RemovalReason::Evicted };
            self.remove_from_host(key, reason);
        }
    }

    /// Writes all blocks to the store: they outlive the process. Returns the number of those that the store
    /// did not take.
    pub fn flush(&mut self) -> u64 {
        let keys: Vec<BlockKey> = self.order.values().copied().collect();
        keys.into_iter().filter(|&key| !self.write_to_store(key)).count() as u64
    }

    /// Returns `true` if the store has the block now.
    fn write_to_store(&mut self, key: BlockKey) -> bool {
        let (Some(block), Some(store)) = (self.blocks.get_mut(&key), &mut self.store) else { return false };
        if block.is_stored {
            return true;
        }
        let written = block.memory.bytes().is_ok_and(|content| {
            let frame = encode(self.layout, key, content);
            matches!(shielded(|| store.put(key, &frame)), Some(Ok(())))
        });
        block.is_stored = written;
        let bytes = block.memory.len() as u64;
        if written {
            self.stats.store_writes += 1;
            self.event(KvTier::Store, key, bytes, None);
        } else {
            self.stats.failed_writes += 1;
        }
        written
    }

    /// Drops the blocks in host memory. Those in the store stay.
    pub(crate) fn clear_host(&mut self, reason: RemovalReason) {
        let keys: Vec<BlockKey> = std::mem::take(&mut self.order).into_values().collect();
        keys.into_iter().for_each(|key| self.remove_from_host(key, reason));
    }

    fn remove_from_host(&mut self, key: BlockKey, reason: RemovalReason) {
        let Some(block) = self.blocks.remove(&key) else { return };
        let bytes = block.memory.len() as u64;
        self.stats.host_bytes -= bytes;
        self.stats.host_blocks -= 1;
        self.event(KvTier::Host, key, bytes, Some(reason));
    }

    fn insert(&mut self, key: BlockKey, memory: Block, is_stored: bool) {
        self.clock += 1;
        let (tick, bytes) = (self.clock, memory.len() as u64);
        self.blocks.insert(key, HostBlock { memory, tick, is_stored });
        self.order.insert(tick, key);
        self.stats.host_bytes += bytes;
        self.stats.host_blocks += 1;
        self.event(KvTier::Host, key, bytes, None);
    }

    fn touch(&mut self, key: BlockKey) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        self.clock += 1;
        self.order.remove(&block.tick);
        block.tick = self.clock;
        self.order.insert(self.clock, key);
    }

    /// Allocates memory for a block, and makes room for it first: no more than the budget is in use, unless
    /// the block alone exceeds it.
    fn allocate(&mut self, bytes: u64) -> orlop_alloc::Result<Block> {
        self.shrink_to(self.budget.saturating_sub(bytes));
        let bytes = usize::try_from(bytes).map_err(|error| orlop_alloc::Error::Backend(Box::new(error)))?;
        let request = Request::new(bytes).kind(MemoryKind::HostPinned).tag(Tag::new("kv host tier"));
        self.context.allocate(Device::CPU, &request)
    }

    fn event(&mut self, tier: KvTier, key: BlockKey, bytes: u64, removed: Option<RemovalReason>) {
        if let Some(events) = &mut self.events {
            events.push(TierEvent { tier, key, bytes, removed }, 1);
        }
    }
}
