//! Shares of the cache: whose candidates are evicted first.
//!
//! A tenant with a weight has a share of its own; all others have one together, of weight 1. Eviction takes
//! from the share with the most idle bytes for its weight.

use super::PrefixIndex;
use super::evict::Candidate;
use super::queue::EvictionQueue;
use crate::blocks::Blocks;

/// A share: its weight, and its candidates.
#[derive(Debug)]
struct Share {
    /// The tenant; `None` for all that have no share of their own.
    tenant: Option<u32>,
    weight: u32,
    candidates: EvictionQueue,
}

/// The candidates for eviction, by share.
#[derive(Debug)]
pub(super) struct Shares {
    /// The first one is that of the tenants without a weight.
    shares: Vec<Share>,
    /// The shares of tenants that have one.
    of_tenant: Vec<u32>,
}

impl Default for Shares {
    fn default() -> Self {
        let common = Share { tenant: None, weight: 1, candidates: EvictionQueue::default() };
        Self { shares: vec![common], of_tenant: Vec::new() }
    }
}

impl Shares {
    fn share_of(&self, tenant: u32) -> usize {
        self.of_tenant.get(tenant as usize).map_or(0, |&share| share as usize)
    }

    pub(super) fn push(&mut self, tenant: u32, candidate: Candidate) {
        let share = self.share_of(tenant);
        self.shares[share].candidates.push(candidate);
    }

    pub(super) fn len(&self) -> usize {
        self.shares.iter().map(|share| share.candidates.len()).sum()
    }

    /// Returns the next candidate of any share.
    pub(super) fn has_filler(&self) -> bool {
        let mut next = self.shares.iter().filter_map(|share| share.candidates.peek());
        next.any(Candidate::is_filler)
    }

    /// Returns the next candidate of the share that has the most idle bytes for its weight, and that share.
    pub(super) fn next(&self, blocks: &Blocks) -> Option<(usize, Candidate)> {
        let share = match self.shares.as_slice() {
            [_] => 0,
            shares => {
                let own = shares.iter().filter_map(|share| share.tenant);
                let own: u64 = own.map(|tenant| blocks.tenants[tenant as usize].idle).sum();
                let common = blocks.idle_bytes().saturating_sub(own);
                let excess = |share: &Share| {
                    let idle = share.tenant.map_or(common, |tenant| blocks.tenants[tenant as usize].idle);
                    // Bytes per weight, in 32 bits of fraction: weights are 32 bits.
                    (u128::from(idle) << 32) / u128::from(share.weight)
                };
                let filled = shares.iter().enumerate().filter(|(_, share)| share.candidates.len() > 0);
                filled.max_by_key(|(_, share)| excess(share))?.0
            }
        };
        self.shares[share].candidates.peek().map(|candidate| (share, candidate))
    }

    /// Returns the candidate of a share after the next one, if it waits in order.
    pub(super) fn second(&self, share: usize) -> Option<Candidate> {
        self.shares[share].candidates.second()
    }

    /// Takes the next candidate of a share out.
    pub(super) fn pop(&mut self, share: usize) {
        self.shares[share].candidates.pop();
    }

    /// Puts another one in the place of a share's next candidate.
    pub(super) fn replace(&mut self, share: usize, candidate: Candidate) {
        self.pop(share);
        self.shares[share].candidates.push(candidate);
    }

    /// Sets the weight of a tenant; 0 counts as 1. Returns its candidates so far, to be pushed again.
    fn set_weight(&mut self, tenant: u32, weight: u32) -> Vec<Candidate> {
        let (weight, share) = (weight.max(1), self.share_of(tenant));
        if share > 0 {
            self.shares[share].weight = weight;
            return Vec::new();
        }
        let places = self.of_tenant.len().max(tenant as usize + 1);
        self.of_tenant.resize(places, 0);
        self.of_tenant[tenant as usize] = u32::try_from(self.shares.len()).unwrap_or(0);
        self.shares.push(Share { tenant: Some(tenant), weight, candidates: EvictionQueue::default() });
        self.shares[0].candidates.drain().collect()
    }
}

impl PrefixIndex {
    /// Returns `true` if a tenant has a share of the cache of its own.
    pub(crate) fn has_share(&self, tenant: u32) -> bool {
        self.candidates.share_of(tenant) > 0
    }

    /// Gives a tenant a share of the cache of its own.
    pub(crate) fn set_weight(&mut self, tenant: u32, weight: u32) {
        for candidate in self.candidates.set_weight(tenant, weight) {
            let boundary = &self.boundaries[candidate.id as usize];
            if boundary.generation == candidate.generation {
                let tenant = self.nodes[boundary.node as usize].tenant;
                self.candidates.push(tenant, candidate);
            }
        }
    }
}
