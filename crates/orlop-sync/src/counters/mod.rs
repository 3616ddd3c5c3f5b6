//! Blocks and bytes counted per thread slot, and the answer to "was that the last block?".
//!
//! # Two jobs, no shared word
//!
//! Every allocation and every free must be counted, and an allocator must outlive its blocks. Done naively
//! that is two shared counters and a shared reference count: three cache lines that all threads fight over.
//! Here each thread counts in its own slot:
//!
//! * **Statistics.** A slot holds running totals that only grow: blocks and bytes in, blocks and bytes out.
//!   A reader sums the *outgoing* totals of all slots first and the *incoming* ones second. Whatever it saw
//!   leave had entered before, in some slot, so live figures are never negative; with nothing in flight they
//!   are exact. Readers stop nobody.
//! * **Life.** When the last handle of an allocator goes, [`Ledger::close`] seals every slot and takes its
//!   balance. From then on each free is subtracted from what `close` found. Who brings that to zero was the
//!   last: [`Entry::Last`], destroy the owner. No free before that point reads or writes anything shared.
//!
//! # Peak
//!
//! The peak of a sum over threads cannot be read off the threads' own figures, and a shared running total
//! would be what we avoid. Instead each slot has a *limit* for each kind: its balance at the last settlement
//! and a share of the room below the known peaks. As long as no slot stands above a limit no new peak can have
//! been reached, because the shares together are not more than the room. A slot that passes its limit settles:
//! it sums all slots, under a mutex and without stopping anybody, and sets all limits anew.
//!
//! With one thread that happens when a new peak is made, and the peak is exact. With `n` threads, each of which
//! is left 64 KiB when the room is gone, it is at most 64 KiB × `n` too low, and what was handed out or
//! returned while somebody settled; it is never too high. In a steady state settlements are rare.
//!
//! # Ordering
//!
//! A slot's totals are written by whoever is inside the slot, and read by anybody. Incoming totals are written
//! before the block is handed to anybody, so whoever returns it comes after that; outgoing ones are written with
//! release and read with `ledger.sum` (acquire), so a reader that sees a block leave sees it
//! enter. `remaining` needs acquire and release of whoever changes it (`ledger.last`, `ledger.close`): whoever brings it to
//! zero destroys the word itself, and must have seen everything that each of the others did up to and with its change.
//! Limits are hints: relaxed.
//!
//! # When the ledger is gone
//!
//! After a block has left, or the ledger is closed, the owner may be destroyed by another thread at any moment, also while
//! the function is still returning that did it. So [`Holding`] and [`Ledger::close`] have a pointer to the ledger and no
//! reference, as `Arc` does: what a function gets by reference must live until it has returned.

mod accounts;

pub use self::accounts::{Account, Counter, Entry, Totals};

use super::slots::{QuiescedSlots, SlotGuard, Slots};
use super::thread_slot::{self, SLOTS, ThreadSlot};
use crate::AllocationId;
use crate::ordering;
use crate::primitives::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::primitives::{End, Mutex, MutexGuard};
use orlop_core::MemoryKind;
use std::ptr::NonNull;

/// What a slot may rise above its last settlement when there is no room below the peak, in bytes.
const LEAST_SHARE: i64 = 64 << 10;

const KINDS: usize = MemoryKind::COUNT;

/// What `remaining` holds until [`Ledger::close`] has put the true figure there: high enough that frees
/// which overtake the harvest cannot bring it to zero.
const UNCOUNTED: i64 = i64::MAX / 2;

/// Counts by slot and kind; see the source for the protocol.
///
/// An engine that keeps something in each slot anyhow, such as a cache, puts it into the ledger as `T` and
/// enters the slot once for both.
#[derive(Debug)]
pub struct Ledger<T = ()> {
    slots: Slots<T, Shard>,
    levels: Mutex<Levels>,
    remaining: AtomicI64,
    largest: AtomicU64,
    counted: bool,
}

/// One slot's counts.
#[derive(Debug)]
pub(super) struct Shard {
    kinds: [Entries; KINDS],
    /// How many blocks had gone in and out when [`Ledger::idle_slots`] last looked.
    seen: AtomicU64,
}

/// One kind's running totals in one slot: a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entries {
    blocks_in: AtomicU64,
    granted_in: AtomicU64,
    requested_in: AtomicU64,
    blocks_out: AtomicU64,
    granted_out: AtomicU64,
    requested_out: AtomicU64,
    /// The slot settles when it holds more bytes of the kind. May be negative: a slot that returns what others
    /// allocated holds less than nothing. The least there is until a block went in: the first one is notable, whatever the
    /// slot returned before.
    limit: AtomicI64,
    /// The ids of this slot's blocks of this kind are this and how many went in before. Zero: none went in yet.
    ids: AtomicU64,
}

/// The highest sums that were seen.
#[derive(Debug, Default)]
struct Levels {
    kinds: [i64; KINDS],
    all: i64,
}

impl Ledger {
    /// Counts a block that was handed out. The caller holds a handle, so the ledger is open.
    #[inline(always)]
    pub fn count_in(&self, slot: ThreadSlot, kind: MemoryKind, granted: usize, requested: usize) {
        self.enter(slot).count_in(kind, granted, requested);
    }
}

impl<T: Default> Ledger<T> {
    /// A ledger of nothing yet. `counted: false` reports no bytes and keeps the life protocol.
    #[must_use]
    pub fn new(counted: bool) -> Self {
        Self {
            slots: Slots::new(),
            levels: Mutex::default(),
            remaining: AtomicI64::new(UNCOUNTED),
            largest: AtomicU64::new(0),
            counted,
        }
    }

    /// Reports bytes from now on, or none. Before the first block is counted.
    pub fn set_counted(&mut self, counted: bool) {
        self.counted = counted;
    }

    /// Runs `f` on the value of this thread's slot.
    #[inline]
    pub fn with<R>(&self, slot: ThreadSlot, f: impl FnOnce(&mut T) -> R) -> R {
        self.slots.with(slot, f)
    }

    /// Enters this thread's slot, if it is at home there and nothing has to be waited for or made. Calls nothing.
    #[inline(always)]
    pub fn try_enter(&self) -> Option<Holding<'_, T>> {
        let local = self.slots.try_enter(thread_slot::owned()?)?;
        Some(Holding { ledger: NonNull::from(self), local })
    }

    /// Enters this thread's slot, for using its value and then counting a block in or out.
    #[inline(always)]
    pub fn enter(&self, slot: ThreadSlot) -> Holding<'_, T> {
        Holding { ledger: NonNull::from(self), local: self.slots.enter(slot) }
    }
}

impl<T> Ledger<T> {
    /// Visits the value of every slot that was ever used.
    pub fn for_each_slot(&self, mut f: impl FnMut(&mut T)) {
        self.slots.for_each_slot(|value, _| f(value));
    }

    /// Waits until nobody counts, and keeps everybody from it.
    pub fn quiesce(&self) -> AllCounted<'_, T> {
        let slots = self.slots.quiesce();
        AllCounted { levels: self.levels.lock(), slots }
    }

    /// How many slots were ever used.
    pub fn slots(&self) -> usize {
        self.slots.shared().count()
    }

    /// By slot: whether it was used before, and nothing was counted there since the last call.
    pub fn idle_slots(&self) -> [bool; SLOTS] {
        let mut idle = [false; SLOTS];
        for (number, shard) in self.slots.indexed_shared() {
            let count = |entries: &Entries| {
                entries
                    .blocks_in
                    .load(Ordering::Relaxed)
                    .wrapping_add(entries.blocks_out.load(Ordering::Relaxed))
            };
            let now: u64 = shard.kinds.iter().map(count).fold(0, u64::wrapping_add);
            // Relaxed: figures. Two that ask at once each see some of it.
            idle[number] = shard.seen.swap(now, Ordering::Relaxed) == now;
        }
        idle
    }

    /// # Safety
    ///
    /// A block that was entered leaves with this: until then the ledger is there.
    #[cold]
    unsafe fn leave_sealed(this: NonNull<Self>) -> Entry {
        // SAFETY: the caller's promise. Only the word is borrowed, and no longer than it is there (head of this file).
        let remaining = unsafe { &(*this.as_ptr()).remaining };
        let before = remaining.fetch_sub(1, ordering!("ledger.last", AcqRel));
        if before == 1 { Entry::Last } else { Entry::More }
    }

    /// Says that no handle remains: nothing can enter any more. On [`Entry::Last`] nobody else uses the owner.
    ///
    /// # Safety
    ///
    /// The ledger is there when this is called, and this is called once. If the ledger goes when it is told
    /// [`Entry::Last`], now or by a block that leaves, it is gone then as soon as this is known.
    pub unsafe fn close(this: NonNull<Self>) -> Entry {
        // SAFETY: the caller's promise: nobody is told `Last` before the addition below.
        let ledger = unsafe { this.as_ref() };
        let mut balance = 0i64;
        ledger.slots.seal(|shard| {
            for entries in &shard.kinds {
                // The visit has synchronised with whoever wrote these.
                let entered = entries.blocks_in.load(Ordering::Relaxed);
                balance += entered.wrapping_sub(entries.blocks_out.load(Ordering::Relaxed)).cast_signed();
            }
        });
        let correction = balance - UNCOUNTED;
        // Release: the sealing, and this addition itself, come before the end of the ledger, whoever brings that about.
        let before = ledger.remaining.fetch_add(correction, ordering!("ledger.close", AcqRel));
        if before + correction == 0 { Entry::Last } else { Entry::More }
    }

    /// A slot stands higher than its limit: perhaps a new peak.
    #[cold]
    #[inline(never)]
    fn pass_limit(&self) {
        let mut levels = self.levels.lock();
        if self.counted {
            self.settle(&mut levels);
        } else {
            let used = |entries: &&Entries| entries.blocks_in.load(Ordering::Relaxed) > 0;
            for entries in self.slots.shared().flat_map(|shard| &shard.kinds).filter(used) {
                entries.limit.store(i64::MAX, Ordering::Relaxed);
            }
        }
    }

    /// Sums what is live, notes new peaks, and shares out the room below them.
    fn settle(&self, levels: &mut Levels) {
        // What went in is read before what went out: a block that moves on meanwhile is missed, not counted
        // twice, and no sum is higher than what was live between the two.
        let mut live = [0i64; KINDS];
        let (mut sharers, mut used) = (0i64, 0u32);
        for shard in self.slots.shared() {
            sharers += 1;
            for (index, entries) in shard.kinds.iter().enumerate() {
                let granted = entries.granted_in.load(Ordering::Relaxed);
                if granted > 0 {
                    used |= 1 << index;
                    live[index] = live[index].wrapping_add_unsigned(granted);
                }
            }
        }
        let sharers = sharers.max(1);
        let kinds = || (0..KINDS).filter(|index| used & (1 << index) != 0);
        for shard in self.slots.shared() {
            for index in kinds() {
                live[index] = live[index].wrapping_sub_unsigned(returned(&shard.kinds[index].granted_out));
            }
        }
        let all: i64 = live.iter().sum();
        levels.all = levels.all.max(all);
        for index in kinds() {
            levels.kinds[index] = levels.kinds[index].max(live[index]);
        }
        let used_kinds = i64::from(used.count_ones().max(1));
        let least = if sharers == 1 { 0 } else { LEAST_SHARE / used_kinds };
        let room_for_all = (levels.all - all) / (sharers * used_kinds);
        for index in kinds() {
            let room = ((levels.kinds[index] - live[index]) / sharers).min(room_for_all).max(least);
            let is_used = |entries: &&Entries| entries.ids.load(Ordering::Relaxed) != 0;
            for entries in self.slots.shared().map(|shard| &shard.kinds[index]).filter(is_used) {
                entries.limit.store(entries.balance().saturating_add(room), Ordering::Relaxed);
            }
        }
    }

    /// Sums all slots. Exact at a quiet moment; live figures are never negative.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let largest = if self.counted { self.largest.load(Ordering::Relaxed) } else { 0 };
        let mut totals = Totals { largest, uncounted: !self.counted, ..Totals::default() };
        // Outgoing first: see the head of this file.
        for shard in self.slots.shared() {
            for (account, entries) in totals.kinds.iter_mut().zip(&shard.kinds) {
                account.frees += returned(&entries.blocks_out);
                account.freed_bytes += returned(&entries.granted_out);
                account.requested_bytes += returned(&entries.requested_out);
            }
        }
        for account in &mut totals.kinds {
            account.requested_bytes = account.requested_bytes.wrapping_neg();
        }
        for shard in self.slots.shared() {
            for (account, entries) in totals.kinds.iter_mut().zip(&shard.kinds) {
                account.allocations += entries.blocks_in.load(Ordering::Relaxed);
                account.allocated_bytes += entries.granted_in.load(Ordering::Relaxed);
                let requested = entries.requested_in.load(Ordering::Relaxed);
                account.requested_bytes = account.requested_bytes.wrapping_add(requested);
            }
        }
        let mut levels = self.levels.lock();
        if self.counted {
            self.settle(&mut levels);
        }
        let peak = |level: i64| u64::try_from(level).unwrap_or(0);
        for (account, &level) in totals.kinds.iter_mut().zip(&levels.kinds) {
            account.live_bytes = account.allocated_bytes - account.freed_bytes;
            account.peak_bytes = peak(level).max(account.live_bytes);
            if !self.counted {
                *account =
                    Account { allocations: account.allocations, frees: account.frees, ..Account::default() };
            }
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
        if self.counted {
            all.peak_bytes = peak(levels.all).max(all.live_bytes);
        }
        totals
    }

    /// Peaks start again from what is live now.
    pub fn reset_peaks(&self) {
        if !self.counted {
            return;
        }
        let mut levels = self.levels.lock();
        (levels.all, levels.kinds) = (i64::MIN, [i64::MIN; KINDS]);
        self.settle(&mut levels);
    }
}

/// A ledger in which nobody counts until this is dropped.
#[derive(Debug)]
pub struct AllCounted<'a, T> {
    levels: MutexGuard<'a, Levels>,
    slots: QuiescedSlots<'a, T, Shard>,
}

impl<T> AllCounted<'_, T> {
    /// Lets go where this thread is the only one left: see [`QuiescedSlots::release_alone`].
    pub fn release_alone(self) {
        drop(self.levels);
        self.slots.release_alone();
    }
}

/// A slot of a ledger that this thread is inside of.
#[derive(Debug)]
pub struct Holding<'a, T> {
    /// Borrowed for `'a`; no reference (head of this file).
    ledger: NonNull<Ledger<T>>,
    local: SlotGuard<'a, T, Shard>,
}

/// A total of what left, with the promise that all of that is seen to have entered.
fn returned(total: &AtomicU64) -> u64 {
    total.load(ordering!("ledger.sum", Acquire))
}

/// Adds to a total that nobody else writes now.
#[inline(always)]
fn add(total: &AtomicU64, more: u64, ordering: Ordering) {
    total.store(total.load(Ordering::Relaxed).wrapping_add(more), ordering);
}

impl<'a, T> Holding<'a, T> {
    /// What the slot keeps.
    #[inline(always)]
    pub fn value(&mut self) -> &mut T {
        &mut self.local
    }

    /// Whether [`Ledger::close`] came before: a block that leaves may be the last.
    #[inline(always)]
    pub fn is_sealed(&self) -> bool {
        self.local.is_sealed()
    }

    /// The slot's figures, to be looked at while its value is changed.
    #[inline(always)]
    #[must_use]
    pub fn counts(&self) -> Figures<'a> {
        Figures { shard: self.local.shared() }
    }

    /// Whether counting such a block in would need more than this slot: see [`Figures::exceeds_limit`].
    #[inline(always)]
    #[must_use]
    pub fn exceeds_limit(&self, kind: MemoryKind, granted: usize) -> bool {
        self.counts().exceeds_limit(kind, granted)
    }

    /// Counts a block that is handed out and is not notable, and leaves the slot. Its id. Calls nothing.
    #[inline(always)]
    pub fn count_in_below_limit(self, kind: MemoryKind, granted: usize, requested: usize) -> AllocationId {
        let entries = &self.local.shared().kinds[kind.index()];
        let id = entries.next_id();
        add(&entries.blocks_in, 1, Ordering::Relaxed);
        add(&entries.granted_in, granted as u64, Ordering::Relaxed);
        add(&entries.requested_in, requested as u64, Ordering::Relaxed);
        id
    }

    /// Counts a block that comes back while the ledger is open, and leaves the slot. Calls nothing.
    #[inline(always)]
    pub fn count_out_open(self, kind: MemoryKind, granted: usize, requested: usize) {
        debug_assert!(!self.local.is_sealed());
        self.add_out(kind, granted, requested);
    }

    #[inline(always)]
    fn add_out(&self, kind: MemoryKind, granted: usize, requested: usize) {
        let entries = &self.local.shared().kinds[kind.index()];
        // Release, see the head of this file. (Not named: under loom the light fence on the way into the slot is a
        // full one, orders what entered before with all that follows, and hides the loss.)
        let out = Ordering::Release;
        add(&entries.blocks_out, 1, out);
        add(&entries.granted_out, granted as u64, out);
        add(&entries.requested_out, requested as u64, out);
    }

    /// Counts a block that is handed out, and leaves the slot. The caller holds a handle of the owner, so the
    /// ledger is open.
    #[inline(always)]
    pub fn count_in(self, kind: MemoryKind, granted: usize, requested: usize) {
        let entries = &self.local.shared().kinds[kind.index()];
        if entries.ids.load(Ordering::Relaxed) == 0 {
            entries.ids.store(AllocationId::new_range(), Ordering::Relaxed);
        }
        let granted = granted as u64;
        add(&entries.blocks_in, 1, Ordering::Relaxed);
        add(&entries.granted_in, granted, Ordering::Relaxed);
        add(&entries.requested_in, requested as u64, Ordering::Relaxed);
        let high = entries.balance() > entries.limit.load(Ordering::Relaxed);
        let Self { ledger, local } = self;
        drop(local);
        // SAFETY: borrowed, and a handle is held (the caller).
        let ledger = unsafe { ledger.as_ref() };
        // Relaxed: a figure. Every block that is handed out again was entered here when it was new.
        if granted > ledger.largest.load(Ordering::Relaxed) {
            ledger.largest.fetch_max(granted, Ordering::Relaxed);
        }
        if high {
            ledger.pass_limit();
        }
    }

    /// Counts that a block of the owner became larger by so many bytes and has `whole` now, and leaves the slot. The caller
    /// holds the block.
    pub fn count_growth(self, kind: MemoryKind, granted: usize, requested: usize, whole: usize) {
        let entries = &self.local.shared().kinds[kind.index()];
        add(&entries.granted_in, granted as u64, Ordering::Relaxed);
        add(&entries.requested_in, requested as u64, Ordering::Relaxed);
        let high = entries.balance() > entries.limit.load(Ordering::Relaxed);
        let Self { ledger, local } = self;
        drop(local);
        // SAFETY: a block of the owner is held (the caller).
        let ledger = unsafe { ledger.as_ref() };
        // Relaxed: a figure.
        ledger.largest.fetch_max(whole as u64, Ordering::Relaxed);
        if high {
            ledger.pass_limit();
        }
    }

    /// Counts a block that came back, and leaves the slot. On [`Entry::Last`] nobody else uses the owner any
    /// more.
    #[inline(always)]
    pub fn count_out(self, kind: MemoryKind, granted: usize, requested: usize) -> Entry {
        self.add_out(kind, granted, requested);
        let Self { ledger, local } = self;
        let sealed = local.is_sealed();
        drop(local);
        // Not sealed: `close` has yet to visit this slot and will find the entry. The slot is left, and this
        // thread must not touch the ledger again.
        // SAFETY: a block leaves that was entered, and not before this.
        if sealed { unsafe { Ledger::leave_sealed(ledger) } } else { Entry::More }
    }
}

/// A slot's figures.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    shard: &'a Shard,
}

impl Figures<'_> {
    /// Bytes that went in here and not out. Nothing if more went out, of what went in elsewhere.
    #[must_use]
    pub fn balance(self) -> usize {
        let balance: i64 = self.shard.kinds.iter().map(Entries::balance).sum();
        usize::try_from(balance).unwrap_or(0)
    }

    /// Whether counting such a block in would need more than the slot: it may be a peak, or the first of its kind.
    #[inline(always)]
    #[must_use]
    pub fn exceeds_limit(self, kind: MemoryKind, granted: usize) -> bool {
        let entries = &self.shard.kinds[kind.index()];
        let balance = entries.balance().wrapping_add_unsigned(granted as u64);
        balance > entries.limit.load(Ordering::Relaxed)
    }
}

impl Entries {
    fn end(&mut self) {
        let Self { blocks_in, granted_in, requested_in, blocks_out, granted_out, requested_out, limit, ids } =
            self;
        limit.end();
        for word in [blocks_in, granted_in, requested_in, blocks_out, granted_out, requested_out, ids] {
            word.end();
        }
    }

    /// The id of the next block that goes in.
    #[inline(always)]
    fn next_id(&self) -> AllocationId {
        let before = self.blocks_in.load(Ordering::Relaxed);
        AllocationId::of_range(self.ids.load(Ordering::Relaxed).wrapping_add(before))
    }

    /// Bytes in and not out, in this slot.
    #[inline(always)]
    fn balance(&self) -> i64 {
        let entered = self.granted_in.load(Ordering::Relaxed);
        entered.wrapping_sub(self.granted_out.load(Ordering::Relaxed)).cast_signed()
    }
}

impl Default for Shard {
    fn default() -> Self {
        let unused = |_| Entries { limit: AtomicI64::new(i64::MIN), ..Entries::default() };
        Self { kinds: std::array::from_fn(unused), seen: AtomicU64::new(0) }
    }
}

impl<T: Default> Default for Ledger<T> {
    fn default() -> Self {
        Self::new(true)
    }
}

impl<T> Counter for Ledger<T> {
    fn totals(&self) -> Totals {
        Self::totals(self)
    }

    fn reset_peaks(&self) {
        Self::reset_peaks(self);
    }
}

impl<T> Ledger<T> {
    /// Nobody uses the ledger's words any more: see `primitives/end.rs`.
    #[doc(hidden)]
    pub fn end(&mut self) {
        self.slots.end();
        self.remaining.end();
        self.largest.end();
    }
}

impl<T> Drop for Ledger<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.seen.end();
        for entries in &mut self.kinds {
            entries.end();
        }
    }
}
