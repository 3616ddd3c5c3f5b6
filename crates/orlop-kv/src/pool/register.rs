//! Feeding the index: which boundaries a sequence leaves, and with which blocks.

use super::KvPool;
use super::sequence::{PendingLoad, SealedState, owner};
use crate::geometry::GroupKind;
use crate::index::{Rank, Tail};
use crate::pages::NULL;

impl KvPool {
    /// Returns the tokens until the next position at which a checkpoint is wanted, for a sequence whose model
    /// has states: a step that ends there saves them. `None` if there is none.
    ///
    /// # Errors
    /// If the sequence is not one of this pool.
    pub fn tokens_to_checkpoint(&self, sequence: &super::Sequence) -> crate::Result<Option<u32>> {
        let slot = self.slot(sequence)?;
        let len = self.state(slot).len;
        let next = if self.state_groups.is_empty() { None } else { self.next_boundary(slot, len) };
        Ok(next.map(|next| next - len))
    }

    /// Returns the next position after `after` at which a boundary is wanted.
    pub(super) fn next_boundary(&self, slot: u32, after: u32) -> Option<u32> {
        if !self.settings.reuses {
            return None;
        }
        let state = self.state(slot);
        let unit = self.settings.keys.unit;
        let filler = self.settings.checkpoints.every.map(|every| {
            let every = every.max(1).div_ceil(unit).saturating_mul(unit);
            (after / every).saturating_add(1).saturating_mul(every)
        });
        let wanted = [Some(state.prompt_end), Some(state.junction), filler];
        wanted.into_iter().flatten().filter(|&position| position > after).min()
    }

    /// Returns the class of a boundary: 0 for a filler.
    pub(super) fn boundary_class(&self, slot: u32, position: u32) -> u8 {
        let state = self.state(slot);
        if position == state.prompt_end || position == state.junction { state.class } else { 0 }
    }

    fn rank(&self, slot: u32, class: u8) -> Rank {
        let state = self.state(slot);
        let expires = state.lifetime.map(|lifetime| self.now.saturating_add(lifetime));
        let protects = self.settings.hits_protect;
        Rank { class, is_protected: false, expires, normal: state.class, protects }
    }

    /// Registers what the sequence has up to `end` tokens, as far as their ids are known.
    pub(super) fn register_up_to(&mut self, slot: u32, end: u32) {
        if !self.settings.reuses || self.state(slot).load != PendingLoad::None {
            return;
        }
        let unit = self.settings.keys.unit;
        let state = self.state(slot);
        let known = u32::try_from(state.chain.hashes().len()).unwrap_or(u32::MAX).saturating_mul(unit);
        let end = end.min(known);
        if self.tail_groups.is_empty() {
            let position = end / unit * unit;
            if position > state.registered {
                self.register(slot, position, state.class);
                self.state_mut(slot).registered = position;
            }
            return;
        }
        while let Some(position) = self.next_boundary(slot, self.state(slot).registered) {
            if position > end {
                break;
            }
            self.register(slot, position, self.boundary_class(slot, position));
            self.state_mut(slot).registered = position;
        }
        self.drop_sealed(slot);
    }

    /// Registers the end of a finished sequence.
    pub(super) fn register_end(&mut self, slot: u32) {
        let state = self.state(slot);
        let unit = self.settings.keys.unit;
        let known = u32::try_from(state.chain.hashes().len()).unwrap_or(u32::MAX).saturating_mul(unit);
        let position = (state.settled / unit * unit).min(known);
        if self.settings.reuses && position > state.registered && position > 0 {
            self.register(slot, position, state.class);
        }
    }

    /// Registers a boundary, unless the sequence has returned blocks that it needs.
    pub(super) fn register(&mut self, slot: u32, position: u32, class: u8) {
        let mut tails = std::mem::take(&mut self.tails);
        tails.clear();
        if self.list_tails(slot, position, &mut tails).is_some() {
            self.add_to_index(slot, position, &tails, class);
        }
        self.tails = tails;
    }

    fn add_to_index(&mut self, slot: u32, position: u32, tails: &[Tail], class: u8) {
        let rank = self.rank(slot, class);
        let state = &self.sequences[slot as usize];
        let units = (position / self.settings.keys.unit) as usize;
        let prefix = state.chain.prefix(units);
        let block_at = |group: usize, index: u32| state.tables[group].blocks[index as usize];
        let is_new = self.index.register(&mut self.blocks, prefix, state.tenant, &block_at, tails, rank);
        for tail in tails.iter().filter(|_| is_new) {
            let group = tail.group as usize;
            let span = self.geometry.groups()[group].span();
            let is_state = self.kind(group) == GroupKind::State;
            let valid = if is_state { 1 } else { position - tail.index * span };
            let state = self.state_mut(slot);
            if is_state && position == state.len {
                // The cache has the live state: the next append has to copy it.
                state.room = state.room.min(position);
            }
            self.blocks.set_valid(group, tail.block, valid.min(span));
        }
    }

    /// Lists the blocks that a boundary keeps; `None` if the sequence has not got one of them.
    pub(super) fn list_tails(&self, slot: u32, position: u32, tails: &mut Vec<Tail>) -> Option<()> {
        let state = self.state(slot);
        for &group in &self.tail_groups {
            let spec = &self.geometry.groups()[group];
            let id = u32::try_from(group).ok()?;
            let table = &state.tables[group].blocks;
            if spec.kind == GroupKind::State {
                let is_saved = |sealed: &&SealedState| (sealed.position, sealed.group) == (position, group);
                let saved = state.sealed.iter().find(is_saved);
                // The live state is the one at the end, if no step can change it any more.
                let is_end = position == state.len && state.len == state.settled;
                let live = table.first().filter(|_| is_end).copied();
                let block = saved.map(|sealed| sealed.block).or(live)?;
                tails.push(Tail { group: id, index: 0, block });
                continue;
            }
            let span = spec.span();
            let sinks = match spec.kind {
                GroupKind::Window { sinks, .. } => sinks.min(position).div_ceil(span),
                _ => 0,
            };
            let last = position.div_ceil(span);
            let first = spec.first_token(position);
            let first = if first == position { last } else { first / span };
            for index in (0..sinks.min(first)).chain(first..last) {
                let block = table.get(index as usize).copied().filter(|&block| block != NULL)?;
                tails.push(Tail { group: id, index, block });
            }
        }
        Some(())
    }

    /// Returns the saved states that the sequence needs no more: settled ones but the last.
    fn drop_sealed(&mut self, slot: u32) {
        let state = self.state(slot);
        let (settled, registered) = (state.settled, state.registered);
        let in_flight = state.len > settled;
        let mut at = 0;
        while let Some(&sealed) = self.state(slot).sealed.get(at) {
            // A saved state in front of drafts in flight is where the sequence can return to.
            let is_registered = sealed.position <= registered;
            let is_past = sealed.position < settled || (sealed.position == settled && !in_flight);
            if is_past || (is_registered && !in_flight) {
                self.state_mut(slot).sealed.remove(at);
                self.blocks.remove_user(sealed.group, sealed.block, owner(slot));
                self.blocks.unpin(sealed.group, sealed.block);
            } else {
                at += 1;
            }
        }
    }
}
