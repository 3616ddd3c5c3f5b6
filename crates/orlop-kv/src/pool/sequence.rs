//! [`Sequence`]: the handle of a sequence, and what the pool knows of it.

use super::lengths::RequestLengths;
use super::step::StepEntry;
use super::{KvPool, StepId};
use crate::chain::Chain;
use crate::pages::NULL;
use crate::{KvError, Result};
use orlop_sync::DropQueue;
use std::sync::Arc;

/// A sequence of a pool. Dropping it, on any thread, returns its blocks when the pool is used next: at once
/// those that no step in flight may access, the others when the last such step has settled.
#[derive(Debug)]
pub struct Sequence {
    slot: u32,
    generation: u32,
    drops: Arc<DroppedSequences>,
}

/// The slots and generations of sequences that were dropped and not collected.
pub(super) type DroppedSequences = DropQueue<(u32, u32)>;

impl Drop for Sequence {
    fn drop(&mut self) {
        self.drops.leave((self.slot, self.generation));
    }
}

/// The blocks of one group of a sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockTable {
    /// Blocks by absolute index; [`NULL`] for those that were returned or never needed.
    pub(super) blocks: Vec<u32>,
    /// The first block after the sinks that was not returned.
    pub(super) first: u32,
}

impl BlockTable {
    /// Enters a block, behind null entries if the table is shorter.
    pub(super) fn set(&mut self, index: u32, block: u32) {
        let index = index as usize;
        self.blocks.resize(self.blocks.len().max(index + 1), NULL);
        self.blocks[index] = block;
    }

    /// Enters blocks from an index on, in the place of those that are there.
    pub(super) fn set_run(&mut self, first: u32, blocks: &[u32]) {
        let first = first as usize;
        self.blocks.resize(self.blocks.len().max(first), NULL);
        let inside = (self.blocks.len() - first).min(blocks.len());
        let (replacing, added) = blocks.split_at(inside);
        self.blocks[first..first + inside].copy_from_slice(replacing);
        self.blocks.extend_from_slice(added);
    }
}

/// A state that was saved at a position: further steps write to a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct SealedState {
    pub(super) position: u32,
    pub(super) group: usize,
    pub(super) block: u32,
}

/// A load whose ticket is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PendingLoad {
    #[default]
    None,
    /// Nothing uses the sequence before all of it is there.
    Whole,
    /// Steps use each layer as soon as it is there.
    ByLayer,
}

/// What the pool knows of a sequence. An append inside a block touches the first cache line only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct SequenceState {
    generation: u32,
    pub(super) is_alive: bool,
    pub(super) is_finishing: bool,
    pub(super) class: u8,
    /// Whether rows of its tables changed since the last export.
    pub(super) changed: bool,
    /// Tokens scheduled, drafts included.
    pub(super) len: u32,
    /// Up to this length, appending needs no block.
    pub(super) room: u32,
    pub(super) load: PendingLoad,
    pub(super) settled: u32,
    /// The position up to which boundaries have been registered or left out.
    pub(super) registered: u32,
    pub(super) tenant: u32,
    /// The entry of the open step, if that is the last step.
    pub(super) entry: usize,
    /// The last step that accesses the blocks.
    pub(super) last_step: StepId,
    /// The last step that writes settled tokens into the blocks: by a copy, or for another sequence.
    pub(super) written_by: StepId,
    pub(super) chain: Chain,
    pub(super) tables: Vec<BlockTable>,
    pub(super) sealed: Vec<SealedState>,
    /// Positions at which the prompt ends and at which it leaves a cached one; 0 if there is none.
    pub(super) prompt_end: u32,
    pub(super) junction: u32,
    /// The lengths that it was admitted with.
    pub(super) lengths: RequestLengths,
    /// The hit after which it was pledged the steps of its prompt, until these have settled.
    pub(super) prompt_pledge: Option<u32>,
    pub(super) lifetime: Option<u64>,
    /// The length after the last step that has settled beside a load by layers.
    pub(super) settled_beside_load: u32,
    /// Units of the prefix that it pins, if it is the user's pin.
    pub(super) pinned: u32,
}

impl SequenceState {
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Prepares an unused state for a sequence; its memory is kept.
    fn reset(&mut self, groups: usize) {
        let (generation, mut tables) = (self.generation, std::mem::take(&mut self.tables));
        let mut sealed = std::mem::take(&mut self.sealed);
        tables.resize(groups, BlockTable::default());
        for table in &mut tables {
            table.blocks.clear();
            table.first = 0;
        }
        sealed.clear();
        *self = Self { generation, is_alive: true, tables, sealed, changed: true, ..Self::default() };
    }
}

/// Returns the owner's number of a sequence.
pub(super) fn owner(slot: u32) -> u32 {
    slot + 1
}

impl Sequence {
    /// Returns the entry of a step after which the sequence has this length.
    #[inline]
    pub(super) fn entry(&self, len: u32) -> StepEntry {
        StepEntry { slot: self.slot, generation: self.generation, len }
    }

    fn is_of(&self, drops: &Arc<DroppedSequences>, state: &SequenceState) -> bool {
        Arc::ptr_eq(&self.drops, drops) && state.is_alive && state.generation == self.generation
    }
}

/// Returns the state of a handle; `None` if it is another pool's.
#[inline]
pub(super) fn state_of<'a>(
    sequences: &'a mut [SequenceState],
    drops: &Arc<DroppedSequences>,
    sequence: &Sequence,
) -> Option<&'a mut SequenceState> {
    sequences.get_mut(sequence.slot as usize).filter(|state| sequence.is_of(drops, state))
}

impl KvPool {
    /// Returns the slot of a handle.
    #[inline]
    pub(super) fn slot(&self, sequence: &Sequence) -> Result<u32> {
        let state = self.sequences.get(sequence.slot as usize);
        let is_known = state.is_some_and(|state| sequence.is_of(&self.drops, state));
        if is_known { Ok(sequence.slot) } else { Err(KvError::UnknownSequence) }
    }

    #[inline]
    pub(super) fn state(&self, slot: u32) -> &SequenceState {
        &self.sequences[slot as usize]
    }

    #[inline]
    pub(super) fn state_mut(&mut self, slot: u32) -> &mut SequenceState {
        &mut self.sequences[slot as usize]
    }

    /// Takes an unused slot.
    pub(super) fn new_sequence(&mut self) -> Result<u32> {
        let slot = match self.unused_sequences.pop() {
            Some(slot) => slot,
            None => {
                let out_of_range = |_| KvError::OutOfRange { what: "the number of sequences" };
                let slot = u32::try_from(self.sequences.len()).map_err(out_of_range)?;
                self.sequences.push(SequenceState::default());
                slot
            }
        };
        self.sequences[slot as usize].reset(self.geometry.groups().len());
        self.blocks.add_owner(owner(slot));
        Ok(slot)
    }

    pub(super) fn handle(&self, slot: u32) -> Sequence {
        let generation = self.state(slot).generation;
        Sequence { slot, generation, drops: Arc::clone(&self.drops) }
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.state(slot).generation
    }

    /// Ends the sequences that were dropped since the last call.
    #[inline]
    pub(super) fn collect_drops(&mut self) {
        if self.drops.has_values() {
            self.end_dropped();
        }
    }

    #[cold]
    fn end_dropped(&mut self) {
        let mut dropped = std::mem::take(&mut self.dropped);
        self.drops.collect(&mut dropped);
        for (slot, generation) in dropped.drain(..) {
            let state = self.state(slot);
            if state.is_alive && state.generation == generation && !state.is_finishing {
                self.end(slot);
            }
        }
        self.dropped = dropped;
    }

    /// Returns a sequence's blocks, and its slot.
    pub(super) fn end(&mut self, slot: u32) {
        let mut state = std::mem::take(&mut self.sequences[slot as usize]);
        let me = owner(slot);
        let last_step = state.last_step;
        for (group, table) in state.tables.iter().enumerate() {
            // The last block first: the pages of the end are reused before those of the start.
            for &block in table.blocks.iter().rev().filter(|&&block| block != NULL) {
                self.release(group, block, me, last_step);
            }
        }
        for sealed in state.sealed.drain(..) {
            self.release(sealed.group, sealed.block, me, last_step);
        }
        if state.pinned > 0 {
            self.index.unpin(state.chain.prefix(state.pinned as usize));
        }
        self.blocks.end_pledge(me);
        self.blocks.pages.disown(me);
        self.index.unpark();
        state.generation = state.generation.wrapping_add(1);
        state.is_alive = false;
        self.sequences[slot as usize] = state;
        self.unused_sequences.push(slot);
    }

    /// Ends a sequence's use of a block: at once, or when `last_step` has settled.
    pub(super) fn release(&mut self, group: usize, block: u32, owner: u32, last_step: StepId) {
        self.blocks.remove_user(group, block, owner);
        match self.unsettled(last_step) {
            Some(step) => step.releases.push((group, block)),
            None => self.blocks.unpin(group, block),
        }
    }
}
