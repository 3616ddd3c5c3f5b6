//! Blocks: the pages of one group's tokens, with who uses them.
//!
//! A block is *used* by sequences, *pinned* by these, by steps in flight and by tickets, and *cached* by the
//! index. Its pages are live as long as it is pinned, idle while only the index has it, and free afterwards.

mod pledges;
mod ready;
mod users;
mod verify;

use crate::free_ids::FreeIds;
use crate::geometry::{GroupKind, KvGeometry};
use crate::pages::{LargePages, NO_OWNER, NULL};

/// The owner of blocks that others use after their owner let go of them.
const ORPHAN: u32 = u32::MAX;

/// What the pool knows of a block: half a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(32))]
pub(crate) struct BlockRecord {
    /// Sequences that have the block in a table.
    pub(crate) users: u32,
    /// Users, steps in flight that may access the block, and tickets.
    pub(crate) pins: u32,
    /// Entries of the index.
    pub(crate) cached: u32,
    /// Stores that read the block.
    stores: u32,
    /// Tokens from the block's start that the index, another sequence or a store refers to: they must not be
    /// written.
    pub(crate) valid: u32,
    owner: u32,
    /// Distinguishes owners that had the same number.
    owner_generation: u32,
    tenant: u32,
}

impl BlockRecord {
    /// The record of a block that a sequence was given.
    fn new(owner: u32, owner_generation: u32, tenant: u32) -> Self {
        Self { users: 1, pins: 1, tenant, owner, owner_generation, ..Self::default() }
    }
}

#[derive(Debug)]
struct GroupBlocks {
    class: u32,
    parts: usize,
    /// Bytes of a block.
    bytes: u64,
    /// Whether sequences return blocks before they end.
    is_rolling: bool,
    records: Vec<BlockRecord>,
    /// `parts` pages for each block.
    pages: Vec<u32>,
    unused: FreeIds,
}

impl GroupBlocks {
    fn pages(&self, block: u32) -> &[u32] {
        &self.pages[block as usize * self.parts..][..self.parts]
    }
}

/// The bytes of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TenantUse {
    /// Bytes of its blocks that are pinned.
    pub(crate) live: u64,
    /// Bytes that its sequences are still pledged.
    pub(crate) pledged: u64,
    /// Bytes of its blocks that only the cache has.
    pub(crate) idle: u64,
    pub(crate) quota: u64,
}

impl TenantUse {
    pub(crate) const UNLIMITED: Self = Self { live: 0, pledged: 0, idle: 0, quota: u64::MAX };
}

/// The blocks of all groups and their pages.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) pages: LargePages,
    groups: Vec<GroupBlocks>,
    pub(crate) tenants: Vec<TenantUse>,
    /// Bytes of blocks that sequences use.
    pub(crate) used_bytes: u64,
    /// Pledged pages: by owner, then class.
    pledges: Vec<u64>,
    /// The sequences that had each owner's number before.
    generations: Vec<u32>,
    /// The tenant of each owner.
    owner_tenants: Vec<u32>,
    /// Pages by class: pledged, and of orphans.
    pledged: Vec<u64>,
    orphans: Vec<u64>,
}

impl Blocks {
    pub(crate) fn new(geometry: &KvGeometry, large_pages: u32) -> Self {
        let groups = geometry.pages().iter().zip(geometry.groups()).map(|(pages, group)| GroupBlocks {
            class: pages.class,
            parts: pages.parts as usize,
            bytes: u64::from(pages.parts) * geometry.classes().get(pages.class as usize).map_or(0, |&b| b),
            is_rolling: matches!(
                group.kind,
                GroupKind::Window { .. } | GroupKind::Chunked { .. } | GroupKind::State
            ),
            records: Vec::new(),
            pages: Vec::new(),
            unused: FreeIds::default(),
        });
        let classes = geometry.classes().len();
        Self {
            pages: LargePages::new(geometry, large_pages),
            groups: groups.collect(),
            tenants: Vec::new(),
            used_bytes: 0,
            pledges: vec![0; classes],
            generations: vec![0],
            owner_tenants: vec![0],
            pledged: vec![0; classes],
            orphans: vec![0; classes],
        }
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn record(&self, group: usize, block: u32) -> &BlockRecord {
        &self.groups[group].records[block as usize]
    }

    /// Returns `true` if a sequence that takes this block is charged for it: it is idle, and of a rolling
    /// group.
    pub(crate) fn is_charged_when_used(&self, group: usize, block: u32) -> bool {
        self.groups[group].is_rolling && self.record(group, block).pins == 0
    }

    pub(crate) fn set_valid(&mut self, group: usize, block: u32, tokens: u32) {
        let record = &mut self.groups[group].records[block as usize];
        record.valid = record.valid.max(tokens);
    }

    /// Returns `true` if the sequence may write tokens from `from` on, counted from the block's start.
    pub(crate) fn may_write(&self, group: usize, block: u32, owner: u32, from: u32) -> bool {
        let record = self.record(group, block);
        let is_alone = record.users == 1;
        let is_owner = self.live_owner(record) == Some(owner);
        (is_alone && record.cached == 0 && record.stores == 0)
            || ((is_alone || is_owner) && from >= record.valid)
    }

    /// Returns `true` if `users` users at most refer to a block, and neither the cache nor a store.
    pub(crate) fn is_referred_to_by(&self, group: usize, block: u32, users: u32) -> bool {
        let record = self.record(group, block);
        record.users <= users && record.cached == 0 && record.stores == 0
    }

    /// Returns `true` if one sequence and the cache refer to the block, and no step in flight and no ticket.
    pub(crate) fn is_shared_with_cache(&self, group: usize, block: u32) -> bool {
        let record = self.record(group, block);
        (record.users, record.pins) == (1, 1) && record.cached > 0
    }

    /// Returns the owner of a block whose sequence has not ended.
    fn live_owner(&self, record: &BlockRecord) -> Option<u32> {
        let is_owned = record.owner != NO_OWNER && record.owner != ORPHAN;
        let is_alive = || self.generations[record.owner as usize] == record.owner_generation;
        (is_owned && is_alive()).then_some(record.owner)
    }

    fn set_owner(&mut self, group: usize, block: u32, owner: u32) {
        let generation = self.generations[owner as usize];
        let record = &mut self.groups[group].records[block as usize];
        (record.owner, record.owner_generation) = (owner, generation);
    }

    /// Returns the pages of a block, one for each part.
    pub(crate) fn pages_of(&self, group: usize, block: u32) -> &[u32] {
        self.groups[group].pages(block)
    }

    /// Returns the free pages of the large page that has a block's first page.
    pub(crate) fn free_pages_beside(&self, group: usize, block: u32) -> Option<u32> {
        let blocks = &self.groups[group];
        blocks.pages(block).first().and_then(|&page| self.pages.free_beside(blocks.class, page))
    }

    /// Returns the page size of a group and the pages of a block.
    pub(crate) fn class_and_parts(&self, group: usize) -> (usize, u64) {
        (self.groups[group].class as usize, self.groups[group].parts as u64)
    }

    /// Returns the bytes of pages that only the cache has.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.pages.classes().iter().map(|class| class.idle * class.bytes).sum()
    }

    /// Returns the bytes of a block.
    pub(crate) fn block_bytes(&self, group: usize) -> u64 {
        self.groups[group].bytes
    }

    /// Allocates a block for a sequence, without evicting. `needs` are the pages by class that must be
    /// available, this block's included; they are taken off. `None` if pages are missing: nothing is then
    /// taken.
    pub(crate) fn allocate(
        &mut self,
        group: usize,
        owner: u32,
        tenant: u32,
        needs: &mut [u64],
    ) -> Option<u32> {
        let id = self.unused_id(group);
        let blocks = &mut self.groups[group];
        let (class, at) = (blocks.class, blocks.class as usize);
        let start = id as usize * blocks.parts;
        for part in 0..blocks.parts {
            let Some(page) = self.pages.take(class, owner, needs) else {
                for &page in &blocks.pages[start..start + part] {
                    self.pages.set_idle(class, page);
                    self.pages.free(class, page);
                    needs[at] += 1;
                }
                blocks.unused.insert(id);
                return None;
            };
            blocks.pages[start + part] = page;
            needs[at] = needs[at].saturating_sub(1);
        }
        let owner_generation = self.generations[owner as usize];
        self.groups[group].records[id as usize] = BlockRecord::new(owner, owner_generation, tenant);
        self.charge(group, owner);
        let bytes = self.block_bytes(group);
        self.used_bytes += bytes;
        self.tenants[tenant as usize].live += bytes;
        Some(id)
    }

    /// Returns the id of a block that is not in use.
    #[inline]
    fn unused_id(&mut self, group: usize) -> u32 {
        let blocks = &mut self.groups[group];
        blocks.unused.pop().unwrap_or_else(|| {
            blocks.records.push(BlockRecord::default());
            blocks.pages.resize(blocks.pages.len() + blocks.parts, NULL);
            let count = u32::try_from(blocks.records.len()).unwrap_or(NULL);
            blocks.unused.make_room(count);
            count - 1
        })
    }

    pub(crate) fn pin(&mut self, group: usize, block: u32) {
        let blocks = &mut self.groups[group];
        let record = &mut blocks.records[block as usize];
        record.pins += 1;
        if record.pins == 1 {
            let tenant = record.tenant as usize;
            for &page in blocks.pages(block) {
                self.pages.set_live(blocks.class, page);
            }
            let bytes = self.block_bytes(group);
            self.tenants[tenant].live += bytes;
            self.tenants[tenant].idle -= bytes;
        }
    }

    /// Pins a block whose first `valid` tokens a store reads.
    pub(crate) fn pin_for_store(&mut self, group: usize, block: u32, valid: u32) {
        self.pin(group, block);
        self.groups[group].records[block as usize].stores += 1;
        self.set_valid(group, block, valid);
    }

    pub(crate) fn unpin_for_store(&mut self, group: usize, block: u32) {
        self.groups[group].records[block as usize].stores -= 1;
        self.unpin(group, block);
    }

    pub(crate) fn unpin(&mut self, group: usize, block: u32) {
        let record = &mut self.groups[group].records[block as usize];
        record.pins -= 1;
        if record.pins > 0 {
            return;
        }
        let bytes = self.block_bytes(group);
        let blocks = &mut self.groups[group];
        let record = &mut blocks.records[block as usize];
        let (is_free, is_orphan) = (record.cached == 0, record.owner == ORPHAN);
        let former = *record;
        record.owner = NO_OWNER;
        self.tenants[record.tenant as usize].live -= bytes;
        self.tenants[record.tenant as usize].idle += if is_free { 0 } else { bytes };
        for &page in blocks.pages(block) {
            self.pages.set_idle(blocks.class, page);
        }
        if is_orphan {
            let (class, parts) = self.class_and_parts(group);
            self.orphans[class] -= parts;
        } else if let Some(owner) = self.live_owner(&former) {
            self.credit(group, owner);
        }
        if is_free {
            self.free(group, block);
        }
    }

    /// Adds an entry of the index, which refers to the block's first `valid` tokens.
    pub(crate) fn cache(&mut self, group: usize, block: u32, valid: u32) {
        self.groups[group].records[block as usize].cached += 1;
        self.set_valid(group, block, valid);
    }

    /// Removes an entry of the index.
    pub(crate) fn uncache(&mut self, group: usize, block: u32) {
        let record = &mut self.groups[group].records[block as usize];
        record.cached -= 1;
        if record.cached == 0 && record.pins == 0 {
            let tenant = record.tenant as usize;
            self.tenants[tenant].idle -= self.block_bytes(group);
            self.free(group, block);
        }
    }

    fn free(&mut self, group: usize, block: u32) {
        let blocks = &mut self.groups[group];
        for part in 0..blocks.parts {
            self.pages.free(blocks.class, blocks.pages[block as usize * blocks.parts + part]);
        }
        blocks.unused.insert(block);
    }

    /// Returns the blocks of a group that are not free, with their records.
    pub(crate) fn allocated(&self, group: usize) -> impl Iterator<Item = (u32, &BlockRecord)> + '_ {
        let records = self.groups[group].records.iter();
        (0..).zip(records).filter(|(_, record)| record.pins > 0 || record.cached > 0)
    }

    /// Returns the bytes of metadata: records and page ids.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let group = |group: &GroupBlocks| {
            group.records.capacity() * size_of::<BlockRecord>()
                + group.pages.capacity() * size_of::<u32>()
                + group.unused.bytes()
        };
        self.groups.iter().map(group).sum()
    }
}
