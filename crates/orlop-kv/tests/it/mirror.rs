//! A mirror of the index that knows only its events.

use orlop_kv::{GroupKind, KvEvent, KvGeometry};
use std::collections::HashSet;

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    has_boundaries: bool,
    units: HashSet<u128>,
    boundaries: HashSet<u128>,
}

impl Mirror {
    pub(crate) fn new(geometry: &KvGeometry) -> Self {
        let ends_anywhere =
            |kind| matches!(kind, GroupKind::Full | GroupKind::Compressed { .. } | GroupKind::Cross);
        let groups = geometry.groups().iter().filter(|group| !group.optional && group.layers > 0);
        let has_boundaries = groups.clone().any(|group| !ends_anywhere(group.kind));
        Self { has_boundaries, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, events: Vec<KvEvent>) {
        for event in events {
            match event {
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
                _ => panic!("an unknown event"),
            }
        }
    }

    /// Returns the units of a chain that would be hit.
    pub(crate) fn hit(&self, chain: &[u128]) -> usize {
        let known = chain.iter().take_while(|hash| self.units.contains(hash)).count();
        let ends =
            chain[..known].iter().rposition(|hash| !self.has_boundaries || self.boundaries.contains(hash));
        ends.map_or(0, |last| last + 1)
    }
}
