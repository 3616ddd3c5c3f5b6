//! Cached prefixes: their keys, what a request would reuse of them, and pins.

use super::request::{Admission, AdmissionRequest};
use super::sequence::owner;
use super::{KvPool, Sequence};
use crate::chain::{Chain, KeySettings};
use crate::index::PrefixMatch;
use crate::pages::NO_OWNER;
use crate::{KvError, Result};
use std::sync::Arc;

/// Computes the keys of requests without the pool: on other threads, beside its operations.
#[derive(Debug, Clone)]
pub struct PrefixHasher {
    settings: Arc<KeySettings>,
}

/// A request with the keys of its prompt.
#[derive(Debug)]
pub struct HashedRequest<'a> {
    request: AdmissionRequest<'a>,
    chain: Chain,
    settings: Arc<KeySettings>,
}

/// A cached prefix that is not evicted while this exists. Dropping it, on any thread, ends the pin.
#[derive(Debug)]
#[must_use = "dropping this ends the pin"]
pub struct PrefixPin {
    /// Keeps the blocks.
    _sequence: Sequence,
    tokens: u32,
}

impl PrefixPin {
    /// Returns the tokens of the prefix.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.tokens
    }
}

impl PrefixHasher {
    /// Computes the keys of a request's prompt.
    #[must_use]
    pub fn hash<'a>(&self, request: AdmissionRequest<'a>) -> HashedRequest<'a> {
        HashedRequest {
            request,
            chain: chain_of(&self.settings, &request),
            settings: Arc::clone(&self.settings),
        }
    }
}

fn chain_of(settings: &KeySettings, request: &AdmissionRequest<'_>) -> Chain {
    let mut chain = Chain::new(settings, &request.fields);
    chain.reserve(u32::try_from(request.prompt.len()).unwrap_or(u32::MAX));
    chain.push(request.prompt);
    chain
}

impl KvPool {
    /// Returns what computes the keys of requests for this pool.
    #[must_use]
    pub fn hasher(&self) -> PrefixHasher {
        PrefixHasher { settings: Arc::clone(&self.settings.keys) }
    }

    /// Starts a sequence, as [`admit`](Self::admit) does, for a request whose keys are known.
    ///
    /// # Errors
    /// As [`admit`](Self::admit), or if the keys are those of a pool with other settings.
    pub fn admit_hashed(&mut self, request: HashedRequest<'_>) -> Result<Admission> {
        let HashedRequest { request, chain, settings } = request;
        if !Arc::ptr_eq(&settings, &self.settings.keys) && settings != self.settings.keys {
            return Err(KvError::ForeignKeys);
        }
        self.admit_with(&request, chain)
    }

    /// Returns the tokens of the prompt that a request would reuse at most. It changes nothing: no block is
    /// kept in the cache by it.
    #[must_use]
    pub fn probe(&self, request: &AdmissionRequest<'_>) -> u32 {
        let chain = self.chain(request);
        self.find(request, &chain, u32::MAX).hit * self.settings.keys.unit
    }

    /// Returns the keys of a prompt's match units, as events name them: none if the pool caches no prefixes.
    #[must_use]
    pub fn prefix_keys(&self, request: &AdmissionRequest<'_>) -> Vec<u128> {
        self.chain(request).into_hashes()
    }

    /// Keeps the cached prefix of a prompt: it is not evicted, and its bytes count as used, until the pin is
    /// dropped. [`discard_cache`](Self::discard_cache) forgets it all the same. `max_new` and the lengths of
    /// steps do not matter.
    ///
    /// # Errors
    /// If nothing of the prompt is cached, or its blocks have to be evictable: others were pledged their
    /// pages, or the tenant's quota is exhausted.
    pub fn pin(&mut self, request: &AdmissionRequest<'_>) -> Result<PrefixPin> {
        self.collect_drops();
        self.check_awake()?;
        let chain = self.chain(request);
        let longest = u32::try_from(chain.hashes().len()).unwrap_or(u32::MAX);
        let found =
            if self.settings.reuses { self.index.find(chain.units(), longest) } else { PrefixMatch::NONE };
        if found.hit == 0 {
            return Err(KvError::NotCached);
        }
        let mut held = Vec::new();
        self.index.blocks_of(&found, |group, _, block| held.push((group, block)));
        // What a sequence owns is charged to its pledge, so a pin is pledged that.
        let mut pledge = vec![0; self.geometry.classes().len()];
        for &(group, block) in &held {
            let (class, parts) = self.blocks.class_and_parts(group);
            pledge[class] += if self.blocks.is_charged_when_used(group, block) { parts } else { 0 };
            self.blocks.pin(group, block);
        }
        let tenant = self.known_tenant(request.fields.tenant);
        let result = self.check_pin(tenant).and_then(|()| self.new_sequence());
        if let Ok(slot) = result {
            self.blocks.pledge(owner(slot), tenant, &pledge);
            self.attach(slot, &found);
            self.index.pin(chain.prefix(found.hit as usize));
            let len = found.hit * self.settings.keys.unit;
            let state = self.state_mut(slot);
            (state.tenant, state.chain, state.pinned) = (tenant, chain, found.hit);
            (state.len, state.settled, state.room, state.registered) = (len, len, len, len);
        }
        for &(group, block) in &held {
            self.blocks.unpin(group, block);
        }
        let slot = result?;
        Ok(PrefixPin { _sequence: self.handle(slot), tokens: self.state(slot).len })
    }

    /// Checks whether the pledges can be kept with the blocks that are pinned at this moment.
    pub(super) fn check_pledges(&mut self) -> Result<()> {
        self.pages_needed.fill(0);
        self.blocks.demand(NO_OWNER, &self.pages_needed, &mut self.demand);
        let shortage = self.blocks.pages.shortage(&self.demand);
        if shortage.fits() { Ok(()) } else { Err(self.out_of_pages(shortage, 0)) }
    }

    /// As [`Self::check_pledges`], for the tenant's quota, too.
    fn check_pin(&mut self, tenant: u32) -> Result<()> {
        self.check_pledges()?;
        let tenant = self.blocks.tenants[tenant as usize];
        let used = tenant.live.saturating_add(tenant.pledged);
        if used > tenant.quota {
            return Err(KvError::QuotaExceeded {
                quota: tenant.quota,
                used: tenant.quota,
                needed: used - tenant.quota,
            });
        }
        Ok(())
    }

    pub(super) fn chain(&self, request: &AdmissionRequest<'_>) -> Chain {
        chain_of(&self.settings.keys, request)
    }

    /// Looks for the longest hit of at most `limit` units.
    pub(super) fn find(&self, request: &AdmissionRequest<'_>, chain: &Chain, limit: u32) -> PrefixMatch {
        if !request.reuse || !self.settings.reuses {
            return PrefixMatch::NONE;
        }
        self.index.find(chain.units(), limit.min(self.longest_hit(request)))
    }

    /// Returns the units of the longest hit that a request may have.
    pub(super) fn longest_hit(&self, request: &AdmissionRequest<'_>) -> u32 {
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        prompt.saturating_sub(request.recompute.max(1)) / self.settings.keys.unit
    }
}
