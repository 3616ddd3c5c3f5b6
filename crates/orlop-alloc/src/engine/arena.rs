//! The bump arena (L17): reserve once, hand out by moving a pointer, take everything back at once.
//!
//! Memory of a step that all dies together needs no free lists. A block is a piece of the current segment;
//! returning it only counts it as gone. When the segment is full a larger one is added, and the next rewind
//! puts one segment in their place, so that a loop settles on a single one.
//!
//! A rewind must not leave a block dangling. [`Arena::reset`] therefore refuses while blocks live;
//! [`Arena::renew`] moves on to fresh memory instead and gives the old back when its last block goes. Both
//! say what they did.

use crate::Refusal;
use crate::backing::{Backing, Global, Region, Shielded};
use crate::block::Records;
use crate::observer::deliver_all;
use crate::{
    Allocator, AllocatorRef, Error, OutOfMemory, RawBlock, Record, RegionAction, RegionEvent, RegionWatch,
    RegionWatches, Request, Result, Semantics, Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{CentralHeap, GrowableHeap, HeapGrowth, Mutex};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a rewind did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// Everything can be handed out again from the start.
    Rewound,
    /// Blocks live on in the old memory; new ones come from a fresh segment.
    Renewed {
        /// How many.
        live: usize,
    },
}

/// A bump allocator over a backing.
#[derive(Debug)]
pub struct Arena<B: Backing = Global> {
    backing: Shielded<B>,
    align: Alignment,
    /// The most bytes to reserve.
    limit: usize,
    state: GrowableHeap<State>,
    records: Records,
}

#[derive(Debug)]
struct State {
    /// All segments by number; the last of `current` is bumped.
    segments: Vec<Option<Segment>>,
    /// Segments of this generation, in the order they were added.
    current: Vec<usize>,
    /// Bytes of the next segment, at least.
    next_segment: usize,
    reserved: usize,
    peak: usize,
    device: Device,
    watches: RegionWatches,
}

#[derive(Debug)]
struct Segment {
    region: Region,
    used: usize,
    /// Bytes from the start that were ever handed out.
    dirty: usize,
    live: usize,
    /// Of an earlier generation: goes back when `live` is zero.
    retired: bool,
}

/// A piece of a segment that was handed out.
#[derive(Debug)]
struct Bumped {
    /// The segment's number.
    segment: usize,
    ptr: NonNull<u8>,
    /// The first so many bytes may be other than zero.
    dirty: usize,
}

impl CentralHeap for State {
    type Request<'a> = Request;
    type Chunk = Bumped;
    type Region = Region;

    fn take(&mut self, request: &Request) -> Option<Bumped> {
        self.bump(request.bytes.max(1), request.align)
    }

    fn add(&mut self, region: Region) {
        self.add_region(region);
    }
}

/// An arena whose segments have no room for a request.
struct Extend<'a, B: Backing>(&'a Arena<B>);

impl<B: Backing> HeapGrowth<State> for Extend<'_, B> {
    type Error = Error;

    fn grow(&mut self, state: &Mutex<State>, request: &Request) -> Result<Region> {
        let Self(arena) = self;
        let bytes = request.bytes.max(1);
        let (reserved, next_segment) = {
            let state = state.lock();
            (state.reserved, state.next_segment)
        };
        // The segment itself is aligned for the request, so that `bytes` will do.
        let room = arena.limit.saturating_sub(reserved);
        let wanted = arena.align.round_up(bytes)?.max(next_segment).min(room);
        if wanted < bytes {
            return Err(arena.refuse(&state.lock(), request, Refusal::Limit));
        }
        let region = arena.backing.reserve(wanted, arena.align.max(request.align));
        region.ok_or_else(|| arena.refuse(&state.lock(), request, Refusal::Backing))
    }
}

impl<B: Backing> Arena<B> {
    /// An arena that reserves `bytes` at the first request, and as much again as it needs later.
    #[must_use]
    pub fn engine(backing: B, bytes: usize) -> Self {
        Self::with_limit(backing, bytes, usize::MAX)
    }

    /// The same, never reserving more than `limit` bytes.
    #[must_use]
    pub fn with_limit(backing: B, bytes: usize, limit: usize) -> Self {
        let state = State {
            segments: Vec::new(),
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
            state: GrowableHeap::new(state),
            records: Records::new(),
        }
    }

    /// Behind a handle.
    #[must_use]
    pub fn new(backing: B, bytes: usize) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing, bytes))
    }

    /// Bytes handed out in this generation, padding included.
    pub fn used(&self) -> usize {
        let state = self.state.lock();
        state.current().map(|segment| segment.used).sum()
    }

    /// Makes everything available again, in constant time once the arena has settled on one segment.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`] while blocks of this generation live; nothing has changed.
    pub fn reset(&self) -> Result<()> {
        let mut state = self.state.lock();
        let live = state.live();
        if live > 0 {
            return Err(Error::ArenaInUse { live });
        }
        let gone = state.rewind();
        let watches = state.watches.all();
        drop(state);
        self.give_back(gone);
        deliver_all(&watches);
        Ok(())
    }

    /// Like [`Arena::reset`], but if blocks live it leaves their memory to them and goes on with fresh.
    pub fn renew(&self) -> Reset {
        let mut state = self.state.lock();
        let live = state.live();
        let gone = if live == 0 { state.rewind() } else { state.retire() };
        let watches = state.watches.all();
        drop(state);
        self.give_back(gone);
        deliver_all(&watches);
        if live == 0 { Reset::Rewound } else { Reset::Renewed { live } }
    }

    /// A piece of a new segment.
    #[cold]
    fn add_segment(&self, request: &Request) -> Result<Bumped> {
        self.backing.check_not_entered()?;
        self.state.take_or_grow(request, &mut Extend(self))
    }

    fn give_back(&self, regions: Vec<Region>) {
        for region in regions {
            // SAFETY: taken out of the state with no live block in it.
            unsafe { self.backing.release(region) };
        }
    }

    fn refuse(&self, state: &State, request: &Request, refusal: Refusal) -> Error {
        let mut report = OutOfMemory::new(refusal, self.name(), self.backing.device(), request);
        report.reserved = state.reserved as u64;
        report.limit = (self.limit != usize::MAX).then_some(self.limit as u64);
        let free = state.current().last().map_or(0, |segment| segment.region.bytes - segment.used) as u64;
        (report.free, report.largest_free) = (free, free);
        report.into()
    }
}

impl State {
    fn current(&self) -> impl Iterator<Item = &Segment> + '_ {
        self.current.iter().filter_map(|&number| self.segments.get(number)?.as_ref())
    }

    fn live(&self) -> usize {
        self.current().map(|segment| segment.live).sum()
    }

    /// Bumps the last segment.
    fn bump(&mut self, bytes: usize, align: Alignment) -> Option<Bumped> {
        let &number = self.current.last()?;
        let segment = self.segments.get_mut(number)?.as_mut()?;
        let base = segment.region.address();
        let start = align.round_up(base.checked_add(segment.used)?).ok()? - base;
        let end = start.checked_add(bytes).filter(|&end| end <= segment.region.bytes)?;
        let dirty =
            if segment.region.zeroed { segment.dirty.saturating_sub(start).min(bytes) } else { bytes };
        segment.used = end;
        segment.dirty = segment.dirty.max(end);
        segment.live += 1;
        // Wrapping, because address space that nobody can touch is no object to stay inside of.
        let ptr = segment.region.ptr.as_ptr().wrapping_add(start);
        // SAFETY: `start <= end <= region.bytes`, and regions do not wrap around: not null.
        let ptr = unsafe { NonNull::new_unchecked(ptr) };
        Some(Bumped { segment: number, ptr, dirty })
    }

    fn event(&self, action: RegionAction, region: &Region) -> RegionEvent {
        RegionEvent::new(action, region.address(), region.bytes, self.device)
    }

    fn add_region(&mut self, region: Region) {
        self.watches.note(self.event(RegionAction::Gained, &region));
        self.reserved += region.bytes;
        self.peak = self.peak.max(self.reserved);
        let segment = Some(Segment { region, used: 0, dirty: 0, live: 0, retired: false });
        let number = match self.segments.iter().position(Option::is_none) {
            Some(number) => {
                self.segments[number] = segment;
                number
            }
            None => {
                self.segments.push(segment);
                self.segments.len() - 1
            }
        };
        self.current.push(number);
    }

    fn remove(&mut self, number: usize) -> Option<Region> {
        let segment = self.segments.get_mut(number)?.take()?;
        self.reserved -= segment.region.bytes;
        self.watches.note(self.event(RegionAction::Lost, &segment.region));
        Some(segment.region)
    }

    /// Nothing lives: one segment is used again, several make room for one as large as all.
    fn rewind(&mut self) -> Vec<Region> {
        if let [number] = self.current[..] {
            if let Some(Some(segment)) = self.segments.get_mut(number) {
                segment.used = 0;
            }
            return Vec::new();
        }
        let total = self.current().map(|segment| segment.region.bytes).sum();
        self.next_segment = self.next_segment.max(total);
        let current = std::mem::take(&mut self.current);
        current.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Something lives: segments with blocks go when those do, others at once.
    fn retire(&mut self) -> Vec<Region> {
        let total = self.current().map(|segment| segment.region.bytes).sum();
        self.next_segment = self.next_segment.max(total);
        let mut gone = Vec::new();
        for number in std::mem::take(&mut self.current) {
            match self.segments.get_mut(number) {
                Some(Some(segment)) if segment.live > 0 => segment.retired = true,
                _ => gone.extend(self.remove(number)),
            }
        }
        gone
    }
}

// SAFETY: 1. blocks are disjoint parts of segments: `used` only grows until a rewind, which happens only when
// no block of the segment lives. 2. regions are initialised by the backing's promise. 3. what was handed out
// before is zeroed here. 4. the state is behind a mutex. 5. segments go when the engine is dropped.
unsafe impl<B: Backing> Allocator for Arena<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let bytes = request.bytes.max(1);
        // On a line of its own: the state is not locked while it grows.
        let found = self.state.lock().take(request);
        let Bumped { segment, ptr, dirty } = match found {
            Some(bumped) => bumped,
            None => self.add_segment(request)?,
        };
        let new = || Record::new(ptr, bytes, self.backing.device(), self.backing.access());
        let block = self.records.block((ptr, bytes, segment), request, new);
        // SAFETY: just carved out; nobody else knows it.
        if request.zeroed && dirty > 0 && !unsafe { self.backing.zero(ptr, dirty.min(request.bytes)) } {
            // SAFETY: made just now, and used by nobody.
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
        let mut state = self.state.lock();
        let Some(Some(segment)) = state.segments.get_mut(number) else {
            return Err(Error::ForeignPointer { address });
        };
        let offset = address.wrapping_sub(segment.region.address());
        if offset >= segment.used {
            return Err(Error::ForeignPointer { address });
        }
        segment.live = segment.live.checked_sub(1).ok_or(Error::DoubleFree { address })?;
        if segment.live == 0 && segment.retired {
            let gone = state.remove(number);
            drop(state);
            self.give_back(gone.into_iter().collect());
        }
        Ok(())
    }

    /// Only the block handed out last, and as far as its segment goes.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let mut state = self.state.lock();
        if state.current.last() != Some(&block.token) {
            return false;
        }
        let Some(Some(segment)) = state.segments.get_mut(block.token) else { return false };
        let start = block.address().wrapping_sub(segment.region.address());
        let end = start.checked_add(bytes).filter(|&end| end <= segment.region.bytes);
        let (Some(end), true) = (end, start.checked_add(block.granted) == Some(segment.used)) else {
            return false;
        };
        segment.used = end;
        segment.dirty = segment.dirty.max(end);
        // SAFETY: a record of ours; the segment is in use up to there.
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
        let state = self.state.lock();
        Usage {
            reserved: state.reserved as u64,
            peak_reserved: state.peak as u64,
            regions: state.segments.iter().flatten().count() as u64,
            deferred: 0,
            metadata: (state.segments.capacity() * size_of::<Option<Segment>>()) as u64,
        }
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    fn reset_peak(&self) {
        let mut state = self.state.lock();
        state.peak = state.reserved;
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let mut state = self.state.lock();
        let segments = state.segments.iter().flatten();
        let held: Vec<_> =
            segments.map(|segment| state.event(RegionAction::Gained, &segment.region)).collect();
        let ended = state.watches.add(watch, held);
        drop(state);
        // With the lock released: an observer's end may run anything.
        drop(ended);
    }

    /// Gives the segments back if nothing lives in them.
    fn trim(&self, target: u64) -> u64 {
        let mut state = self.state.lock();
        if state.reserved as u64 <= target || state.live() > 0 {
            return 0;
        }
        let current = std::mem::take(&mut state.current);
        let gone: Vec<Region> = current.into_iter().filter_map(|number| state.remove(number)).collect();
        drop(state);
        let bytes = gone.iter().map(|region| region.bytes as u64).sum();
        self.give_back(gone);
        bytes
    }
}

impl<B: Backing> Drop for Arena<B> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let regions: Vec<Region> =
            (0..state.segments.len()).filter_map(|number| state.remove(number)).collect();
        drop(state);
        self.give_back(regions);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;

    #[test]
    fn reset_refuses_under_live_blocks_and_rewinds_without() {
        let arena = Arena::new(System::new(), 4096);
        let block = arena.allocate(&Request::new(100)).unwrap();
        assert!(matches!(arena.reset(), Err(Error::ArenaInUse { live: 1 })));
        let address = block.as_ptr();
        drop(block);
        arena.reset().unwrap();
        assert_eq!(arena.allocate(&Request::new(100)).unwrap().as_ptr(), address);
    }

    #[test]
    fn renew_leaves_live_blocks_their_memory() {
        let arena = Arena::new(System::new(), 4096);
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
        let arena = Arena::new(System::new(), 1024);
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
        let arena = AllocatorRef::new(Arena::with_limit(System::new(), 1024, 2048));
        let _first = arena.allocate(&Request::new(1024)).unwrap();
        let error = arena.allocate(&Request::new(4096)).unwrap_err();
        assert!(error.is_out_of_memory());
    }
}
