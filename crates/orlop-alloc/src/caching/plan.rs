//! A thread's period plan: each block has its address before it is requested.
//!
//! # Why no two blocks overlap
//!
//! Steps are served strictly in turn, period after period. For each step there is a next one, in turn, whose
//! bytes overlap with its own: itself at the latest, a period later. That one is not served while the block
//! is live. So between a block's step and any later one whose bytes overlap with its own, the turn has passed
//! a step that waits for it; it was freed before. That depends neither on the order of frees nor on the
//! period being true: it is only a prediction.

use super::classes::{GRANULE, size_of_class};
use super::token::{NOTES, Token};
use crate::bfc::leases::{Placed, Records};
use crate::{AllocationId, Record};
use std::collections::HashSet;
use std::ops::Range;
use std::ptr::NonNull;

/// A step of the plan; what changes is in [`StepState`].
#[derive(Debug, Clone, Copy)]
struct PlanStep {
    /// Where the block is, in granules from the base. Of a block that comes from elsewhere: its size.
    offset: u32,
    /// Its size in granules, which is its class's. Of a block that comes from elsewhere, because it outlives
    /// the period: zero, with one size, which is zero bytes and no request's.
    granules: u32,
    /// The first step that this one waits for, and the next that the same one waits for: [`NONE`] ends the
    /// list.
    after: u16,
    also: u16,
    /// The record of its block. Which step uses which is settled: see [`records_of`]. Of a block that comes
    /// from elsewhere: what `sizes_log2` would be.
    record: u16,
    /// The number of sizes in the class, in bytes: two to the power of this.
    sizes_log2: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum StepState {
    Free,
    Live,
}

/// A thread with more consecutive divergences than this has left its period.
pub(super) const MAX_DIVERGENCES: u32 = 32;

/// Not a step.
const NONE: u16 = u16::MAX;

/// A plan has fewer steps than this: notes and links can name no more.
const STEPS: usize = if NOTES < NONE as usize { NOTES } else { NONE as usize };

impl PlanStep {
    /// Whether a request of `bytes` bytes is of the step's class. Not for zero bytes.
    #[inline(always)]
    fn is_for(&self, bytes: usize) -> bool {
        self.granted().wrapping_sub(bytes) >> self.sizes_log2 == 0
    }

    #[inline(always)]
    fn granted(&self) -> usize {
        self.granules as usize * GRANULE.bytes()
    }

    /// Returns the step of a block of this size that comes from elsewhere.
    fn into_elsewhere(self) -> Self {
        let record = u16::from(self.sizes_log2);
        Self { offset: self.granules, granules: 0, record, sizes_log2: 0, ..self }
    }

    /// Returns the step that [`PlanStep::into_elsewhere`] was called on, but for its record.
    fn elsewhere(&self) -> Option<Self> {
        let sizes_log2 = u8::try_from(self.record).ok().filter(|_| self.granules == 0)?;
        Some(Self { granules: self.offset, sizes_log2, ..*self })
    }
}

/// A step to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedStep {
    pub(super) class: usize,
    /// The address, and the next step whose bytes overlap; `None` if the block comes from elsewhere.
    pub(super) place: Option<(usize, usize)>,
}

/// A period plan, the memory that it owns, and where in the period the thread is.
///
/// Invariants: `next` is the number of a step; `after` and `also` are, or [`NONE`]; each step's record is one
/// of `records`; each step is in the list of the next one whose bytes overlap with its own, and a step is
/// served only when no block of its list is live. There are as many states as steps.
#[derive(Debug)]
pub(super) struct ThreadPlan {
    steps: Box<[PlanStep]>,
    /// By step. Apart from them, because loads of a step that were wider than a byte would wait for stores to
    /// it.
    states: Box<[StepState]>,
    next: usize,
    /// Where offsets count from; may reach all extents.
    base: NonNull<u8>,
    /// Names the plan in tokens, with its slot.
    token: Token,
    /// The records of its blocks.
    records: Box<[NonNull<Record>]>,
    /// The chunks that it has from the heap.
    extents: Records,
    /// The number of completed periods.
    periods: u64,
    /// The step and the period of the last divergence, and the number of divergences there.
    diverged: (usize, u64, u32),
}

/// The number of a record for each step, and the number of records. A record is used again only after another
/// block overlapped with its last one, which was freed before.
fn records_of(planned: &[PlannedStep]) -> (Vec<usize>, usize) {
    let (mut records, mut count) = (vec![0; planned.len()], 0);
    let mut ending: Vec<Vec<usize>> = vec![Vec::new(); planned.len()];
    let mut vacant: Vec<usize> = Vec::new();
    for (step, planned) in planned.iter().enumerate() {
        vacant.append(&mut ending[step]);
        // A block that comes from elsewhere has a record from there.
        let Some((_, next)) = planned.place else { continue };
        // A block that is overlapped only in the next period has a record of its own.
        let wraps = next <= step;
        let used_before = if wraps { None } else { vacant.pop() };
        records[step] = used_before.unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        if !wraps {
            ending[next].push(records[step]);
        }
    }
    (records, count)
}

impl ThreadPlan {
    /// Creates a plan over `extents`, which `base` is allowed to reach, for the slot and plan that `token`
    /// names. Returns the extents if an offset or a number is too large.
    ///
    /// # Safety
    ///
    /// 1. A block of each step's class fits at its address inside the extents.
    /// 2. Each step names the next one whose bytes overlap with its own.
    pub(super) unsafe fn new(
        planned: &[PlannedStep],
        base: NonNull<u8>,
        token: Token,
        extents: Records,
        mut record: impl FnMut() -> Box<Record>,
    ) -> Result<Self, Records> {
        let origin = base.as_ptr().addr();
        let (numbers, count) = records_of(planned);
        let granules = |class: usize| size_of_class(class) / GRANULE.bytes();
        let step = |(&PlannedStep { class, place }, &record): (&PlannedStep, &usize)| {
            let sizes = size_of_class(class) - class.checked_sub(1).map_or(0, size_of_class);
            debug_assert!(sizes.is_power_of_two());
            let (granules, record) = (u32::try_from(granules(class)).ok()?, u16::try_from(record).ok()?);
            let sizes_log2 = u8::try_from(sizes.ilog2()).ok()?;
            let step = PlanStep { offset: 0, granules, after: NONE, also: NONE, record, sizes_log2 };
            let Some((address, _)) = place else { return Some(step.into_elsewhere()) };
            let offset = u32::try_from(address.checked_sub(origin)? / GRANULE.bytes()).ok()?;
            Some(PlanStep { offset, ..step })
        };
        let records: Box<[_]> = (0..count).map(|_| NonNull::from(Box::leak(record()))).collect();
        let steps: Option<Box<[PlanStep]>> = planned.iter().zip(&numbers).map(step).collect();
        let Some(mut steps) = steps.filter(|steps| !steps.is_empty() && steps.len() < STEPS) else {
            for record in records {
                // SAFETY: leaked just above.
                drop(unsafe { Box::from_raw(record.as_ptr()) });
            }
            return Err(extents);
        };
        for (number, planned) in (0..).zip(planned) {
            if let Some((_, next)) = planned.place {
                steps[usize::from(number)].also = std::mem::replace(&mut steps[next].after, number);
            }
        }
        let states = vec![StepState::Free; steps.len()].into();
        Ok(Self { steps, states, next: 0, base, token, records, extents, periods: 0, diverged: (0, 0, 0) })
    }

    /// Returns the block whose turn it is, and its size, if it is of the class of `bytes`, what it waits for
    /// was freed, and its size is allowed.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        bytes: usize,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<(NonNull<Record>, usize)> {
        let number = self.next;
        // SAFETY: by the invariants.
        let step = unsafe { self.steps.get_unchecked(number) };
        let granted = step.granted();
        if !step.is_for(bytes) || !allowed(granted) {
            return None;
        }
        let mut before = step.after;
        while before != NONE {
            let place = usize::from(before);
            // SAFETY: by the invariants.
            if unsafe { *self.states.get_unchecked(place) } == StepState::Live {
                return None;
            }
            // SAFETY: by the invariants.
            before = unsafe { self.steps.get_unchecked(place) }.also;
        }
        // SAFETY: by the invariants.
        unsafe { *self.states.get_unchecked_mut(number) = StepState::Live };
        // Wrapping, as in `Mapped::pointer_to`: the null backing's address space has no object to stay inside
        // of.
        let ptr = self.base.as_ptr().wrapping_add(step.offset as usize * GRANULE.bytes());
        // SAFETY: by the invariants.
        let mut place = unsafe { *self.records.get_unchecked(usize::from(step.record)) };
        // SAFETY: leaked in `new`, and unused: the turn has passed a step that waited for the block which it
        // was last used for (`records_of`).
        let record = unsafe { place.as_mut() };
        // SAFETY: inside an extent (`new`), which does not wrap around: not null.
        record.ptr = unsafe { NonNull::new_unchecked(ptr) };
        record.granted = granted;
        record.token = self.token.with_note(number).0;
        self.end_turn();
        Some((place, granted))
    }

    #[inline(always)]
    fn end_turn(&mut self) {
        self.next += 1;
        if self.next == self.steps.len() {
            self.next = 0;
            self.periods += 1;
        }
    }

    /// Whether a block is one of this plan's.
    #[inline(always)]
    pub(super) fn knows(&self, token: Token) -> bool {
        token.place() == self.token.place()
    }

    /// Takes a block of this plan back.
    ///
    /// # Safety
    ///
    /// The plan knows it, and neither it nor its record is used any more.
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, mut place: NonNull<Record>) {
        // SAFETY: guaranteed by the caller.
        let record = unsafe { place.as_mut() };
        // A second free of its address is an error.
        record.id = AllocationId::NONE;
        let number = Token(record.token).note();
        debug_assert!(number < self.steps.len());
        // SAFETY: `take` wrote the number of a step.
        unsafe { *self.states.get_unchecked_mut(number) = StepState::Free };
    }

    /// [`ThreadPlan::take`] with what the fast path leaves out: the turns of blocks that come from elsewhere,
    /// and counting divergences.
    pub(super) fn take_or_count(&mut self, bytes: usize) -> Option<NonNull<Record>> {
        let step = &self.steps[self.next];
        if step.elsewhere().is_some_and(|elsewhere| elsewhere.is_for(bytes)) {
            self.end_turn();
            return None;
        }
        let taken = self.take(bytes, |_| true);
        if taken.is_none() {
            self.diverged = (self.next, self.periods, self.divergences().saturating_add(1));
        }
        taken.map(|(record, _)| record)
    }

    /// Returns the number of consecutive divergences from the step whose turn it is.
    pub(super) fn divergences(&self) -> u32 {
        let (step, period, times) = self.diverged;
        if (step, period) == (self.next, self.periods) { times } else { 0 }
    }

    /// Returns `true` if the thread has left its period for certain: it has more consecutive divergences than
    /// two periods have steps.
    pub(super) fn is_left(&self) -> bool {
        self.divergences() as usize > (2 * self.steps.len()).max(MAX_DIVERGENCES as usize)
    }

    /// Returns the number of completed periods.
    pub(super) fn periods(&self) -> u64 {
        self.periods
    }

    /// The chunks that it leases from the heap.
    pub(super) fn extents(&self) -> impl Iterator<Item = &Record> + '_ {
        self.extents.iter().map(|extent| &**extent)
    }

    fn live_steps(&self) -> impl Iterator<Item = &PlanStep> + '_ {
        self.steps
            .iter()
            .zip(&self.states)
            .filter(|&(_, &state)| state == StepState::Live)
            .map(|(step, _)| step)
    }

    /// The live blocks: address, size, record.
    pub(super) fn live(&self) -> impl Iterator<Item = Placed> + '_ {
        self.live_steps().map(|step| {
            let address = self.base.as_ptr().addr() + step.offset as usize * GRANULE.bytes();
            (address, step.granted(), self.records[usize::from(step.record)])
        })
    }

    /// Takes it apart: its chunks, the records that no block uses, and the live blocks, in order of address.
    pub(super) fn take_apart(self) -> PlanParts {
        let mut live: Vec<_> = self.live().collect();
        live.sort_unstable_by_key(|&(address, ..)| address);
        let used: HashSet<_> = live.iter().map(|&(.., record)| record).collect();
        let unused = self.records.iter().filter(|record| !used.contains(record)).map(|record| {
            // SAFETY: leaked in `new`; no block uses it, and the plan ends here.
            unsafe { Box::from_raw(record.as_ptr()) }
        });
        PlanParts { unused: unused.collect(), live, extents: self.extents }
    }

    /// Bytes of its tables and records.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.steps)
            + size_of_val(&*self.states)
            + self.records.len() * (size_of::<Record>() + size_of::<NonNull<Record>>())
    }

    /// Whether live blocks are apart, inside the extents, with a record each.
    pub(super) fn is_consistent(&self) -> bool {
        let mut live: Vec<_> = self.live().collect();
        live.sort_unstable_by_key(|&(address, ..)| address);
        let apart = live.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
        let inside = |&(address, size, _): &Placed| holds(&self.extents, &(address..address + size));
        let records: HashSet<_> = live.iter().map(|&(.., record)| record).collect();
        apart && live.iter().all(inside) && records.len() == live.len()
    }
}

/// Whether one of the extents holds all of these addresses.
pub(super) fn holds(extents: &Records, addresses: &Range<usize>) -> bool {
    let holds = |extent: Range<usize>| extent.start <= addresses.start && addresses.end <= extent.end;
    extents.iter().any(|extent| holds(extent.addresses()))
}

/// The parts of a plan that has ended.
#[derive(Debug)]
pub(super) struct PlanParts {
    pub(super) extents: Records,
    pub(super) unused: Records,
    pub(super) live: Vec<Placed>,
}

// SAFETY: the records that no block uses are the plan's own; those of live blocks it only compares. Records
// may be sent.
unsafe impl Send for ThreadPlan {}
