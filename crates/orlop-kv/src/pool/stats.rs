//! Numbers: where the bytes are, what was reused, and why the rest was not.

use super::{KvPool, StepId};
use std::collections::HashMap;

/// Why tokens of a prompt had to be computed that could have been reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MissCause {
    /// The prompt is not longer than a match unit.
    BelowUnit,
    /// The next unit was never computed with these fields, as far as the pool remembers.
    NeverSeen,
    /// The next unit was evicted.
    Evicted,
    /// The tokens are cached, but not what windows and states need to continue at them.
    NoCheckpoint,
    /// The request or the model excludes reuse.
    NoReuse,
    /// A longer cached prefix was not reused: the request fits only if its blocks can be evicted.
    NoRoom,
    /// The next unit is cached for another tenant. What a miss may cost limits the search.
    OtherTenant,
    /// A load of the next unit has failed, or its lease has ended.
    FailedLoad,
    /// Another sequence computes or loads the next unit at this moment: it is not visible yet.
    Late,
}

impl MissCause {
    /// All causes.
    pub const ALL: [Self; 9] = [
        Self::BelowUnit,
        Self::NeverSeen,
        Self::Evicted,
        Self::NoCheckpoint,
        Self::NoReuse,
        Self::NoRoom,
        Self::OtherTenant,
        Self::FailedLoad,
        Self::Late,
    ];
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    queries: u64,
    hits: u64,
    requests: u64,
    misses: [u64; MissCause::ALL.len()],
    resumed_tokens: u64,
    resumed_hits: u64,
    pub(super) late_completions: u64,
    pub(super) expired_leases: u64,
}

impl Counters {
    pub(super) fn resumed(&mut self, tokens: u64, hit: u64) {
        self.resumed_tokens += tokens;
        self.resumed_hits += hit;
    }

    pub(super) fn admitted(&mut self, tokens: u64, hit: u64, miss: Option<MissCause>) {
        self.requests += 1;
        self.queries += tokens;
        self.hits += hit;
        if let Some(miss) = miss {
            self.misses[miss as usize] += tokens - hit;
        }
    }
}

/// The numbers of a pool. Bytes are those of pages: `total = free + used + cached + in_flight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct KvStats {
    /// Bytes of the pool, without segments that were returned.
    pub total_bytes: u64,
    /// Bytes of pages that are free.
    pub free_bytes: u64,
    /// Bytes of pages in a sequence's tables.
    pub used_bytes: u64,
    /// Bytes of pages that only the cache has.
    pub cached_bytes: u64,
    /// Bytes of pages that steps in flight or tickets keep.
    pub in_flight_bytes: u64,
    /// Bytes of large pages that are not empty: what the pool holds.
    pub held_bytes: u64,
    /// Requests admitted, each once.
    pub requests: u64,
    /// Tokens of admitted prompts.
    pub query_tokens: u64,
    /// Tokens of admitted prompts that were reused.
    pub hit_tokens: u64,
    /// Tokens of requests that were admitted again after a preemption.
    pub resumed_tokens: u64,
    /// Of these, tokens that need not be computed again.
    pub resumed_hit_tokens: u64,
    /// Boundaries evicted.
    pub evictions: u64,
    /// Tickets that were completed after their lease.
    pub late_completions: u64,
    /// Leases that ended before their ticket was completed.
    pub expired_leases: u64,
    /// Cached match units.
    pub cached_units: u64,
    /// Positions at which a hit can end, besides those inside of runs.
    pub boundaries: u64,
    misses: [u64; MissCause::ALL.len()],
}

impl KvStats {
    /// Returns the tokens of admitted prompts that were not reused for this cause.
    #[must_use]
    pub fn missed_tokens(&self, cause: MissCause) -> u64 {
        self.misses[cause as usize]
    }
}

impl KvPool {
    /// Returns the pool's numbers.
    pub fn stats(&mut self) -> KvStats {
        self.collect_drops();
        let pages = &self.blocks.pages;
        let large = self.geometry.large_page_bytes();
        let live: u64 = pages.classes().iter().map(|class| class.live * class.bytes).sum();
        let idle = self.blocks.idle_bytes();
        let total = u64::from(pages.present()) * large;
        let (_, boundaries, units) = self.index.counts();
        KvStats {
            total_bytes: total,
            free_bytes: total - live - idle,
            used_bytes: self.blocks.used_bytes,
            cached_bytes: idle,
            in_flight_bytes: live - self.blocks.used_bytes,
            held_bytes: u64::from(pages.present() - pages.empty()) * large,
            requests: self.counters.requests,
            query_tokens: self.counters.queries,
            hit_tokens: self.counters.hits,
            resumed_tokens: self.counters.resumed_tokens,
            resumed_hit_tokens: self.counters.resumed_hits,
            evictions: self.index.evicted_boundaries,
            late_completions: self.counters.late_completions,
            expired_leases: self.counters.expired_leases,
            cached_units: units as u64,
            boundaries: boundaries as u64,
            misses: self.counters.misses,
        }
    }

    /// Returns the bytes of a group's blocks that the index has, those in use included. It walks the blocks.
    #[must_use]
    pub fn cached_bytes(&self, group: usize) -> u64 {
        if group >= self.blocks.group_count() {
            return 0;
        }
        let cached = self.blocks.allocated(group).filter(|(_, record)| record.cached > 0);
        cached.count() as u64 * self.blocks.block_bytes(group)
    }

    /// Returns the bytes of the metadata of blocks and index. It walks the index.
    #[must_use]
    pub fn metadata_bytes(&self) -> u64 {
        (self.blocks.metadata_bytes() + self.index.metadata_bytes()) as u64
    }

    /// Returns the large pages that are empty, or can be emptied by evicting cached blocks, at this moment.
    pub fn reclaimable_now(&mut self) -> u64 {
        self.collect_drops();
        u64::from(self.blocks.pages.available())
    }

    /// Returns what [`reclaimable_now`](Self::reclaimable_now) will be when a step has settled, if nothing is
    /// appended until then.
    pub fn after_fence(&mut self, step: StepId) -> u64 {
        self.reclaimable_now() + self.large_pages_after(step)
    }

    /// Returns the large pages that only steps up to this one keep.
    pub(super) fn large_pages_after(&self, step: StepId) -> u64 {
        let records = self.in_flight.iter().chain([&self.open]).take_while(|record| record.id <= step);
        let mut pins: HashMap<(usize, u32), u32> = HashMap::new();
        for &(group, block) in records.flat_map(|record| &record.releases) {
            *pins.entry((group, block)).or_default() += 1;
        }
        let mut released: HashMap<u32, u32> = HashMap::new();
        for ((group, block), count) in pins {
            if self.blocks.record(group, block).pins > count {
                continue;
            }
            let (class, _) = self.blocks.class_and_parts(group);
            for &page in self.blocks.pages_of(group, block) {
                *released.entry(page / self.blocks.pages.classes()[class].per_large).or_default() += 1;
            }
        }
        released.into_iter().filter(|&(large, count)| self.blocks.pages.live_in(large) == count).count()
            as u64
    }
}
