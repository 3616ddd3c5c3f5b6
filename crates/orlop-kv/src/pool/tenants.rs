//! Tenants: their numbers, quotas and weights.
//!
//! A tenant has a number as long as a sequence, a block or a node of the index is its, or it has a quota or a
//! weight. Numbers are not counted: when there are twice as many as were in use at the last look, and
//! [`FEW`] at least, those that are not in use are found and given to other tenants.

use super::KvPool;
use crate::Tenant;
use crate::blocks::TenantUse;
use std::collections::HashMap;

/// A number of tenants that is not worth a look.
const FEW: usize = 1024;

/// The numbers of tenants with names; 0 is that of the shared tenant.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    numbers: HashMap<Box<str>, u32>,
    unused: Vec<u32>,
    /// Tenants that were in use at the last look.
    in_use: usize,
}

impl Tenants {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(|name| &**name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn is_look_due(&self) -> bool {
        self.numbers.len() >= FEW.max(2 * self.in_use)
    }

    /// Forgets the tenants whose numbers are not in use.
    fn forget(&mut self, is_used: impl Fn(u32) -> bool) {
        let Self { numbers, unused, in_use } = self;
        numbers.retain(|_, number| {
            let is_kept = is_used(*number);
            if !is_kept {
                unused.push(*number);
            }
            is_kept
        });
        *in_use = numbers.len();
    }
}

impl KvPool {
    /// Limits the bytes of blocks that a tenant's sequences hold; `u64::MAX` ends the limit. `tenant` as in
    /// [`Tenant::Named`].
    pub fn set_quota(&mut self, tenant: &str, bytes: u64) {
        let tenant = self.tenant(Tenant::Named(tenant));
        self.blocks.tenants[tenant as usize].quota = bytes;
    }

    /// Gives a tenant a share of the cache: when pages are needed, those are evicted first whose tenant has
    /// the most cached bytes for its weight. All tenants without a weight have one share of weight 1
    /// together; within a share the order is as without weights. `tenant` as in [`Tenant::Named`]; a weight
    /// of 0 counts as 1.
    pub fn set_weight(&mut self, tenant: &str, weight: u32) {
        let tenant = self.tenant(Tenant::Named(tenant));
        self.index.set_weight(tenant, weight);
    }

    /// Returns a tenant's number; for one that is new, that of the shared tenant, which has no quota either.
    pub(super) fn known_tenant(&self, tenant: Tenant<'_>) -> u32 {
        match tenant {
            Tenant::Shared => 0,
            Tenant::Named(name) => self.tenants.numbers.get(name).copied().unwrap_or(0),
        }
    }

    pub(super) fn tenant(&mut self, tenant: Tenant<'_>) -> u32 {
        // The shared tenant's name is not one that a caller can choose.
        let name = match tenant {
            Tenant::Shared => return 0,
            Tenant::Named(name) => name,
        };
        if let Some(&known) = self.tenants.numbers.get(name) {
            return known;
        }
        if self.tenants.is_look_due() {
            self.forget_unused_tenants();
        }
        let number = self.tenants.unused.pop().unwrap_or_else(|| {
            self.blocks.tenants.push(TenantUse::UNLIMITED);
            u32::try_from(self.blocks.tenants.len() - 1).unwrap_or(0)
        });
        self.tenants.numbers.insert(name.into(), number);
        number
    }

    fn forget_unused_tenants(&mut self) {
        let uses = self.blocks.tenants.iter().zip(0..);
        let mut is_used: Vec<bool> = uses
            .map(|(tenant, number)| {
                let has_bytes = tenant.live > 0 || tenant.pledged > 0 || tenant.idle > 0;
                has_bytes || tenant.quota < u64::MAX || self.index.has_share(number)
            })
            .collect();
        let sequences = self.sequences.iter().filter(|state| state.is_alive).map(|state| state.tenant);
        for tenant in sequences.chain(self.index.tenants()) {
            is_used[tenant as usize] = true;
        }
        self.tenants.forget(|number| is_used[number as usize]);
    }
}
