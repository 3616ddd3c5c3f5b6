//! Counting a block in the calling thread's slot.

use super::shard::{KindCounts, Shard};
use super::{OwnerState, ShardedCounters, SlotCounts};
use crate::AllocationId;
use crate::primitives::atomic::Ordering;
use crate::slots::SlotGuard;
use orlop_core::MemoryKind;
use std::ptr::NonNull;

impl<T: Default> ShardedCounters<T> {
    /// Counts in a block that is handed out. An owner whose counters were closed hands out none.
    #[inline(always)]
    pub fn count_in(&self, kind: MemoryKind, granted: usize, requested: usize) {
        let slot = self.slots.enter();
        count_in_slot(&slot, kind, granted, requested);
        self.leave(slot, kind, granted);
    }

    /// Runs `f` on the value of this thread's slot and on its counts, and counts in the block that `f`
    /// returns, if it returns one: its kind, its granted and its requested bytes.
    ///
    /// The rules of [`ShardedCounters::with`] apply to `f`.
    #[inline(always)]
    pub fn count_in_with<R>(
        &self,
        f: impl FnOnce(&mut T, SlotCounts<'_>) -> (R, Option<(MemoryKind, usize, usize)>),
    ) -> R {
        let mut slot = self.slots.enter();
        let counts = SlotCounts { shard: slot.shared() };
        let (result, block) = f(&mut slot, counts);
        if let Some((kind, granted, requested)) = block {
            count_in_slot(&slot, kind, granted, requested);
            self.leave(slot, kind, granted);
        }
        result
    }

    /// Counts the growth of a block by `granted` and `requested` bytes to `whole` granted bytes.
    pub fn count_growth(&self, kind: MemoryKind, granted: usize, requested: usize, whole: usize) {
        let slot = self.slots.enter();
        kind_counts(&slot, kind).add_bytes_in(granted as u64, requested as u64);
        self.leave(slot, kind, whole);
    }

    /// Leaves the slot in which a block of `granted` bytes was counted in, or has grown to them.
    #[inline(always)]
    fn leave(&self, slot: SlotGuard<'_, T, Shard>, kind: MemoryKind, granted: usize) {
        let is_above_limit = kind_counts(&slot, kind).is_above_limit();
        drop(slot);
        let granted = granted as u64;
        // Relaxed: a statistic. A block that is handed out again was counted in here when it was new.
        if granted > self.largest.load(Ordering::Relaxed) {
            self.largest.fetch_max(granted, Ordering::Relaxed);
        }
        if is_above_limit {
            self.pass_limit();
        }
    }

    /// Counts out a block that was returned. On [`OwnerState::Unused`] no other thread uses the owner.
    ///
    /// # Safety
    ///
    /// 1. The counters exist when this is called.
    /// 2. If they are destroyed because of an [`OwnerState::Unused`], the block was counted in here, and it
    ///    leaves with this call.
    #[inline(always)]
    pub unsafe fn count_out(
        this: NonNull<Self>,
        kind: MemoryKind,
        granted: usize,
        requested: usize,
    ) -> OwnerState {
        // SAFETY: guaranteed by the caller. The reference is used up to the entry, which has returned before
        // the block is counted out (head of `counters/mod.rs`).
        let slot = unsafe { this.as_ref() }.slots.enter();
        // Release, and the counters may be destroyed once the slot is left.
        kind_counts(&slot, kind).add_out(granted as u64, requested as u64);
        let is_sealed = slot.is_sealed();
        drop(slot);
        // Not sealed: `close` has yet to visit this slot and will find the block counted out. The slot is
        // left, and this thread must not touch the counters again.
        // SAFETY: a block that was counted in leaves with this call, and not before.
        if is_sealed { unsafe { Self::count_out_sealed(this) } } else { OwnerState::InUse }
    }
}

#[inline(always)]
fn kind_counts<'a, T>(slot: &SlotGuard<'a, T, Shard>, kind: MemoryKind) -> &'a KindCounts {
    &slot.shared().kinds[kind.index()]
}

#[inline(always)]
fn count_in_slot<T>(slot: &SlotGuard<'_, T, Shard>, kind: MemoryKind, granted: usize, requested: usize) {
    let counts = kind_counts(slot, kind);
    if counts.ids.load(Ordering::Relaxed) == 0 {
        counts.ids.store(AllocationId::new_range(), Ordering::Relaxed);
    }
    counts.add_in(granted as u64, requested as u64);
}
