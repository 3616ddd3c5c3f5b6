//! One arena: its segments behind their lock, and everything that the fast paths of `lease` do not serve.
//!
//! # Locks
//!
//! A thread that is inside its slot may lock the segments, and no thread enters or visits a slot while it
//! holds that lock. The backing, which is user code, is called with neither held.

use super::Reset;
use super::lease::ArenaCounters;
use super::segments::{ArenaChunk, LeasePolicy, Segments};
use crate::backing::{Backing, Region, Shielded};
use crate::{
    Error, OutOfMemory, RawBlock, Record, Refusal, RegionAction, RegionWatch, RegionWatches, Request, Result,
    StreamUses, Usage,
};
use orlop_core::Alignment;
use orlop_sync::thread_slot::{self, OWNED};
use orlop_sync::{CentralHeap as _, GrowableHeap, HeapGrowth, Mutex, OwnerState, ShardedCounters};
use std::ptr::NonNull;
use std::sync::Arc;

/// An arena without the counters and slots, which several arenas may share.
#[derive(Debug)]
pub(in crate::engine) struct ArenaCore<B: Backing> {
    backing: Shielded<B>,
    align: Alignment,
    /// The maximum number of reserved bytes.
    limit: usize,
    segments: GrowableHeap<Segments>,
}

/// Growth of an arena whose current segment has no room for a request.
struct ArenaGrowth<'a, B: Backing>(&'a ArenaCore<B>);

impl<B: Backing> HeapGrowth<Segments> for ArenaGrowth<'_, B> {
    type Error = Error;

    fn grow(&mut self, segments: &Mutex<Segments>, request: &Request) -> Result<Region> {
        let Self(arena) = self;
        let bytes = request.bytes.max(1);
        let (reserved, next_segment) = {
            let segments = segments.lock();
            (segments.reserved, segments.next_segment)
        };
        // The segment is aligned for the request, so no padding is needed in front of `bytes`.
        let room = arena.limit.saturating_sub(reserved);
        let wanted = arena.align.round_up(bytes)?.max(next_segment).min(room);
        if wanted < bytes {
            return Err(arena.refuse(&segments.lock(), request, Refusal::Limit));
        }
        let region = arena.backing.reserve(wanted, arena.align.max(request.align));
        region.ok_or_else(|| arena.refuse(&segments.lock(), request, Refusal::Backing))
    }
}

/// No segment of the arena is leased until this is dropped.
struct WithoutLease<'a, B: Backing>(&'a ArenaCore<B>);

impl<B: Backing> Drop for WithoutLease<'_, B> {
    fn drop(&mut self) {
        self.0.segments.lock().paused -= 1;
    }
}

impl<B: Backing> ArenaCore<B> {
    /// Creates an arena that reserves `bytes` bytes at the first request, and at most `limit` bytes. It is
    /// the one with this index among those that share counters, and leases a segment to a slot after
    /// `lease_after` consecutive allocations.
    pub(in crate::engine) fn new(
        backing: B,
        bytes: usize,
        limit: usize,
        index: usize,
        lease_after: u32,
    ) -> Self {
        let segments = Segments {
            all: Vec::new(),
            free: Vec::new(),
            current: Vec::new(),
            next_segment: bytes.max(Alignment::PLANNED.bytes()),
            reserved: 0,
            peak: 0,
            device: backing.device(),
            watches: RegionWatches::default(),
            arena: index << super::SEGMENT_BITS,
            leased: None,
            paused: 0,
            policy: LeasePolicy::new(lease_after),
            unused: Vec::new(),
        };
        Self {
            backing: Shielded::new(backing),
            align: Alignment::PLANNED,
            limit,
            segments: GrowableHeap::new(segments),
        }
    }

    pub(in crate::engine) fn backing(&self) -> &Shielded<B> {
        &self.backing
    }

    /// Ends the lease, whichever slot has it, and prevents others.
    fn without_lease(&self, counters: &ArenaCounters) -> WithoutLease<'_, B> {
        let (leased, arena) = {
            let mut segments = self.segments.lock();
            segments.paused += 1;
            (segments.leased, segments.arena)
        };
        let without_lease = WithoutLease(self);
        if let Some(leased) = leased {
            if thread_slot::index() == leased.slot {
                counters.with(|slot| slot.end_lease(&mut self.segments.lock()));
            } else {
                counters.for_each_slot(|slot| {
                    if slot.has_lease_of(arena) {
                        let mut segments = self.segments.lock();
                        slot.end_lease(&mut segments);
                        segments.policy.note_revocation();
                    }
                });
            }
        }
        without_lease
    }

    /// See [`Arena::used`](super::Arena::used).
    pub(in crate::engine) fn used(&self, counters: &ArenaCounters) -> usize {
        let _without_lease = self.without_lease(counters);
        let segments = self.segments.lock();
        segments.current().map(|segment| segment.used).sum()
    }

    /// See [`Arena::reset`](super::Arena::reset).
    pub(in crate::engine) fn reset(&self, counters: &ArenaCounters) -> Result<()> {
        let without_lease = self.without_lease(counters);
        let mut segments = self.segments.lock();
        let live = segments.live();
        if live > 0 {
            drop(segments);
            return Err(Error::ArenaInUse { live });
        }
        let removed = segments.rewind();
        let delivery = segments.watches.delivery();
        drop(segments);
        drop(without_lease);
        self.release(removed);
        drop(delivery);
        Ok(())
    }

    /// See [`Arena::renew`](super::Arena::renew).
    pub(in crate::engine) fn renew(&self, counters: &ArenaCounters) -> Reset {
        let without_lease = self.without_lease(counters);
        let mut segments = self.segments.lock();
        let live = segments.live();
        let removed = if live == 0 { segments.rewind() } else { segments.retire() };
        let delivery = segments.watches.delivery();
        drop(segments);
        drop(without_lease);
        self.release(removed);
        drop(delivery);
        if live == 0 { Reset::Rewound } else { Reset::Renewed { live } }
    }

    /// Allocates what the slot's lease does not serve, and counts it in.
    pub(in crate::engine) fn allocate(
        &self,
        counters: &ArenaCounters,
        request: &Request,
    ) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let (chunk, record) = counters.with(|slot| {
            let own_slot = thread_slot::index();
            // Threads with a shared slot have no fast path.
            let may_lease = own_slot < OWNED;
            let mut segments = self.segments.lock();
            slot.end_lease(&mut segments);
            let chunk = segments.take(request);
            let record = slot.unused_record(&mut segments);
            if chunk.is_some()
                && may_lease
                && let Some(lease) = segments.lease(own_slot)
            {
                slot.set_lease(lease);
            }
            (chunk, record)
        });
        let ArenaChunk { token, ptr, dirty } = match chunk {
            Some(chunk) => chunk,
            None => self.take_or_grow(counters, request)?,
        };
        let bytes = request.bytes.max(1);
        let new = || Box::new(Record::new(ptr, bytes, self.backing.device(), self.backing.access()));
        let mut record = record.unwrap_or_else(new);
        (record.ptr, record.granted, record.token) = (ptr, bytes, token);
        // SAFETY: allocated above and not passed on.
        if request.zeroed && dirty > 0 && !unsafe { self.backing.zero(ptr, dirty.min(request.bytes)) } {
            // SAFETY: as above; the record is from a box.
            unsafe { self.give_back(RawBlock::new(record)) }?;
            return Err(Error::CannotZero { device: self.backing.device() });
        }
        counters.count_in(request.kind, bytes, request.bytes);
        record.assign(request);
        Ok(RawBlock::new(record))
    }

    /// Takes a chunk from a segment that another slot had leased, or from a new one.
    #[cold]
    fn take_or_grow(&self, counters: &ArenaCounters, request: &Request) -> Result<ArenaChunk> {
        self.backing.check_not_entered()?;
        let _without_lease = self.without_lease(counters);
        self.segments.take_or_grow(request, &mut ArenaGrowth(self))
    }

    /// See [`Allocator::deallocate_counted`](crate::Allocator::deallocate_counted).
    ///
    /// # Safety
    ///
    /// As for that function of the engine with this arena and these counters, and the block is of this arena.
    pub(in crate::engine) unsafe fn deallocate_counted(
        this: NonNull<Self>,
        counters: NonNull<ArenaCounters>,
        block: RawBlock,
    ) -> Result<OwnerState> {
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: the engine exists until the block is counted out (guaranteed by the caller).
        let arena = unsafe { this.as_ref() };
        // SAFETY: guaranteed by the caller.
        unsafe { arena.give_back(block) }?;
        // SAFETY: as above; the block was counted in, and leaves with this call.
        Ok(unsafe { ShardedCounters::count_out(counters, kind, granted, requested) })
    }

    /// Returns a block to its segment, but does not count it out of the counters.
    ///
    /// # Safety
    ///
    /// The block is of this arena, and is returned to it.
    unsafe fn give_back(&self, block: RawBlock) -> Result<()> {
        let mut segments = self.segments.lock();
        let removed = segments.count_out(block.token, block.address())?;
        // SAFETY: the blocks of this engine have records from boxes; the rest is guaranteed by the caller.
        let mut record = unsafe { block.into_record() };
        if !record.uses.is_empty() {
            record.uses = StreamUses::new();
        }
        segments.keep(record);
        drop(segments);
        self.release(removed);
        Ok(())
    }

    /// Grows only the block that was allocated last, within its segment.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::grow_in_place`](crate::Allocator::grow_in_place) of the engine with this arena and
    /// these counters, and the block is of this arena.
    pub(in crate::engine) unsafe fn grow_in_place(
        &self,
        counters: &ArenaCounters,
        block: &mut RawBlock,
        bytes: usize,
    ) -> bool {
        let without_lease = self.without_lease(counters);
        let (token, address, granted) = (block.token, block.address(), block.granted);
        if !self.segments.lock().grow_last(token, address, granted, bytes) {
            return false;
        }
        drop(without_lease);
        let more = (bytes - granted, bytes - block.requested);
        // SAFETY: a record of this engine; the segment's bytes are in use by this block up to its new end.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (bytes, bytes);
        counters.count_growth(block.kind, more.0, more.1, bytes);
        true
    }

    fn release(&self, regions: impl IntoIterator<Item = Region>) {
        for region in regions {
            // SAFETY: the regions were removed from the segments, and no block in them is live.
            unsafe { self.backing.release(region) };
        }
    }

    fn refuse(&self, segments: &Segments, request: &Request, refusal: Refusal) -> Error {
        let mut report = OutOfMemory::new(refusal, "arena", self.backing.device(), request);
        report.reserved = segments.reserved as u64;
        report.limit = (self.limit != usize::MAX).then_some(self.limit as u64);
        let free = segments.current().last().map_or(0, |segment| segment.region.bytes - segment.used) as u64;
        (report.free, report.largest_free) = (free, free);
        report.into()
    }

    /// Returns the memory held from the backing.
    pub(in crate::engine) fn usage(&self) -> Usage {
        let segments = self.segments.lock();
        Usage {
            reserved: segments.reserved as u64,
            peak_reserved: segments.peak as u64,
            regions: segments.all.iter().flatten().count() as u64,
            deferred: 0,
            metadata: segments.metadata() as u64,
        }
    }

    /// See [`Allocator::allocated_size_slow`](crate::Allocator::allocated_size_slow).
    pub(in crate::engine) fn allocated_size(
        &self,
        counters: &ArenaCounters,
        address: usize,
    ) -> Option<usize> {
        let _without_lease = self.without_lease(counters);
        self.segments.lock().size_at(address)
    }

    /// Resets the peak of the reserved bytes.
    pub(in crate::engine) fn reset_peak(&self) {
        let mut segments = self.segments.lock();
        segments.peak = segments.reserved;
    }

    /// Starts to record regions: see [`Allocator::watch_regions`](crate::Allocator::watch_regions).
    pub(in crate::engine) fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let mut segments = self.segments.lock();
        let held: Vec<_> = segments
            .all
            .iter()
            .flatten()
            .map(|segment| segments.event(RegionAction::Reserved, &segment.region))
            .collect();
        let ended = segments.watches.add(watch, held);
        drop(segments);
        // The lock is released first: dropping an observer may run user code.
        drop(ended);
    }

    /// Releases the segments if no block in them is live.
    pub(in crate::engine) fn trim(&self, counters: &ArenaCounters, target: u64) -> u64 {
        if self.segments.lock().reserved as u64 <= target {
            return 0;
        }
        let without_lease = self.without_lease(counters);
        let mut segments = self.segments.lock();
        if segments.live() > 0 {
            drop(segments);
            return 0;
        }
        let current = std::mem::take(&mut segments.current);
        let removed: Vec<Region> = current.into_iter().filter_map(|number| segments.remove(number)).collect();
        drop(segments);
        drop(without_lease);
        let bytes = removed.iter().map(|region| region.bytes as u64).sum();
        self.release(removed);
        bytes
    }

    /// Checks the figures of the segments.
    pub(in crate::engine) fn verify(&self, counters: &ArenaCounters) -> Result<()> {
        let _without_lease = self.without_lease(counters);
        self.segments.lock().verify()
    }
}

impl<B: Backing> Drop for ArenaCore<B> {
    fn drop(&mut self) {
        let mut segments = self.segments.lock();
        // No thread uses the arena any more. A lease may remain; no block is allocated by it.
        let regions: Vec<Region> =
            (0..segments.all.len()).filter_map(|number| segments.remove(number)).collect();
        drop(segments);
        self.release(regions);
    }
}
