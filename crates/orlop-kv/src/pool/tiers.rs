//! The tiers of a pool: what is stored below the device, and what a prompt gets back from there.
//!
//! A store takes settled tokens, whose kernels are done; steps in flight write behind them, so nothing orders
//! it with these. A restored block is settled before the next step is scheduled. So no page is accessed by a
//! transfer and a step at the same time.

use super::append::NewBlock;
use super::prefix_blocks::{PrefixBlock, prefix_block, prefix_indices};
use super::sequence::owner;
use super::{KvPool, Sequence};
use crate::chain::Chain;
use crate::geometry::GroupKind;
use crate::index::{PrefixMatch, Tail};
use crate::pages::NULL;
use crate::sip::SipState;
use crate::tier::{BlockKey, KvTiers, TierStats};
use crate::{KvError, Result, Visibility};
use std::collections::HashMap;
use std::ops::Range;

/// The maximum of plans for a prefix: each but the last had a block that could not be used, after blocks that
/// could.
const MAX_ATTEMPTS: usize = 16;

/// Where a block is.
#[derive(Debug, Clone, Copy)]
enum Source {
    Device(u32),
    Tier,
}

/// Where the blocks of a prefix come from.
#[derive(Debug, Default)]
struct RestorePlan {
    /// Tokens of the prefix.
    tokens: u32,
    /// Blocks that the device has: group, index, block.
    on_device: Vec<(usize, u32, u32)>,
    /// Blocks that are loaded.
    loaded: Vec<PrefixBlock>,
}

/// Why a plan was not carried out.
#[derive(Debug, Clone, Copy)]
enum LoadFailure {
    /// This block cannot be used. A plan without it may succeed.
    Block(BlockKey),
    /// There are no pages for the plan, or a copy failed.
    Plan,
}

impl KvPool {
    /// Gives the pool tiers below the device: [`store`](Self::store) fills them, and
    /// [`admit`](Self::admit) restores from them what the device does not have. Returns the tiers that it had
    /// before.
    pub fn attach_tiers(&mut self, mut tiers: KvTiers) -> Option<KvTiers> {
        tiers.set_layout(SipState::default().bytes(self.settings.keys.geometry.as_bytes()));
        // The blocks that the layout drops were never announced by this pool, nor is their removal.
        tiers.record_events(self.settings.event_limit);
        let brings_blocks = tiers.stats().host_blocks > 0;
        let former = self.tiers.replace(Box::new(tiers)).map(|tiers| *tiers);
        if brings_blocks || former.is_some() {
            self.index.forget_events();
        }
        former
    }

    /// Takes the tiers away.
    pub fn detach_tiers(&mut self) -> Option<KvTiers> {
        let tiers = self.tiers.take().map(|tiers| *tiers)?;
        self.index.forget_events();
        Some(tiers)
    }

    /// Returns the numbers of the tiers; `None` without any.
    #[must_use]
    pub fn tier_stats(&self) -> Option<TierStats> {
        self.tiers.as_ref().map(|tiers| tiers.stats())
    }

    /// Writes all blocks of host memory to the store behind it. Returns the number of those that it did not
    /// take.
    pub fn flush_tiers(&mut self) -> u64 {
        self.tiers.as_mut().map_or(0, |tiers| tiers.flush())
    }

    /// Copies the first `tokens` settled tokens of a sequence, rounded down to a match unit, to host memory,
    /// with the tails of windows and the saved states at that position, and at the end of its prompt if they
    /// are still there: the same prompt is then a hit, as it is on the device. Returns the bytes copied; what
    /// a tier has already is not copied again. The copies are done when this returns.
    ///
    /// # Errors
    /// If there are no tiers, fewer tokens have settled or are known, a step in flight is still to write
    /// them, neither the sequence nor the cache has the blocks of windows and states at that position, or a
    /// copy fails. What was copied until then stays.
    pub fn store(&mut self, sequence: &Sequence, tokens: u32) -> Result<u64> {
        self.collect_drops();
        self.check_awake()?;
        let slot = self.slot(sequence)?;
        let state = self.state(slot);
        if tokens > state.settled {
            return Err(KvError::BeyondEnd { position: tokens, end: state.settled });
        }
        self.check_no_load(slot)?;
        let state = self.state(slot);
        self.check_settled(state.written_by)?;
        let units = (tokens / self.settings.keys.unit).min(units_of(&state.chain));
        let tokens = units * self.settings.keys.unit;
        if tokens == 0 {
            return Ok(0);
        }
        let tails = self.tails_at(slot, tokens).ok_or(KvError::NoCheckpoint { position: tokens })?;
        let mut blocks = self.blocks_to_store(slot, tokens, &tails);
        let prompt_end = self.state(slot).prompt_end;
        if (1..tokens).contains(&prompt_end)
            && let Some(tails) = self.tails_at(slot, prompt_end)
        {
            // The full blocks of runs are listed; one that the prompt ends in has a name of its own.
            let is_listed = |block: &PrefixBlock| {
                self.is_run(block.group) && block.key.tokens == self.geometry.groups()[block.group].span()
            };
            let of_prompt = self.blocks_to_store(slot, prompt_end, &tails);
            blocks.extend(of_prompt.into_iter().filter(|(block, _)| !is_listed(block)));
        }
        let Some(mut tiers) = self.tiers.take() else { return Err(KvError::NoTiers) };
        let mut stored = Ok(0);
        for &(block, at) in &blocks {
            let ranges = self.ranges(block.group, at, block.key.tokens);
            match tiers.save(&self.memory, block.key, &ranges) {
                Ok(bytes) => stored = stored.map(|sum: u64| sum + bytes),
                Err(error) => {
                    stored = Err(error.into());
                    break;
                }
            }
            tiers.shrink_to_budget();
        }
        self.tiers = Some(tiers);
        stored
    }

    /// Lists the blocks that a boundary of a sequence keeps: its own ones, or those in the cache.
    fn tails_at(&self, slot: u32, position: u32) -> Option<Vec<Tail>> {
        let mut tails = Vec::new();
        if self.list_tails(slot, position, &mut tails).is_some() {
            return Some(tails);
        }
        // What is visible before it has settled may not be there yet.
        let units = position / self.settings.keys.unit;
        let chain = &self.state(slot).chain;
        if self.settings.visibility != Visibility::AfterSettle || units > units_of(chain) {
            return None;
        }
        let found = self.index.find(chain.prefix(units as usize), units);
        tails.clear();
        self.index.blocks_of(&found, |group, index, block| {
            if self.tail_groups.contains(&group) {
                tails.push(Tail { group: u32::try_from(group).unwrap_or(u32::MAX), index, block });
            }
        });
        (found.hit == units && units > 0).then_some(tails)
    }

    /// Lists the blocks of a sequence's prefix, and where they are.
    fn blocks_to_store(&self, slot: u32, tokens: u32, tails: &[Tail]) -> Vec<(PrefixBlock, u32)> {
        let state = self.state(slot);
        let groups = 0..self.geometry.groups().len();
        let named =
            groups.flat_map(|group| prefix_indices(self, group, tokens).map(move |index| (group, index)));
        let placed = named.filter_map(|(group, index)| {
            let mut kept = tails.iter().filter(|tail| (tail.group as usize, tail.index) == (group, index));
            let own = || state.tables[group].blocks.get(index as usize).copied();
            let at = kept.next().map(|tail| tail.block).or_else(own)?;
            Some((prefix_block(self, &state.chain, group, index, tokens), at))
        });
        placed.filter(|&(_, at)| at != NULL).collect()
    }

    /// Puts a longer prefix than the device has into a sequence that was just admitted, from the tiers.
    /// Returns the hit.
    pub(super) fn restore(&mut self, slot: u32, found: &PrefixMatch, longest: u32) -> PrefixMatch {
        let Some(mut tiers) = self.tiers.take() else { return *found };
        let unit = self.settings.keys.unit;
        let mut restored = *found;
        // Whether a tier has a block that can be used: a store is asked once, because that may take long.
        let mut usable = HashMap::new();
        for _ in 0..MAX_ATTEMPTS {
            let Some(plan) = self.plan(&mut tiers, slot, found, longest, &mut usable) else { break };
            match self.load(&mut tiers, slot, &plan) {
                Ok(()) => {
                    let hit = plan.tokens / unit;
                    (restored.matched, restored.hit) = (found.matched.max(hit), hit);
                    let class = self.state(slot).class;
                    self.register(slot, plan.tokens, class);
                    break;
                }
                Err(LoadFailure::Block(key)) => {
                    usable.insert(key, false);
                }
                Err(LoadFailure::Plan) => break,
            }
        }
        tiers.stats.query_tokens += u64::from(self.state(slot).lengths.prompt - found.hit * unit);
        tiers.stats.hit_tokens += u64::from((restored.hit - found.hit) * unit);
        self.tiers = Some(tiers);
        restored
    }

    /// Looks for the longest prefix that is longer than the hit, and whose blocks the device or a tier has.
    fn plan(
        &self,
        tiers: &mut KvTiers,
        slot: u32,
        found: &PrefixMatch,
        longest: u32,
        usable: &mut HashMap<BlockKey, bool>,
    ) -> Option<RestorePlan> {
        let (unit, chain) = (self.settings.keys.unit, &self.state(slot).chain);
        let known = found.matched * unit;
        let mut cached = HashMap::new();
        self.index.run_blocks(chain.units(), |group, index, block| {
            cached.insert((group, index), block);
        });
        let mut source = |block: PrefixBlock| {
            let start = block.index * self.geometry.groups()[block.group].span();
            let own = cached.get(&(block.group, block.index)).filter(|_| start + block.key.tokens <= known);
            if let Some(&own) = own {
                return Some(Source::Device(own));
            }
            let is_usable = *usable.entry(block.key).or_insert_with(|| tiers.contains(block.key));
            is_usable.then_some(Source::Tier)
        };
        // Groups that keep every token limit the prefix to the first block that is nowhere.
        let mut end = longest * unit;
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            if self.is_run(group) {
                let blocks = (0..end / spec.span()).map(|index| prefix_block(self, chain, group, index, end));
                let there = blocks.into_iter().take_while(|&block| source(block).is_some()).count();
                let there = u32::try_from(there).unwrap_or(u32::MAX);
                end = end.min(there.saturating_add(1).saturating_mul(spec.span()).saturating_sub(1));
            }
        }
        (found.hit + 1..=end / unit).rev().find_map(|units| {
            let mut plan = RestorePlan { tokens: units * unit, ..RestorePlan::default() };
            // The last blocks, and those of windows and states, decide most often.
            for group in (0..self.geometry.groups().len()).rev() {
                for index in prefix_indices(self, group, plan.tokens).rev() {
                    let block = prefix_block(self, chain, group, index, plan.tokens);
                    // A block that is full elsewhere serves a prefix that ends inside.
                    let full = prefix_block(self, chain, group, index, longest * unit);
                    match source(block) {
                        Some(Source::Device(own)) => plan.on_device.push((group, index, own)),
                        Some(Source::Tier) => plan.loaded.push(block),
                        None if self.is_run(group) && source(full).is_some() => plan.loaded.push(full),
                        None => return None,
                    }
                }
            }
            Some(plan)
        })
    }

    /// Returns `true` for a group that keeps every token and that hits need.
    fn is_run(&self, group: usize) -> bool {
        let spec = &self.geometry.groups()[group];
        let is_run = matches!(spec.kind, GroupKind::Full | GroupKind::Compressed { .. });
        is_run && !spec.optional && self.geometry.parts(group) > 0
    }

    /// Copies a block of a plan to the device, by way of host memory, which stays within its budget.
    fn load_block(
        &mut self,
        tiers: &mut KvTiers,
        slot: u32,
        block: &PrefixBlock,
        to: u32,
    ) -> Result<(), LoadFailure> {
        let bytes = self.geometry.content_bytes(block.group, block.key.tokens);
        if tiers.fetch(block.key, bytes).is_err() {
            let span = self.geometry.groups()[block.group].span();
            let unit = (block.index * span / self.settings.keys.unit) as usize;
            let failed = self.state(slot).chain.hashes()[unit];
            self.failed_loads.insert(&[failed]);
            return Err(LoadFailure::Block(block.key));
        }
        let ranges = self.ranges(block.group, to, block.key.tokens);
        let loaded = tiers.load(&mut self.memory, block.key, &ranges);
        tiers.shrink_to_budget();
        if matches!(loaded, Ok(true)) { Ok(()) } else { Err(LoadFailure::Plan) }
    }

    /// Allocates the blocks of a plan and copies them to the device. After an error the sequence is
    /// unchanged.
    fn load(&mut self, tiers: &mut KvTiers, slot: u32, plan: &RestorePlan) -> Result<(), LoadFailure> {
        let me = owner(slot);
        let tables = &self.sequences[slot as usize].tables;
        let is_new = |&&(group, index, block): &&(usize, u32, u32)| {
            tables[group].blocks.get(index as usize) != Some(&block)
        };
        let shared: Vec<(usize, u32, u32)> = plan.on_device.iter().filter(is_new).copied().collect();
        for &(group, _, block) in &shared {
            self.blocks.charge(group, me);
            self.blocks.pin(group, block);
        }
        let new = |block: &PrefixBlock| NewBlock {
            group: block.group,
            index: block.index,
            from: NULL,
            tokens: 0,
            block: NULL,
        };
        let mut new_blocks: Vec<NewBlock> = plan.loaded.iter().map(new).collect();
        let loaded = self.check_pledges().and_then(|()| self.allocate_all(slot, &mut new_blocks));
        let loaded = loaded.map_err(|_| LoadFailure::Plan).and_then(|()| {
            // From the start: the first block that cannot be used ends the hit.
            let mut blocks = plan.loaded.iter().zip(&new_blocks).rev();
            let loaded = blocks.try_for_each(|(block, new)| self.load_block(tiers, slot, block, new.block));
            if loaded.is_err() {
                for new in &new_blocks {
                    self.blocks.remove_user(new.group, new.block, me);
                    self.blocks.unpin(new.group, new.block);
                }
            }
            loaded
        });
        if loaded.is_ok() {
            self.replace_tables(slot, plan, &new_blocks);
        }
        for &(group, _, block) in &shared {
            self.blocks.unpin(group, block);
            if loaded.is_err() {
                self.blocks.credit(group, me);
            }
        }
        loaded
    }

    /// Gives the sequence the blocks of a plan instead of those that it has.
    fn replace_tables(&mut self, slot: u32, plan: &RestorePlan, new_blocks: &[NewBlock]) {
        let me = owner(slot);
        let mut before = Vec::new();
        for (group, spec) in self.geometry.groups().iter().enumerate() {
            if self.geometry.parts(group) == 0 || spec.kind == GroupKind::Cross {
                continue;
            }
            let table = &mut self.sequences[slot as usize].tables[group];
            before.extend(table.blocks.drain(..).filter(|&block| block != NULL).map(|block| (group, block)));
            if spec.kind != GroupKind::State {
                // A partial block at the end that the plan does not have is allocated by the next append.
                table.blocks.resize((plan.tokens / spec.span()) as usize, NULL);
                table.first = spec.first_token(plan.tokens) / spec.span();
            }
        }
        for &(group, index, block) in &plan.on_device {
            self.blocks.add_user(group, block, me);
            self.state_mut(slot).tables[group].set(index, block);
        }
        for new in new_blocks {
            self.state_mut(slot).tables[new.group].set(new.index, new.block);
        }
        for (group, block) in before {
            self.blocks.remove_user(group, block, me);
            self.blocks.unpin(group, block);
        }
        let state = self.state_mut(slot);
        (state.len, state.settled, state.room) = (plan.tokens, plan.tokens, plan.tokens);
        (state.registered, state.changed) = (plan.tokens, true);
        if state.junction <= plan.tokens {
            state.junction = 0;
        }
    }

    /// Returns the bytes of a block's first tokens: of whole pages if it is full.
    fn ranges(&self, group: usize, block: u32, tokens: u32) -> Vec<Range<u64>> {
        self.geometry.content_ranges(group, self.blocks.pages_of(group, block), tokens)
    }
}

/// Returns the number of complete units of a chain.
fn units_of(chain: &Chain) -> u32 {
    u32::try_from(chain.hashes().len()).unwrap_or(u32::MAX)
}
