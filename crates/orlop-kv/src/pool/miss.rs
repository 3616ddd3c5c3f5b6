//! Why the rest of a prompt was not reused.

use super::KvPool;
use super::request::{Admission, AdmissionRequest};
use super::stats::MissCause;
use crate::Tenant;
use crate::chain::{Chain, ChainFields};
use crate::index::PrefixMatch;

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

    /// Looks for another tenant that would have hit more of the prompt of a request just admitted: with the
    /// same other fields, it has the next unit in the cache. If there is one, a miss that was
    /// [never seen](MissCause::NeverSeen) becomes one of [another tenant](MissCause::OtherTenant), in the
    /// admission and in the counts.
    ///
    /// Admission does not look for that: it hashes the prompt for each tenant that the pool knows, as far as
    /// it is cached for it. Its time tells of the others, so it is called where the tenant does not wait.
    pub fn refine_miss(&mut self, request: &AdmissionRequest<'_>, admission: &mut Admission) {
        if admission.miss != Some(MissCause::NeverSeen) {
            return;
        }
        let own = self.cached_units(request, request.fields.tenant);
        let named = self.tenants.names().map(Tenant::Named);
        let mut others = named.chain([Tenant::Shared]).filter(|&tenant| tenant != request.fields.tenant);
        if others.any(|tenant| self.cached_units(request, tenant) > own) {
            admission.miss = Some(MissCause::OtherTenant);
            if !request.resumed {
                let tokens = (request.prompt.len() as u64).saturating_sub(admission.hit.into());
                self.counters.move_miss(tokens, MissCause::NeverSeen, MissCause::OtherTenant);
            }
        }
    }

    /// Returns the units of a prompt that are cached for a tenant, of those that a hit may have.
    fn cached_units(&self, request: &AdmissionRequest<'_>, tenant: Tenant<'_>) -> u32 {
        let mut chain = Chain::new(&self.settings.keys, &ChainFields { tenant, ..request.fields });
        let (unit, longest) = (self.settings.keys.unit as usize, self.longest_hit(request));
        // Twice as many units each time: what is hashed beyond the end of the cached ones is bounded by them.
        let (mut hashed, mut count) = (0, 1);
        loop {
            let end = (hashed + count).min(longest as usize);
            chain.push(&request.prompt[hashed * unit..end * unit]);
            let cached = self.index.find_units(chain.units());
            if (cached as usize) < end || cached == longest {
                return cached;
            }
            (hashed, count) = (end, end);
        }
    }
}
