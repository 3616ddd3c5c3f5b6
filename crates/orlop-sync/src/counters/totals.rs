//! The sums that the counters report.

use super::ShardedCounters;
use super::shard::load_out;
use crate::primitives::atomic::Ordering;
use orlop_core::MemoryKind;

/// Whether an allocator is still in use, as a change of its [`ShardedCounters`] found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the thread that gets `Unused` must destroy the owner"]
pub enum OwnerState {
    /// Handles or blocks remain.
    InUse,
    /// No handle and no block remains. Exactly one call returns this.
    Unused,
}

/// Sums for one memory kind, or for all. Bytes are granted bytes unless they are called requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Blocks handed out so far.
    pub allocations: u64,
    /// Blocks returned so far.
    pub frees: u64,
    /// Bytes handed out so far.
    pub allocated_bytes: u64,
    /// Bytes returned so far.
    pub freed_bytes: u64,
    /// Bytes in blocks not yet returned.
    pub live_bytes: u64,
    /// Bytes in blocks not yet returned, as requested: before rounding.
    pub requested_bytes: u64,
    /// The highest `live_bytes` since the last [`ShardedCounters::reset_peaks`].
    pub peak_bytes: u64,
}

impl Account {
    /// Returns the number of blocks not yet returned.
    #[must_use]
    pub fn live_blocks(&self) -> u64 {
        self.allocations.saturating_sub(self.frees)
    }

    /// Adds every field of `part`, the peak included: the sum of peaks is an upper bound of the peak of the
    /// sum.
    pub fn add(&mut self, part: &Self) {
        self.allocations = self.allocations.saturating_add(part.allocations);
        self.frees = self.frees.saturating_add(part.frees);
        self.allocated_bytes = self.allocated_bytes.saturating_add(part.allocated_bytes);
        self.freed_bytes = self.freed_bytes.saturating_add(part.freed_bytes);
        self.live_bytes = self.live_bytes.saturating_add(part.live_bytes);
        self.requested_bytes = self.requested_bytes.saturating_add(part.requested_bytes);
        self.peak_bytes = self.peak_bytes.saturating_add(part.peak_bytes);
    }
}

/// The sums of [`ShardedCounters`] over all slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Over all kinds. Its peak is the peak of the sum, not the sum of the kinds' peaks.
    pub all: Account,
    /// By kind, at [`MemoryKind::index`].
    pub kinds: [Account; MemoryKind::COUNT],
    /// The largest block so far, in granted bytes.
    pub largest: u64,
    /// Whether byte statistics are off, here or for a part of a sum: see [`ShardedCounters::new`].
    pub uncounted: bool,
}

impl Totals {
    /// Adds the totals of another allocator: see [`Account::add`].
    pub fn add(&mut self, part: &Self) {
        self.all.add(&part.all);
        for (sum, part) in self.kinds.iter_mut().zip(&part.kinds) {
            sum.add(part);
        }
        self.largest = self.largest.max(part.largest);
        self.uncounted |= part.uncounted;
    }
}

/// The statistics of an engine that has its own counters.
pub trait BlockCounter {
    /// See [`ShardedCounters::totals`].
    fn totals(&self) -> Totals;

    /// See [`ShardedCounters::reset_peaks`].
    fn reset_peaks(&self);
}

impl<T> BlockCounter for ShardedCounters<T> {
    fn totals(&self) -> Totals {
        Self::totals(self)
    }

    fn reset_peaks(&self) {
        Self::reset_peaks(self);
    }
}

impl<T> ShardedCounters<T> {
    /// Sums all slots. The sums are exact while no thread counts; live sums are never negative.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let largest = if self.counts_bytes { self.largest.load(Ordering::Relaxed) } else { 0 };
        let mut totals = Totals { largest, uncounted: !self.counts_bytes, ..Totals::default() };
        self.sum_slots(&mut totals.kinds);
        let mut peaks = self.peaks.lock();
        if self.counts_bytes {
            self.settle(&mut peaks);
        }
        let peak = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        for (account, &peak_bytes) in totals.kinds.iter_mut().zip(&peaks.kinds) {
            account.live_bytes = account.allocated_bytes.wrapping_sub(account.freed_bytes);
            account.peak_bytes = peak(peak_bytes).max(account.live_bytes);
            if !self.counts_bytes {
                *account =
                    Account { allocations: account.allocations, frees: account.frees, ..Account::default() };
            }
        }
        let all = &mut totals.all;
        totals.kinds.iter().for_each(|account| all.add(account));
        if self.counts_bytes {
            all.peak_bytes = peak(peaks.all).max(all.live_bytes);
        }
        totals
    }

    /// Adds the totals of all slots to `accounts`, which are zero. The sums wrap around, as the counts do.
    fn sum_slots(&self, accounts: &mut [Account; MemoryKind::COUNT]) {
        // Outgoing totals first: see the head of `counters/mod.rs`.
        for shard in self.slots.shared() {
            for (account, counts) in accounts.iter_mut().zip(&shard.kinds) {
                account.frees = account.frees.wrapping_add(load_out(&counts.blocks_out));
                account.freed_bytes = account.freed_bytes.wrapping_add(load_out(&counts.granted_out));
                account.requested_bytes =
                    account.requested_bytes.wrapping_add(load_out(&counts.requested_out));
            }
        }
        for account in &mut *accounts {
            account.requested_bytes = account.requested_bytes.wrapping_neg();
        }
        for shard in self.slots.shared() {
            for (account, counts) in accounts.iter_mut().zip(&shard.kinds) {
                account.allocations =
                    account.allocations.wrapping_add(counts.blocks_in.load(Ordering::Relaxed));
                account.allocated_bytes =
                    account.allocated_bytes.wrapping_add(counts.granted_in.load(Ordering::Relaxed));
                let requested = counts.requested_in.load(Ordering::Relaxed);
                account.requested_bytes = account.requested_bytes.wrapping_add(requested);
            }
        }
    }
}
