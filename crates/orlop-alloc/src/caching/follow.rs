//! Plans: how they come, go, and give way.
//!
//! A plan has chunks of the heap to itself, and most of the time not all of them are used. That is worth it while the
//! thread repeats its round; when something else needs the memory, plans end. Blocks that live go on as chunks of their
//! own.

use super::Caching;
use super::classes::CLASSES;
use super::index::ClassIndex;
use super::learn::Learned;
use super::plan::{Parts, Plan, Planned, holds};
use super::thread_cache::ThreadCache;
use super::token::Token;
use crate::Record;
use crate::backing::Backing;
use crate::bfc::chunks::LIMIT;
use crate::bfc::heap::Heap;
use crate::bfc::place::{next_to_meet, place};
use orlop_sync::Mutex;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A plan may use so many holes.
const HOLES: usize = 64;

/// What is to become of plans when all is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plans {
    Keep,
    End,
}

impl<B: Backing> Caching<B> {
    /// Makes a plan of what the thread has learned, in the memory that is free, and follows it. If there is not enough,
    /// nothing is gained for it; where stacks do as well, they stay as they are.
    pub(super) fn follow(&self, front: &mut ThreadCache) {
        let round = front.round().filter(|round| !stacks_do_as_well(round));
        let Some(round) = round else { return front.decline() };
        let mut heap = self.heap.lock();
        front.drain(0, |record| heap.put_record(record));
        // Relaxed: marks only need to differ from those of plans whose blocks still live.
        let mark = self.marks.fetch_add(1, Ordering::Relaxed) | LIMIT;
        let plan = make(&mut heap, &round, Token::new(mark as usize, 0, front.slot()));
        if plan.is_some() {
            self.plans.fetch_add(1, Ordering::Relaxed);
        }
        front.follow(plan);
    }

    /// Ends the plan of a thread, if it has one.
    pub(super) fn end_plan(&self, front: &mut ThreadCache, heap: &mut Heap<ClassIndex>) -> bool {
        let Some(plan) = front.take_plan() else { return false };
        give_back(heap, plan);
        self.plans.fetch_sub(1, Ordering::Relaxed);
        self.grown_beside.store(0, Ordering::Relaxed);
        true
    }

    /// Keeps what other threads brought back to this slot.
    pub(super) fn take_back(&self, front: &mut ThreadCache) {
        let Some(remote_frees) = self.remote_frees.get(front.slot()) else { return };
        for record in remote_frees.take() {
            if let Some(record) = front.put(record) {
                // A block that is not there any more is nobody's: no memory can be used twice by leaving it.
                let _ = self.heap.lock().put_placed(record);
            }
        }
    }

    /// Merges what a slot has cached; whether that was anything.
    pub(super) fn merge(
        &self,
        heap: &Mutex<Heap<ClassIndex>>,
        front: &mut ThreadCache,
        plans: Plans,
    ) -> bool {
        self.take_back(front);
        let mut heap = heap.lock();
        let ended = plans == Plans::End && self.end_plan(front, &mut heap);
        let merged = front.drain(0, |record| heap.put_record(record));
        self.tell(front);
        ended || merged
    }

    /// Merges all that any thread has cached; whether that was anything.
    pub(super) fn merge_all(&self, heap: &Mutex<Heap<ClassIndex>>, plans: Plans) -> bool {
        let mut any = false;
        self.counters.for_each_slot(|front| any |= self.merge(heap, front, plans));
        any
    }

    /// Counts what a slot's plan and log take.
    pub(super) fn tell(&self, front: &mut ThreadCache) {
        let (before, now) = front.swap_reported();
        if now != before {
            // Relaxed: a figure.
            self.learning_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// How large the block at `address` is and its record, if it is one of a plan's. The outer `None` says that no plan has
    /// the address.
    pub(super) fn find_planned(&self, address: usize) -> Option<Option<(usize, NonNull<Record>)>> {
        if self.plans.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut found = None;
        self.counters.for_each_slot(|front| {
            let Some(plan) = front.plan() else { return };
            if plan.extents().any(|extent| extent.addresses().contains(&address)) {
                let live = plan.live().find(|&(start, ..)| start == address);
                found = Some(live.map(|(_, size, record)| (size, record)));
            }
        });
        found
    }
}

/// Whether the stacks, where a class's blocks serve that class alone, need no more for the round than lives at once: as
/// in a loop around a few blocks. They are no less tight than a plan then, and quicker while nothing else is asked for.
#[cold]
#[inline(never)]
fn stacks_do_as_well(round: &[Learned]) -> bool {
    let lives = || round.iter().filter_map(|learned| Some((learned.class, learned.life?)));
    let mut events: Vec<_> = lives()
        .flat_map(|(class, life)| {
            [(life.from, class, life.size, true), (life.until, class, life.size, false)]
        })
        .collect();
    events.sort_unstable();
    let (mut live, mut peak, mut stacked) = (0usize, 0, 0);
    // By class: bytes that live, and the most that did.
    let mut classes = [(0usize, 0usize); CLASSES];
    for (_, class, size, begins) in events {
        let (of_class, most) = &mut classes[class];
        if !begins {
            live -= size;
            *of_class -= size;
            continue;
        }
        live += size;
        *of_class += size;
        peak = live.max(peak);
        if of_class > most {
            stacked += *of_class - *most;
            *most = *of_class;
        }
    }
    stacked <= peak
}

/// A plan of the round, in the holes of the heap.
fn make(heap: &mut Heap<ClassIndex>, round: &[Learned], token: Token) -> Option<Plan> {
    let (base, holes) = heap.holes(HOLES)?;
    let lives: Vec<_> = round.iter().filter_map(|learned| learned.life).collect();
    let ranges: Vec<_> = holes.iter().map(|hole| hole.addresses.clone()).collect();
    let addresses = place(&lives, &ranges)?;
    let blocks: Vec<_> =
        addresses.iter().zip(&lives).map(|(&address, life)| address..address + life.size).collect();
    // Steps that have a place, and where in the round they are.
    let numbers: Vec<usize> = (0..round.len()).filter(|&number| round[number].life.is_some()).collect();
    let mut placed =
        addresses.iter().zip(next_to_meet(&blocks)).map(|(&address, meets)| (address, numbers[meets]));
    let planned: Vec<_> = round
        .iter()
        .map(|learned| Planned { class: learned.class, place: learned.life.and_then(|_| placed.next()) })
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
        // SAFETY: the blocks are inside the extents (just seen), in one region, which `base` reaches; the steps that
        // they meet are those of `next_to_meet`.
        unsafe { Plan::new(&planned, base, token, extents, || heap.spare_record()) }
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

/// Gives a plan's memory back to the heap; blocks that live become chunks.
fn give_back(heap: &mut Heap<ClassIndex>, plan: Plan) {
    let Parts { extents, unused, live } = plan.take_apart();
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
