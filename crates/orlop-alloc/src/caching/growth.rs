//! The last steps of a request, under the growth lock: merging cached blocks, growing the heap, refusing. The
//! order is that of [`GrowthStep`].
//!
//! Nothing is reserved while cached memory would do.

use super::Caching;
use super::UNCACHED;
use super::classes::GRANULE;
use super::follow::PlanFate;
use super::index::ClassIndex;
use super::token::Token;
use crate::Refusal;
use crate::backing::{Backing, Region, Reservation};
use crate::bfc::chunks::{Index, RegionMap};
use crate::bfc::heap::{GrowthOutcome, Heap, HeapRequest};
use crate::{Error, OutOfMemory, RawBlock, Result};
use orlop_core::Alignment;
use orlop_sync::{CentralHeap as _, HeapGrowth, Mutex};
use std::sync::atomic::Ordering;

/// Lengths of a reservation, in the order in which they are tried.
const RESERVATIONS: [usize; 3] = [1 << 40, 1 << 36, 1 << 32];

/// If a request still finds no chunk after this many extensions, more memory does not help it.
const MAX_EXTENSIONS: u32 = 64;

/// The minimum that is committed in one step, in bytes.
const MIN_STEP: usize = 64 << 10;

/// A step is at least the committed bytes divided by this: many small steps cost time, large ones memory.
const STEP_DIVISOR: usize = 256;

/// Plans end once the heap has grown beside them by its size divided by this.
const BESIDE_DIVISOR: usize = 32;

/// Where nothing grows in place, a region has at least this many bytes, and at least the reserved bytes
/// divided by the second figure.
const MIN_REGION: usize = 1 << 20;
const REGION_DIVISOR: usize = 8;

/// The steps of growth, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrowthStep {
    /// Merge what this thread has cached.
    MergeOwn,
    /// Merge what all threads have cached.
    MergeAll,
    /// End all plans, if the heap has grown much beside them.
    EndPlans,
    /// Commit more of the reservation, or reserve a region. If neither is possible: end all plans, else
    /// release wholly free regions and try once more.
    Extend,
    /// Return an out-of-memory error.
    Refuse,
}

/// The progress of a request that found no chunk.
pub(super) struct GrowthSteps<'a, B: Backing> {
    engine: &'a Caching<B>,
    step: GrowthStep,
    extensions: u32,
}

impl<'a, B: Backing> GrowthSteps<'a, B> {
    pub(super) fn new(engine: &'a Caching<B>) -> Self {
        Self { engine, step: GrowthStep::MergeOwn, extensions: 0 }
    }
}

impl<B: Backing> HeapGrowth<Heap<ClassIndex>> for GrowthSteps<'_, B> {
    type Error = Error;

    fn grow(&mut self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> Result<GrowthOutcome> {
        let engine = self.engine;
        loop {
            match self.step {
                GrowthStep::MergeOwn => {
                    self.step = GrowthStep::MergeAll;
                    if engine.merge_own(heap) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                GrowthStep::MergeAll => {
                    self.step = GrowthStep::EndPlans;
                    if engine.counters.slots() > 1 && engine.merge_all(heap, PlanFate::Keep) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                GrowthStep::EndPlans => {
                    self.step = GrowthStep::Extend;
                    if engine.plans_are_in_the_way(heap, wanted) && engine.merge_all(heap, PlanFate::End) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                GrowthStep::Extend => {
                    if let Some(outcome) = engine.extend(heap, wanted) {
                        // The step is repeated: another thread may take the free end of the region before
                        // this memory is added to it.
                        self.extensions += 1;
                        if self.extensions == MAX_EXTENSIONS {
                            self.step = GrowthStep::Refuse;
                        }
                        if engine.plans.load(Ordering::Relaxed) > 0 {
                            engine.grown_beside.fetch_add(wanted.rounded, Ordering::Relaxed);
                        }
                        return Ok(outcome);
                    }
                    if engine.plans.load(Ordering::Relaxed) > 0 && engine.merge_all(heap, PlanFate::End) {
                        return Ok(GrowthOutcome::Retry);
                    }
                    self.step = GrowthStep::Refuse;
                    if engine.release_free(heap)
                        && let Some(outcome) = engine.extend(heap, wanted)
                    {
                        return Ok(outcome);
                    }
                }
                GrowthStep::Refuse => return Err(engine.refuse(heap, wanted)),
            }
        }
    }
}

/// The region that grows in place, as it is now.
struct GrowingRegion {
    index: Index,
    reservation: Reservation,
    committed: usize,
    /// Free bytes at its end.
    free: usize,
    /// Its last chunk.
    last: Index,
}

impl GrowingRegion {
    fn of(heap: &Heap<ClassIndex>) -> Option<Self> {
        let region = heap.regions.iter().rev().find_map(|(index, map)| Some((index, map, map.reservation?)));
        region.map(|(index, map, reservation)| {
            let last = &heap.chunks[map.last];
            let free = if last.in_use() { 0 } else { last.size };
            Self { index, reservation, committed: map.region.bytes, free, last: map.last }
        })
    }
}

/// The sizes to try: enough to be worth a step, then just enough.
fn step_sizes(need: usize, held: usize) -> [usize; 2] {
    [need.max(MIN_STEP).max(held / STEP_DIVISOR), need]
}

impl<B: Backing> Caching<B> {
    /// Merges what this thread has cached. Ends its plan too if the thread has diverged from it.
    pub(super) fn merge_own(&self, heap: &Mutex<Heap<ClassIndex>>) -> bool {
        self.counters.with(|cache| {
            let has_diverged = cache.plan().is_some_and(|plan| plan.divergences() > 0);
            self.merge(heap, cache, if has_diverged { PlanFate::End } else { PlanFate::Keep })
        })
    }

    /// Returns `true` if there are plans and the heap has grown so much beside them that their memory is
    /// needed.
    fn plans_are_in_the_way(&self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> bool {
        let beside = self.grown_beside.load(Ordering::Relaxed).saturating_add(wanted.rounded);
        self.plans.load(Ordering::Relaxed) > 0 && beside > heap.lock().reserved / BESIDE_DIVISOR
    }

    /// Obtains memory that holds the request, if the limit and the backing allow it. The growth lock is held.
    fn extend(&self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> Option<GrowthOutcome> {
        let align = wanted.request.align;
        let (held, growing) = {
            let heap = heap.lock();
            if heap.reserved - heap.live >= wanted.rounded {
                // Enough memory is free, but in pieces: unmerged blocks were in the way.
                let slack = self.slack.load(Ordering::Relaxed);
                self.slack.store(slack.saturating_mul(2), Ordering::Relaxed);
            }
            (heap.spanned(), GrowingRegion::of(&heap))
        };
        let room = self.limit.checked_sub(held)?;
        let slack = align.bytes().saturating_sub(GRANULE.bytes());
        let need = wanted.rounded.checked_add(slack)?;
        if let Some(growing) = growing
            && let Some(outcome) = self.commit_more(&growing, need, room)
        {
            return Some(outcome);
        }
        for step in step_sizes(need, 0) {
            if let Some(map) = self.new_reservation(step, room, align) {
                return Some(GrowthOutcome::NewRegion(map));
            }
        }
        for bytes in [need.max(MIN_REGION).max(held / REGION_DIVISOR), need] {
            if let Some(region) =
                (bytes <= room).then(|| self.backing.reserve(bytes, align.max(GRANULE))).flatten()
            {
                let map = RegionMap::new(region, None);
                if map.is_none() {
                    // SAFETY: reserved just above, and no pointer into it exists elsewhere.
                    unsafe { self.backing.release(region) };
                }
                return map.map(GrowthOutcome::NewRegion);
            }
        }
        None
    }

    /// Commits more of the reservation, so that `need` bytes are free at the end of the region. The growth
    /// lock is held.
    fn commit_more(&self, growing: &GrowingRegion, need: usize, room: usize) -> Option<GrowthOutcome> {
        let &GrowingRegion { index, ref reservation, committed, free, .. } = growing;
        for step in step_sizes(need.saturating_sub(free), committed) {
            let to = committed
                .checked_add(step)
                .and_then(|to| self.backing.commit_granularity().round_up(to).ok());
            let Some(to) = to.filter(|&to| to <= reservation.capacity && to - committed <= room) else {
                continue;
            };
            // SAFETY: the reservation is this engine's, and exactly its first `committed` bytes are: more are
            // committed under the growth lock only, which is held.
            if unsafe { self.backing.commit(reservation, committed, to) } {
                return Some(GrowthOutcome::Extended { region: index, bytes: to });
            }
        }
        None
    }

    /// [`Allocator::grow_in_place`](crate::Allocator::grow_in_place) with free memory behind the block, which
    /// may be cached or yet to be obtained. The block then has no class: when it is freed, it goes to the
    /// heap.
    ///
    /// # Safety
    ///
    /// As for `grow_in_place`.
    pub(super) unsafe fn grow_in_place_from_heap(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let Ok(rounded) = GRANULE.round_up(bytes) else { return false };
        if self.backing.is_entered() {
            return false;
        }
        let token = Token(block.token);
        // A plan relies on the addresses and sizes of the blocks it serves, and a learner on those it has
        // logged.
        if token.is_planned() || token.note() != 0 {
            return false;
        }
        let place = token.place();
        let extend = |heap: &mut Heap<ClassIndex>| {
            if heap.holds(block) { heap.extend(place, rounded, bytes) } else { None }
        };
        // A statement of its own: the guard must be dropped before growth begins.
        let at_once = extend(&mut self.heap.lock());
        let granted = at_once.or_else(|| {
            self.heap.while_not_growing(|locked| {
                self.merge_own(locked);
                let merged = extend(&mut locked.lock());
                merged.or_else(|| {
                    let outcome = self.lengthen_behind(locked, place, rounded)?;
                    let mut heap = locked.lock();
                    heap.add(outcome);
                    extend(&mut heap)
                })
            })
        });
        let Some(granted) = granted else { return false };
        let (more, asked) = (granted - block.granted, bytes - block.requested);
        // SAFETY: the record is this engine's, and the values are the heap's for this block.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (granted, bytes);
        record.token = Token::new(place as usize, UNCACHED, token.owner_slot()).0;
        self.counters.with(|cache| cache.tags().add(block.kind, block.tag, more));
        self.counters.count_growth(block.kind, more, asked, granted);
        true
    }

    /// Commits memory behind a chunk in use, so that the chunk can have `rounded` bytes. Does nothing
    /// unless only free memory is between the chunk and the end of the region. The growth lock is held.
    pub(super) fn lengthen_behind(
        &self,
        heap: &Mutex<Heap<ClassIndex>>,
        chunk: Index,
        rounded: usize,
    ) -> Option<GrowthOutcome> {
        let (growing, need, held) = {
            let heap = heap.lock();
            let growing = GrowingRegion::of(&heap)?;
            let chunk_at_end = &heap.chunks[chunk];
            let is_last = growing.last == chunk || (growing.free > 0 && chunk_at_end.next == growing.last);
            let need = rounded.checked_sub(chunk_at_end.size).filter(|_| is_last)?;
            (growing, need, heap.spanned())
        };
        self.commit_more(&growing, need, self.limit.checked_sub(held)?)
    }

    /// Makes a new reservation, and commits its first bytes.
    fn new_reservation(&self, bytes: usize, room: usize, align: Alignment) -> Option<RegionMap> {
        let bytes = self.backing.commit_granularity().round_up(bytes).ok().filter(|&bytes| bytes <= room)?;
        let align = align.max(GRANULE);
        let longest = self.limit.checked_next_power_of_two().unwrap_or(usize::MAX);
        let lengths =
            RESERVATIONS.map(|length| length.min(longest)).into_iter().filter(|&length| length >= bytes);
        let reservation =
            lengths.filter_map(|length| self.backing.reserve_addresses(length, align)).next()?;
        // SAFETY: a new reservation, of which nothing is committed.
        let committed = unsafe { self.backing.commit(&reservation, 0, bytes) };
        let region = Region { ptr: reservation.ptr, bytes, align, zeroed: true };
        let map = committed.then(|| RegionMap::new(region, Some(reservation))).flatten();
        if map.is_none() {
            // SAFETY: reserved just above, and no pointer into it exists elsewhere.
            unsafe { self.backing.release_addresses(reservation, if committed { bytes } else { 0 }) };
        }
        map
    }

    /// Releases wholly free regions. Returns `true` if there were any. The growth lock is held.
    fn release_free(&self, heap: &Mutex<Heap<ClassIndex>>) -> bool {
        let removed: Vec<_> = {
            let mut heap = heap.lock();
            let free = heap.free_regions();
            free.into_iter().filter_map(|(index, _)| heap.remove_region(index)).collect()
        };
        let any = !removed.is_empty();
        for removed in removed {
            // SAFETY: the region came from this backing; its chunks were all free and have been removed from
            // the heap.
            unsafe { removed.release(&self.backing) };
        }
        any
    }

    #[cold]
    fn refuse(&self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> Error {
        let &HeapRequest { request, rounded } = wanted;
        let heap = heap.lock();
        let spanned = heap.spanned();
        let over = rounded > self.limit.saturating_sub(spanned);
        let refusal = if over { Refusal::Limit } else { Refusal::Backing };
        let mut report = OutOfMemory::new(refusal, &self.name, self.backing.device(), request);
        describe(&heap, &mut report);
        if over {
            report.reserved = spanned as u64;
            report.free = (spanned - heap.live) as u64;
        }
        report.rounded = rounded;
        report.limit = (self.limit != usize::MAX).then_some(self.limit as u64);
        report.into()
    }
}

/// Adds what the heap knows to a report, except for bytes by tag: a thread that reuses a cached block changes
/// the tag without the heap. The callers add those (the sharded counters know bytes by kind, the slots bytes
/// by tag).
pub(super) fn describe(heap: &Heap<ClassIndex>, report: &mut OutOfMemory) {
    heap.describe(report);
    report.by_tag.clear();
}
