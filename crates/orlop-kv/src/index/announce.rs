//! Events: what the index announces.

use super::{PrefixIndex, ROOT};
use crate::blocks::Blocks;
use crate::event_log::EventLog;
use crate::{BlockKey, GroupKind, KvEvent, KvGeometry, KvTier, RemovalReason};
use std::collections::HashMap;

/// The events that were not taken yet, and the blocks that were announced.
#[derive(Debug)]
pub(super) struct Announcer {
    log: EventLog<KvEvent>,
    /// The names of cached blocks, by group and block.
    known: HashMap<(usize, u32), BlockKey>,
    /// Tokens of a match unit.
    unit: u32,
    /// The shard of the pool.
    shard: u32,
    /// The groups with states.
    is_state: Vec<bool>,
    /// Tokens and bytes of a block, by group.
    sizes: Vec<(u32, u64)>,
}

impl Announcer {
    pub(super) fn new(geometry: &KvGeometry, unit: u32, shard: u32, limit: usize) -> Self {
        let bytes = |group| geometry.page_bytes(group) * u64::from(geometry.parts(group));
        let sizes = geometry.groups().iter().enumerate();
        let sizes = sizes.map(|(group, spec)| (spec.span(), bytes(group))).collect();
        let is_state = geometry.groups().iter().map(|spec| spec.kind == GroupKind::State).collect();
        Self { log: EventLog::new(limit), known: HashMap::new(), unit, shard, is_state, sizes }
    }

    pub(super) fn push(&mut self, event: KvEvent) {
        let weight = event.weight();
        self.log.push(event, weight);
    }

    /// Announces a block of a prefix that is cached, unless it has been announced with at least its tokens.
    pub(super) fn stored(&mut self, hashes: &[u128], group: usize, index: u32, block: u32) {
        let key = self.key(hashes, group, index);
        let former = self.known.get(&(group, block)).copied();
        if former.is_some_and(|former| former.tokens >= key.tokens) {
            return;
        }
        let (block_tokens, bytes) = self.sizes[group];
        let tier = KvTier::Device;
        if let Some(key) = former {
            // The block was partial, and has more tokens under another name.
            let reason = RemovalReason::Extended;
            self.push(KvEvent::BlockRemoved { tier, key, block_tokens, bytes, reason });
        }
        self.known.insert((group, block), key);
        self.push(KvEvent::BlockStored { tier, key, block_tokens, bytes });
    }

    fn key(&self, hashes: &[u128], group: usize, index: u32) -> BlockKey {
        let end = u32::try_from(hashes.len()).unwrap_or(u32::MAX) * self.unit;
        let (tokens, end) = if self.is_state[group] {
            (1, end)
        } else {
            let span = self.sizes[group].0;
            let tokens = (end - index * span).min(span);
            (tokens, index * span + tokens)
        };
        let hash = hashes[(end.div_ceil(self.unit) - 1) as usize];
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        BlockKey { hash, shard: self.shard, group, index, tokens }
    }

    /// Announces that a block is not cached any more, if that is so.
    pub(super) fn removed(&mut self, blocks: &Blocks, group: usize, block: u32, reason: RemovalReason) {
        if blocks.record(group, block).cached > 0 {
            return;
        }
        let Some(key) = self.known.remove(&(group, block)) else { return };
        let (block_tokens, bytes) = self.sizes[group];
        let tier = KvTier::Device;
        self.push(KvEvent::BlockRemoved { tier, key, block_tokens, bytes, reason });
    }
}

impl PrefixIndex {
    /// Records events from here on, at most `limit` at a time.
    pub(crate) fn record_events(&mut self, geometry: &KvGeometry, shard: u32, limit: usize) {
        self.events = Some(Box::new(Announcer::new(geometry, self.unit, shard, limit)));
    }

    /// Takes the events so far; `None` if they are not recorded.
    ///
    /// # Errors
    /// The number of events that were dropped, if these are not all.
    pub(crate) fn take_events(&mut self) -> Option<Result<Vec<KvEvent>, u64>> {
        self.events.as_mut().map(|announcer| announcer.log.take())
    }

    /// Drops the events, so that the next take reports a loss.
    pub(crate) fn forget_events(&mut self) {
        if let Some(announcer) = &mut self.events {
            announcer.log.forget();
        }
    }

    /// Announces everything that the index has.
    pub(crate) fn announce_all(&self, events: &mut Vec<KvEvent>) {
        let Some(announcer) = &self.events else { return };
        let mut ids: Vec<u32> = self.heads.values().copied().collect();
        // A node begins where its parent ends: parents come first.
        ids.sort_unstable_by_key(|&id| self.nodes[id as usize].start);
        for &id in &ids {
            let node = &self.nodes[id as usize];
            let parent = (node.parent != ROOT).then(|| self.nodes[node.parent as usize].hashes.last());
            let parent = parent.flatten().copied();
            events.push(KvEvent::UnitsStored { parent, hashes: node.hashes.as_slice().into() });
            if self.has_tails {
                let ends = node.boundaries.iter().map(|&id| self.boundaries[id as usize].end);
                let hashes = ends.filter_map(|end| self.hash_before(id, end));
                events.extend(hashes.map(|hash| KvEvent::BoundaryStored { hash }));
            }
        }
        events.extend(announcer.known.iter().map(|(&(group, _), &key)| {
            let (block_tokens, bytes) = announcer.sizes[group];
            KvEvent::BlockStored { tier: KvTier::Device, key, block_tokens, bytes }
        }));
    }
}
