//! Events: what the index announces.

use crate::blocks::Blocks;
use crate::{BlockKey, GroupKind, KvEvent, KvGeometry, KvTier, RemovalReason};
use std::collections::HashMap;

/// The events that were not taken yet, and the blocks that were announced.
#[derive(Debug)]
pub(super) struct Announcer {
    pub(super) events: Vec<KvEvent>,
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
    pub(super) fn new(geometry: &KvGeometry, unit: u32, shard: u32) -> Self {
        let bytes = |group| geometry.page_bytes(group) * u64::from(geometry.parts(group));
        let sizes = geometry.groups().iter().enumerate();
        let sizes = sizes.map(|(group, spec)| (spec.span(), bytes(group))).collect();
        let is_state = geometry.groups().iter().map(|spec| spec.kind == GroupKind::State).collect();
        Self { events: Vec::new(), known: HashMap::new(), unit, shard, is_state, sizes }
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
            self.events.push(KvEvent::BlockRemoved { tier, key, block_tokens, bytes, reason });
        }
        self.known.insert((group, block), key);
        self.events.push(KvEvent::BlockStored { tier, key, block_tokens, bytes });
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
        self.events.push(KvEvent::BlockRemoved { tier, key, block_tokens, bytes, reason });
    }
}
