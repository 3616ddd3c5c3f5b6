//! Admission: whether a request fits, what it is pledged, and which of its prefix is reused.

use super::append::NewBlock;
use super::request::{Admission, AdmissionRequest, AdmissionVerdict};
use super::sequence::{SequenceState, owner};
use super::{KvPool, Visibility};
use crate::chain::Chain;
use crate::geometry::{GroupKind, MAX_GROUPS};
use crate::index::PrefixMatch;
use crate::pages::{NO_OWNER, NULL};
use crate::{KvError, Result};

impl KvPool {
    /// Returns whether a request would be admitted. It changes nothing.
    pub fn can_admit(&mut self, request: &AdmissionRequest<'_>) -> AdmissionVerdict {
        self.collect_drops();
        if self.is_asleep() {
            return AdmissionVerdict::Asleep;
        }
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
        let chain = self.chain(request);
        self.admit_with(request, chain)
    }

    /// Starts a sequence for a request whose keys are known.
    pub(super) fn admit_with(&mut self, request: &AdmissionRequest<'_>, chain: Chain) -> Result<Admission> {
        self.collect_drops();
        self.check_awake()?;
        let tenant = self.known_tenant(request.fields.tenant);
        let (found, verdict) = self.judge(request, &chain, tenant);
        match verdict {
            AdmissionVerdict::Now { .. } => {}
            AdmissionVerdict::Later { missing, group, .. } => {
                let available = u64::from(self.blocks.pages.available());
                return Err(KvError::OutOfPages { group, needed: available + missing, available });
            }
            AdmissionVerdict::OverQuota { missing } => {
                let quota = self.blocks.tenants[tenant as usize].quota;
                return Err(KvError::QuotaExceeded { quota, used: quota, needed: missing });
            }
            AdmissionVerdict::AboveQuota { need, quota } => {
                return Err(KvError::AboveQuota { quota, needed: need });
            }
            AdmissionVerdict::Asleep => return Err(KvError::Asleep),
            AdmissionVerdict::Never { need, pool } => return Err(KvError::NeverFits { need, pool }),
        }
        let slot = self.new_sequence()?;
        let tenant = self.tenant(request.fields.tenant);
        let unit = self.settings.keys.unit;
        let hit = found.hit * unit;
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let checkpoints = self.settings.checkpoints;
        let state = self.state_mut(slot);
        (state.tenant, state.chain) = (tenant, chain);
        (state.len, state.settled, state.room, state.registered) = (hit, hit, hit, hit);
        state.class = 1 + request.priority.min(100);
        state.lifetime = request.lifetime;
        state.lengths = request.lengths();
        state.prompt_pledge = Some(hit);
        let last = prompt.saturating_sub(request.recompute.max(1)) / unit * unit;
        state.prompt_end = if checkpoints.prompt_end { last } else { 0 };
        let junction = if checkpoints.junctions { found.matched * unit } else { 0 };
        state.junction = if junction > hit { junction.min(last) } else { 0 };
        let mut pledge = std::mem::take(&mut self.pages_needed);
        self.pledge_of(request.lengths(), hit, &mut pledge);
        self.blocks.pledge(owner(slot), tenant, &pledge);
        self.pages_needed = pledge;
        self.reserve(slot, prompt);
        self.attach(slot, &found);
        self.index.touch(&found);
        self.allocate_encoder(slot)?;
        let found = if request.reuse && self.settings.reuses {
            self.restore(slot, &found, self.longest_hit(request))
        } else {
            found
        };
        let (hit, miss) = (found.hit * unit, self.miss_cause(request, &found, slot));
        let tokens = request.prompt.len() as u64;
        match request.resumed {
            true => self.counters.resumed(tokens, hit.into()),
            false => self.counters.admitted(tokens, hit.into(), miss),
        }
        Ok(Admission { sequence: self.handle(slot), hit, miss })
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
        let hit = found.hit * self.settings.keys.unit;
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
        if quota == u64::MAX && self.fits_beside_hit(found, pledge) {
            return AdmissionVerdict::Now { hit };
        }
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
        self.blocks.demand(NO_OWNER, pledge, &mut self.demand);
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

    /// Returns `true` if pages, by class, can be pledged for sure besides the blocks of a hit, without a look
    /// at these.
    fn fits_beside_hit(&mut self, found: &PrefixMatch, pledge: &[u64]) -> bool {
        let Self { index, blocks, demand, .. } = self;
        let mut pins = [0; MAX_GROUPS];
        index.runs_of(found, |group, _, run| {
            let (class, parts) = blocks.class_and_parts(group);
            pins[class] += parts * run.len() as u64;
        });
        blocks.demand(NO_OWNER, pledge, demand);
        blocks.pages.fits_beside(demand, &pins)
    }

    /// Reserves the keys and the tables of a sequence of `len` tokens up to its limit, so that its steps
    /// allocate nothing.
    pub(super) fn reserve(&mut self, slot: u32, len: u32) {
        let Self { sequences, geometry, .. } = self;
        let SequenceState { chain, tables, lengths, .. } = &mut sequences[slot as usize];
        // A far limit is no reason to reserve memory for it.
        let tokens = lengths.limit.min(len.saturating_add(1 << 16));
        chain.reserve(tokens);
        for (table, spec) in tables.iter_mut().zip(geometry.groups()) {
            let blocks = tokens.div_ceil(spec.span()) as usize;
            table.blocks.reserve(blocks.saturating_sub(table.blocks.len()));
        }
    }

    /// Puts the blocks of a hit into the tables of a new sequence.
    pub(super) fn attach(&mut self, slot: u32, found: &PrefixMatch) {
        let hit = found.hit * self.settings.keys.unit;
        let Self { index, sequences, geometry, .. } = self;
        let tables = &mut sequences[slot as usize].tables;
        for (table, spec) in tables.iter_mut().zip(geometry.groups()) {
            let is_paged = !matches!(spec.kind, GroupKind::State | GroupKind::Cross);
            if is_paged && hit > 0 {
                table.blocks.resize((hit / spec.span()) as usize, NULL);
                table.first = spec.first_token(hit) / spec.span();
            }
        }
        index.runs_of(found, |group, first, blocks| tables[group].set_run(first, blocks));
        if self.settings.visibility == Visibility::SameStream {
            // The step that writes the hit's tokens may be the last one that was closed.
            let last = self.in_flight.back().map(|step| step.id);
            self.state_mut(slot).written_by = last.unwrap_or_default();
        }
        for (group, table) in self.sequences[slot as usize].tables.iter().enumerate() {
            self.blocks.add_users(group, &table.blocks, owner(slot));
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
}
