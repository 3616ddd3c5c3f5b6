//! Why the rest of a prompt was not reused.

use super::KvPool;
use super::request::AdmissionRequest;
use super::stats::MissCause;
use crate::Tenant;
use crate::chain::Chain;
use crate::index::PrefixMatch;

/// Units that are hashed at most to find out whether a miss would be a hit for another tenant: tenants times
/// units of the prompt. It bounds what a miss costs.
const FOREIGN_UNITS: usize = 1024;

impl KvPool {
    pub(super) fn miss_cause(
        &self,
        request: &AdmissionRequest<'_>,
        found: &PrefixMatch,
        slot: u32,
    ) -> Option<MissCause> {
        let chain = &self.state(slot).chain;
        let longest = self.longest_hit(request);
        if longest == 0 {
            return Some(MissCause::BelowUnit);
        }
        if found.hit >= longest {
            return None;
        }
        if !request.reuse || !self.settings.reuses {
            return Some(MissCause::NoReuse);
        }
        if self.find(request, chain, u32::MAX).hit > found.hit {
            return Some(MissCause::NoRoom);
        }
        if found.matched.min(longest) > found.hit {
            return Some(MissCause::NoCheckpoint);
        }
        let next = found.matched as usize;
        let hash = chain.hashes().get(next).copied()?;
        Some(if self.failed_loads.contains(hash) {
            MissCause::FailedLoad
        } else if self.is_in_flight(slot, next, hash) {
            MissCause::Late
        } else if self.index.was_evicted(hash) {
            MissCause::Evicted
        } else if self.is_of_another_tenant(request, next + 1) {
            MissCause::OtherTenant
        } else {
            MissCause::NeverSeen
        })
    }

    /// Returns `true` if another sequence is computing or loading this unit, and it is not in the index yet.
    fn is_in_flight(&self, slot: u32, unit: usize, hash: u128) -> bool {
        let end = (unit as u64 + 1) * u64::from(self.settings.keys.unit);
        let mut running =
            (0..).zip(&self.sequences).filter(|&(other, state)| state.is_alive && other != slot);
        running.any(|(_, state)| state.chain.hashes().get(unit) == Some(&hash) && u64::from(state.len) >= end)
    }

    /// Returns `true` if the first `units` units are cached for another tenant, with otherwise the same
    /// fields. Which tenants are compared does not depend on the outcome.
    fn is_of_another_tenant(&self, request: &AdmissionRequest<'_>, units: usize) -> bool {
        let tokens = &request.prompt[..units * self.settings.keys.unit as usize];
        let named = self.tenants.names().map(Tenant::Named);
        let others = named.chain([Tenant::Shared]).filter(|&tenant| tenant != request.fields.tenant);
        let cached = others.take(FOREIGN_UNITS / units).filter(|&tenant| {
            let fields = crate::ChainFields { tenant, ..request.fields };
            let mut chain = Chain::new(&self.settings.keys, &fields);
            chain.push(tokens);
            self.index.find_units(chain.units()) as usize == units
        });
        cached.count() > 0
    }
}
