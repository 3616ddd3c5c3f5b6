//! Sharded counters: blocks and bytes counted per thread slot, and detection of the last block's return.
//!
//! # Two jobs, no shared word
//!
//! Every allocation and every free must be counted, and an allocator must outlive its blocks. The naive
//! solution has two shared counters and a shared reference count: three cache lines that all threads contend
//! for. Here each thread counts in its own slot:
//!
//! * **Statistics.** A slot holds running totals that only grow: blocks and bytes in, blocks and bytes out. A
//!   reader sums the *outgoing* totals of all slots first and the *incoming* ones second. Every block that it
//!   saw leave had been counted in before, in some slot, so the live sums are never negative; with no
//!   operation in flight they are exact. Readers block no thread.
//! * **Lifetime.** When the last handle of an allocator is dropped, [`ShardedCounters::close`] seals every
//!   slot and reads its balance. From then on each free is subtracted from the sum that `close` found. The
//!   thread that brings it to zero returned the last block: it gets [`OwnerState::Unused`] and destroys the
//!   owner. No free before that point reads or writes a shared word.
//!
//! # Peak
//!
//! The peak of a sum over threads cannot be derived from per-thread peaks, and a shared running total would
//! defeat the purpose. Instead each slot has a *limit* for each memory kind: its balance at the last
//! settlement plus a share of the room below the known peaks. While no slot is above a limit, no new peak can
//! have been reached, because the shares together do not exceed the room. A slot that passes its limit
//! settles: it sums all slots, under a mutex but without blocking threads that only count, and sets all
//! limits again.
//!
//! With one thread this happens at each new peak, and the peak is exact. With `n` threads, each of which
//! keeps a share of 64 KiB when no room is left, the peak is too low by at most 64 KiB × `n`, plus what is
//! allocated or freed during a settlement; it is never too high. In a steady state settlements are rare.
//!
//! # Ordering
//!
//! A slot's totals are written by the thread inside the slot and read by any thread. Incoming totals are
//! written before the block is handed out, so the thread that returns it is ordered after that; outgoing
//! totals are written with release and read with `counters.sum` (acquire), so a reader that sees a block
//! leave also sees it enter. A change of `remaining` needs acquire and release (`counters.last`,
//! `counters.close`): the thread that brings it to zero destroys the word itself, and must have seen
//! everything that each of the other threads did up to and including its change. Limits are hints: relaxed.
//!
//! # Destruction of the counters
//!
//! After a block was counted out, or after `close`, another thread may destroy the owner at any moment, even
//! while the function that did either is still returning. So [`FastGuard`], [`ShardedCounters::count_out`]
//! and [`ShardedCounters::close`] have pointers and no references, as `Arc` does: what a function gets by
//! reference must live until it has returned. That holds for a mutex of the owner, too: it is unlocked before
//! the block is counted out.

mod counting;
mod guard;
mod peaks;
mod shard;
mod totals;

pub use self::guard::{FastGuard, QuiescedCounters};
pub use self::shard::SlotCounts;
pub use self::totals::{Account, BlockCounter, OwnerState, Totals};

use self::peaks::Peaks;
use self::shard::Shard;
use super::slots::Slots;
use super::thread_slot::SLOTS;
use crate::ordering;
use crate::primitives::atomic::{AtomicI64, AtomicU64};
use crate::primitives::{ColdMutex, End};
use orlop_core::MemoryKind;
use std::ptr::NonNull;

const KINDS: usize = MemoryKind::COUNT;

/// The value of `remaining` until [`ShardedCounters::close`] has added the true count: so high that frees
/// that run before the addition cannot bring it to zero.
const UNCOUNTED: i64 = i64::MAX / 2;

/// Counters of blocks and bytes by thread slot and memory kind.
///
/// An engine that keeps a value in each slot anyway, such as a cache, stores it in the counters as `T` and
/// enters the slot once for both.
#[derive(Debug)]
pub struct ShardedCounters<T = ()> {
    slots: Slots<T, Shard>,
    peaks: ColdMutex<Peaks>,
    remaining: AtomicI64,
    largest: AtomicU64,
    counts_bytes: bool,
}

impl<T: Default> ShardedCounters<T> {
    /// Creates counters at zero. With `counts_bytes: false` they report no bytes, and still decide which
    /// thread destroys the owner.
    #[must_use]
    pub fn new(counts_bytes: bool) -> Self {
        Self {
            slots: Slots::new(),
            peaks: ColdMutex::default(),
            remaining: AtomicI64::new(UNCOUNTED),
            largest: AtomicU64::new(0),
            counts_bytes,
        }
    }

    /// Sets whether bytes are reported. To be called before the first block is counted.
    pub fn set_counted(&mut self, counts_bytes: bool) {
        self.counts_bytes = counts_bytes;
    }

    /// Runs `f` on the value of this thread's slot: see [`Slots::with`].
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.slots.with(f)
    }

    /// Enters this thread's slot if the thread owns one and can enter without waiting or creating a value,
    /// and the counters are not closed. Calls nothing.
    ///
    /// # Safety
    ///
    /// 1. While the guard or a reference to the value exists, the thread calls nothing that may enter these
    ///    counters, except in [`FastGuard::call`]; see [`Slots::try_enter`].
    /// 2. The guard is neither kept nor leaked: see there.
    #[inline(always)]
    pub unsafe fn try_enter(&self) -> Option<FastGuard<'_, T>> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.slots.try_enter() }.map(FastGuard::new)
    }
}

impl<T> ShardedCounters<T> {
    /// Runs `f` on the value of every slot that was ever used.
    pub fn for_each_slot(&self, mut f: impl FnMut(&mut T)) {
        self.slots.for_each_slot(|value, _| f(value));
    }

    /// Waits until no thread is counting, and keeps all threads from counting.
    pub fn quiesce(&self) -> QuiescedCounters<'_, T> {
        let slots = self.slots.quiesce();
        QuiescedCounters { peaks: self.peaks.lock(), slots }
    }

    /// Returns the number of slots that were ever used.
    pub fn slots(&self) -> usize {
        self.slots.shared().count()
    }

    /// Returns, by slot, whether it was used before and nothing was counted in it since the previous call.
    pub fn idle_slots(&self) -> [bool; SLOTS] {
        let mut idle = [false; SLOTS];
        for (index, shard) in self.slots.indexed_shared() {
            idle[index] = shard.note_operations();
        }
        idle
    }

    /// Subtracts a block from the count that [`ShardedCounters::close`] took.
    ///
    /// # Safety
    ///
    /// A block that was counted in leaves with this call: until then the counters exist.
    #[cold]
    unsafe fn count_out_sealed(this: NonNull<Self>) -> OwnerState {
        // SAFETY: guaranteed by the caller. Only the word is borrowed, and no longer than it exists (head of
        // this file).
        let remaining = unsafe { &(*this.as_ptr()).remaining };
        let before = remaining.fetch_sub(1, ordering!("counters.last", AcqRel));
        if before == 1 { OwnerState::Unused } else { OwnerState::InUse }
    }

    /// Closes the counters after the last handle was dropped: no block can be counted in any more. On
    /// [`OwnerState::Unused`] no other thread uses the owner.
    ///
    /// # Safety
    ///
    /// 1. The counters exist when this is called.
    /// 2. This is called once, and no block is counted in afterwards.
    /// 3. If the counters are destroyed because of [`OwnerState::Unused`], it was returned by this call or by
    ///    [`ShardedCounters::count_out`], and not before that call returned it.
    pub unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: guaranteed by the caller: no thread gets `Unused` before the addition below.
        let counters = unsafe { this.as_ref() };
        let mut balance = 0i64;
        // Sealing synchronises with the threads that wrote the totals.
        counters.slots.seal(|shard| balance += shard.live_blocks());
        let correction = balance - UNCOUNTED;
        // Release: the sealing, and this addition itself, happen before the counters are destroyed, by any
        // thread.
        let before = counters.remaining.fetch_add(correction, ordering!("counters.close", AcqRel));
        if before + correction == 0 { OwnerState::Unused } else { OwnerState::InUse }
    }
}

impl<T: Default> Default for ShardedCounters<T> {
    fn default() -> Self {
        Self::new(true)
    }
}

impl<T> ShardedCounters<T> {
    /// Ends the atomic words: see [`End`].
    #[doc(hidden)]
    pub fn end(&mut self) {
        self.slots.end();
        self.remaining.end();
        self.largest.end();
    }
}

impl<T> Drop for ShardedCounters<T> {
    fn drop(&mut self) {
        self.end();
    }
}
