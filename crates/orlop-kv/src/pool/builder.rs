//! [`KvPoolBuilder`]: the settings of a pool.

use super::growth::GrowingGroups;
use super::sequence::DroppedSequences;
use super::stats::Counters;
use super::step::StepRecord;
use super::tenants::Tenants;
use super::ticket::Tickets;
use super::{KvPool, StepId};
use crate::blocks::{Blocks, TenantUse};
use crate::chain::KeySettings;
use crate::geometry::{GroupKind, KvGeometry};
use crate::index::{PrefixIndex, RecentHashes, RunGroup};
use crate::memory::{MemorySource, PoolMemory};
use crate::{ChainSecret, KvError, Result};
use orlop_alloc::AllocatorRef;
use orlop_context::Context;
use orlop_core::Device;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of large pages: their metadata takes more than 2 GiB.
const MAX_LARGE_PAGES: u32 = 1 << 26;

/// The default of the events that can wait to be taken: about 25 MB.
const EVENT_LIMIT: usize = 1 << 18;

/// When fresh blocks can be hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Visibility {
    /// When the step that writes them has settled.
    #[default]
    AfterSettle,
    /// When the step that writes them is closed: later steps run on the same stream. States are visible after
    /// settling in any case, and so is everything in a model that has them.
    SameStream,
}

/// At which positions the blocks are kept that a hit needs besides those of groups that keep every token: the
/// tails of windows and copies of states. Every such position costs their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// At the end of a prompt.
    pub prompt_end: bool,
    /// Where a prompt leaves a cached one.
    pub junctions: bool,
    /// At multiples of this number of tokens. These are fillers: they take free memory only, and are evicted
    /// before anything else until they are hit.
    pub every: Option<u32>,
}

impl CheckpointPolicy {
    /// The policy that keeps nothing.
    pub const OFF: Self = Self { prompt_end: false, junctions: false, every: None };

    pub(super) fn is_on(&self) -> bool {
        *self != Self::OFF
    }
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self { prompt_end: true, junctions: true, every: None }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) keys: Arc<KeySettings>,
    pub(super) visibility: Visibility,
    pub(super) checkpoints: CheckpointPolicy,
    pub(super) hits_protect: bool,
    pub(super) lag: u32,
    /// The part of the model whose blocks the pool has.
    pub(super) shard: u32,
    /// Whether prefixes can be reused at all.
    pub(super) reuses: bool,
    /// How many events can wait to be taken; `None` if they are not recorded.
    pub(super) event_limit: Option<usize>,
}

/// The construction of a [`KvPool`].
#[derive(Debug)]
#[must_use = "`build` makes the pool"]
pub struct KvPoolBuilder {
    geometry: KvGeometry,
    bytes: u64,
    segment: Option<u32>,
    keys: KeySettings,
    events: bool,
    event_limit: usize,
    settings: Settings,
}

impl KvPoolBuilder {
    pub(super) fn new(geometry: KvGeometry) -> Self {
        let keys = KeySettings {
            secret: [0; 16],
            unit: 16,
            geometry: Box::default(),
            keeps_tokens: false,
            is_used: true,
        };
        let settings = Settings {
            keys: Arc::new(keys.clone()),
            visibility: Visibility::default(),
            checkpoints: CheckpointPolicy::default(),
            hits_protect: false,
            lag: 1,
            shard: 0,
            reuses: true,
            event_limit: None,
        };
        Self { geometry, bytes: 0, segment: None, keys, events: false, event_limit: EVENT_LIMIT, settings }
    }

    /// Sets the budget in bytes. What does not fill a large page is left out.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the budget in large pages, of which a pool has 2^26 at most.
    pub fn large_pages(mut self, count: u32) -> Self {
        self.bytes = self.geometry.large_page_bytes().saturating_mul(u64::from(count));
        self
    }

    /// Divides the memory into segments of this number of large pages: blocks of their own, which
    /// [`KvPool::shrink`] can return. Without segments, the pool is one block at one address.
    pub fn segment(mut self, large_pages: u32) -> Self {
        self.segment = Some(large_pages);
        self
    }

    /// Sets the tokens of a match unit; 16 by default. It is raised to a multiple of the ratios of compressed
    /// groups. It need not divide a block: a hit that ends inside a block copies it on the first write.
    pub fn match_unit(mut self, tokens: u32) -> Self {
        self.keys.unit = tokens.max(1);
        self
    }

    /// Sets the secret key of the hashes. Without one the keys are the same in every process, and a tenant
    /// could search for collisions.
    pub fn secret(mut self, secret: ChainSecret) -> Self {
        self.keys.secret = secret;
        self
    }

    /// Compares the tokens of prefixes, too, not only their hashes: 4 B of metadata for each cached token.
    /// Media and the other fields are compared by their hashes in any case.
    pub fn compare_tokens(mut self, is_on: bool) -> Self {
        self.keys.keeps_tokens = is_on;
        self
    }

    /// Sets when fresh blocks can be hit.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.settings.visibility = visibility;
        self
    }

    /// Sets the policy of checkpoints.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.settings.checkpoints = policy;
        self
    }

    /// Lets blocks that were hit outlast those that never were, so that a scan does not empty the cache.
    pub fn scan_resistant(mut self, is_on: bool) -> Self {
        self.settings.hits_protect = is_on;
        self
    }

    /// Sets how many steps are in flight when the next one is scheduled; 1 by default. It counts in what a
    /// window is pledged.
    pub fn steps_in_flight(mut self, steps: u32) -> Self {
        self.settings.lag = steps;
        self
    }

    /// Sets the part of the model that the pool has, such as the rank of a tensor-parallel group; 0 by
    /// default. It is part of every [`BlockKey`](crate::BlockKey). Pools of different heads or layers that
    /// share a store need different shards: the layout of their blocks is the same. Prefix keys do not depend
    /// on it. Deployments that divide a model differently need stores of their own.
    pub fn shard(mut self, shard: u32) -> Self {
        self.settings.shard = shard;
        self
    }

    /// Sets whether prefixes are cached; they are by default. Without, prompts are not hashed, and
    /// [`KvPool::store`] stores nothing.
    pub fn prefix_cache(mut self, is_on: bool) -> Self {
        self.settings.reuses = is_on;
        self
    }

    /// Records events, for [`KvPool::take_events`].
    pub fn events(mut self, is_on: bool) -> Self {
        self.events = is_on;
        self
    }

    /// Sets how many events can wait to be taken; 262,144 by default. An event with several hashes counts
    /// once for each. Beyond, all are dropped, and the next take is a [reset](crate::KvEvent::Reset). Events
    /// of tiers have the same limit for themselves.
    pub fn event_limit(mut self, events: usize) -> Self {
        self.event_limit = events;
        self
    }

    /// Makes the pool, with a context's memory of kind `KvCache`.
    ///
    /// # Errors
    /// If the budget is smaller than a large page, or the allocation fails.
    pub fn build(self, context: &Context, device: Device) -> Result<KvPool> {
        self.finish(MemorySource::Context(context.clone(), device))
    }

    /// Makes the pool, with memory of an allocator.
    ///
    /// # Errors
    /// If the budget is smaller than a large page, or the allocation fails.
    pub fn build_in(self, allocator: &AllocatorRef) -> Result<KvPool> {
        self.finish(MemorySource::Allocator(allocator.clone()))
    }

    /// Makes a pool without memory: for replays, and for engines with arenas of their own.
    ///
    /// # Errors
    /// If the budget is smaller than a large page.
    pub fn build_detached(self) -> Result<KvPool> {
        self.finish(MemorySource::Detached)
    }

    fn count(&self) -> Result<u32> {
        let large_page = self.geometry.large_page_bytes();
        let count = self.bytes / large_page;
        if count == 0 || self.geometry.classes().is_empty() {
            return Err(KvError::PoolTooSmall { bytes: self.bytes, large_page });
        }
        let smallest = self.geometry.classes().iter().copied().min().unwrap_or(1);
        let ids = count.checked_mul(large_page / smallest);
        let fits = ids.is_some_and(|ids| ids < u64::from(u32::MAX));
        let out_of_range = KvError::OutOfRange { what: "the number of pages" };
        u32::try_from(count).ok().filter(|&count| fits && count <= MAX_LARGE_PAGES).ok_or(out_of_range)
    }

    fn finish(mut self, source: MemorySource) -> Result<KvPool> {
        let count = self.count()?;
        let large_page = self.geometry.large_page_bytes();
        let segment = self.segment.unwrap_or(count).clamp(1, count);
        let memory = PoolMemory::new(source, u64::from(segment) * large_page, u64::from(count) * large_page)?;
        let groups = self.geometry.groups();
        let (mut runs, mut tail_groups, mut state_groups, mut reuses) =
            (vec![], vec![], vec![], self.settings.reuses);
        let mut unit = self.keys.unit;
        for (index, group) in groups.iter().enumerate() {
            if self.geometry.parts(index) == 0 {
                continue;
            }
            if let GroupKind::Compressed { ratio } = group.kind {
                let out_of_range = KvError::OutOfRange { what: "the match unit" };
                unit = lcm(unit, ratio).ok_or(out_of_range)?;
            }
            if group.optional {
                continue;
            }
            match group.kind {
                GroupKind::Full | GroupKind::Compressed { .. } => {
                    runs.push(RunGroup { group: index, span: group.span() });
                }
                GroupKind::Window { .. } | GroupKind::Chunked { .. } => tail_groups.push(index),
                GroupKind::State => {
                    tail_groups.push(index);
                    state_groups.push(index);
                    reuses &= group.checkpointable;
                }
                GroupKind::Cross => {}
            }
        }
        self.keys.unit = unit;
        self.settings.reuses = reuses && !(runs.is_empty() && tail_groups.is_empty());
        self.keys.is_used = self.settings.reuses;
        self.keys.geometry = format!("{groups:?}").into();
        self.settings.keys = Arc::new(self.keys);
        let classes = self.geometry.classes().len();
        let mut blocks = Blocks::new(&self.geometry, count);
        blocks.tenants.push(TenantUse::UNLIMITED);
        let mut index = PrefixIndex::new(unit, runs, !tail_groups.is_empty());
        self.settings.event_limit = self.events.then_some(self.event_limit);
        if let Some(limit) = self.settings.event_limit {
            index.record_events(&self.geometry, self.settings.shard, limit);
        }
        let growing = GrowingGroups::new(&self.geometry);
        Ok(KvPool {
            geometry: Arc::new(self.geometry),
            settings: self.settings,
            memory,
            sleep: None,
            blocks,
            index,
            tail_groups,
            state_groups,
            growing,
            sequences: Vec::new(),
            unused_sequences: Vec::new(),
            drops: Arc::new(DroppedSequences::default()),
            tenants: Tenants::default(),
            open: StepRecord::new(StepId(1)),
            in_flight: VecDeque::new(),
            spare_steps: Vec::new(),
            tickets: Tickets::default(),
            tiers: None,
            counters: Counters::default(),
            failed_loads: RecentHashes::default(),
            now: 0,
            dropped: Vec::new(),
            new_blocks: Vec::new(),
            pages_needed: vec![0; classes],
            demand: Vec::new(),
            tails: Vec::new(),
        })
    }
}

fn lcm(a: u32, b: u32) -> Option<u32> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}
