//! What a thread slot holds of an arena: the lease of a segment, and unused records.
//!
//! A thread that has leased the last segment of an arena allocates from it without a lock: where the free
//! part begins, and how many blocks are live, is in the thread's slot. The arena's own figures of the segment
//! are those of the time before, until the lease ends. A block that another thread frees meanwhile is counted
//! in the arena, under its lock; the end of the lease subtracts it. So a rewind, which ends the lease first,
//! sees every block that has returned, and no block that has returned is missing.
//!
//! The owner of the slot ends its lease whenever it does not find what it needs in the slot. Another thread
//! ends it by a visit to the slot (see `orlop_sync::Slots`), which no thread is inside at that time.

use super::segments::Segments;
use crate::{RawBlock, Record, Request};
use orlop_sync::ShardedCounters;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// The token of no block.
const NO_TOKEN: usize = usize::MAX;

/// The counters of an engine of arenas, with what its thread slots hold.
pub(in crate::engine) type ArenaCounters = ShardedCounters<ArenaSlot>;

/// The value of a thread slot.
#[derive(Debug, Default)]
pub(in crate::engine) struct ArenaSlot {
    lease: Lease,
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    unused: Vec<Box<Record>>,
}

/// The right to allocate from the free part of a segment, or none.
#[derive(Debug)]
pub(super) struct Lease {
    /// The first byte of the free part.
    pub(super) free: *mut u8,
    /// The bytes of the free part.
    pub(super) room: usize,
    /// The number of live blocks in the segment, and of those that were returned elsewhere.
    pub(super) live: usize,
    /// The token of the segment's blocks.
    pub(super) token: usize,
    /// The addresses of the segment's blocks since the last rewind. The list does not grow: the lease ends
    /// when it is full.
    pub(super) extents: Vec<Range<usize>>,
}

// SAFETY: the pointer is an address in a region, which any thread can access; the slot's owner hands out
// parts of it, and a slot has one owner at a time.
unsafe impl Send for Lease {}

impl Default for Lease {
    fn default() -> Self {
        Self { free: ptr::null_mut(), room: 0, live: 0, token: NO_TOKEN, extents: Vec::new() }
    }
}

impl ArenaSlot {
    /// Allocates from the leased segment, if `allowed` for these bytes, and returns the block's record, which
    /// lacks the fields of the request.
    #[inline(always)]
    pub(in crate::engine) fn take(
        &mut self,
        request: &Request,
        allowed: impl FnOnce() -> bool,
    ) -> Option<Box<Record>> {
        let lease = &mut self.lease;
        let padding = lease.free.addr().wrapping_neg() & (request.align.bytes() - 1);
        let room = lease.room.checked_sub(padding)?.checked_sub(request.bytes)?;
        if lease.extents.len() == lease.extents.capacity() || !allowed() {
            return None;
        }
        let mut record = self.unused.pop()?;
        // Wrapping, because for address space without memory there is no object for the pointer to stay
        // within.
        let block = lease.free.wrapping_add(padding);
        (lease.free, lease.room) = (block.wrapping_add(request.bytes), room);
        lease.live += 1;
        lease.extents.push(block.addr()..lease.free.addr());
        // SAFETY: `block` is in the segment's region, before at least one byte (`request.bytes` is not zero),
        // and regions do not wrap around.
        record.ptr = unsafe { NonNull::new_unchecked(block) };
        (record.granted, record.token) = (request.bytes, lease.token);
        Some(record)
    }

    /// Counts out a block of the leased segment and keeps its record. Returns the block if it is another
    /// segment's, or if there is no place for the record.
    ///
    /// # Safety
    ///
    /// The block is one of the engine that this slot is part of, and is returned to it.
    #[inline(always)]
    pub(in crate::engine) unsafe fn give(&mut self, block: RawBlock) -> Option<RawBlock> {
        let lease = &mut self.lease;
        if block.token != lease.token || lease.live == 0 || self.unused.len() == self.unused.capacity() {
            return Some(block);
        }
        lease.live -= 1;
        // SAFETY: the blocks of the engine have records from boxes; the rest is guaranteed by the caller.
        self.unused.push(unsafe { block.into_record() });
        None
    }

    /// Ends the lease if it is of this arena.
    pub(super) fn end_lease(&mut self, segments: &mut Segments) {
        if self.has_lease_of(segments.arena) {
            segments.end_lease(std::mem::take(&mut self.lease));
        }
    }

    /// Returns `true` if the slot has leased a segment of the arena with this index.
    pub(super) fn has_lease_of(&self, arena: usize) -> bool {
        self.lease.token != NO_TOKEN
            && self.lease.token >> super::SEGMENT_BITS == arena >> super::SEGMENT_BITS
    }

    /// Sets the lease. The slot has none.
    pub(super) fn set_lease(&mut self, lease: Lease) {
        debug_assert!(self.lease.token == NO_TOKEN);
        self.lease = lease;
    }

    /// Returns an unused record of the slot, or else of the arena, of which the slot then takes all.
    pub(super) fn unused_record(&mut self, segments: &mut Segments) -> Option<Box<Record>> {
        if self.unused.is_empty() {
            std::mem::swap(&mut self.unused, &mut segments.unused);
        }
        self.unused.pop()
    }
}

/// Implements the methods of [`CountingEngine`](crate::handle::CountingEngine) for an engine of arenas with
/// these counters, without `deallocate_counted`.
macro_rules! leases_segments {
    ($counters:ident) => {
        fn take_cached(&self, request: &Request) -> Option<RawBlock> {
            // Unsupported kinds do not pass: the first block of a kind always exceeds the counter's limit,
            // and takes the slow path, which checks the kind.
            if request.bytes == 0 || request.zeroed {
                return None;
            }
            // SAFETY: a lease calls nothing to divide its segment.
            let mut guard = unsafe { self.$counters.try_enter() }?;
            let counts = guard.counts();
            let allowed = || !counts.exceeds_limit(request.kind, request.bytes);
            let mut record = guard.value().take(request, allowed)?;
            let id = guard.count_in(request.kind, request.bytes, request.bytes);
            record.assign_unused(request, id);
            Some(RawBlock::new(record))
        }

        unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
            if !block.uses.is_empty() {
                return Some(block);
            }
            // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
            let counters = unsafe { &this.as_ref().$counters };
            // SAFETY: a lease calls nothing to take a block back: the list of its records does not grow.
            let Some(mut guard) = (unsafe { counters.try_enter() }) else { return Some(block) };
            let (kind, granted, requested) = (block.kind, block.granted, block.requested);
            // SAFETY: guaranteed by the caller.
            if let Some(block) = unsafe { guard.value().give(block) } {
                return Some(block);
            }
            guard.count_out(kind, granted, requested);
            None
        }

        crate::handle::counted_by!($counters);
    };
}
pub(in crate::engine) use leases_segments;
