//! Copies between the entries of a sequence's tokens and host memory, and those that a step needs: for
//! engines whose kernels do not read the pages themselves. Nothing here allocates.

use super::sequence::{SealedState, owner};
use super::{KvLayer, KvPool, Sequence};
use crate::geometry::{ArenaView, GroupKind};
use crate::pages::NULL;
use crate::tier::DeviceTransfer;
use crate::{KvError, Result};
use orlop_alloc::Block;
use std::ops::Range;

/// Entries of a sequence in one arena of a layer. Those of a compressed group are numbered by entries, all
/// others by tokens; with context shards, by those of this shard. A state is entry 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    /// The group.
    pub group: usize,
    /// The layer; layers count from 0 in each group.
    pub layer: u32,
    /// The arena of the layer.
    pub arena: usize,
    /// The entries.
    pub rows: Range<u32>,
}

impl KvPool {
    /// Runs the [copies](Self::copies) that the open step needs before anything else, each once: a further
    /// call in the same step runs those that were added since.
    ///
    /// # Errors
    /// If the pool has no memory, and those of the device. Some copies may be missing then: the step cannot
    /// run before a further call succeeds.
    pub fn run_copies(&mut self, transfer: &DeviceTransfer) -> Result<()> {
        self.check_awake()?;
        let Self { memory, geometry, open, .. } = self;
        while let Some(copy) = open.copies.get(open.copied) {
            let spec = &geometry.groups()[copy.group];
            let arenas =
                (0..spec.layers).flat_map(|layer| (0..spec.arenas.len()).map(move |arena| (layer, arena)));
            for (layer, arena) in arenas {
                let Some(view) = geometry.arena(copy.group, layer, arena) else { continue };
                if view.part == copy.part {
                    let [from, to] =
                        [copy.from, copy.to].map(|page| view.base + u64::from(page) * view.stride);
                    let from = from..from + spec.arena_bytes_of(arena, copy.tokens);
                    memory.copy_within(transfer.ops(), from, to, transfer.stream())?;
                }
            }
            open.copied += 1;
        }
        Ok(())
    }

    /// Copies the first bytes of `host` to entries of scheduled tokens, one after the other. The copy may not
    /// be done when this returns; `host` can then be changed.
    ///
    /// # Errors
    /// If an entry has no block, or others refer to it: the cache, another sequence, a store, a load that is
    /// not complete. If `host` is too short. The entries are then unchanged. And those of the device.
    pub fn write_rows(
        &mut self,
        transfer: &DeviceTransfer,
        sequence: &Sequence,
        range: &RowRange,
        host: &Block,
    ) -> Result<()> {
        self.check_awake()?;
        let slot = self.slot(sequence)?;
        let view = self.check_rows(slot, range, host.len())?;
        self.check_unshared(slot, range)?;
        let Self { memory, sequences, blocks, geometry, .. } = self;
        let table = &sequences[slot as usize].tables[range.group].blocks;
        let page_of = |index: usize| blocks.pages_of(range.group, table[index])[view.part as usize];
        let ranges = row_ranges(geometry.groups()[range.group].block_entries(), view, range, page_of);
        Ok(memory.copy_from(transfer.ops(), ranges, host, transfer.stream())?)
    }

    /// Copies entries to the first bytes of `host`, one after the other. They are there when this returns.
    ///
    /// # Errors
    /// If an entry has no block or its layer is still to be loaded, or `host` is too short: it is then
    /// unchanged.
    /// And those of the device.
    pub fn read_rows(
        &self,
        transfer: &DeviceTransfer,
        sequence: &Sequence,
        range: &RowRange,
        host: &mut Block,
    ) -> Result<()> {
        self.check_awake()?;
        let slot = self.slot(sequence)?;
        let view = self.check_rows(slot, range, host.len())?;
        let table = &self.state(slot).tables[range.group].blocks;
        let page_of = |index: usize| self.blocks.pages_of(range.group, table[index])[view.part as usize];
        let ranges = row_ranges(self.geometry.groups()[range.group].block_entries(), view, range, page_of);
        Ok(self.memory.copy_to(transfer.ops(), ranges, host, transfer.stream())?)
    }

    /// Returns the arena of a range, if every entry has a block, and `room` bytes are enough for all.
    fn check_rows(&self, slot: u32, range: &RowRange, room: usize) -> Result<ArenaView> {
        let RowRange { group, layer, arena, ref rows } = *range;
        let no_arena = KvError::NoSuchPart { group, what: "such arena" };
        let view = self.geometry.arena(group, layer, arena).ok_or(no_arena)?;
        let (entries, end) =
            (self.geometry.groups()[group].block_entries(), self.rows(slot, KvLayer { group, layer }));
        if rows.start > rows.end || rows.end > end {
            return Err(KvError::BeyondEnd { position: rows.end, end });
        }
        let bytes = (view.bytes / u64::from(entries)).saturating_mul(rows.len() as u64);
        if bytes > room as u64 {
            return Err(KvError::BufferTooSmall {
                room,
                needed: usize::try_from(bytes).unwrap_or(usize::MAX),
            });
        }
        let table = &self.state(slot).tables[group].blocks;
        let is_there = |index: u32| table.get(index as usize).is_some_and(|&block| block != NULL);
        match indices(entries, rows).find(|&index| !is_there(index)) {
            Some(index) => Err(KvError::NoSuchRow { group, row: rows.start.max(index * entries) }),
            None => Ok(view),
        }
    }

    /// Refuses entries that others refer to.
    fn check_unshared(&self, slot: u32, range: &RowRange) -> Result<()> {
        let (group, rows) = (range.group, &range.rows);
        let (spec, state) = (&self.geometry.groups()[group], self.state(slot));
        let entries = spec.block_entries();
        for index in indices(entries, rows) {
            let (block, first) = (state.tables[group].blocks[index as usize], index * entries);
            let row = rows.start.max(first);
            let may_write = if spec.kind == GroupKind::State {
                // The step after which the state is saved writes it.
                let is_saved = |sealed: &SealedState| (sealed.position, sealed.block) == (state.len, block);
                let own = 1 + u32::from(
                    state.sealed.iter().any(|sealed| sealed.group == group && is_saved(sealed)),
                );
                self.blocks.is_referred_to_by(group, block, own)
            } else {
                // With context shards, an entry is one of a token of each shard.
                let token = (row - first).saturating_mul(spec.entry_tokens() * spec.context_shards);
                self.blocks.may_write(group, block, owner(slot), token)
            };
            if !may_write {
                return Err(KvError::SharedRow { group, row });
            }
        }
        Ok(())
    }

    /// Returns the number of entries that a layer has for a sequence. If it is still to be loaded, these are
    /// the entries before the load.
    fn rows(&self, slot: u32, layer: KvLayer) -> u32 {
        let group = layer.group;
        let spec = &self.geometry.groups()[group];
        let state = self.state(slot);
        match spec.kind {
            GroupKind::State => u32::from(!state.tables[group].blocks.is_empty()),
            GroupKind::Cross => state.lengths.encoder_tokens.div_ceil(spec.context_shards),
            _ => {
                let tokens = if self.is_layer_there(slot, layer) { state.len } else { state.settled };
                tokens.div_ceil(spec.context_shards) / spec.entry_tokens()
            }
        }
    }
}

/// Returns the indices of the blocks with these entries.
fn indices(entries: u32, rows: &Range<u32>) -> Range<u32> {
    if rows.is_empty() { 0..0 } else { rows.start / entries..rows.end.div_ceil(entries) }
}

/// Returns the bytes of the pool that entries have: one range for each page.
fn row_ranges(
    entries: u32,
    view: ArenaView,
    range: &RowRange,
    page_of: impl Fn(usize) -> u32,
) -> impl Iterator<Item = Range<u64>> {
    let (start, end, bytes) = (range.rows.start, range.rows.end, view.bytes / u64::from(entries));
    indices(entries, &range.rows).map(move |index| {
        let page = view.base + u64::from(page_of(index as usize)) * view.stride;
        let first = index * entries;
        let (from, to) = (start.max(first) - first, (end - first).min(entries));
        page + u64::from(from) * bytes..page + u64::from(to) * bytes
    })
}
