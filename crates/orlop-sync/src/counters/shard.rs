//! The counts of one slot.

use super::KINDS;
use crate::AllocationId;
use crate::ordering;
use crate::primitives::End;
use crate::primitives::atomic::{AtomicI64, AtomicU64, Ordering};
use orlop_core::MemoryKind;

/// One slot's counts.
#[derive(Debug)]
pub(in crate::counters) struct Shard {
    pub(super) kinds: [KindCounts; KINDS],
    /// The number of operations at the last [`Shard::note_operations`].
    seen: AtomicU64,
}

/// The running totals of one memory kind in one slot: a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct KindCounts {
    pub(super) blocks_in: AtomicU64,
    pub(super) granted_in: AtomicU64,
    pub(super) requested_in: AtomicU64,
    pub(super) blocks_out: AtomicU64,
    pub(super) granted_out: AtomicU64,
    pub(super) requested_out: AtomicU64,
    /// The slot settles when its balance exceeds this. May be negative: the balance of a slot that frees
    /// blocks of other slots is. `i64::MIN` until a block was counted in: the first one always exceeds it,
    /// whatever the slot freed before.
    pub(super) limit: AtomicI64,
    /// The id of this slot's next block of this kind is this plus `blocks_in`. Zero: none was counted in yet.
    pub(super) ids: AtomicU64,
}

/// Adds to a total that no other thread writes at the same time.
#[inline(always)]
fn add(total: &AtomicU64, more: u64, ordering: Ordering) {
    total.store(total.load(Ordering::Relaxed).wrapping_add(more), ordering);
}

/// Loads an outgoing total. Everything in it is then seen to have been counted in.
pub(super) fn load_out(total: &AtomicU64) -> u64 {
    total.load(ordering!("counters.sum", Acquire))
}

impl Shard {
    /// Returns the blocks counted in here and not out, of all kinds. May be negative.
    pub(super) fn live_blocks(&self) -> i64 {
        let live = |counts: &KindCounts| {
            let blocks_in = counts.blocks_in.load(Ordering::Relaxed);
            blocks_in.wrapping_sub(counts.blocks_out.load(Ordering::Relaxed)).cast_signed()
        };
        self.kinds.iter().map(live).sum()
    }

    /// Records the number of operations so far, and returns `true` if it has not changed since the previous
    /// call.
    pub(super) fn note_operations(&self) -> bool {
        let operations = |counts: &KindCounts| {
            let blocks_in = counts.blocks_in.load(Ordering::Relaxed);
            blocks_in.wrapping_add(counts.blocks_out.load(Ordering::Relaxed))
        };
        let now = self.kinds.iter().map(operations).fold(0, u64::wrapping_add);
        // Relaxed: a statistic. Two threads that call this at once each see a part of the changes.
        self.seen.swap(now, Ordering::Relaxed) == now
    }
}

impl KindCounts {
    /// Returns the id of the next block that is counted in.
    #[inline(always)]
    pub(super) fn next_id(&self) -> AllocationId {
        let before = self.blocks_in.load(Ordering::Relaxed);
        AllocationId::of_range(self.ids.load(Ordering::Relaxed).wrapping_add(before))
    }

    /// Returns the granted bytes counted in here and not out. May be negative.
    #[inline(always)]
    pub(super) fn balance(&self) -> i64 {
        let granted_in = self.granted_in.load(Ordering::Relaxed);
        granted_in.wrapping_sub(self.granted_out.load(Ordering::Relaxed)).cast_signed()
    }

    /// Returns `true` if the balance exceeds the limit.
    #[inline(always)]
    pub(super) fn is_above_limit(&self) -> bool {
        self.balance() > self.limit.load(Ordering::Relaxed)
    }

    /// Adds one block to the incoming totals. The caller is inside the slot.
    #[inline(always)]
    pub(super) fn add_in(&self, granted: u64, requested: u64) {
        add(&self.blocks_in, 1, Ordering::Relaxed);
        self.add_bytes_in(granted, requested);
    }

    /// Adds bytes to the incoming totals. The caller is inside the slot.
    #[inline(always)]
    pub(super) fn add_bytes_in(&self, granted: u64, requested: u64) {
        add(&self.granted_in, granted, Ordering::Relaxed);
        add(&self.requested_in, requested, Ordering::Relaxed);
    }

    /// Adds one block to the outgoing totals. The caller is inside the slot.
    #[inline(always)]
    pub(super) fn add_out(&self, granted: u64, requested: u64) {
        // Release: see the head of `counters/mod.rs`. (Not named: under loom the light fence on entry to the
        // slot is a full one, orders the incoming totals before all that follows, and would hide a weaker
        // ordering here.)
        let out = Ordering::Release;
        add(&self.blocks_out, 1, out);
        add(&self.granted_out, granted, out);
        add(&self.requested_out, requested, out);
    }

    /// Ends the atomic words: see [`End`].
    fn end(&mut self) {
        let Self { blocks_in, granted_in, requested_in, blocks_out, granted_out, requested_out, limit, ids } =
            self;
        limit.end();
        for word in [blocks_in, granted_in, requested_in, blocks_out, granted_out, requested_out, ids] {
            word.end();
        }
    }
}

impl Default for Shard {
    fn default() -> Self {
        let unused = |_| KindCounts { limit: AtomicI64::new(i64::MIN), ..KindCounts::default() };
        Self { kinds: std::array::from_fn(unused), seen: AtomicU64::new(0) }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.seen.end();
        for counts in &mut self.kinds {
            counts.end();
        }
    }
}

/// A view of one slot's counts.
#[derive(Debug, Clone, Copy)]
pub struct SlotCounts<'a> {
    pub(super) shard: &'a Shard,
}

impl SlotCounts<'_> {
    /// Returns the granted bytes counted in here and not out, or zero if more was counted out, because the
    /// blocks came from other slots.
    #[must_use]
    pub fn balance(self) -> usize {
        let balance: i64 =
            self.shard.kinds.iter().fold(0, |all: i64, counts| all.wrapping_add(counts.balance()));
        usize::try_from(balance).unwrap_or(0)
    }

    /// Returns `true` if this slot alone cannot count in a block of `granted` bytes: the block may make a new
    /// peak, or is the first of its kind.
    #[inline(always)]
    #[must_use]
    pub fn exceeds_limit(self, kind: MemoryKind, granted: usize) -> bool {
        let counts = &self.shard.kinds[kind.index()];
        let balance = counts.balance().wrapping_add_unsigned(granted as u64);
        balance > counts.limit.load(Ordering::Relaxed)
    }
}
