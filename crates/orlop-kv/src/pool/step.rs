//! Steps: what is scheduled, what is in flight, what has settled.
//!
//! One step is open: appends belong to it. `close_step` hands it to the device, `settle` says that the device
//! has finished it. A block that a sequence lets go of stays pinned until the last step that may access it
//! has settled.

use super::KvPool;
use super::sequence::{PendingLoad, owner};
use crate::geometry::GroupKind;
use crate::pages::NULL;
use crate::{KvError, Result, Visibility};

/// The number of a step. Steps settle in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StepId(pub u64);

/// A copy that must run before the kernels of the open step, after those of the step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCopy {
    /// The group.
    pub group: usize,
    /// The part of the block.
    pub part: u32,
    /// The page to copy from.
    pub from: u32,
    /// The page to copy to.
    pub to: u32,
    /// Tokens to copy, from the start of the page; 1 for a state.
    pub tokens: u32,
}

/// A page that was given to a sequence in the open step, and has the bytes of its former use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshPage {
    /// The group.
    pub group: usize,
    /// The part of the block.
    pub part: u32,
    /// The page.
    pub page: u32,
}

/// A sequence in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepEntry {
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// The sequence's length after the step.
    pub(super) len: u32,
}

#[derive(Debug)]
pub(super) struct StepRecord {
    pub(super) id: StepId,
    pub(super) entries: Vec<StepEntry>,
    /// Blocks to unpin when the step has settled.
    pub(super) releases: Vec<(usize, u32)>,
    pub(super) copies: Vec<PageCopy>,
    /// The number of copies, from the first, that the pool has run itself.
    pub(super) copied: usize,
    pub(super) fresh: Vec<FreshPage>,
}

impl StepRecord {
    pub(super) fn new(id: StepId) -> Self {
        Self { id, entries: vec![], releases: vec![], copies: vec![], copied: 0, fresh: vec![] }
    }

    fn reset(&mut self, id: StepId) {
        self.id = id;
        self.entries.clear();
        self.releases.clear();
        self.copies.clear();
        self.copied = 0;
        self.fresh.clear();
    }
}

impl KvPool {
    /// Returns the open step.
    #[must_use]
    pub fn open_step(&self) -> StepId {
        self.open.id
    }

    /// Returns the copies that the open step needs before its kernels run.
    #[must_use]
    pub fn copies(&self) -> &[PageCopy] {
        &self.open.copies
    }

    /// Returns the pages that were handed out in the open step. An engine that must not read stale bytes
    /// clears them first; those that a copy fills only behind the copied tokens.
    #[must_use]
    pub fn fresh_pages(&self) -> &[FreshPage] {
        &self.open.fresh
    }

    /// Closes the open step and opens the next one. [`copies`](Self::copies) and
    /// [`fresh_pages`](Self::fresh_pages) then belong to the next one: read them first.
    pub fn close_step(&mut self) -> StepId {
        self.collect_drops();
        let id = self.open.id;
        let mut next = self.spare_steps.pop().unwrap_or_else(|| StepRecord::new(id));
        next.reset(StepId(id.0 + 1));
        self.in_flight.push_back(std::mem::replace(&mut self.open, next));
        if self.settings.visibility == Visibility::SameStream && self.state_groups.is_empty() {
            let last = self.in_flight.len() - 1;
            for at in 0..self.in_flight[last].entries.len() {
                let entry = self.in_flight[last].entries[at];
                if self.is_current(&entry) {
                    self.register_up_to(entry.slot, entry.len);
                }
            }
        }
        id
    }

    /// Declares that the device has finished a step, and all before it.
    ///
    /// # Errors
    /// If the step is not in flight.
    pub fn settle(&mut self, step: StepId) -> Result<()> {
        self.collect_drops();
        let is_known = self.in_flight.iter().any(|record| record.id == step);
        if !is_known {
            return Err(KvError::UnknownStep { step: step.0 });
        }
        while self.in_flight.front().is_some_and(|record| record.id <= step) {
            let Some(mut record) = self.in_flight.pop_front() else { break };
            for &(group, block) in &record.releases {
                self.blocks.unpin(group, block);
            }
            for entry in record.entries.drain(..) {
                if self.is_current(&entry) {
                    self.settle_sequence(entry.slot, entry.len);
                }
            }
            self.spare_steps.push(record);
        }
        Ok(())
    }

    fn is_current(&self, entry: &StepEntry) -> bool {
        let state = self.state(entry.slot);
        state.is_alive && self.generation(entry.slot) == entry.generation
    }

    /// Returns `true` if a step is open or in flight.
    pub(super) fn is_unsettled(&self, step: StepId) -> bool {
        step == self.open.id || self.in_flight.front().is_some_and(|oldest| oldest.id <= step)
    }

    /// Returns the record of a step that has not settled.
    pub(super) fn unsettled(&mut self, step: StepId) -> Option<&mut StepRecord> {
        if step == self.open.id {
            return Some(&mut self.open);
        }
        let oldest = self.in_flight.front()?.id;
        let index = step.0.checked_sub(oldest.0)?;
        self.in_flight.get_mut(usize::try_from(index).ok()?)
    }

    pub(super) fn settle_sequence(&mut self, slot: u32, len: u32) {
        let state = self.state_mut(slot);
        if state.load == PendingLoad::ByLayer {
            // What follows the loaded tokens settles with them.
            state.settled_beside_load = state.settled_beside_load.max(len.min(state.len));
            return;
        }
        state.settled = state.settled.max(len.min(state.len));
        let settled = state.settled;
        self.register_up_to(slot, settled);
        self.return_window_blocks(slot);
        self.end_prompt_pledge(slot);
        self.end_if_finished(slot);
    }

    /// Takes back what windows were pledged for the steps of a prompt that has settled.
    fn end_prompt_pledge(&mut self, slot: u32) {
        let state = self.state_mut(slot);
        let has_settled = state.settled >= state.lengths.prompt;
        let Some(hit) = state.prompt_pledge.take_if(|_| has_settled) else { return };
        let lengths = state.lengths;
        let mut pages = std::mem::take(&mut self.pages_needed);
        self.pages_of_prompt(lengths, hit, &mut pages);
        self.blocks.lower_pledge(owner(slot), &pages);
        self.pages_needed = pages;
    }

    /// Ends a finished sequence when nothing of it is in flight.
    pub(super) fn end_if_finished(&mut self, slot: u32) {
        let state = self.state(slot);
        if state.is_finishing && state.settled == state.len {
            self.register_end(slot);
            self.end(slot);
        }
    }

    /// Returns the position from which the sequence may go on: its settled tokens, or the boundary just
    /// before at which a hit could end.
    fn last_boundary(&self, slot: u32) -> u32 {
        let (state, unit) = (self.state(slot), self.settings.keys.unit);
        let boundary = state.settled.min(state.chain.known()) / unit * unit;
        let is_near = self.settings.reuses && state.settled - boundary <= unit;
        if is_near { boundary } else { state.settled }
    }

    /// Returns the blocks that no query attends to after the settled tokens, or after the boundary that the
    /// sequence would leave if it ended now. Steps in flight have later queries, so there is nothing to wait
    /// for.
    fn return_window_blocks(&mut self, slot: u32) {
        for group in 0..self.geometry.groups().len() {
            let spec = &self.geometry.groups()[group];
            let sinks = match spec.kind {
                GroupKind::Window { sinks, .. } => sinks,
                GroupKind::Chunked { .. } => 0,
                _ => continue,
            };
            let span = spec.span();
            let end = spec.first_token(self.last_boundary(slot)) / span;
            let kept = sinks.div_ceil(span);
            let table = &mut self.sequences[slot as usize].tables[group];
            let start = table.first.max(kept);
            table.first = table.first.max(end);
            for index in start..end {
                let table = &mut self.sequences[slot as usize].tables[group];
                let Some(block) = table.blocks.get_mut(index as usize) else { break };
                let block = std::mem::replace(block, NULL);
                if block != NULL {
                    self.blocks.remove_user(group, block, owner(slot));
                    self.blocks.unpin(group, block);
                    self.state_mut(slot).changed = true;
                }
            }
        }
    }
}
