//! The guards of the counters: of one slot, and of all slots at once.

use super::peaks::Peaks;
use super::shard::{Shard, SlotCounts};
use crate::AllocationId;
use crate::primitives::ColdMutexGuard;
use crate::slots::{FastSlotGuard, QuiescedSlots};
use orlop_core::MemoryKind;

/// Counters in which no other thread can count until this is dropped.
#[derive(Debug)]
pub struct QuiescedCounters<'a, T> {
    pub(super) peaks: ColdMutexGuard<'a, Peaks>,
    pub(super) slots: QuiescedSlots<'a, T, Shard>,
}

impl<T> QuiescedCounters<'_, T> {
    /// Releases the counters in the child of a `fork`.
    ///
    /// # Safety
    ///
    /// As for [`QuiescedSlots::release_in_child`].
    pub unsafe fn release_in_child(self) {
        drop(self.peaks);
        // SAFETY: guaranteed by the caller.
        unsafe { self.slots.release_in_child() };
    }
}

/// Exclusive access to the calling thread's slot of the counters, entered without waiting. Counting a block
/// consumes it. Two words long: a function gets it in registers.
///
/// The counters are not closed: [`close`](super::ShardedCounters::close) seals the slots, and a sealed slot
/// is not entered in this way.
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
