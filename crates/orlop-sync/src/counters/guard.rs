//! The guards of the counters: of one slot, and of all slots at once.

use super::peaks::Peaks;
use super::shard::{KindCounts, Shard, SlotCounts};
use super::{OwnerState, ShardedCounters};
use crate::AllocationId;
use crate::primitives::MutexGuard;
use crate::primitives::atomic::Ordering;
use crate::slots::{FastSlotGuard, QuiescedSlots, SlotGuard};
use orlop_core::MemoryKind;
use std::ptr::NonNull;

/// Counters in which no other thread can count until this is dropped.
#[derive(Debug)]
pub struct QuiescedCounters<'a, T> {
    pub(super) peaks: MutexGuard<'a, Peaks>,
    pub(super) slots: QuiescedSlots<'a, T, Shard>,
}

impl<T> QuiescedCounters<'_, T> {
    /// Releases the counters in the child of a `fork`, where this thread is the only one: see
    /// [`QuiescedSlots::release_alone`].
    pub fn release_alone(self) {
        self.peaks.forget_waiting();
        drop(self.peaks);
        self.slots.release_alone();
    }
}

/// Exclusive access to the calling thread's slot of the counters, entered without waiting. Counting a block
/// consumes it. Two words long: a function gets it in registers.
///
/// The counters are not closed: [`ShardedCounters::close`] seals the slots, and a sealed slot is entered by
/// [`ShardedCounters::enter`] only.
#[derive(Debug)]
pub struct FastGuard<'a, T>(FastSlotGuard<'a, T, Shard>);

impl<'a, T> FastGuard<'a, T> {
    /// Creates the guard of a slot that is not sealed.
    #[inline(always)]
    pub(super) fn new(slot: FastSlotGuard<'a, T, Shard>) -> Self {
        Self(slot)
    }

    /// Returns the value that the slot holds.
    #[inline(always)]
    pub fn value(&mut self) -> &mut T {
        &mut self.0
    }

    /// Runs `f` on the value that the slot holds. An entry by this thread meanwhile is refused, so `f` may
    /// call anything.
    #[inline]
    pub fn call<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.call(f)
    }

    /// Returns the slot's counts, which stay readable while the value is borrowed.
    #[inline(always)]
    #[must_use]
    pub fn counts(&self) -> SlotCounts<'a> {
        SlotCounts { shard: self.0.shared() }
    }

    /// Counts in a block that is handed out and does not exceed the limit
    /// ([`SlotCounts::exceeds_limit`]), leaves the slot, and returns the block's id. Calls nothing.
    #[inline(always)]
    pub fn count_in(self, kind: MemoryKind, granted: usize, requested: usize) -> AllocationId {
        let counts = &self.0.shared().kinds[kind.index()];
        let id = counts.next_id();
        counts.add_in(granted as u64, requested as u64);
        id
    }

    /// Counts out a block that was returned, and leaves the slot. Calls nothing.
    #[inline(always)]
    pub fn count_out(self, kind: MemoryKind, granted: usize, requested: usize) {
        self.0.shared().kinds[kind.index()].add_out(granted as u64, requested as u64);
    }
}

/// Exclusive access to the calling thread's slot of the counters. Counting a block consumes it.
#[derive(Debug)]
pub struct CounterGuard<'a, T> {
    /// Borrowed for `'a`, but not a reference (head of `counters/mod.rs`).
    counters: NonNull<ShardedCounters<T>>,
    slot: SlotGuard<'a, T, Shard>,
}

impl<'a, T> CounterGuard<'a, T> {
    /// Creates the guard of a slot of `counters` that the caller has entered.
    #[inline(always)]
    pub(super) fn new(counters: &'a ShardedCounters<T>, slot: SlotGuard<'a, T, Shard>) -> Self {
        Self { counters: NonNull::from(counters), slot }
    }

    #[inline(always)]
    fn kind(&self, kind: MemoryKind) -> &'a KindCounts {
        &self.slot.shared().kinds[kind.index()]
    }

    /// Returns the value that the slot holds.
    #[inline(always)]
    pub fn value(&mut self) -> &mut T {
        &mut self.slot
    }

    /// Returns the slot's counts, which stay readable while the value is borrowed.
    #[inline(always)]
    #[must_use]
    pub fn counts(&self) -> SlotCounts<'a> {
        SlotCounts { shard: self.slot.shared() }
    }

    /// Counts in a block that is handed out, and leaves the slot. The caller holds a handle of the owner, so
    /// the counters are open.
    #[inline(always)]
    pub fn count_in(self, kind: MemoryKind, granted: usize, requested: usize) {
        let counts = self.kind(kind);
        if counts.ids.load(Ordering::Relaxed) == 0 {
            counts.ids.store(AllocationId::new_range(), Ordering::Relaxed);
        }
        let granted = granted as u64;
        counts.add_in(granted, requested as u64);
        let is_above_limit = counts.is_above_limit();
        let Self { counters, slot } = self;
        drop(slot);
        // SAFETY: the counters are borrowed, and the caller holds a handle.
        let counters = unsafe { counters.as_ref() };
        // Relaxed: a statistic. A block that is handed out again was counted in here when it was new.
        if granted > counters.largest.load(Ordering::Relaxed) {
            counters.largest.fetch_max(granted, Ordering::Relaxed);
        }
        if is_above_limit {
            counters.pass_limit();
        }
    }

    /// Counts the growth of a block by `granted` and `requested` bytes to `whole` granted bytes, and leaves
    /// the slot. The caller holds the block.
    pub fn count_growth(self, kind: MemoryKind, granted: usize, requested: usize, whole: usize) {
        let counts = self.kind(kind);
        counts.add_bytes_in(granted as u64, requested as u64);
        let is_above_limit = counts.is_above_limit();
        let Self { counters, slot } = self;
        drop(slot);
        // SAFETY: the caller holds a block of the owner.
        let counters = unsafe { counters.as_ref() };
        // Relaxed: a statistic.
        counters.largest.fetch_max(whole as u64, Ordering::Relaxed);
        if is_above_limit {
            counters.pass_limit();
        }
    }

    /// Counts out a block that was returned, and leaves the slot. On [`OwnerState::Unused`] no other thread
    /// uses the owner.
    #[inline(always)]
    pub fn count_out(self, kind: MemoryKind, granted: usize, requested: usize) -> OwnerState {
        self.kind(kind).add_out(granted as u64, requested as u64);
        let Self { counters, slot } = self;
        let is_sealed = slot.is_sealed();
        drop(slot);
        // Not sealed: `close` has yet to visit this slot and will find the block counted out. The slot is
        // left, and this thread must not touch the counters again.
        // SAFETY: a block that was counted in leaves with this call, and not before.
        if is_sealed { unsafe { ShardedCounters::count_out_sealed(counters) } } else { OwnerState::InUse }
    }
}
