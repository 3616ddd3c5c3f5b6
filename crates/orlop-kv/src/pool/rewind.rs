//! Forking sequences and taking tokens back.

use super::lengths::RequestLengths;
use super::sequence::owner;
use super::step::StepEntry;
use super::{KvPool, Sequence};
use crate::geometry::GroupKind;
use crate::index::PrefixMatch;
use crate::pages::NULL;
use crate::{KvError, Result};
use std::ops::Range;

/// What [`KvPool::truncate`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// The sequence's length.
    pub len: u32,
    /// Tokens behind it that were to be kept, and have to be computed again: no state was saved closer.
    pub recompute: u32,
    /// Tokens whose ids the pool knows: [`KvPool::push_tokens`] continues behind them.
    pub known: u32,
}

impl KvPool {
    /// Takes the tokens behind `len` back: rejected drafts, or an edited text; also those of the prompt that
    /// have not been scheduled. States return to the last saved position, so the sequence may become shorter
    /// than `len`.
    ///
    /// # Errors
    /// If `len` is behind the end, the sequence is in the open step, or a group has neither the blocks nor a
    /// checkpoint to return to. The sequence is then unchanged.
    pub fn truncate(&mut self, sequence: &Sequence, len: u32) -> Result<Truncation> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        self.check_not_in_open_step(slot)?;
        let state = self.state(slot);
        if len > state.len {
            return Err(KvError::BeyondEnd { position: len, end: state.len });
        }
        self.check_no_load(slot)?;
        if len == state.len {
            self.shorten(slot, len);
            self.forget_tokens(slot, len);
        } else {
            match self.return_point(slot, len) {
                Ok(position) => {
                    self.cut(slot, position);
                    self.forget_tokens(slot, position);
                }
                Err(error) => self.return_to_cached(slot, len).ok_or(error)?,
            }
        }
        let state = self.state(slot);
        Ok(Truncation { len: state.len, recompute: len - state.len, known: state.chain.known() })
    }

    /// Returns the last position up to `len` that the sequence can return to with its own blocks.
    fn return_point(&self, slot: u32, len: u32) -> Result<u32> {
        if len == 0 {
            return Ok(0);
        }
        let state = self.state(slot);
        let mut position = len;
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            if spec.kind == GroupKind::State && self.geometry.parts(group) > 0 {
                let saved =
                    state.sealed.iter().filter(|sealed| sealed.group == group && sealed.position <= len);
                let Some(saved) = saved.map(|sealed| sealed.position).max() else {
                    return Err(KvError::StateNotSaved { group: spec.name.clone(), position: len });
                };
                position = position.min(saved);
            }
        }
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            let first = state.tables[group].first * spec.span();
            if self.geometry.parts(group) > 0 && spec.first_token(position) < first {
                return Err(KvError::WindowGone { group: spec.name.clone(), position, first });
            }
        }
        Ok(position)
    }

    /// Returns the blocks behind a position that `return_point` allows. Which tokens follow is still known.
    fn cut(&mut self, slot: u32, position: u32) {
        let (me, last_step) = (owner(slot), self.state(slot).last_step);
        for group in 0..self.geometry.groups().len() {
            let spec = &self.geometry.groups()[group];
            let kept = match spec.kind {
                GroupKind::Cross => continue,
                GroupKind::State => 0,
                _ => position.div_ceil(spec.span()) as usize,
            };
            let table = &mut self.sequences[slot as usize].tables[group];
            table.first = if position == 0 { 0 } else { table.first };
            while self.state(slot).tables[group].blocks.len() > kept {
                let block = self.state_mut(slot).tables[group].blocks.pop();
                if let Some(block) = block.filter(|&block| block != NULL) {
                    self.release(group, block, me, last_step);
                }
            }
        }
        let mut sealed = std::mem::take(&mut self.state_mut(slot).sealed);
        sealed.retain(|saved| {
            if saved.position == position {
                self.blocks.add_user(saved.group, saved.block, me);
                self.state_mut(slot).tables[saved.group].blocks.push(saved.block);
            } else if saved.position > position {
                self.release(saved.group, saved.block, me, last_step);
                return false;
            }
            true
        });
        self.state_mut(slot).sealed = sealed;
        self.shorten(slot, position);
    }

    fn shorten(&mut self, slot: u32, position: u32) {
        let state = self.state_mut(slot);
        (state.len, state.room) = (position, position);
        state.settled = state.settled.min(position);
        state.registered = state.registered.min(position);
        state.changed = true;
        let generation = self.generation(slot);
        for step in self.in_flight.iter_mut().chain([&mut self.open]) {
            for entry in &mut step.entries {
                if (entry.slot, entry.generation) == (slot, generation) {
                    entry.len = entry.len.min(position);
                }
            }
        }
    }

    /// Forgets which tokens follow a position: others may.
    fn forget_tokens(&mut self, slot: u32, position: u32) {
        let state = self.state_mut(slot);
        state.prompt_end = if state.prompt_end > position { 0 } else { state.prompt_end };
        state.chain.truncate(position);
    }

    /// Replaces the sequence's blocks by those of the longest cached prefix within `len`.
    fn return_to_cached(&mut self, slot: u32, len: u32) -> Option<()> {
        let unit = self.settings.keys.unit;
        let state = self.state(slot);
        if ((len / unit) as usize) > state.chain.hashes().len() {
            return None;
        }
        let found: PrefixMatch = self.index.find(state.chain.prefix((len / unit) as usize), len / unit);
        if found.hit == 0 || !self.settings.reuses {
            return None;
        }
        let mut held = Vec::new();
        self.index.blocks_of(&found, |group, _, block| held.push((group, block)));
        for &(group, block) in &held {
            self.blocks.pin(group, block);
        }
        // Cached blocks that come into use cannot be evicted for what others were pledged.
        if self.check_pledges().is_err() {
            for &(group, block) in &held {
                self.blocks.unpin(group, block);
            }
            return None;
        }
        let (me, last_step) = (owner(slot), self.state(slot).last_step);
        for group in 0..self.geometry.groups().len() {
            if self.kind(group) == GroupKind::Cross {
                continue;
            }
            for block in std::mem::take(&mut self.state_mut(slot).tables[group].blocks) {
                if block != NULL {
                    self.release(group, block, me, last_step);
                }
            }
        }
        for saved in std::mem::take(&mut self.state_mut(slot).sealed) {
            self.release(saved.group, saved.block, me, last_step);
        }
        self.shorten(slot, found.hit * unit);
        self.forget_tokens(slot, found.hit * unit);
        self.attach(slot, &found);
        for &(group, block) in &held {
            self.blocks.unpin(group, block);
        }
        let state = self.state_mut(slot);
        (state.settled, state.registered) = (state.len, state.len);
        Some(())
    }

    /// Takes back a load that failed, and what steps computed behind it. The tokens of the prompt and of the
    /// load are still to be computed: their ids stay known. Those that were sampled since are wrong.
    pub(super) fn take_back_load(&mut self, slot: u32, tokens: Range<u32>) {
        self.cut(slot, tokens.start);
        let state = self.state_mut(slot);
        state.settled_beside_load = 0;
        let right = tokens.end.max(state.lengths.prompt);
        if state.chain.known() > right {
            state.chain.truncate(right);
        }
    }

    /// Starts a sequence with the same tokens. Blocks are shared; a partial block is copied when the fork
    /// writes to it. The fork is pledged blocks up to `max_tokens` tokens.
    ///
    /// # Errors
    /// If the pledge cannot be given, it exceeds the tenant's quota, or the sequence is in the open step. The
    /// pool is then unchanged.
    pub fn fork(&mut self, sequence: &Sequence, max_tokens: u32) -> Result<Sequence> {
        self.collect_drops();
        self.check_awake()?;
        let parent = self.slot(sequence)?;
        self.check_not_in_open_step(parent)?;
        self.check_no_load(parent)?;
        let state = self.state(parent);
        let (len, tenant) = (state.len, state.tenant);
        let lengths = RequestLengths { limit: max_tokens.max(len), ..state.lengths };
        let mut pledge = std::mem::take(&mut self.pages_needed);
        // The encoder's tokens are shared.
        let needed = RequestLengths { encoder_tokens: 0, ..lengths };
        self.pledge_of(needed, len, &mut pledge);
        self.blocks.demand(crate::pages::NO_OWNER, &pledge, &mut self.demand);
        let shortage = self.blocks.pages.shortage(&self.demand);
        let slot = if shortage.fits() {
            let in_quota = self.check_quota(tenant, self.blocks.pages.bytes_of(&pledge));
            in_quota.and_then(|()| self.new_sequence())
        } else {
            Err(self.out_of_pages(shortage, self.largest_need(needed, len)))
        };
        if let Ok(slot) = slot {
            self.blocks.pledge(owner(slot), tenant, &pledge);
        }
        self.pages_needed = pledge;
        let slot = slot?;
        let state = self.state_mut(slot);
        (state.lengths, state.prompt_pledge) = (lengths, Some(len));
        self.share_tables(parent, slot);
        self.reserve(slot, len);
        self.share_steps(parent, slot);
        Ok(self.handle(slot))
    }

    fn share_tables(&mut self, parent: u32, slot: u32) {
        let source = self.state(parent);
        let (tenant, len, settled) = (source.tenant, source.len, source.settled);
        let (class, lifetime, written_by) = (source.class, source.lifetime, source.written_by);
        let (last_step, registered, chain) = (source.last_step, source.registered, source.chain.clone());
        for group in 0..self.geometry.groups().len() {
            let mut blocks = std::mem::take(&mut self.state_mut(slot).tables[group].blocks);
            let table = &self.state(parent).tables[group];
            blocks.extend_from_slice(&table.blocks);
            let first = table.first;
            let span = self.geometry.groups()[group].span();
            self.blocks.share(group, &blocks, span, len);
            let table = &mut self.state_mut(slot).tables[group];
            (table.blocks, table.first) = (blocks, first);
        }
        let state = self.state_mut(slot);
        (state.tenant, state.len, state.settled, state.room) = (tenant, len, settled, len);
        (state.class, state.lifetime, state.written_by) = (class, lifetime, written_by);
        (state.last_step, state.registered, state.chain) = (last_step, registered, chain);
        state.entry = usize::MAX;
        if self.has_states() {
            // States are written as a whole: the next of the two to append writes to a copy.
            let state = self.state_mut(parent);
            state.room = state.room.min(len);
        }
    }

    /// Puts the fork into the steps that compute its last tokens.
    fn share_steps(&mut self, parent: u32, slot: u32) {
        let (parent_generation, generation) = (self.generation(parent), self.generation(slot));
        for step in &mut self.in_flight {
            let is_parent =
                |entry: &&StepEntry| (entry.slot, entry.generation) == (parent, parent_generation);
            if let Some(&entry) = step.entries.iter().find(is_parent) {
                step.entries.push(StepEntry { slot, generation, ..entry });
            }
        }
    }

    /// Ends a sequence when all of its steps have settled, and leaves its end in the cache.
    ///
    /// # Errors
    /// If the sequence is not one of this pool.
    pub fn finish(&mut self, sequence: Sequence) -> Result<()> {
        self.collect_drops();
        let slot = self.slot(&sequence)?;
        if self.state(slot).settled == self.state(slot).len {
            self.register_end(slot);
            self.end(slot);
        } else {
            self.state_mut(slot).is_finishing = true;
        }
        Ok(())
    }

    /// Returns the sequence's length: tokens scheduled, and of these, settled.
    ///
    /// # Errors
    /// If the sequence is not one of this pool.
    pub fn len(&self, sequence: &Sequence) -> Result<(u32, u32)> {
        let state = self.state(self.slot(sequence)?);
        Ok((state.len, state.settled))
    }
}
