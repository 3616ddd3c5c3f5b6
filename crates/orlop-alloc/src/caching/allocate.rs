//! Allocation: the steps of a request, in one function ([`Caching::allocate_in_steps`]).

use super::Caching;
use super::UNCACHED;
use super::classes::{CLASSES, GRANULE, class_for, size_of_class};
use super::growth::GrowthSteps;
use super::index::ClassIndex;
use super::plan::{MAX_DIVERGENCES, ThreadPlan};
use super::thread_cache::ThreadCache;
use super::token::Token;
use crate::backing::Backing;
use crate::bfc::heap::{Heap, HeapBlock, HeapRequest};
use crate::{Error, RawBlock, Record, Request, Result, Tag};
use orlop_core::MemoryKind;
use orlop_sync::{CentralHeap as _, FastGuard, thread_slot};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Classes are large from this part of the thread's maximum of live bytes on, rounded to a power of two.
const LARGE_DIVISOR: usize = 4096;

/// Beside a plan, small classes may have this part of the reserved bytes cached.
const SMALL_SLACK: usize = 64;

/// A log has one entry for this many reserved bytes, within the bounds of [`MIN_LOG`] and [`MAX_LOG`].
const BYTES_PER_LOG_ENTRY: usize = 3200;
const MIN_LOG: usize = 64;
const MAX_LOG: usize = 4096;

impl<B: Backing> Caching<B> {
    /// Serves a request that the fast path ([`Allocator::take_cached`](crate::Allocator::take_cached)) did
    /// not serve.
    #[inline(always)]
    pub(super) fn allocate_in_steps(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let class = if request.align <= GRANULE { class_for(request.bytes) } else { UNCACHED };
        let rounded =
            if class < CLASSES { size_of_class(class) } else { GRANULE.round_up(request.bytes.max(1))? };
        let wanted = HeapRequest { request, rounded };

        let without_growth = self.counters.count_in_with(|cache, counts| {
            let slot = thread_slot::index();
            cache.set_slot(slot);
            // 1. The plan: it starts with the first allocation of a learned period. It ends when the thread
            //    has left the period for good, even if its block is cached: only then do the fast paths open
            //    again.
            if cache.has_learned(class) {
                self.follow(cache);
            }
            if cache.plan().is_some_and(ThreadPlan::is_left) {
                self.end_plan(cache, &mut self.heap.lock());
            }
            // 2. Remote frees. Before the plan serves, because its next step may wait for one of them.
            self.take_back(cache);
            // 3. The thread cache: its fast path was closed, or the memory must be zero.
            let (mut block, dirty) = if let Some(mut record) = cache.take(class) {
                record.assign(request);
                (RawBlock::new(record), request.bytes)
            } else {
                let mut heap = self.heap.lock();
                // 4. Merging: what the thread has cached beyond the slack.
                self.tidy(cache, counts.balance(), &mut heap);
                // 5. The heap as it is.
                let Some(HeapBlock { mut block, dirty }) = heap.take(&wanted) else { return (None, None) };
                // SAFETY: the record is this engine's, and the token is the engine's field.
                let record = unsafe { block.record_mut() };
                record.token = Token::new(record.token, class, slot).0;
                (block, dirty)
            };
            // SAFETY: as above.
            cache.log_allocation(unsafe { block.record_mut() });
            self.report_plan(cache);
            let (dirty, counted) = deliver(cache, request, &block, dirty);
            (Some((block, dirty)), counted)
        });
        if let Some((block, dirty)) = without_growth {
            return if dirty == 0 { Ok(block) } else { self.deliver_zeroed(request, block, dirty) };
        }

        // 6. Merging all caches, growth, refusal: see `GrowthStep`. Outside the slot, because it visits all
        //    slots.
        self.backing.check_not_entered()?;
        let HeapBlock { mut block, dirty } = self.heap.take_or_grow(&wanted, &mut GrowthSteps::new(self))?;
        let dirty = self.counters.count_in_with(|cache, _| {
            let slot = thread_slot::index();
            cache.set_slot(slot);
            // SAFETY: the record is this engine's, and the token is the engine's field.
            let record = unsafe { block.record_mut() };
            record.token = Token::new(record.token, class, slot).0;
            cache.log_allocation(record);
            deliver(cache, request, &block, dirty)
        });
        if dirty == 0 { Ok(block) } else { self.deliver_zeroed(request, block, dirty) }
    }

    /// Merges cached blocks that would be in the way of a block to be cut from the heap, and updates what
    /// depends on the thread's size: the first large class, learning. Ends the plan of a thread that has
    /// diverged from it.
    fn tidy(&self, cache: &mut ThreadCache, live: usize, heap: &mut Heap<ClassIndex>) {
        if cache.plan().is_some_and(|plan| plan.divergences() > MAX_DIVERGENCES) {
            self.end_plan(cache, heap);
        }
        let large = class_for((cache.update_peak_live(live) / LARGE_DIVISOR).next_power_of_two());
        if cache.changes_first_large(large) {
            cache.drain(0, |record| heap.put_record(record));
            cache.set_first_large(large);
        }
        if self.learns {
            cache.maybe_learn((heap.reserved / BYTES_PER_LOG_ENTRY).clamp(MIN_LOG, MAX_LOG));
        }
        if cache.cached().saturating_mul(self.slack.load(Ordering::Relaxed)) > heap.reserved {
            if cache.plan().is_some() {
                cache.drain(cache.first_large(), |record| heap.put_record(record));
            }
            // Beside a plan, merging small blocks gains nothing.
            if cache.plan().is_none() || cache.cached().saturating_mul(SMALL_SLACK) > heap.reserved {
                cache.drain(0, |record| heap.put_record(record));
            }
        }
    }

    /// Zeroes the first `dirty` bytes of a block that no user has yet, and counts it. Outside the slot,
    /// because a backing is user code.
    #[inline(never)]
    fn deliver_zeroed(&self, request: &Request, block: RawBlock, dirty: usize) -> Result<RawBlock> {
        // SAFETY: the block holds `request.bytes` bytes, and no user has it yet.
        let is_zero = unsafe { self.backing.zero(block.ptr, dirty.min(request.bytes)) };
        if is_zero {
            self.counters.count_in_with(|cache, _| deliver(cache, request, &block, 0));
            return Ok(block);
        }
        self.counters.with(|cache| {
            cache.tags().add_block(&block);
            // SAFETY: every block of this engine has a record of this engine.
            self.put_back(cache, unsafe { block.into_record() })
        })?;
        Err(Error::CannotZero { device: self.backing.device() })
    }
}

/// [`Allocator::take_cached`](crate::Allocator::take_cached) for a request that the plan serves.
#[inline(always)]
pub(super) fn take_planned(mut guard: FastGuard<'_, ThreadCache>, request: &Request) -> Option<RawBlock> {
    if request.tag != Tag::NONE {
        return take_tagged(guard, request);
    }
    let counts = guard.counts();
    let allowed = |granted| !counts.exceeds_limit(request.kind, granted);
    let found = guard.value().take_planned(request, allowed)?;
    // SAFETY: just taken from the slot's cache.
    Some(unsafe { hand_out(guard, found, request) })
}

/// [`Allocator::take_cached`](crate::Allocator::take_cached) for a block that changes the counts by tag: its
/// record has another tag than the request, or a plan serves it. Not inlined, so that the path of all others
/// needs no stack frame.
#[inline(never)]
pub(super) fn take_tagged(mut guard: FastGuard<'_, ThreadCache>, request: &Request) -> Option<RawBlock> {
    let counts = guard.counts();
    let allowed = |granted| !counts.exceeds_limit(request.kind, granted);
    let found = guard.call(|cache| cache.take_tagged(request, allowed))?;
    // SAFETY: just taken from the slot's cache.
    Some(unsafe { hand_out(guard, found, request) })
}

/// Counts a block under its tag, and returns what to count in, unless the request is for zeroed memory and
/// the first `dirty` bytes may be nonzero. Also returns how many bytes [`Caching::deliver_zeroed`] must zero
/// before it counts the block.
#[inline(always)]
fn deliver(
    cache: &mut ThreadCache,
    request: &Request,
    block: &RawBlock,
    dirty: usize,
) -> (usize, Option<(MemoryKind, usize, usize)>) {
    if request.zeroed && dirty > 0 {
        return (dirty, None);
    }
    cache.tags().add_block(block);
    (0, Some((request.kind, block.granted, request.bytes)))
}

/// Makes a block of a record for a request of its kind and tag, and counts it. Calls no other code.
///
/// # Safety
///
/// The record, of a block of `granted` bytes, was just taken from the slot's cache.
#[inline(always)]
pub(super) unsafe fn hand_out(
    guard: FastGuard<'_, ThreadCache>,
    (mut place, granted): (NonNull<Record>, usize),
    request: &Request,
) -> RawBlock {
    let id = guard.count_in(request.kind, granted, request.bytes);
    // SAFETY: no other pointer to it is used, because it was just taken (guaranteed by the caller).
    let record = unsafe { place.as_mut() };
    record.assign_like(request, id);
    // SAFETY: a record of this engine, owned by the block from now on.
    unsafe { RawBlock::from_record(place) }
}
