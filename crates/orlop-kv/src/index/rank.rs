//! The rank of a boundary in the order of eviction, and the end of its priority.

use super::PrefixIndex;
use super::evict::Candidate;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The class of a boundary in the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rank {
    /// 0 for fillers; otherwise 1 + the priority.
    pub(crate) class: u8,
    /// Whether it was hit, if hits protect.
    pub(crate) is_protected: bool,
    /// When the priority ends, in the caller's milliseconds.
    pub(crate) expires: Option<u64>,
    /// The class after a hit.
    pub(crate) normal: u8,
    /// Whether hits protect.
    pub(crate) protects: bool,
}

impl Rank {
    /// The rank of a leaf that was inside a longer run.
    pub(super) const NORMAL: Self = Self {
        class: 1 + crate::DEFAULT_PRIORITY,
        is_protected: false,
        expires: None,
        normal: 1 + crate::DEFAULT_PRIORITY,
        protects: false,
    };

    /// Returns the rank of a boundary that is registered again: the one of the higher class, or of equal ones
    /// the one that lasts longer. A hit protects either.
    pub(super) fn merged(self, other: Self) -> Self {
        let is_protected = self.is_protected || other.is_protected;
        match self.class.cmp(&other.class) {
            Ordering::Less => Self { is_protected, ..other },
            Ordering::Greater => Self { is_protected, ..self },
            Ordering::Equal => Self {
                is_protected,
                // A priority without an end lasts longest.
                expires: self.expires.zip(other.expires).map(|(a, b)| a.max(b)),
                normal: self.normal.max(other.normal),
                protects: self.protects || other.protects,
                ..self
            },
        }
    }

    pub(super) fn after_hit(self) -> Self {
        Self { class: self.class.max(self.normal), is_protected: self.protects, ..self }
    }
}

/// The end of a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Expiry {
    pub(super) at: u64,
    pub(super) id: u32,
    pub(super) generation: u32,
}

impl PrefixIndex {
    /// Ends the priorities that have expired.
    pub(crate) fn expire(&mut self, now: u64, normal: u8) {
        while let Some(&Reverse(Expiry { at, id, generation })) = self.expiries.peek() {
            if at > now {
                break;
            }
            self.expiries.pop();
            let boundary = &mut self.boundaries[id as usize];
            if boundary.generation == generation && boundary.rank.expires == Some(at) {
                // A filler stays one until it is hit.
                let is_filler = boundary.rank.class == 0;
                boundary.rank.class = if is_filler { 0 } else { normal };
                boundary.rank.normal = normal;
                boundary.rank.expires = None;
                if !boundary.is_parked {
                    let tenant = self.nodes[boundary.node as usize].tenant;
                    self.candidates.push(tenant, Candidate::of(id, boundary));
                }
            }
        }
    }

    /// Lists the end of a boundary's priority.
    pub(super) fn expire_at(&mut self, id: u32, at: u64) {
        let generation = self.boundaries[id as usize].generation;
        self.expiries.push(Reverse(Expiry { at, id, generation }));
        if self.expiries.len() > 2 * self.boundaries.len() {
            self.drop_stale_expiries();
        }
    }

    /// Drops the ends of priorities that were replaced or whose boundaries are gone: one for each boundary is
    /// left at most.
    fn drop_stale_expiries(&mut self) {
        let mut expiries = std::mem::take(&mut self.expiries).into_vec();
        expiries.retain(|Reverse(Expiry { at, id, generation })| {
            let boundary = &self.boundaries[*id as usize];
            boundary.generation == *generation && boundary.rank.expires == Some(*at)
        });
        expiries.sort_unstable();
        expiries.dedup();
        self.expiries = BinaryHeap::from(expiries);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PrefixIndex, RunGroup};
    use super::Rank;
    use crate::blocks::{Blocks, TenantUse};
    use crate::chain::Prefix;
    use crate::{DEFAULT_PRIORITY, KvGeometry, LayerGroup};

    const NORMAL: u8 = 1 + DEFAULT_PRIORITY;

    /// Registers a prefix of one unit with each of these classes and ends, and returns the index.
    fn registered(ranks: &[(u8, Option<u64>)]) -> PrefixIndex {
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8).with_block_tokens(4)]).unwrap();
        let mut blocks = Blocks::new(&geometry, 1);
        blocks.tenants.push(TenantUse::UNLIMITED);
        let block = blocks.allocate(0, 0, 0, &mut [1]).unwrap();
        let mut index = PrefixIndex::new(4, vec![RunGroup { group: 0, span: 4 }], false);
        let prefix = Prefix { hashes: &[1], tokens: None };
        for &(class, expires) in ranks {
            let rank = Rank { class, is_protected: false, expires, normal: class, protects: false };
            index.register(&mut blocks, prefix, 0, &|_, _| block, &[], rank);
        }
        index
    }

    #[test]
    fn the_priority_that_lasts_longest_stays() {
        for ranks in [[(90, None), (90, Some(5))], [(90, Some(5)), (90, None)]] {
            let mut index = registered(&ranks);
            index.expire(100, NORMAL);
            assert_eq!(index.boundaries[0].rank.class, 90, "a priority without an end");
        }
        let mut index = registered(&[(90, Some(7)), (90, Some(5))]);
        index.expire(6, NORMAL);
        assert_eq!(index.boundaries[0].rank.class, 90);
        index.expire(7, NORMAL);
        assert_eq!(index.boundaries[0].rank.class, NORMAL);
        let mut low = registered(&[(1, Some(5))]);
        low.expire(5, NORMAL);
        assert_eq!(low.boundaries[0].rank.class, NORMAL, "a low priority ends, too");
    }

    #[test]
    fn registrations_do_not_pile_up_expiries() {
        let ranks: Vec<(u8, Option<u64>)> = (0..100).map(|at| (90, Some(at))).collect();
        let mut index = registered(&ranks);
        assert!(index.expiries.len() <= 2, "{}", index.expiries.len());
        index.expire(98, NORMAL);
        assert_eq!(index.boundaries[0].rank.class, 90);
        index.expire(99, NORMAL);
        assert_eq!(index.boundaries[0].rank.class, NORMAL);
    }
}
