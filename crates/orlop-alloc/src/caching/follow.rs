//! Period plans: how they are made, and how they end.
//!
//! A plan has chunks of the heap to itself, and most of the time not all of them are in use. That is worth it
//! while the thread repeats its period; when something else needs the memory, plans end. Live blocks become
//! chunks of their own.

use super::Caching;
use super::classes::CLASSES;
use super::index::ClassIndex;
use super::plan::{PlanParts, PlannedStep, ThreadPlan, holds};
use super::thread_cache::ThreadCache;
use super::token::Token;
use crate::Record;
use crate::backing::Backing;
use crate::bfc::chunks::LIMIT;
use crate::bfc::heap::Heap;
use orlop_plan::Problem;
use orlop_plan::period::PeriodRequest;
use orlop_plan::placement::{next_overlaps, place};
use orlop_sync::Mutex;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A plan uses at most this many holes.
const HOLES: usize = 64;

/// What becomes of plans when everything is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanFate {
    Keep,
    End,
}

impl<B: Backing> Caching<B> {
    /// Makes a plan for the thread's period in free memory, and follows it. If there is not enough, the heap
    /// does not grow for it; where stacks are as good, there is no plan.
    pub(super) fn follow(&self, cache: &mut ThreadCache) {
        let period = cache.period().filter(|period| !stacks_do_as_well(period));
        let Some(period) = period else { return cache.decline() };
        let mut heap = self.heap.lock();
        cache.drain(0, |record| heap.put_record(record));
        // Relaxed: marks only need to differ from those of plans that still have live blocks.
        let mark = self.marks.fetch_add(1, Ordering::Relaxed) | LIMIT;
        let plan = make(&mut heap, &period, Token::new(mark as usize, 0, cache.slot()));
        if plan.is_some() {
            self.plans.fetch_add(1, Ordering::Relaxed);
        }
        cache.follow(plan);
    }

    /// Ends the plan of a thread, if it has one.
    pub(super) fn end_plan(&self, cache: &mut ThreadCache, heap: &mut Heap<ClassIndex>) -> bool {
        let Some(plan) = cache.take_plan() else { return false };
        give_back(heap, plan);
        self.plans.fetch_sub(1, Ordering::Relaxed);
        self.grown_beside.store(0, Ordering::Relaxed);
        true
    }

    /// Takes the blocks of this slot that other threads freed.
    pub(super) fn take_back(&self, cache: &mut ThreadCache) {
        let Some(remote_frees) = self.remote_frees.get(cache.slot()) else { return };
        for record in remote_frees.take() {
            if let Some(record) = cache.put(record) {
                // A block that is not there any more belongs to no one: leaving it cannot lead to memory used
                // twice.
                let _ = self.heap.lock().put_placed(record);
            }
        }
    }

    /// Merges what a slot has cached. Returns `true` if that was anything.
    pub(super) fn merge(
        &self,
        heap: &Mutex<Heap<ClassIndex>>,
        cache: &mut ThreadCache,
        plans: PlanFate,
    ) -> bool {
        self.take_back(cache);
        let mut heap = heap.lock();
        let ended = plans == PlanFate::End && self.end_plan(cache, &mut heap);
        let merged = cache.drain(0, |record| heap.put_record(record));
        self.report_plan(cache);
        ended || merged
    }

    /// Merges all that any thread has cached. Returns `true` if that was anything.
    pub(super) fn merge_all(&self, heap: &Mutex<Heap<ClassIndex>>, plans: PlanFate) -> bool {
        let mut any = false;
        self.counters.for_each_slot(|cache| any |= self.merge(heap, cache, plans));
        any
    }

    /// Adds the change of the bytes that a slot's plan and log take to the engine's metadata.
    pub(super) fn report_plan(&self, cache: &mut ThreadCache) {
        let (before, now) = cache.swap_reported();
        if now != before {
            // Relaxed: a figure.
            self.learning_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Returns the size and the record of the block at `address`, if it is live in a plan. The outer `None`
    /// says that no plan has the address.
    pub(super) fn find_planned(&self, address: usize) -> Option<Option<(usize, NonNull<Record>)>> {
        if self.plans.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut found = None;
        self.counters.for_each_slot(|cache| {
            let Some(plan) = cache.plan() else { return };
            if plan.extents().any(|extent| extent.addresses().contains(&address)) {
                let live = plan.live().find(|&(start, ..)| start == address);
                found = Some(live.map(|(_, size, record)| (size, record)));
            }
        });
        found
    }
}

/// Whether the stacks, where a class's blocks serve that class alone, need no more for the period than its
/// peak of live bytes: as in a loop around a few blocks. They are as tight as a plan then, and faster.
#[cold]
#[inline(never)]
fn stacks_do_as_well(period: &[PeriodRequest]) -> bool {
    let buffers = period.iter().filter_map(|request| Some((request.key, request.buffer?)));
    let mut events: Vec<_> = buffers
        .flat_map(|(class, buffer)| {
            [(buffer.start, class, buffer.size, true), (buffer.end, class, buffer.size, false)]
        })
        .collect();
    events.sort_unstable();
    let (mut live, mut peak, mut stacked) = (0_u64, 0, 0);
    // By class: live bytes, and their peak.
    let mut classes = [(0_u64, 0_u64); CLASSES];
    for (_, class, size, begins) in events {
        let (of_class, peak_of_class) = &mut classes[class];
        if !begins {
            live -= size;
            *of_class -= size;
            continue;
        }
        live += size;
        *of_class += size;
        peak = live.max(peak);
        if of_class > peak_of_class {
            stacked += *of_class - *peak_of_class;
            *peak_of_class = *of_class;
        }
    }
    stacked <= peak
}

/// Plans a period in the holes of the heap.
fn make(heap: &mut Heap<ClassIndex>, period: &[PeriodRequest], token: Token) -> Option<ThreadPlan> {
    let (base, holes) = heap.holes(HOLES)?;
    let blocks = blocks_of(period, holes.iter().map(|hole| hole.addresses.clone()))?;
    // Requests that have a place, by their index in the period.
    let indices: Vec<usize> = (0..period.len()).filter(|&index| period[index].buffer.is_some()).collect();
    let mut placed =
        blocks.iter().zip(next_overlaps(&blocks)).map(|(block, next)| (block.start, indices[next]));
    let planned: Vec<_> = period
        .iter()
        .map(|request| PlannedStep { class: request.key, place: request.buffer.and_then(|_| placed.next()) })
        .collect();
    let mut extents = Vec::new();
    for hole in &holes {
        let ends = blocks.iter().filter(|block| hole.addresses.contains(&block.start)).map(|block| block.end);
        let Some(end) = ends.max() else { continue };
        match heap.lease(hole.chunk, end - hole.addresses.start) {
            Some(lease) => extents.push(lease),
            None => break,
        }
    }
    let plan = if blocks.iter().all(|block| holds(&extents, block)) {
        // SAFETY: the blocks are inside the extents (just seen), in one region, which `base` reaches; the
        // steps that overlap with them are those of `next_overlaps`.
        unsafe { ThreadPlan::new(&planned, base, token, extents, || heap.spare_record()) }
    } else {
        Err(extents)
    };
    match plan {
        Ok(plan) => Some(plan),
        Err(extents) => {
            extents.into_iter().for_each(|lease| heap.end_lease(lease, &[]));
            None
        }
    }
}

/// Returns the addresses of those blocks of a period that can be planned, in the holes.
fn blocks_of(
    period: &[PeriodRequest],
    holes: impl Iterator<Item = Range<usize>>,
) -> Option<Vec<Range<usize>>> {
    let problem = Problem::new(period.iter().filter_map(|request| request.buffer)).ok()?;
    let holes: Vec<_> = holes.map(|hole| hole.start as u64..hole.end as u64).collect();
    let addresses = place(&problem, &holes)?;
    let block = |(address, size): (u64, u64)| {
        Some(usize::try_from(address).ok()?..usize::try_from(address.checked_add(size)?).ok()?)
    };
    addresses.into_iter().zip(problem.buffers().iter().map(|buffer| buffer.size)).map(block).collect()
}

/// Gives a plan's memory back to the heap; live blocks become chunks.
fn give_back(heap: &mut Heap<ClassIndex>, plan: ThreadPlan) {
    let PlanParts { extents, unused, live } = plan.take_apart();
    for record in unused {
        heap.adopt(Some(record));
    }
    for lease in extents {
        let addresses = lease.addresses();
        let from = live.partition_point(|&(address, ..)| address < addresses.start);
        let until = live.partition_point(|&(address, ..)| address < addresses.end);
        for _ in from..until {
            heap.adopt(None);
        }
        heap.end_lease(lease, &live[from..until]);
    }
}
