//! Admission: whether a request fits, what it is pledged, and which of its prefix is reused.

use super::append::NewBlock;
use super::lengths::RequestLengths;
use super::sequence::owner;
use super::stats::MissCause;
use super::{KvPool, Sequence, StepId, Visibility};
use crate::chain::{Chain, ChainFields};
use crate::geometry::GroupKind;
use crate::index::PrefixMatch;
use crate::pages::NULL;
use crate::{DEFAULT_PRIORITY, KvError, Result};

/// A request that is to be served.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// The ids of the prompt's tokens.
    pub prompt: &'a [u32],
    /// What the content depends on besides the tokens.
    pub fields: ChainFields<'a>,
    /// The maximum of tokens to generate. All blocks for them are pledged: appending cannot fail within.
    pub max_new: u32,
    /// Draft tokens of a step.
    pub drafts: u32,
    /// The maximum of tokens in a step of the prompt; `None` for the whole prompt in one.
    pub chunk: Option<u32>,
    /// Tokens at the end of the prompt that are computed again in any case; at least 1.
    pub recompute: u32,
    /// Tokens of an encoder, for cross attention.
    pub encoder_tokens: u32,
    /// The priority of the blocks that the request leaves in the cache, from 0 to 100.
    pub priority: u8,
    /// After this time, in milliseconds, the priority is the default again.
    pub lifetime: Option<u64>,
    /// Whether a cached prefix may be reused.
    pub reuse: bool,
}

impl<'a> AdmissionRequest<'a> {
    /// Creates a request for `max_new` tokens after a prompt.
    #[must_use]
    pub fn new(fields: ChainFields<'a>, prompt: &'a [u32], max_new: u32) -> Self {
        Self {
            prompt,
            fields,
            max_new,
            drafts: 0,
            chunk: None,
            recompute: 1,
            encoder_tokens: 0,
            priority: DEFAULT_PRIORITY,
            lifetime: None,
            reuse: true,
        }
    }
}

impl AdmissionRequest<'_> {
    fn lengths(&self) -> RequestLengths {
        let prompt = u32::try_from(self.prompt.len()).unwrap_or(u32::MAX);
        let Self { max_new, drafts, chunk, encoder_tokens, .. } = *self;
        RequestLengths { chunk, encoder_tokens, ..RequestLengths::new(prompt, max_new, drafts) }
    }
}

/// Whether a request fits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionVerdict {
    /// It fits.
    Now {
        /// Tokens of the prompt that need not be computed.
        hit: u32,
    },
    /// It will fit when others have ended.
    Later {
        /// Large pages that are missing.
        missing: u64,
        /// The group with the largest need.
        group: Box<str>,
        /// The step in flight after which enough pages are free; `None` if none of them suffices.
        after: Option<StepId>,
    },
    /// It will fit when others of the same tenant have ended.
    OverQuota {
        /// Bytes beyond the quota.
        missing: u64,
    },
    /// It exceeds its tenant's quota alone.
    AboveQuota {
        /// Bytes needed.
        need: u64,
        /// The quota in bytes.
        quota: u64,
    },
    /// It can never fit.
    Never {
        /// Large pages needed.
        need: u64,
        /// Large pages of the pool.
        pool: u64,
    },
}

/// A started sequence.
#[derive(Debug)]
pub struct Admission {
    /// The sequence; its length is the hit.
    pub sequence: Sequence,
    /// Tokens of the prompt that need not be computed.
    pub hit: u32,
    /// Why the rest has to be; `None` if the hit is as long as it can be.
    pub miss: Option<MissCause>,
}

impl KvPool {
    /// Returns the tokens of the prompt that a request would reuse at most. It changes nothing: no block is
    /// kept in the cache by it.
    #[must_use]
    pub fn probe(&self, request: &AdmissionRequest<'_>) -> u32 {
        let chain = self.chain(request);
        self.find(request, &chain, u32::MAX).hit * self.settings.unit
    }

    /// Returns the keys of a prompt's match units, as events name them.
    #[must_use]
    pub fn prefix_keys(&self, request: &AdmissionRequest<'_>) -> Vec<u128> {
        self.chain(request).into_hashes()
    }

    /// Returns whether a request would be admitted. It changes nothing.
    pub fn can_admit(&mut self, request: &AdmissionRequest<'_>) -> AdmissionVerdict {
        self.collect_drops();
        let chain = self.chain(request);
        let tenant = self.known_tenant(request.fields.tenant);
        self.judge(request, &chain, tenant).1
    }

    /// Starts a sequence: reuses the cached prefix, and pledges the pages that the rest can need. If it does
    /// not fit with the longest hit, whose blocks cannot be evicted for it, the hit is shorter.
    ///
    /// # Errors
    /// If the request does not fit now, or never will. The pool is then unchanged.
    pub fn admit(&mut self, request: &AdmissionRequest<'_>) -> Result<Admission> {
        self.collect_drops();
        let mut chain = self.chain(request);
        let tenant = self.known_tenant(request.fields.tenant);
        let (found, verdict) = self.judge(request, &chain, tenant);
        match verdict {
            AdmissionVerdict::Now { .. } => {}
            AdmissionVerdict::Later { missing, group, .. } => {
                let available = u64::from(self.blocks.pages.count() - self.blocks.pages.occupied());
                return Err(KvError::OutOfPages { group, needed: available + missing, available });
            }
            AdmissionVerdict::OverQuota { missing } => {
                let quota = self.blocks.tenants[tenant as usize].quota;
                return Err(KvError::QuotaExceeded { quota, used: quota, needed: missing });
            }
            AdmissionVerdict::AboveQuota { need, quota } => {
                return Err(KvError::AboveQuota { quota, needed: need });
            }
            AdmissionVerdict::Never { need, pool } => return Err(KvError::NeverFits { need, pool }),
        }
        let slot = self.new_sequence()?;
        let tenant = self.tenant(request.fields.tenant);
        let unit = self.settings.unit;
        let hit = found.hit * unit;
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        // A far limit is no reason to reserve memory for it.
        chain.reserve(request.lengths().limit.min(prompt.saturating_add(1 << 16)));
        let miss = self.miss_cause(request, &found, &chain);
        let checkpoints = self.settings.checkpoints;
        let state = self.state_mut(slot);
        (state.tenant, state.chain) = (tenant, chain);
        (state.len, state.settled, state.room, state.registered) = (hit, hit, hit, hit);
        state.class = 1 + request.priority.min(100);
        state.lifetime = request.lifetime;
        state.lengths = request.lengths();
        let last = prompt.saturating_sub(request.recompute.max(1)) / unit * unit;
        state.prompt_end = if checkpoints.prompt_end { last } else { 0 };
        let junction = if checkpoints.junctions { found.matched * unit } else { 0 };
        state.junction = if junction > hit { junction.min(last) } else { 0 };
        let mut pledge = std::mem::take(&mut self.pages_needed);
        self.pledge_of(request.lengths(), hit, &mut pledge);
        self.blocks.pledge(owner(slot), tenant, &pledge);
        self.pages_needed = pledge;
        self.attach(slot, &found);
        self.index.touch(&found);
        self.allocate_encoder(slot)?;
        self.counters.admitted(request.prompt.len() as u64, u64::from(hit), miss);
        Ok(Admission { sequence: self.handle(slot), hit, miss })
    }

    fn chain(&self, request: &AdmissionRequest<'_>) -> Chain {
        let Self { settings, .. } = self;
        let mut chain = Chain::new(&settings.secret, settings.unit, &settings.fingerprint, &request.fields);
        chain.reserve(u32::try_from(request.prompt.len()).unwrap_or(u32::MAX));
        chain.push(request.prompt);
        chain
    }

    /// Looks for the longest hit of at most `limit` units.
    fn find(&self, request: &AdmissionRequest<'_>, chain: &Chain, limit: u32) -> PrefixMatch {
        if !request.reuse || !self.settings.reuses {
            return PrefixMatch::NONE;
        }
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let longest = prompt.saturating_sub(request.recompute.max(1)) / self.settings.unit;
        self.index.find(chain.hashes(), limit.min(longest))
    }

    /// Chooses the hit of a request: the longest one, or if it does not fit with that, a shorter one with
    /// which it does. Hits that are shorter by 1, 2, 4 and so on units are tried, none at last.
    fn judge(
        &mut self,
        request: &AdmissionRequest<'_>,
        chain: &Chain,
        tenant: u32,
    ) -> (PrefixMatch, AdmissionVerdict) {
        let longest = self.find(request, chain, u32::MAX);
        let refusal = match self.verdict(request, &longest, tenant) {
            refusal @ (AdmissionVerdict::Later { .. } | AdmissionVerdict::OverQuota { .. }) => refusal,
            verdict => return (longest, verdict),
        };
        let (mut found, mut less) = (longest, 1_u32);
        while found.hit > 0 {
            let limit = longest.hit.saturating_sub(less).min(found.hit - 1);
            less = less.saturating_mul(2);
            found = self.find(request, chain, limit);
            let verdict = self.verdict(request, &found, tenant);
            if matches!(verdict, AdmissionVerdict::Now { .. }) {
                return (found, verdict);
            }
        }
        (longest, refusal)
    }

    fn verdict(
        &mut self,
        request: &AdmissionRequest<'_>,
        found: &PrefixMatch,
        tenant: u32,
    ) -> AdmissionVerdict {
        let hit = found.hit * self.settings.unit;
        let mut pledge = std::mem::take(&mut self.pages_needed);
        let verdict = self.verdict_by(request, found, hit, tenant, &mut pledge);
        self.pages_needed = pledge;
        verdict
    }

    fn verdict_by(
        &mut self,
        request: &AdmissionRequest<'_>,
        found: &PrefixMatch,
        hit: u32,
        tenant: u32,
        pledge: &mut Vec<u64>,
    ) -> AdmissionVerdict {
        let pool = u64::from(self.blocks.pages.count());
        self.pledge_of(request.lengths(), 0, pledge);
        let classes = self.blocks.pages.classes().iter().zip(pledge.iter());
        let need = classes.map(|(class, &need)| need.div_ceil(u64::from(class.per_large)));
        let need = need.fold(0, u64::saturating_add);
        if need > pool {
            return AdmissionVerdict::Never { need, pool };
        }
        let (quota, need) = (self.blocks.tenants[tenant as usize].quota, self.blocks.pages.bytes_of(pledge));
        if need > quota {
            return AdmissionVerdict::AboveQuota { need, quota };
        }
        self.pledge_of(request.lengths(), hit, pledge);
        // The blocks of the hit cannot be evicted for the rest. Those that are idle count in the quota again.
        let mut held = Vec::new();
        self.index.blocks_of(found, |group, _, block| held.push((group, block)));
        for &(group, block) in &held {
            if self.blocks.is_charged_when_used(group, block) {
                let (class, parts) = self.blocks.class_and_parts(group);
                pledge[class] = pledge[class].saturating_sub(parts);
            }
            self.blocks.pin(group, block);
        }
        let bytes = self.blocks.pages.bytes_of(pledge);
        let in_quota = self.check_quota(tenant, bytes);
        self.blocks.demand(crate::pages::NO_OWNER, pledge, &mut self.demand);
        let shortage = self.blocks.pages.shortage(&self.demand);
        for &(group, block) in &held {
            self.blocks.unpin(group, block);
        }
        if let Err(KvError::QuotaExceeded { quota, used, needed }) = in_quota {
            let missing = used.saturating_add(needed).saturating_sub(quota);
            return AdmissionVerdict::OverQuota { missing };
        }
        if shortage.fits() {
            return AdmissionVerdict::Now { hit };
        }
        let largest = self.largest_need(request.lengths(), hit);
        let missing = shortage.needed - shortage.available;
        let steps = self.in_flight.iter().map(|record| record.id).chain([self.open.id]);
        let after = steps.into_iter().find(|&step| self.large_pages_after(step) >= missing);
        AdmissionVerdict::Later { missing, group: self.geometry.groups()[largest].name.clone(), after }
    }

    /// Puts the blocks of a hit into the tables of a new sequence.
    pub(super) fn attach(&mut self, slot: u32, found: &PrefixMatch) {
        let hit = found.hit * self.settings.unit;
        let Self { index, sequences, geometry, .. } = self;
        let tables = &mut sequences[slot as usize].tables;
        for (table, spec) in tables.iter_mut().zip(geometry.groups()) {
            let is_paged = !matches!(spec.kind, GroupKind::State | GroupKind::Cross);
            if is_paged && hit > 0 {
                table.blocks.resize((hit / spec.span()) as usize, NULL);
                table.first = spec.first_token(hit) / spec.span();
            }
        }
        index.blocks_of(found, |group, index, block| {
            let blocks = &mut tables[group].blocks;
            blocks.resize(blocks.len().max(index as usize + 1), NULL);
            blocks[index as usize] = block;
        });
        if self.settings.visibility == Visibility::SameStream {
            // The step that writes the hit's tokens may be the last one that was closed.
            let last = self.in_flight.back().map(|step| step.id);
            self.state_mut(slot).written_by = last.unwrap_or_default();
        }
        for group in 0..self.geometry.groups().len() {
            for at in 0..self.state(slot).tables[group].blocks.len() {
                let block = self.state(slot).tables[group].blocks[at];
                if block != NULL {
                    self.blocks.add_user(group, block, owner(slot));
                }
            }
        }
    }

    /// Allocates the blocks of the encoder's tokens.
    fn allocate_encoder(&mut self, slot: u32) -> Result<()> {
        let tokens = self.state(slot).lengths.encoder_tokens;
        let mut new_blocks = std::mem::take(&mut self.new_blocks);
        new_blocks.clear();
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            if spec.kind == GroupKind::Cross && self.geometry.parts(group) > 0 {
                let blocks = 0..tokens.div_ceil(spec.span());
                new_blocks.extend(blocks.map(|index| NewBlock {
                    group,
                    index,
                    from: NULL,
                    tokens: 0,
                    block: NULL,
                }));
            }
        }
        let allocated = self.allocate_all(slot, &mut new_blocks);
        match allocated {
            Ok(()) => new_blocks.iter().for_each(|&new| self.put(slot, new)),
            Err(_) => self.end(slot),
        }
        self.new_blocks = new_blocks;
        allocated
    }

    fn miss_cause(
        &self,
        request: &AdmissionRequest<'_>,
        found: &PrefixMatch,
        chain: &Chain,
    ) -> Option<MissCause> {
        let unit = self.settings.unit as usize;
        let longest = request.prompt.len().saturating_sub(request.recompute.max(1) as usize) / unit;
        if longest == 0 {
            return Some(MissCause::BelowUnit);
        }
        if found.hit as usize >= longest {
            return None;
        }
        if !request.reuse || !self.settings.reuses {
            return Some(MissCause::NoReuse);
        }
        let cached = self.find(request, chain, u32::MAX).hit;
        if cached > found.hit {
            return Some(MissCause::NoRoom);
        }
        if (found.matched as usize).min(longest) > found.hit as usize {
            return Some(MissCause::NoCheckpoint);
        }
        let next = chain.hashes().get(found.matched as usize);
        let was_evicted = next.is_some_and(|hash| self.index.was_evicted(*hash));
        Some(if was_evicted { MissCause::Evicted } else { MissCause::NeverSeen })
    }
}
