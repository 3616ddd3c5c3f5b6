//! Appending tokens: blocks for all groups or for none.

use super::sequence::{PendingLoad, SealedState, SequenceState, owner, state_of};
use super::step::StepRecord;
use super::{FreshPage, KvPool, PageCopy, Sequence};
use crate::blocks::TenantUse;
use crate::geometry::GroupKind;
use crate::pages::NULL;
use crate::{KvError, Result};

/// The maximum length of a sequence.
pub(super) const MAX_TOKENS: u32 = u32::MAX / 2 - 1;

/// A block that an append needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewBlock {
    pub(super) group: usize,
    /// The index in the sequence's table.
    pub(super) index: u32,
    /// The block whose tokens are copied; [`NULL`] without one.
    pub(super) from: u32,
    /// The tokens to copy.
    pub(super) tokens: u32,
    pub(super) block: u32,
}

impl KvPool {
    /// Schedules `tokens` tokens of a sequence in the open step. A block is allocated in a group where the
    /// last one is full; nothing that is there is copied, except a block that others share.
    ///
    /// # Errors
    /// If pages are missing in a group although everything that is cached may be evicted. The sequence and
    /// all others are then unchanged, and nothing was evicted.
    #[inline]
    pub fn append(&mut self, sequence: &Sequence, tokens: u32) -> Result<()> {
        let has_states = !self.state_groups.is_empty();
        let Self { sequences, open, drops, .. } = self;
        if !drops.has_values()
            && open.entries.len() < open.entries.capacity()
            && let Some(state) = state_of(sequences, drops, sequence)
            && let Some(end) = state.len.checked_add(tokens)
            && end <= state.room
            && state.load != PendingLoad::Whole
            && !has_states
        {
            // Inside of blocks that are there, and no state to save. Nothing here is a call.
            state.len = end;
            schedule(state, sequence, open);
            return Ok(());
        }
        self.append_beyond(sequence, tokens)
    }

    /// As [`Self::append`], with all that it may need.
    #[inline(never)]
    fn append_beyond(&mut self, sequence: &Sequence, tokens: u32) -> Result<()> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        self.append_to(slot, tokens, true)?;
        schedule(&mut self.sequences[slot as usize], sequence, &mut self.open);
        Ok(())
    }

    /// Schedules a token and `drafts` draft tokens, which [`truncate`](Self::truncate) takes back. States are
    /// saved before them, so that the sequence can return.
    ///
    /// # Errors
    /// As [`append`](Self::append), or if the model has states and the sequence is in the open step already.
    pub fn append_drafts(&mut self, sequence: &Sequence, drafts: u32) -> Result<()> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        if self.has_states() {
            self.check_not_in_open_step(slot)?;
        }
        self.check_no_load(slot)?;
        self.seal(slot);
        let appended = self.append_to(slot, drafts.saturating_add(1), false);
        if appended.is_err() {
            self.unseal(slot);
        }
        appended?;
        schedule(&mut self.sequences[slot as usize], sequence, &mut self.open);
        Ok(())
    }

    /// Adds the ids of the tokens from `position` on: those of the prompt are known at admission, others when
    /// they were sampled. Only tokens with known ids can be reused.
    ///
    /// # Errors
    /// If `position` is not the first one without a known id, which a [`Truncation`](crate::Truncation) moves
    /// back, or there would be more known tokens than scheduled ones.
    pub fn push_tokens(&mut self, sequence: &Sequence, position: u32, tokens: &[u32]) -> Result<()> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        let state = self.state_mut(slot);
        let known = state.chain.known();
        if position != known {
            return Err(KvError::NotNextToken { position, known });
        }
        let known = u64::from(known) + tokens.len() as u64;
        // The last sampled token is known before its keys and values are scheduled.
        if known > u64::from(state.len) + 1 {
            return Err(KvError::BeyondEnd {
                position: u32::try_from(known).unwrap_or(u32::MAX),
                end: state.len,
            });
        }
        state.chain.push(tokens);
        let settled = state.settled;
        self.register_up_to(slot, settled);
        Ok(())
    }

    pub(super) fn has_states(&self) -> bool {
        self.first_state_group().is_some()
    }

    pub(super) fn first_state_group(&self) -> Option<usize> {
        let groups = self.geometry.groups().iter();
        let is_state = |group: usize, kind| kind == GroupKind::State && self.geometry.parts(group) > 0;
        groups.enumerate().find(|&(group, spec)| is_state(group, spec.kind)).map(|(group, _)| group)
    }

    /// Refuses what copies a sequence's blocks while the open step is still to write them.
    pub(super) fn check_not_in_open_step(&self, slot: u32) -> Result<()> {
        let step = self.open.id;
        if self.state(slot).last_step == step { Err(KvError::InOpenStep { step: step.0 }) } else { Ok(()) }
    }

    /// Refuses what a pending load excludes.
    pub(super) fn check_no_load(&self, slot: u32) -> Result<()> {
        let state = self.state(slot);
        match state.load {
            PendingLoad::None => Ok(()),
            _ => Err(KvError::BeyondEnd { position: state.len, end: state.settled }),
        }
    }

    /// Appends without scheduling. `may_unseal` lets a checkpoint at the present end be given up for it.
    pub(super) fn append_to(&mut self, slot: u32, tokens: u32, may_unseal: bool) -> Result<()> {
        self.check_awake()?;
        let state = self.state(slot);
        let len = state.len;
        if state.load == PendingLoad::Whole {
            return Err(KvError::BeyondEnd { position: len, end: state.settled });
        }
        let out_of_range = KvError::OutOfRange { what: "the tokens of a sequence" };
        let end = len.checked_add(tokens).filter(|&end| end <= MAX_TOKENS).ok_or(out_of_range)?;
        if end > state.room {
            if state.last_step == self.open.id && tokens > 0 {
                // The step does not end at a checkpoint after all.
                self.unseal(slot);
            }
            if !self.extend_by_block(slot, end) {
                self.extend_tables(slot, end, may_unseal)?;
            }
        }
        self.state_mut(slot).len = end;
        // At a checkpoint the state is saved: the next append writes to a copy.
        if !self.state_groups.is_empty() && self.next_boundary(slot, len) == Some(end) {
            self.seal(slot);
        }
        Ok(())
    }

    /// Allocates the blocks for tokens up to `end`.
    pub(super) fn extend_tables(&mut self, slot: u32, end: u32, may_unseal: bool) -> Result<()> {
        let mut new_blocks = std::mem::take(&mut self.new_blocks);
        new_blocks.clear();
        self.plan_growth(slot, end, &mut new_blocks);
        if may_unseal && self.is_checkpoint_too_dear(slot, &new_blocks) {
            self.unseal(slot);
            new_blocks.clear();
            self.plan_growth(slot, end, &mut new_blocks);
        }
        let mut allocated = self.allocate_all(slot, &mut new_blocks);
        if allocated.is_err() && self.take_from_cache(slot, &mut new_blocks) {
            allocated = self.allocate_all(slot, &mut new_blocks);
        }
        if allocated.is_ok() {
            for &new in &new_blocks {
                self.put(slot, new);
            }
            let room = self.room(slot, end);
            let state = self.state_mut(slot);
            state.room = room;
            state.changed |= !new_blocks.is_empty();
        }
        self.new_blocks = new_blocks;
        allocated
    }

    /// Takes the blocks from the cache that the sequence would copy for it alone, if the others can then be
    /// allocated: these are written in place. Returns `false` if nothing was taken.
    fn take_from_cache(&mut self, slot: u32, new_blocks: &mut Vec<NewBlock>) -> bool {
        let is_own =
            |new: &NewBlock| new.from != NULL && self.blocks.is_shared_with_cache(new.group, new.from);
        let (own, others): (Vec<_>, Vec<_>) = new_blocks.iter().copied().partition(is_own);
        if own.is_empty() || self.can_allocate(slot, &others).is_err() {
            return false;
        }
        *new_blocks = others;
        own.iter().all(|new| self.index.forget(&mut self.blocks, new.group, new.from))
    }

    /// Lists the blocks that are missing for tokens up to `end`.
    pub(super) fn plan_growth(&self, slot: u32, end: u32, new_blocks: &mut Vec<NewBlock>) {
        let state = self.state(slot);
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            if self.geometry.parts(group) == 0 || spec.kind == GroupKind::Cross {
                continue;
            }
            let blocks = &state.tables[group].blocks;
            let mut add = |index, from, tokens| {
                new_blocks.push(NewBlock { group, index, from, tokens, block: NULL });
            };
            if spec.kind == GroupKind::State {
                match blocks.first() {
                    None => add(0, NULL, 0),
                    Some(&block) => {
                        let record = self.blocks.record(group, block);
                        if record.users > 1 || record.cached > 0 {
                            add(0, block, 1);
                        }
                    }
                }
                continue;
            }
            let (span, len) = (spec.span(), state.len);
            let (first, inside) = (len / span, len % span);
            let partial = blocks.get(first as usize).copied().filter(|&block| block != NULL && inside > 0);
            if let Some(block) =
                partial.filter(|&block| !self.blocks.may_write(group, block, owner(slot), inside))
            {
                add(first, block, inside);
            }
            for index in u32::try_from(blocks.len()).unwrap_or(NULL)..end.div_ceil(span) {
                add(index, NULL, 0);
            }
        }
    }

    /// Checks whether these blocks could be allocated if the whole cache were evicted.
    pub(super) fn can_allocate(&mut self, slot: u32, new_blocks: &[NewBlock]) -> Result<()> {
        self.pages_needed.fill(0);
        let mut largest = (0, 0);
        for new in new_blocks {
            let (class, parts) = self.blocks.class_and_parts(new.group);
            self.pages_needed[class] += parts;
            largest = largest.max((self.pages_needed[class], new.group));
        }
        self.blocks.demand(owner(slot), &self.pages_needed, &mut self.demand);
        if self.blocks.is_within_pledge(owner(slot), &self.pages_needed) {
            return Ok(());
        }
        let shortage = self.blocks.pages.shortage(&self.demand);
        if !shortage.fits() {
            return Err(self.out_of_pages(shortage, largest.1));
        }
        let beyond = self.blocks.bytes_beyond_pledge(owner(slot), &self.pages_needed);
        self.check_quota(self.state(slot).tenant, beyond)
    }

    /// Checks whether a tenant may have `bytes` bytes besides those that it has and is pledged.
    pub(super) fn check_quota(&self, tenant: u32, bytes: u64) -> Result<()> {
        let TenantUse { live, pledged, quota, .. } = self.blocks.tenants[tenant as usize];
        if quota == u64::MAX || bytes == 0 {
            return Ok(());
        }
        let used = live.saturating_add(pledged);
        if bytes <= quota.saturating_sub(used) {
            return Ok(());
        }
        Err(KvError::QuotaExceeded { quota, used, needed: bytes })
    }

    /// Allocates all of these blocks or none, and evicts for it.
    pub(super) fn allocate_all(&mut self, slot: u32, new_blocks: &mut [NewBlock]) -> Result<()> {
        self.can_allocate(slot, new_blocks)?;
        let (me, tenant) = (owner(slot), self.state(slot).tenant);
        for at in 0..new_blocks.len() {
            let NewBlock { group, .. } = new_blocks[at];
            loop {
                if let Some(block) = self.blocks.allocate(group, me, tenant, &mut self.demand) {
                    new_blocks[at].block = block;
                    break;
                }
                if !self.index.evict(&mut self.blocks) {
                    for new in &new_blocks[..at] {
                        self.blocks.remove_user(new.group, new.block, me);
                        self.blocks.unpin(new.group, new.block);
                    }
                    let shortage = self.blocks.pages.shortage(&self.demand);
                    return Err(self.out_of_pages(shortage, group));
                }
            }
        }
        Ok(())
    }

    /// Puts a new block into the sequence's table, with the copy that it needs.
    pub(super) fn put(&mut self, slot: u32, new: NewBlock) {
        let NewBlock { group, index, from, tokens, block } = new;
        for part in 0..self.geometry.parts(group) {
            let to = self.blocks.pages_of(group, block)[part as usize];
            self.open.fresh.push(FreshPage { group, part, page: to });
            if from != NULL {
                let from = self.blocks.pages_of(group, from)[part as usize];
                self.open.copies.push(PageCopy { group, part, from, to, tokens });
            }
        }
        self.state_mut(slot).tables[group].set(index, block);
        if from != NULL {
            // The copy runs in the open step.
            let open = self.open.id;
            if self.kind(group) != GroupKind::State {
                self.state_mut(slot).written_by = open;
            }
            self.release(group, from, owner(slot), open);
        }
    }

    /// Returns the length up to which no group needs a block, if `end` tokens have theirs.
    fn room(&self, slot: u32, end: u32) -> u32 {
        let state = self.state(slot);
        let paged = self.geometry.groups().iter().enumerate().filter_map(|(group, spec)| match spec.kind {
            GroupKind::State | GroupKind::Cross => None,
            _ if self.geometry.parts(group) == 0 => None,
            _ => Some(
                (state.tables[group].blocks.len() as u64 * u64::from(spec.span())).min(MAX_TOKENS.into()),
            ),
        });
        let room = paged.min().unwrap_or(MAX_TOKENS.into());
        u32::try_from(room).unwrap_or(end).max(end)
    }

    /// Saves the states at the end of the sequence.
    fn seal(&mut self, slot: u32) {
        let position = self.state(slot).len;
        if position == 0 || self.state(slot).sealed.last().is_some_and(|last| last.position == position) {
            return;
        }
        for group in 0..self.geometry.groups().len() {
            if self.geometry.parts(group) == 0 || self.kind(group) != GroupKind::State {
                continue;
            }
            let Some(&block) = self.state(slot).tables[group].blocks.first() else { continue };
            self.blocks.add_user(group, block, owner(slot));
            let state = self.state_mut(slot);
            state.sealed.push(SealedState { position, group, block });
            // The next append has to look.
            state.room = state.room.min(position);
        }
    }

    /// Takes back the states that were saved at the end.
    fn unseal(&mut self, slot: u32) {
        let position = self.state(slot).len;
        while let Some(last) = self.state(slot).sealed.last().copied() {
            if last.position != position {
                break;
            }
            self.state_mut(slot).sealed.pop();
            self.blocks.remove_user(last.group, last.block, owner(slot));
            self.blocks.unpin(last.group, last.block);
        }
    }

    /// Returns `true` if a checkpoint at the end costs more than it is worth: the append would fail, or for a
    /// filler, evict something else than fillers.
    fn is_checkpoint_too_dear(&mut self, slot: u32, new_blocks: &[NewBlock]) -> bool {
        let state = self.state(slot);
        let (position, sealed) = (state.len, state.sealed.last());
        if sealed.is_none_or(|last| last.position != position) {
            return false;
        }
        if self.can_allocate(slot, new_blocks).is_err() {
            return true;
        }
        let is_filler = self.boundary_class(slot, position) == 0;
        is_filler && !self.index.has_filler() && !self.blocks.pages.has_free(&self.pages_needed)
    }
}

/// Puts a sequence into the open step, with its present length.
#[inline]
fn schedule(state: &mut SequenceState, sequence: &Sequence, open: &mut StepRecord) {
    let entry = sequence.entry(state.len);
    if state.last_step == open.id
        && let Some(known) = open.entries.get_mut(state.entry)
    {
        *known = entry;
    } else {
        (state.last_step, state.entry) = (open.id, open.entries.len());
        open.entries.push(entry);
    }
}
