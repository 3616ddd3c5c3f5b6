//! The bump arena: reserve once, allocate by advancing an offset, free everything at once.
//!
//! Memory of a step that is freed together needs no free lists. A block is a part of the current segment;
//! returning it only counts it out. When the segment is full, a larger one is added, and the next rewind
//! replaces all segments by one, so that a loop settles on a single segment.
//!
//! A rewind must not leave a block dangling. [`Arena::reset`] therefore refuses while there are live blocks.
//! [`Arena::renew`] continues with a new segment instead and releases the old ones when their last blocks
//! return. Both report what they did.

mod segments;

use self::segments::{ArenaChunk, Segment, Segments};
use crate::Refusal;
use crate::backing::{Backing, BackingRef, Region, Shielded};
use crate::block::Records;
use crate::{
    Allocator, Error, OutOfMemory, RawBlock, Record, RegionAction, RegionWatch, RegionWatches, Request,
    Result, Semantics, Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{CentralHeap as _, GrowableHeap, HeapGrowth, Mutex};
use std::sync::Arc;

/// The outcome of [`Arena::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// No block was live: the arena's memory is reused from the start.
    Rewound,
    /// Live blocks keep the old memory; new blocks come from a new segment.
    Renewed {
        /// The number of live blocks.
        live: usize,
    },
}

/// A bump allocator over a backing; see the module documentation.
#[derive(Debug)]
pub struct Arena<B: Backing = BackingRef> {
    backing: Shielded<B>,
    align: Alignment,
    /// The maximum number of reserved bytes.
    limit: usize,
    segments: GrowableHeap<Segments>,
    records: Records,
}

/// Growth of an arena whose current segment has no room for a request.
struct ArenaGrowth<'a, B: Backing>(&'a Arena<B>);

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

impl<B: Backing> Arena<B> {
    /// Creates an arena that reserves `bytes` bytes at the first request, and larger segments later as
    /// needed.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> Self {
        Self::with_limit(backing, bytes, usize::MAX)
    }

    /// Creates an arena as [`Arena::new`] does, which reserves at most `limit` bytes.
    #[must_use]
    pub fn with_limit(backing: B, bytes: usize, limit: usize) -> Self {
        let segments = Segments {
            all: Vec::new(),
            current: Vec::new(),
            next_segment: bytes.max(Alignment::PLANNED.bytes()),
            reserved: 0,
            peak: 0,
            device: backing.device(),
            watches: RegionWatches::default(),
        };
        Self {
            backing: Shielded::new(backing),
            align: Alignment::PLANNED,
            limit,
            segments: GrowableHeap::new(segments),
            records: Records::new(),
        }
    }

    /// Returns the bytes allocated since the last rewind, including padding.
    pub fn used(&self) -> usize {
        let segments = self.segments.lock();
        segments.current().map(|segment| segment.used).sum()
    }

    /// Frees everything, in constant time once the arena has settled on one segment.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`] while blocks allocated since the last rewind are live; the arena is then
    /// unchanged.
    pub fn reset(&self) -> Result<()> {
        let mut segments = self.segments.lock();
        let live = segments.live();
        if live > 0 {
            return Err(Error::ArenaInUse { live });
        }
        let removed = segments.rewind();
        let delivery = segments.watches.delivery();
        drop(segments);
        self.release(removed);
        drop(delivery);
        Ok(())
    }

    /// Frees everything like [`Arena::reset`]; if blocks are live, it leaves them their memory and continues
    /// with a new segment.
    pub fn renew(&self) -> Reset {
        let mut segments = self.segments.lock();
        let live = segments.live();
        let removed = if live == 0 { segments.rewind() } else { segments.retire() };
        let delivery = segments.watches.delivery();
        drop(segments);
        self.release(removed);
        drop(delivery);
        if live == 0 { Reset::Rewound } else { Reset::Renewed { live } }
    }

    /// Adds a segment and allocates from it.
    #[cold]
    fn add_segment(&self, request: &Request) -> Result<ArenaChunk> {
        self.backing.check_not_entered()?;
        self.segments.take_or_grow(request, &mut ArenaGrowth(self))
    }

    fn release(&self, regions: Vec<Region>) {
        for region in regions {
            // SAFETY: the regions were removed from the segments, and no block in them is live.
            unsafe { self.backing.release(region) };
        }
    }

    fn refuse(&self, segments: &Segments, request: &Request, refusal: Refusal) -> Error {
        let mut report = OutOfMemory::new(refusal, self.name(), self.backing.device(), request);
        report.reserved = segments.reserved as u64;
        report.limit = (self.limit != usize::MAX).then_some(self.limit as u64);
        let free = segments.current().last().map_or(0, |segment| segment.region.bytes - segment.used) as u64;
        (report.free, report.largest_free) = (free, free);
        report.into()
    }
}

// SAFETY: 1. blocks are disjoint parts of segments: `used` only grows until a rewind, which happens only when
// no block of the segment is live. 2. the backing guarantees that regions are initialised. 3. bytes that were
// handed out before are zeroed here. 4. the segments are behind a mutex. 5. segments are released when the
// engine is dropped.
unsafe impl<B: Backing> Allocator for Arena<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let bytes = request.bytes.max(1);
        // A statement of its own, so that the lock is released before the arena grows.
        let found = self.segments.lock().take(request);
        let ArenaChunk { segment, ptr, dirty } = match found {
            Some(chunk) => chunk,
            None => self.add_segment(request)?,
        };
        let new = || Record::new(ptr, bytes, self.backing.device(), self.backing.access());
        let block = self.records.block((ptr, bytes, segment), request, new);
        // SAFETY: allocated above and not passed on.
        if request.zeroed && dirty > 0 && !unsafe { self.backing.zero(ptr, dirty.min(request.bytes)) } {
            // SAFETY: allocated above and not passed on.
            unsafe { self.deallocate(block) }?;
            return Err(Error::CannotZero { device: self.backing.device() });
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: every block of this engine has a record from `allocate`.
        let record = unsafe { block.into_record() };
        let (address, number) = (record.address(), record.token);
        self.records.keep(record);
        let mut segments = self.segments.lock();
        let Some(Some(segment)) = segments.all.get_mut(number) else {
            return Err(Error::ForeignPointer { address });
        };
        let offset = address.wrapping_sub(segment.region.address());
        if offset >= segment.used {
            return Err(Error::ForeignPointer { address });
        }
        segment.live = segment.live.checked_sub(1).ok_or(Error::DoubleFree { address })?;
        if segment.live == 0 && segment.retired {
            let removed = segments.remove(number);
            drop(segments);
            self.release(removed.into_iter().collect());
        }
        Ok(())
    }

    /// Grows only the block that was allocated last, within its segment.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let mut segments = self.segments.lock();
        if segments.current.last() != Some(&block.token) {
            return false;
        }
        let Some(Some(segment)) = segments.all.get_mut(block.token) else { return false };
        let start = block.address().wrapping_sub(segment.region.address());
        let end = start.checked_add(bytes).filter(|&end| end <= segment.region.bytes);
        let (Some(end), true) = (end, start.checked_add(block.granted) == Some(segment.used)) else {
            return false;
        };
        segment.used = end;
        segment.dirty = segment.dirty.max(end);
        // SAFETY: a record of this engine; the segment's bytes are in use by this block up to `end`.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (bytes, bytes);
        true
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        "arena"
    }

    fn usage(&self) -> Usage {
        let segments = self.segments.lock();
        Usage {
            reserved: segments.reserved as u64,
            peak_reserved: segments.peak as u64,
            regions: segments.all.iter().flatten().count() as u64,
            deferred: 0,
            metadata: (segments.all.capacity() * size_of::<Option<Segment>>()) as u64,
        }
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    fn reset_peak(&self) {
        let mut segments = self.segments.lock();
        segments.peak = segments.reserved;
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
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
    fn trim(&self, target: u64) -> u64 {
        let mut segments = self.segments.lock();
        if segments.reserved as u64 <= target || segments.live() > 0 {
            return 0;
        }
        let current = std::mem::take(&mut segments.current);
        let removed: Vec<Region> = current.into_iter().filter_map(|number| segments.remove(number)).collect();
        drop(segments);
        let bytes = removed.iter().map(|region| region.bytes as u64).sum();
        self.release(removed);
        bytes
    }
}

impl<B: Backing> Drop for Arena<B> {
    fn drop(&mut self) {
        let mut segments = self.segments.lock();
        let regions: Vec<Region> =
            (0..segments.all.len()).filter_map(|number| segments.remove(number)).collect();
        drop(segments);
        self.release(regions);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;

    #[test]
    fn reset_refuses_with_live_blocks_and_rewinds_without() {
        let arena = Arena::new(System::new(), 4096).into_ref();
        let block = arena.allocate(&Request::new(100)).unwrap();
        let refused = arena.reset().unwrap_err();
        assert!(matches!(refused, Error::ArenaInUse { live: 1 }));
        assert!(refused.to_string().starts_with("the arena has 1 live block and cannot be rewound: drop it"));
        let address = block.as_ptr();
        drop(block);
        arena.reset().unwrap();
        assert_eq!(arena.allocate(&Request::new(100)).unwrap().as_ptr(), address);
    }

    #[test]
    fn renew_leaves_live_blocks_their_memory() {
        let arena = Arena::new(System::new(), 4096).into_ref();
        let mut old = arena.allocate(&Request::new(1000)).unwrap();
        old.bytes_mut().unwrap().fill(7);
        assert_eq!(arena.renew(), Reset::Renewed { live: 1 });
        let mut new = arena.allocate(&Request::new(1000)).unwrap();
        new.bytes_mut().unwrap().fill(9);
        assert!(old.bytes().unwrap().iter().all(|&byte| byte == 7));
        assert_eq!(arena.stats().usage.regions, 2);
        drop(old);
        assert_eq!(arena.stats().usage.regions, 1);
    }

    #[test]
    fn a_loop_settles_on_one_segment() {
        let arena = Arena::new(System::new(), 1024).into_ref();
        for _ in 0..3 {
            let blocks: Vec<_> = (0..10).map(|_| arena.allocate(&Request::new(1000)).unwrap()).collect();
            drop(blocks);
            arena.reset().unwrap();
        }
        assert_eq!(arena.stats().usage.regions, 1);
        assert!(arena.stats().usage.reserved >= 10_000);
    }

    #[test]
    fn the_limit_holds() {
        let arena = Arena::with_limit(System::new(), 1024, 2048).into_ref();
        let _first = arena.allocate(&Request::new(1024)).unwrap();
        let error = arena.allocate(&Request::new(4096)).unwrap_err();
        assert!(error.is_out_of_memory());
    }
}
