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
//! The peak of a sum over threads cannot be read off the threads' own figures, and a shared running total
//! would be what we avoid. Instead each slot has a *lease* on the room below the known peak: as long as it
//! stands no higher above its last settlement than its lease, no new peak can have been reached, because the
//! leases together are not more than the room. A slot that passes its lease settles all slots (under a
//! mutex) and hands the room out again. With one thread that happens exactly when a new peak is made, and
//! the peak is exact; with `n` threads, each of which is left 64 KiB when the room is gone, it is within
//! 64 KiB × `n`. In a steady state nobody settles.
//!
//! # Ordering
//!
//! Totals are plain data under the slot locks. `remaining` needs `ledger.last` (acquire and release): the
//! destroyer must see everything that every other returner did before its own subtraction. `used` is a hint
//! for the settlement, which takes the slots' locks itself: relaxed.

use super::slots::{Held, Slots};
use crate::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use crate::sync::{Mutex, ordering};
use orlop_core::MemoryKind;

/// What a slot may stand above its last settlement when there is no room below the peak, in bytes.
const LEAST_LEASE: i64 = 64 << 10;

/// One level for each kind, and one for all together.
const LEVELS: usize = MemoryKind::COUNT + 1;
const ALL: usize = MemoryKind::COUNT;

/// What `remaining` holds until [`Ledger::close`] has put the true figure there: high enough that frees
/// which overtake the harvest cannot bring it to zero.
const UNCOUNTED: i64 = i64::MAX / 2;

/// Counts by slot and kind; see the source for the protocol.
///
/// An engine that keeps something in each slot anyhow, such as a cache, puts it into the ledger as `T` and
/// pays for one lock where it would have paid for two.
#[derive(Debug)]
pub struct Ledger<T = ()> {
    slots: Slots<Local<T>>,
    levels: Mutex<[Level; LEVELS]>,
    /// Bit `i`: slot `i` was ever used.
    used: AtomicUsize,
    remaining: AtomicI64,
    counted: bool,
}

struct Local<T> {
    shard: Shard,
    value: T,
}

#[derive(Debug, Default)]
struct Shard {
    closed: bool,
    used: bool,
    largest: u64,
    all: Swing,
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

/// Where a slot stands since it was last settled.
#[derive(Debug, Clone, Copy, Default)]
struct Swing {
    delta: i64,
    highest: i64,
    lease: i64,
}

/// What was settled, over all slots.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    live: i64,
    peak: i64,
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
        Self::with_values(slots, counted, || ())
    }

    /// Counts a block that was handed out. The caller holds a handle, so the ledger is open.
    #[inline]
    pub fn enter(&self, slot: usize, kind: MemoryKind, granted: usize, requested: usize) {
        self.hold(slot).enter(kind, granted, requested);
    }

    /// Counts a block that came back. On [`Entry::Last`] nobody else uses the owner any more.
    #[inline]
    pub fn leave(&self, slot: usize, kind: MemoryKind, granted: usize, requested: usize) -> Entry {
        self.hold(slot).leave(kind, granted, requested)
    }
}

impl<T> Ledger<T> {
    /// A ledger whose slots each hold what `make` makes.
    #[must_use]
    pub fn with_values(slots: usize, counted: bool, mut make: impl FnMut() -> T) -> Self {
        Self {
            slots: Slots::new(slots, || Local { shard: Shard::default(), value: make() }),
            levels: Mutex::new([Level::default(); LEVELS]),
            used: AtomicUsize::new(0),
            remaining: AtomicI64::new(UNCOUNTED),
            counted,
        }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.count()
    }

    /// Runs `f` on the value of a slot.
    #[inline]
    pub fn with<R>(&self, slot: usize, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.slots.hold(slot).value)
    }

    /// Takes a slot, for using its value and then counting a block in or out under the same lock.
    #[inline(always)]
    pub fn hold(&self, slot: usize) -> Holding<'_, T> {
        Holding { ledger: self, slot, local: self.slots.hold(slot) }
    }

    #[cold]
    fn leave_closed(&self) -> Entry {
        let before = self.remaining.fetch_sub(1, ordering!("ledger.last", AcqRel));
        if before == 1 { Entry::Last } else { Entry::More }
    }

    /// Says that no handle remains: nothing can enter any more. Called once.
    pub fn close(&self) -> Entry {
        let mut balance = 0i64;
        self.slots.for_each(|Local { shard, .. }| {
            shard.closed = true;
            for entries in &shard.kinds {
                balance += entries.blocks_in.wrapping_sub(entries.blocks_out).cast_signed();
            }
        });
        let correction = balance - UNCOUNTED;
        let before = self.remaining.fetch_add(correction, ordering!("ledger.close", AcqRel));
        if before + correction == 0 { Entry::Last } else { Entry::More }
    }

    /// A slot stands higher than its lease: perhaps a new peak.
    #[cold]
    fn pass_lease(&self, slot: usize) {
        let mut held = self.hold(slot);
        if !held.local.shard.used {
            held.mark_used();
        }
        drop(held);
        self.settle();
    }

    fn bit(&self, slot: usize) -> usize {
        1usize.checked_shl(u32::try_from(slot % self.slots.count()).unwrap_or(0)).unwrap_or(0)
    }

    /// Adds every slot's difference to the levels, notes new peaks, and leases the room out again.
    fn settle(&self) -> [Level; LEVELS] {
        let mut levels = self.levels.lock();
        let used = self.used.load(Ordering::Relaxed);
        let slots = || (0..self.slots.count()).filter(|&slot| used & self.bit(slot) != 0);
        // How far a slot stood above where it stands now: with one slot in use, this is the peak since the last
        // settlement. With more it says nothing: one slot's fall may be another's rise.
        let mut above = [0i64; LEVELS];
        for slot in slots() {
            self.slots.with(slot, |Local { shard, .. }| {
                for (index, swing) in shard.swings().enumerate() {
                    let Swing { delta, highest, .. } = std::mem::take(swing);
                    levels[index].live += delta;
                    above[index] = above[index].max(highest - delta);
                }
            });
        }
        let sharers = i64::from(used.count_ones().max(1));
        for (level, above) in levels.iter_mut().zip(above) {
            let above = if sharers == 1 { above } else { 0 };
            level.peak = level.peak.max(level.live + above);
        }
        for slot in slots() {
            self.slots.with(slot, |Local { shard, .. }| {
                for (index, swing) in shard.swings().enumerate() {
                    let room = levels[index].peak - levels[index].live;
                    // One thread needs no slack: its lease is all the room there is.
                    let least = if sharers == 1 { 0 } else { LEAST_LEASE };
                    swing.lease = (room / sharers).max(least);
                }
            });
        }
        *levels
    }

    /// Sums all slots. Exact at a quiet moment; live figures are never negative.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        // Outgoing first: see the head of this file.
        self.slots.for_each(|Local { shard, .. }| {
            for (account, entries) in totals.kinds.iter_mut().zip(&mut shard.kinds) {
                account.frees += entries.blocks_out;
                account.freed_bytes += entries.granted_out;
                account.requested_bytes = account.requested_bytes.wrapping_sub(entries.requested_out);
            }
        });
        self.slots.for_each(|Local { shard, .. }| {
            totals.largest = totals.largest.max(shard.largest);
            for (account, entries) in totals.kinds.iter_mut().zip(&mut shard.kinds) {
                account.allocations += entries.blocks_in;
                account.allocated_bytes += entries.granted_in;
                account.requested_bytes = account.requested_bytes.wrapping_add(entries.requested_in);
            }
        });
        let levels = self.settle();
        let peak = |level: &Level| u64::try_from(level.peak).unwrap_or(0);
        for (account, level) in totals.kinds.iter_mut().zip(&levels) {
            account.live_bytes = account.allocated_bytes - account.freed_bytes;
            account.peak_bytes = peak(level).max(account.live_bytes);
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
        all.peak_bytes = peak(&levels[ALL]).max(all.live_bytes);
        totals
    }

    /// Peaks start again from what is live now.
    pub fn reset_peaks(&self) {
        self.settle();
        for level in self.levels.lock().iter_mut() {
            level.peak = level.live;
        }
        // Leases were on room below the old peaks: none is left.
        self.settle();
    }
}

/// A slot of a ledger, held by this thread.
#[derive(Debug)]
pub struct Holding<'a, T> {
    ledger: &'a Ledger<T>,
    slot: usize,
    local: Held<'a, Local<T>>,
}

impl<T> Holding<'_, T> {
    /// What the slot keeps.
    #[inline(always)]
    pub fn value(&mut self) -> &mut T {
        &mut self.local.value
    }

    /// Counts a block that is handed out, and gives the slot back. The caller holds a handle of the owner, so
    /// the ledger is open.
    #[inline(always)]
    pub fn enter(mut self, kind: MemoryKind, granted: usize, requested: usize) {
        let shard = &mut self.local.shard;
        let entries = &mut shard.kinds[kind.index()];
        entries.blocks_in += 1;
        if !self.ledger.counted {
            return;
        }
        let granted = granted as u64;
        entries.granted_in += granted;
        entries.requested_in += requested as u64;
        shard.largest = shard.largest.max(granted);
        let rise = granted.cast_signed();
        // Not `||`: both must be moved.
        let over = entries.swing.rise(rise) | shard.all.rise(rise);
        let Self { ledger, slot, local } = self;
        drop(local);
        if over {
            ledger.pass_lease(slot);
        }
    }

    #[cold]
    fn mark_used(&mut self) {
        self.local.shard.used = true;
        self.ledger.used.fetch_or(self.ledger.bit(self.slot), Ordering::Relaxed);
    }

    /// Counts a block that came back, and gives the slot back. On [`Entry::Last`] nobody else uses the owner
    /// any more.
    #[inline(always)]
    pub fn leave(mut self, kind: MemoryKind, granted: usize, requested: usize) -> Entry {
        let shard = &mut self.local.shard;
        let entries = &mut shard.kinds[kind.index()];
        entries.blocks_out += 1;
        if self.ledger.counted {
            let granted = granted as u64;
            entries.granted_out += granted;
            entries.requested_out += requested as u64;
            let fall = granted.cast_signed();
            entries.swing.delta -= fall;
            shard.all.delta -= fall;
        }
        let closed = shard.closed;
        if !shard.used {
            // A slot that only frees has to be settled too.
            self.mark_used();
        }
        let Self { ledger, local, .. } = self;
        drop(local);
        // Open: `close` has yet to take this slot and will find the entry. The slot is given back, and this
        // thread must not touch the ledger again.
        if closed { ledger.leave_closed() } else { Entry::More }
    }
}

impl Shard {
    /// The swings in the order of the levels.
    fn swings(&mut self) -> impl Iterator<Item = &mut Swing> {
        self.kinds.iter_mut().map(|entries| &mut entries.swing).chain([&mut self.all])
    }
}

impl Swing {
    /// Counts bytes that came in; whether that passed the lease.
    #[inline(always)]
    fn rise(&mut self, bytes: i64) -> bool {
        self.delta += bytes;
        if self.delta <= self.highest {
            return false;
        }
        self.highest = self.delta;
        self.delta > self.lease
    }
}

/// What a handle needs of an engine that keeps its own ledger.
pub trait Counter {
    /// See [`Ledger::totals`].
    fn totals(&self) -> Totals;

    /// See [`Ledger::reset_peaks`].
    fn reset_peaks(&self);

    /// See [`Ledger::close`].
    ///
    /// # Safety
    ///
    /// No handle of the engine remains, and this is called once: on [`Entry::Last`], now or from a later return,
    /// the engine is destroyed.
    unsafe fn close(&self) -> Entry;
}

impl<T> Counter for Ledger<T> {
    fn totals(&self) -> Totals {
        Self::totals(self)
    }

    fn reset_peaks(&self) {
        Self::reset_peaks(self);
    }

    unsafe fn close(&self) -> Entry {
        Self::close(self)
    }
}
