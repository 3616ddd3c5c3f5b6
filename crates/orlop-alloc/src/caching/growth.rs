//! What is done when neither the thread nor the heap has a block: what is cached is merged, then the heap grows.
//!
//! 1. what this thread has cached is merged;
//! 2. what all other threads have cached;
//! 3. if the heap has grown by much since there are plans, plans end;
//! 4. the heap grows;
//! 5. plans end, and regions that are wholly free go back, so that another fits.
//!
//! So nothing is gained while something cached would do.

use super::Caching;
use super::UNCACHED;
use super::classes::GRANULE;
use super::follow::PlanFate;
use super::index::ClassIndex;
use super::token::Token;
use crate::Refusal;
use crate::backing::{Backing, Region, Reservation};
use crate::central::chunks::{Index, RegionMap};
use crate::central::heap::{Heap, HeapRequest};
use crate::central::regions::GrowthOutcome;
use crate::{Error, OutOfMemory, RawBlock, Result};
use orlop_core::Alignment;
use orlop_sync::{CentralHeap as _, HeapGrowth, Mutex, thread_slot};
use std::sync::atomic::Ordering;

/// Lines are this long if the system lets them, else shorter.
const LINES: [usize; 3] = [1 << 40, 1 << 36, 1 << 32];

/// A request that finds nothing after so many extensions has another reason.
const EXTENSIONS: u32 = 64;

/// The least that a line grows by.
const STEP: usize = 64 << 10;

/// A line grows by this part of itself at least: many small steps cost time, large ones memory.
const STEP_PART: usize = 256;

/// Beside plans the heap grows by this part of itself before they end.
const BESIDE_PART: usize = 32;

/// The least that is gained at once where nothing grows in place, and the part of what is held.
const REGION: usize = 1 << 20;
const REGION_PART: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Own,
    Everybody,
    Plans,
    Extend,
    GiveUp,
}

/// A request that found nothing, on its way.
pub(super) struct Search<'a, B: Backing> {
    engine: &'a Caching<B>,
    step: Step,
    extensions: u32,
}

impl<'a, B: Backing> Search<'a, B> {
    pub(super) fn new(engine: &'a Caching<B>) -> Self {
        Self { engine, step: Step::Own, extensions: 0 }
    }
}

impl<B: Backing> HeapGrowth<Heap<ClassIndex>> for Search<'_, B> {
    type Error = Error;

    fn grow(&mut self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> Result<GrowthOutcome> {
        let engine = self.engine;
        loop {
            match self.step {
                Step::Own => {
                    self.step = Step::Everybody;
                    if engine.merge_own(heap) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                Step::Everybody => {
                    self.step = Step::Plans;
                    if engine.counters.slots() > 1 && engine.merge_all(heap, PlanFate::Keep) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                Step::Plans => {
                    self.step = Step::Extend;
                    if engine.plans_are_in_the_way(heap, wanted) && engine.merge_all(heap, PlanFate::End) {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                Step::Extend => {
                    if let Some(outcome) = engine.extend(heap, wanted) {
                        // Not yet the next step: another thread may take what was free at the end before this is
                        // added to it.
                        self.extensions += 1;
                        if self.extensions == EXTENSIONS {
                            self.step = Step::GiveUp;
                        }
                        if engine.plans.load(Ordering::Relaxed) > 0 {
                            engine.grown_beside.fetch_add(wanted.rounded, Ordering::Relaxed);
                        }
                        return Ok(outcome);
                    }
                    if engine.plans.load(Ordering::Relaxed) > 0 && engine.merge_all(heap, PlanFate::End) {
                        return Ok(GrowthOutcome::Retry);
                    }
                    self.step = Step::GiveUp;
                    if engine.release_free(heap)
                        && let Some(outcome) = engine.extend(heap, wanted)
                    {
                        return Ok(outcome);
                    }
                }
                Step::GiveUp => return Err(engine.refuse(heap, wanted)),
            }
        }
    }
}

/// The line that grows, as it stands.
struct Growing {
    index: Index,
    line: Reservation,
    gained: usize,
    /// Free bytes at its end.
    free: usize,
    /// Its last chunk.
    last: Index,
}

impl Growing {
    fn of(heap: &Heap<ClassIndex>) -> Option<Self> {
        let line = heap.regions.iter().rev().find_map(|(index, map)| Some((index, map, map.line?)));
        line.map(|(index, map, line)| {
            let last = &heap.chunks[map.last];
            let free = if last.in_use() { 0 } else { last.size };
            Self { index, line, gained: map.region.bytes, free, last: map.last }
        })
    }
}

/// As much as is worth a step, or just enough.
fn steps(need: usize, held: usize) -> [usize; 2] {
    [need.max(STEP).max(held / STEP_PART), need]
}

impl<B: Backing> Caching<B> {
    /// Merges what this thread has cached; also its plan, if it does something else at the moment.
    pub(super) fn merge_own(&self, heap: &Mutex<Heap<ClassIndex>>) -> bool {
        self.counters.with(thread_slot::current(), |front| {
            let diverges = front.plan().is_some_and(|plan| plan.divergences() > 0);
            self.merge(heap, front, if diverges { PlanFate::End } else { PlanFate::Keep })
        })
    }

    /// Whether there are plans, and the heap has grown so much beside them that their memory is wanted.
    fn plans_are_in_the_way(&self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> bool {
        let beside = self.grown_beside.load(Ordering::Relaxed).saturating_add(wanted.rounded);
        self.plans.load(Ordering::Relaxed) > 0 && beside > heap.lock().reserved / BESIDE_PART
    }

    /// Gets memory that holds the request, if limit and backing allow. The growth lock is held.
    fn extend(&self, heap: &Mutex<Heap<ClassIndex>>, wanted: &HeapRequest<'_>) -> Option<GrowthOutcome> {
        let align = wanted.request.align;
        let (held, growing) = {
            let heap = heap.lock();
            if heap.reserved - heap.live >= wanted.rounded {
                // As much is free, in pieces: what waited unmerged was in the way.
                let slack = self.slack.load(Ordering::Relaxed);
                self.slack.store(slack.saturating_mul(2), Ordering::Relaxed);
            }
            (heap.spanned(), Growing::of(&heap))
        };
        let room = self.limit.checked_sub(held)?;
        let slack = align.bytes().saturating_sub(GRANULE.bytes());
        let need = wanted.rounded.checked_add(slack)?;
        if let Some(growing) = growing
            && let Some(outcome) = self.longer(&growing, need, room)
        {
            return Some(outcome);
        }
        for step in steps(need, 0) {
            if let Some(map) = self.new_line(step, room, align) {
                return Some(GrowthOutcome::NewRegion(map));
            }
        }
        for bytes in [need.max(REGION).max(held / REGION_PART), need] {
            if let Some(region) =
                (bytes <= room).then(|| self.backing.reserve(bytes, align.max(GRANULE))).flatten()
            {
                let map = RegionMap::new(region, None);
                if map.is_none() {
                    // SAFETY: gained above, and nobody else knows it.
                    unsafe { self.backing.release(region) };
                }
                return map.map(GrowthOutcome::NewRegion);
            }
        }
        None
    }

    /// Makes the line longer, so that `need` bytes are free at its end. The growth lock is held.
    fn longer(&self, growing: &Growing, need: usize, room: usize) -> Option<GrowthOutcome> {
        let &Growing { index, ref line, gained, free, .. } = growing;
        for step in steps(need.saturating_sub(free), gained) {
            let to =
                gained.checked_add(step).and_then(|to| self.backing.commit_granularity().round_up(to).ok());
            let Some(to) = to.filter(|&to| to <= line.capacity && to - gained <= room) else { continue };
            // SAFETY: our line, of which `gained` bytes are gained; nobody else extends it while we hold the
            // growth lock.
            if unsafe { self.backing.commit(line, gained, to) } {
                return Some(GrowthOutcome::Extended { region: index, bytes: to });
            }
        }
        None
    }

    /// [`Allocator::grow_in_place`](crate::Allocator::grow_in_place), by free memory behind the block, which may be cached
    /// or yet to be gained. The block goes to the heap when it comes back: it is of no class any more.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn widen(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let Ok(rounded) = GRANULE.round_up(bytes) else { return false };
        if self.backing.is_entered() {
            return false;
        }
        let token = Token(block.token);
        // A plan keeps the addresses and sizes of what it serves.
        if token.is_planned() || token.note() != 0 {
            return false;
        }
        let place = token.place();
        let extend = |heap: &mut Heap<ClassIndex>| {
            if heap.holds(block) { heap.extend(place, rounded, bytes) } else { None }
        };
        // On a line of its own: the guard must be gone before growth begins.
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
        // SAFETY: a record of ours, and what the heap says of the block now.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (granted, bytes);
        record.token = Token::new(place as usize, UNCACHED, token.home()).0;
        let mut held = self.counters.enter(thread_slot::current());
        held.value().tags().add(block.kind, block.tag, more);
        held.count_growth(block.kind, more, asked, granted);
        true
    }

    /// Makes the line longer behind a chunk in use, so that the chunk can have `rounded` bytes, if only free memory is
    /// between it and the line's end. The growth lock is held.
    pub(super) fn lengthen_behind(
        &self,
        heap: &Mutex<Heap<ClassIndex>>,
        chunk: Index,
        rounded: usize,
    ) -> Option<GrowthOutcome> {
        let (growing, need, held) = {
            let heap = heap.lock();
            let growing = Growing::of(&heap)?;
            let chunk_at_end = &heap.chunks[chunk];
            let is_last = growing.last == chunk || (growing.free > 0 && chunk_at_end.next == growing.last);
            let need = rounded.checked_sub(chunk_at_end.size).filter(|_| is_last)?;
            (growing, need, heap.spanned())
        };
        self.longer(&growing, need, self.limit.checked_sub(held)?)
    }

    /// A new line with its first bytes.
    fn new_line(&self, bytes: usize, room: usize, align: Alignment) -> Option<RegionMap> {
        let bytes = self.backing.commit_granularity().round_up(bytes).ok().filter(|&bytes| bytes <= room)?;
        let align = align.max(GRANULE);
        let longest = self.limit.checked_next_power_of_two().unwrap_or(usize::MAX);
        let lengths = LINES.map(|line| line.min(longest)).into_iter().filter(|&length| length >= bytes);
        let line = lengths.filter_map(|length| self.backing.reserve_addresses(length, align)).next()?;
        // SAFETY: a new line, nothing of which is gained.
        let gained = unsafe { self.backing.commit(&line, 0, bytes) };
        let region = Region { ptr: line.ptr, bytes, align, zeroed: true };
        let map = gained.then(|| RegionMap::new(region, Some(line))).flatten();
        if map.is_none() {
            // SAFETY: nobody else knows it.
            unsafe { self.backing.release_addresses(line, if gained { bytes } else { 0 }) };
        }
        map
    }

    /// Gives wholly free regions back. The growth lock is held.
    fn release_free(&self, heap: &Mutex<Heap<ClassIndex>>) -> bool {
        let removed: Vec<_> = {
            let mut heap = heap.lock();
            let free = heap.free_regions();
            free.into_iter().filter_map(|(index, _)| heap.remove_region(index)).collect()
        };
        let any = !removed.is_empty();
        for removed in removed {
            // SAFETY: gained from this backing; its chunks were all free and are gone from the heap.
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

/// What the heap knows, but for who asked for the blocks: that changes when a thread hands one out again, and the heap
/// is not told. (By kind the ledger knows, by tag the slots: who has no lock adds that.)
pub(super) fn describe(heap: &Heap<ClassIndex>, report: &mut OutOfMemory) {
    heap.describe(report);
    report.by_tag.clear();
}
