//! Pins of the user: prefixes that are not evicted.

use super::PrefixIndex;
use super::evict::Candidate;
use crate::chain::Prefix;

impl PrefixIndex {
    /// Keeps a prefix that was found, until [`Self::unpin`].
    pub(crate) fn pin(&mut self, prefix: Prefix<'_>) {
        let (node, end) = self.walk(prefix);
        self.nodes[node as usize].pins.push(end);
    }

    /// Ends a pin. Nothing happens if the cache was discarded meanwhile.
    pub(crate) fn unpin(&mut self, prefix: Prefix<'_>) {
        let (node, end) = self.walk(prefix);
        let pins = &mut self.nodes[node as usize].pins;
        if let Some(place) = pins.iter().position(|&pin| pin == end) {
            pins.swap_remove(place);
        }
        self.release_held();
    }

    /// Makes candidates again that pins may have kept.
    pub(super) fn release_held(&mut self) {
        for (id, generation) in self.held.drain(..) {
            let boundary = &mut self.boundaries[id as usize];
            if boundary.generation == generation && std::mem::take(&mut boundary.is_parked) {
                let tenant = self.nodes[boundary.node as usize].tenant;
                self.candidates.push(tenant, Candidate::of(id, boundary));
            }
        }
    }

    /// Returns `true` if evicting the boundary would take units or blocks of a pinned prefix.
    pub(super) fn is_pinned(&self, id: u32) -> bool {
        let boundary = &self.boundaries[id as usize];
        let node = &self.nodes[boundary.node as usize];
        if self.has_tails {
            return node.pins.contains(&boundary.end);
        }
        let kept = self.units_kept(boundary.end).max(node.start);
        node.pins.iter().any(|&pin| pin > kept)
    }
}
