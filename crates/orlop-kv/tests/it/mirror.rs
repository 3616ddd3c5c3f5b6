//! A mirror of the index that knows only its events: sglang#25351, #28931, dynamo#8197.

use orlop_kv::{BlockKey, GroupKind, KvEvent, KvGeometry, KvTier};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    has_boundaries: bool,
    units: HashSet<u128>,
    boundaries: HashSet<u128>,
    /// The number of blocks with this content, and the bytes of one.
    blocks: HashMap<(KvTier, BlockKey), (u64, u64)>,
    /// Tokens of a block, by group.
    spans: Vec<u32>,
    /// How often it began anew.
    pub(crate) resets: u32,
}

impl Mirror {
    pub(crate) fn new(geometry: &KvGeometry) -> Self {
        let ends_anywhere =
            |kind| matches!(kind, GroupKind::Full | GroupKind::Compressed { .. } | GroupKind::Cross);
        let groups = geometry.groups().iter().filter(|group| !group.optional && group.layers > 0);
        let has_boundaries = groups.clone().any(|group| !ends_anywhere(group.kind));
        let spans = geometry.groups().iter().map(|group| group.span()).collect();
        Self { has_boundaries, spans, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, events: Vec<KvEvent>) {
        for event in events {
            match event {
                KvEvent::Reset { .. } => {
                    self.resets += 1;
                    self.units.clear();
                    self.boundaries.clear();
                    self.blocks.clear();
                }
                KvEvent::UnitsStored { parent, hashes } => {
                    assert!(parent.is_none_or(|parent| self.units.contains(&parent)), "an unknown parent");
                    for hash in hashes {
                        assert!(self.units.insert(hash), "stored twice");
                    }
                }
                KvEvent::UnitsRemoved { hashes, .. } => {
                    for hash in hashes {
                        assert!(self.units.remove(&hash), "removed without being stored");
                    }
                }
                KvEvent::BoundaryStored { hash } => assert!(self.boundaries.insert(hash)),
                KvEvent::BoundaryRemoved { hash, .. } => assert!(self.boundaries.remove(&hash)),
                KvEvent::BlockStored { tier, key, block_tokens, bytes } => {
                    assert!(block_tokens == self.spans[key.group as usize] && key.tokens <= block_tokens);
                    let (count, of_one) = self.blocks.entry((tier, key)).or_insert((0, bytes));
                    *count = if tier == KvTier::Store { 1 } else { *count + 1 };
                    assert_eq!(*of_one, bytes);
                }
                // It may be from before a reset.
                KvEvent::BlockRemoved { tier: tier @ KvTier::Store, key, .. } => {
                    self.blocks.remove(&(tier, key));
                }
                KvEvent::BlockRemoved { tier, key, bytes, .. } => {
                    let (count, of_one) = self.blocks.get_mut(&(tier, key)).expect("it was stored");
                    *count = count.checked_sub(1).expect("stored as often as removed");
                    assert_eq!(*of_one, bytes);
                }
                _ => panic!("an unknown event"),
            }
        }
    }

    /// Returns the bytes that a tier holds for a group.
    pub(crate) fn bytes(&self, tier: KvTier, group: u32) -> u64 {
        let of_group = self.blocks.iter().filter(|&(&(of, key), _)| (of, key.group) == (tier, group));
        of_group.map(|(_, &(count, bytes))| count * bytes).sum()
    }

    /// Returns the blocks that a tier has.
    pub(crate) fn blocks(&self, tier: KvTier) -> impl Iterator<Item = BlockKey> + '_ {
        self.blocks.keys().filter(move |&&(of, key)| of == tier && self.has(of, key)).map(|&(_, key)| key)
    }

    /// Returns `true` if a tier has a block.
    pub(crate) fn has(&self, tier: KvTier, key: BlockKey) -> bool {
        self.blocks.get(&(tier, key)).is_some_and(|&(count, _)| count > 0)
    }

    /// Returns the units of a chain that would be hit.
    pub(crate) fn hit(&self, chain: &[u128]) -> usize {
        let known = chain.iter().take_while(|hash| self.units.contains(hash)).count();
        let ends =
            chain[..known].iter().rposition(|hash| !self.has_boundaries || self.boundaries.contains(hash));
        ends.map_or(0, |last| last + 1)
    }
}
