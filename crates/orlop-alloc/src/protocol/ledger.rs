//! Blocks and bytes counted per thread slot, and the answer to "was that the last block?".
//!
//! # Two jobs, one word of synchronisation
//!
//! Every allocation and every free must be counted, and an allocator must outlive its blocks. Done naively
//! that is two shared counters and a shared reference count: three cache lines that all threads fight over.
//! Here each thread counts in its own slot, under the slot's lock, and both jobs share that one swap:
//!
//! * **Statistics.** A slot holds running totals that only grow: blocks and bytes in, blocks and bytes out.
//!   A reader sums the *outgoing* totals of all slots first and the *incoming* ones second. Whatever it saw
//!   leave had entered before, in some slot, so live figures are never negative; with nothing in flight they
//!   are exact.
//! * **Life.** When the last handle of an allocator goes, [`Ledger::close`] visits every slot, marks it
//!   closed and takes its balance. From then on each free in a closed slot is subtracted from what
//!   `close` found. Who brings that to zero was the last: [`Entry::Last`], destroy the owner. No free before
//!   that point reads or writes anything shared.
//!
//! # Peak
//!
//! Live bytes are also kept in one shared gauge, to which a slot adds its difference whenever that reaches
//! 64 KiB. With one thread the peak is exact, because a slot remembers the highest point of its difference;
//! with `n` threads it is within 64 KiB × `n`.
//!
//! # Ordering
//!
//! Totals are plain data under the slot locks. `remaining` needs `ledger.last` (acquire and release): the
//! destroyer must see everything that every other returner did before its own subtraction. Gauges are
//! statistics and relaxed.

use super::Slots;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::ordering;
use orlop_core::MemoryKind;

/// A slot's difference to the shared gauge never reaches this many bytes between two calls.
pub(crate) const GAUGE_STEP: i64 = 64 << 10;

/// What `remaining` holds until [`Ledger::close`] has put the true figure there: high enough that frees
/// which overtake the harvest cannot bring it to zero.
const UNCOUNTED: i64 = i64::MAX / 2;

/// Counts by slot and kind; see the source for the protocol.
#[derive(Debug)]
pub struct Ledger {
    slots: Slots<Shard>,
    gauges: [Gauge; MemoryKind::COUNT],
    total: Gauge,
    remaining: AtomicI64,
    counted: bool,
}

#[derive(Debug)]
struct Shard {
    closed: bool,
    largest: u64,
    total: Swing,
    kinds: [Entries; MemoryKind::COUNT],
}

/// One kind's running totals in one slot: a cache line.
#[derive(Debug, Clone, Copy, Default)]
struct Entries {
    blocks_in: u64,
    blocks_out: u64,
    granted_in: u64,
    granted_out: u64,
    requested_in: u64,
    requested_out: u64,
    swing: Swing,
}

/// Where a slot stands against its gauge, and the highest it stood since it was last added there.
#[derive(Debug, Clone, Copy, Default)]
struct Swing {
    delta: i64,
    highest: i64,
}

#[derive(Debug, Default)]
struct Gauge {
    live: AtomicI64,
    peak: AtomicI64,
}

/// What an entry said about the owner of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the last one out must destroy the owner"]
pub enum Entry {
    /// Handles or blocks remain.
    More,
    /// No handle and no block remains, and nobody else was told so.
    Last,
}

/// Sums for one kind, or for all. Bytes are granted bytes unless they say requested.
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
    /// The same as the users asked for them, before rounding.
    pub requested_bytes: u64,
    /// The highest `live_bytes` since the last [`Ledger::reset_peaks`].
    pub peak_bytes: u64,
}

impl Account {
    /// Blocks not yet returned.
    #[must_use]
    pub fn live_blocks(&self) -> u64 {
        self.allocations - self.frees
    }
}

/// Everything a ledger knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Over all kinds. Its peak is the peak of the sum, not the sum of the kinds' peaks.
    pub all: Account,
    /// By kind, at [`MemoryKind::index`].
    pub kinds: [Account; MemoryKind::COUNT],
    /// The largest single request so far, in granted bytes.
    pub largest: u64,
}

impl Ledger {
    /// A ledger with `slots` slots. `counted: false` switches statistics off and keeps the life protocol.
    #[must_use]
    pub fn new(slots: usize, counted: bool) -> Self {
        let shard =
            || Shard { closed: false, largest: 0, total: Swing::default(), kinds: Default::default() };
        Self {
            slots: Slots::new(slots, shard),
            gauges: Default::default(),
            total: Gauge::default(),
            remaining: AtomicI64::new(UNCOUNTED),
            counted,
        }
    }

    /// Counts a block that was handed out. The caller holds a handle, so the ledger is open.
    #[inline]
    pub fn enter(&self, slot: usize, kind: MemoryKind, granted: usize, requested: usize) {
        self.slots.with(slot, |shard| {
            let entries = &mut shard.kinds[kind.index()];
            entries.blocks_in += 1;
            if self.counted {
                let granted = granted as u64;
                entries.granted_in += granted;
                entries.requested_in += requested as u64;
                shard.largest = shard.largest.max(granted);
                let delta = granted.cast_signed();
                entries.swing.add(delta, &self.gauges[kind.index()]);
                shard.total.add(delta, &self.total);
            }
        });
    }

    /// Counts a block that came back. On [`Entry::Last`] nobody else uses the owner any more.
    #[inline]
    pub fn leave(&self, slot: usize, kind: MemoryKind, granted: usize, requested: usize) -> Entry {
        let closed = self.slots.with(slot, |shard| {
            let entries = &mut shard.kinds[kind.index()];
            entries.blocks_out += 1;
            if self.counted {
                let granted = granted as u64;
                entries.granted_out += granted;
                entries.requested_out += requested as u64;
                let delta = -granted.cast_signed();
                entries.swing.add(delta, &self.gauges[kind.index()]);
                shard.total.add(delta, &self.total);
            }
            shard.closed
        });
        // Open: `close` has yet to take this slot and will find the entry. The slot is given back, and this
        // thread must not touch the ledger again.
        if !closed {
            return Entry::More;
        }
        if self.remaining.fetch_sub(1, ordering!("ledger.last", AcqRel)) == 1 { Entry::Last } else { Entry::More }
    }

    /// Says that no handle remains: nothing can enter any more. Called once.
    pub fn close(&self) -> Entry {
        let mut balance = 0i64;
        self.slots.for_each(|shard| {
            shard.closed = true;
            for entries in &shard.kinds {
                balance += entries.blocks_in.wrapping_sub(entries.blocks_out).cast_signed();
            }
        });
        let correction = balance - UNCOUNTED;
        let before = self.remaining.fetch_add(correction, ordering!("ledger.close", AcqRel));
        if before + correction == 0 { Entry::Last } else { Entry::More }
    }

    /// Sums all slots. Exact at a quiet moment; live figures are never negative.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        // Outgoing first: see the head of this file.
        self.slots.for_each(|shard| {
            for (account, entries) in totals.kinds.iter_mut().zip(&mut shard.kinds) {
                account.frees += entries.blocks_out;
                account.freed_bytes += entries.granted_out;
                account.requested_bytes = account.requested_bytes.wrapping_sub(entries.requested_out);
            }
        });
        self.slots.for_each(|shard| {
            totals.largest = totals.largest.max(shard.largest);
            for (index, (account, entries)) in totals.kinds.iter_mut().zip(&mut shard.kinds).enumerate() {
                account.allocations += entries.blocks_in;
                account.allocated_bytes += entries.granted_in;
                account.requested_bytes = account.requested_bytes.wrapping_add(entries.requested_in);
                entries.swing.settle(&self.gauges[index]);
            }
            shard.total.settle(&self.total);
        });
        for (account, gauge) in totals.kinds.iter_mut().zip(&self.gauges) {
            account.live_bytes = account.allocated_bytes - account.freed_bytes;
            account.peak_bytes = gauge.peak().max(account.live_bytes);
        }
        let all = &mut totals.all;
        for account in &totals.kinds {
            all.allocations += account.allocations;
            all.frees += account.frees;
            all.allocated_bytes += account.allocated_bytes;
            all.freed_bytes += account.freed_bytes;
            all.live_bytes += account.live_bytes;
            all.requested_bytes += account.requested_bytes;
        }
        all.peak_bytes = self.total.peak().max(all.live_bytes);
        totals
    }

    /// Live bytes as the shared gauge has them: one load, within 64 KiB of the truth for each thread.
    #[inline]
    pub fn live_about(&self) -> u64 {
        u64::try_from(self.total.live.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Peaks start again from what is live now.
    pub fn reset_peaks(&self) {
        self.slots.for_each(|shard| {
            for (entries, gauge) in shard.kinds.iter_mut().zip(&self.gauges) {
                entries.swing.settle(gauge);
            }
            shard.total.settle(&self.total);
        });
        for gauge in self.gauges.iter().chain([&self.total]) {
            gauge.peak.store(gauge.live.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Swing {
    #[inline]
    fn add(&mut self, delta: i64, gauge: &Gauge) {
        self.delta += delta;
        self.highest = self.highest.max(self.delta);
        if self.delta.abs() >= GAUGE_STEP {
            self.settle(gauge);
        }
    }

    fn settle(&mut self, gauge: &Gauge) {
        if self.delta == 0 && self.highest == 0 {
            return;
        }
        let before = gauge.live.fetch_add(self.delta, Ordering::Relaxed);
        let highest = before + self.highest;
        if highest > gauge.peak.load(Ordering::Relaxed) {
            gauge.peak.fetch_max(highest, Ordering::Relaxed);
        }
        *self = Self::default();
    }
}

impl Gauge {
    fn peak(&self) -> u64 {
        u64::try_from(self.peak.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
