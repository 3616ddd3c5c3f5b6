//! The expected statistics of an allocator, compared with those that it reports.

use crate::SuiteProfile;
use crate::fault::{ConformanceFault, at_least, equal, rule};
use orlop_alloc::{Block, Stats};
use orlop_core::MemoryKind;

/// The expected statistics of one kind, or of all.
#[derive(Debug, Clone, Copy, Default)]
struct ExpectedAccount {
    allocations: u64,
    frees: u64,
    live: u64,
    requested: u64,
    peak: u64,
}

impl ExpectedAccount {
    fn enter(&mut self, granted: u64, requested: u64) {
        self.allocations += 1;
        self.live += granted;
        self.requested += requested;
        self.peak = self.peak.max(self.live);
    }

    fn leave(&mut self, granted: u64, requested: u64) {
        self.frees += 1;
        self.live -= granted;
        self.requested -= requested;
    }
}

/// The expected statistics of an allocator.
#[derive(Debug)]
pub(super) struct ExpectedStatistics {
    all: ExpectedAccount,
    kinds: [ExpectedAccount; MemoryKind::COUNT],
    largest: u64,
    reserved_peak: u64,
    /// The last reported ones.
    before: Stats,
}

impl ExpectedStatistics {
    /// Creates the statistics of an allocator without live blocks, which reports `now`.
    pub(super) fn new(now: Stats) -> Self {
        Self {
            all: ExpectedAccount::default(),
            kinds: Default::default(),
            largest: 0,
            reserved_peak: 0,
            before: now,
        }
    }

    /// Counts a new block.
    pub(super) fn enter(&mut self, block: &Block) {
        let (granted, requested) = (block.capacity() as u64, block.len() as u64);
        self.largest = self.largest.max(granted);
        self.all.enter(granted, requested);
        self.kinds[block.kind().index()].enter(granted, requested);
    }

    /// Counts a block that is about to be freed.
    pub(super) fn leave(&mut self, block: &Block) {
        let (granted, requested) = (block.capacity() as u64, block.len() as u64);
        self.all.leave(granted, requested);
        self.kinds[block.kind().index()].leave(granted, requested);
    }

    /// Compares the reported statistics. Single-threaded, so peaks must be exact.
    pub(super) fn check(&mut self, stats: Stats, profile: &SuiteProfile) -> Result<(), ConformanceFault> {
        let (all, usage) = (&stats.totals.all, &stats.usage);
        equal("allocations", self.all.allocations, all.allocations)?;
        equal("frees", self.all.frees, all.frees)?;
        equal("refused frees", 0, stats.refused_frees)?;
        if profile.counted {
            equal("live bytes", self.all.live, stats.live())?;
            equal("requested bytes", self.all.requested, all.requested_bytes)?;
            equal("allocated less freed bytes", self.all.live, all.allocated_bytes - all.freed_bytes)?;
            equal("the peak of live bytes", self.all.peak, all.peak_bytes)?;
            equal("the largest block", self.largest, stats.totals.largest)?;
            for (kind, expected) in MemoryKind::ALL.into_iter().zip(&self.kinds) {
                let account = stats.kind(kind);
                equal("a kind's live blocks", expected.allocations - expected.frees, account.live_blocks())?;
                equal("a kind's live bytes", expected.live, account.live_bytes)?;
                equal("a kind's requested bytes", expected.requested, account.requested_bytes)?;
                equal("a kind's peak", expected.peak, account.peak_bytes)?;
            }
            let parts = stats.live() + usage.deferred + stats.cached();
            equal("live + deferred + cached", usage.reserved, parts)?;
            let before = &self.before.totals.all;
            at_least("allocated bytes, ever", before.allocated_bytes, all.allocated_bytes)?;
            at_least("freed bytes, ever", before.freed_bytes, all.freed_bytes)?;
        }
        at_least("reserved bytes", self.all.live + usage.deferred, usage.reserved)?;
        self.reserved_peak = self.reserved_peak.max(usage.reserved);
        at_least("the peak of reserved bytes", self.reserved_peak, usage.peak_reserved)?;
        rule("regions exist exactly if bytes are reserved", (usage.regions > 0) == (usage.reserved > 0))?;
        self.before = stats;
        Ok(())
    }
}
