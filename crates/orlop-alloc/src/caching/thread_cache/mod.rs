//! What a thread has at hand: for each class a stack of blocks that were returned and not yet merged, and the
//! plan for the period that it repeats, once that is learned.
//!
//! Classes from `large` on are worth planning; there are few such blocks and they have nearly all the bytes.
//! Those below always go through the stacks: what waits there weighs next to nothing.

use crate::caching::classes::{CLASSES, class_for, size_of_class};
use crate::caching::plan::ThreadPlan;
use crate::caching::tags::{TagCounts, TagSums};
use crate::caching::token::{NOTES, Token};
use crate::{AllocationId, Record, Request, Tag};
use orlop_plan::period::{PeriodLearner, PeriodRequest};
use orlop_sync::Linked;
use std::ptr::NonNull;

const WORDS: usize = CLASSES.div_ceil(64);

/// One thread's blocks. Stacks are linked through the records.
///
/// A stack owns its records: each is in one stack, and nobody else reaches it.
#[derive(Debug)]
pub(in crate::caching) struct Front {
    tops: [Option<NonNull<Record>>; CLASSES],
    /// Bit `c`: stack `c` was not empty when it was last put to. Those whose bit is not set are empty.
    filled: [u64; WORDS],
    /// Bytes in the stacks.
    cached: usize,
    /// With more bytes than this the quick way in is shut.
    most: usize,
    /// The first large class.
    large: usize,
    /// Quickly, requests for more bytes are not served from stacks,
    taken_up_to: usize,
    /// and classes from here on not put there. Never more than [`CLASSES`].
    put_below: usize,
    /// The most bytes that the thread was seen to have.
    live: usize,
    /// The slot's number, once it was used.
    home: usize,
    plan: Option<ThreadPlan>,
    learner: Option<Box<PeriodLearner>>,
    /// So many misses of large classes until the next attempt to learn.
    pause: u32,
    /// So many attempts have failed.
    failures: u32,
    /// The next period to be learned has at least this many events.
    least: usize,
    /// What [`Front::tell`] told.
    told: usize,
    /// Bytes under tags, with those that wait in stacks.
    tags: TagCounts,
}

/// After so many failures there are pauses: this long at first, then twice as long each time, so many times.
const PATIENCE: u32 = 3;
const FIRST_PAUSE: u32 = 1 << 10;
const PAUSE_DOUBLINGS: u32 = 10;

// SAFETY: the records in the stacks are the front's own, and records may be sent.
unsafe impl Send for Front {}

impl Default for Front {
    fn default() -> Self {
        Self {
            tops: [None; CLASSES],
            filled: [0; WORDS],
            cached: 0,
            most: 0,
            large: CLASSES,
            taken_up_to: usize::MAX,
            put_below: CLASSES,
            live: 0,
            home: usize::MAX,
            plan: None,
            learner: None,
            pause: 0,
            failures: 0,
            least: 0,
            told: 0,
            tags: TagCounts::default(),
        }
    }
}

/// What tells a record from others that live at the same time.
#[expect(clippy::cast_possible_truncation, reason = "addresses that differ above are far apart")]
fn fingerprint(record: &Record) -> u32 {
    (std::ptr::from_ref(record).addr() / align_of::<Record>()) as u32 | 1
}

impl Front {
    /// Whether requests for so many bytes are served by the plan, if by anybody quickly.
    #[inline(always)]
    pub(in crate::caching) fn plans_for(&self, bytes: usize) -> bool {
        bytes > self.taken_up_to
    }

    /// A block for a request, and its size, from its stack, if the size is allowed. `Some(None)` if it would
    /// have to be counted: its record is not of the request's kind and tag.
    #[inline(always)]
    pub(in crate::caching) fn take_stacked(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<Option<(NonNull<Record>, usize)>> {
        let top = self.tops.get_mut(class_for(request.bytes))?;
        let place = (*top)?;
        // SAFETY: `push` put it into the stack, which owns it.
        let record = unsafe { place.as_ref() };
        let granted = record.granted;
        if !allowed(granted) {
            return None;
        }
        if record.tag != request.tag || record.kind != request.kind {
            return Some(None);
        }
        *top = record.link();
        self.cached -= granted;
        Some(Some((place, granted)))
    }

    /// A block for a request, and its size, from the plan, if the size is allowed. It is not counted under
    /// its tag.
    #[inline(always)]
    pub(in crate::caching) fn take_planned(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<(NonNull<Record>, usize)> {
        let mut place = self.plan.as_mut()?.take(request.bytes, allowed)?;
        // SAFETY: the plan hands it out.
        let record = unsafe { place.as_mut() };
        (record.tag, record.kind) = (request.tag, request.kind);
        Some((place, record.granted))
    }

    /// A block for a request, and its size, from its stack or from the plan, if the size is allowed. What is
    /// to be counted under tags is.
    #[inline(always)]
    pub(in crate::caching) fn take_counted(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<(NonNull<Record>, usize)> {
        if self.plans_for(request.bytes) {
            let (place, granted) = self.take_planned(request, allowed)?;
            // SAFETY: taken just now, so nobody else has it.
            self.tags.enter(unsafe { place.as_ref() });
            return Some((place, granted));
        }
        let top = self.tops.get_mut(class_for(request.bytes))?;
        let mut place = (*top)?;
        // SAFETY: `push` put it into the stack, which owns it.
        let record = unsafe { place.as_mut() };
        if !allowed(record.granted) {
            return None;
        }
        *top = record.link();
        self.cached -= record.granted;
        self.tags.leave(record);
        (record.tag, record.kind) = (request.tag, request.kind);
        self.tags.enter(record);
        Some((place, record.granted))
    }

    #[inline(always)]
    fn pop(&mut self, class: usize) -> Option<Box<Record>> {
        let top = self.tops.get_mut(class)?;
        // SAFETY: `push` put it into the stack, which owns it: taken back once.
        let record = unsafe { Box::from_raw((*top)?.as_ptr()) };
        *top = record.link();
        self.cached -= record.granted;
        Some(record)
    }

    /// Puts a block where it waits, if that is quickly done and nothing has to be counted under tags. If not,
    /// it is as it was.
    ///
    /// # Safety
    ///
    /// It is a block of this engine's, and nobody uses it or its record any more.
    #[inline(always)]
    pub(in crate::caching) unsafe fn put_quickly(&mut self, place: NonNull<Record>) -> bool {
        // SAFETY: the caller's promise.
        let record = unsafe { place.as_ref() };
        let token = Token(record.token);
        if token.is_planned() {
            // SAFETY: the caller's promise.
            return record.tag == Tag::NONE && unsafe { self.put_planned(place, token) };
        }
        if token.home() != self.home || token.class() >= self.put_below || self.cached >= self.most {
            return false;
        }
        // SAFETY: the class was just seen to be less than `put_below`; the caller's promise.
        unsafe { self.push(place) };
        true
    }

    /// Gives a block with a tag back to the plan, if that is the one which it was served from. If not, it is
    /// as it was.
    ///
    /// # Safety
    ///
    /// It is a block of this engine's, and nobody uses it or its record any more.
    pub(in crate::caching) unsafe fn put_planned_counted(&mut self, place: NonNull<Record>) -> bool {
        // SAFETY: the caller's promise.
        let record = unsafe { place.as_ref() };
        let token = Token(record.token);
        if !token.is_planned() || !self.plan.as_ref().is_some_and(|plan| plan.knows(token)) {
            return false;
        }
        self.tags.leave(record);
        // SAFETY: the caller's promise.
        unsafe { self.put_planned(place, token) }
    }

    /// Gives a block back to the plan, if that is the one which it was served from.
    ///
    /// # Safety
    ///
    /// It is a block of this engine's, and nobody uses it or its record any more.
    #[inline(always)]
    unsafe fn put_planned(&mut self, place: NonNull<Record>, token: Token) -> bool {
        // Marks are of one plan only, so this is its slot.
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.knows(token)) else { return false };
        // SAFETY: the plan knows it, and the caller's promise.
        unsafe { plan.put(place) };
        true
    }

    /// # Safety
    ///
    /// It is a block of this engine's of a class below [`CLASSES`], and nobody uses it or its record any
    /// more.
    #[inline(always)]
    unsafe fn push(&mut self, mut place: NonNull<Record>) {
        // SAFETY: the caller's promise.
        let record = unsafe { place.as_mut() };
        let class = Token(record.token).class();
        debug_assert!(class < CLASSES);
        // SAFETY: the caller's promise.
        let top = unsafe { self.tops.get_unchecked_mut(class) };
        // Who frees its address a second time is told.
        record.id = AllocationId::NONE;
        self.cached += record.granted;
        record.set_link(*top);
        *top = Some(place);
        if record.link().is_none() {
            // SAFETY: as many words as classes need.
            *unsafe { self.filled.get_unchecked_mut(class / 64) } |= 1 << (class % 64);
        }
    }

    /// A block of a class that is at hand, or whose turn it is in the plan.
    pub(in crate::caching) fn take(&mut self, class: usize) -> Option<Box<Record>> {
        if (self.large..CLASSES).contains(&class)
            && let Some(plan) = &mut self.plan
            && let Some(record) = plan.take_or_count(size_of_class(class))
        {
            // SAFETY: the plan has leaked it, and hands it out.
            return Some(unsafe { Box::from_raw(record.as_ptr()) });
        }
        let mut record = self.pop(class)?;
        self.tags.leave(&record);
        record.token = Token(record.token).noted(0).0;
        Some(record)
    }

    /// Notes a block that is handed out, and not from a plan, for who learns.
    pub(in crate::caching) fn note_taken(&mut self, record: &mut Record) {
        let token = Token(record.token);
        if !(self.large..CLASSES).contains(&token.class()) || token.is_planned() {
            return;
        }
        let Some(learner) = &mut self.learner else {
            if self.plan.is_none() {
                self.pause = self.pause.saturating_sub(1);
            }
            return;
        };
        match learner.log(token.class(), size_of_class(token.class()), fingerprint(record)) {
            Some(note) => record.token = token.noted(note).0,
            None => self.stop_learning(),
        }
    }

    /// Keeps a block of this engine's that came back, of a class below [`CLASSES`]. `Some` if it is of a plan
    /// that there is no more: not counted under its tag any more.
    pub(in crate::caching) fn put(&mut self, record: Box<Record>) -> Option<Box<Record>> {
        let token = Token(record.token);
        if token.is_planned() {
            self.tags.leave(&record);
            let place = NonNull::from(Box::leak(record));
            // SAFETY: the engine's block, and it was ours alone.
            let kept = unsafe { self.put_planned(place, token) };
            // SAFETY: leaked just above, and the plan does not know it.
            return (!kept).then(|| unsafe { Box::from_raw(place.as_ptr()) });
        }
        if token.class() >= self.large
            && let Some(learner) = &mut self.learner
        {
            let bytes = size_of_class(token.class());
            learner.log_free(token.class(), bytes, token.note(), fingerprint(&record));
        }
        // SAFETY: the engine's block of a class, and it was ours alone.
        unsafe { self.push(NonNull::from(Box::leak(record))) };
        None
    }

    /// Whether another block may wait in the stacks by the quick way.
    pub(in crate::caching) fn has_room(&self) -> bool {
        self.cached < self.most
    }

    /// Where the slot is.
    pub(in crate::caching) fn home(&self) -> usize {
        self.home
    }

    pub(in crate::caching) fn set_home(&mut self, home: usize) {
        self.home = home;
    }

    /// Bytes in the stacks.
    pub(in crate::caching) fn cached(&self) -> usize {
        self.cached
    }

    /// Shuts the quick way in above so many bytes.
    pub(in crate::caching) fn set_most(&mut self, bytes: usize) {
        self.most = bytes;
    }

    /// The most bytes that the thread was seen to have, of which this is another.
    pub(in crate::caching) fn most_live(&mut self, live: usize) -> usize {
        self.live = self.live.max(live);
        self.live
    }

    /// Whether another class is the first large one now. Never while there is a plan.
    pub(in crate::caching) fn would_change(&self, large: usize) -> bool {
        self.large != large && self.plan.is_none()
    }

    /// Another class is the first large one; the stacks are empty.
    pub(in crate::caching) fn set_large(&mut self, large: usize) {
        debug_assert!(self.cached == 0);
        self.large = large;
        if self.learner.take().is_some() {
            // Not a failure: learning may begin again at once.
            self.pause = 0;
        }
        self.set_gates();
    }

    /// Begins to learn, if it is time for that.
    pub(in crate::caching) fn maybe_learn(&mut self, most: usize) {
        if self.plan.is_none() && self.learner.is_none() && self.pause == 0 {
            if self.least > 2 * most {
                // No log holds as many events: what was too short may be the period now.
                self.least = 0;
            }
            // The learner's notes are less than twice as many.
            let most = most.min(NOTES / 2 - 1);
            self.learner = Some(Box::new(PeriodLearner::new(most, self.least)));
            self.set_gates();
        }
    }

    /// Not learning for a while.
    fn rest(&mut self) {
        let pause = |times: u32| FIRST_PAUSE << times.min(PAUSE_DOUBLINGS);
        self.pause = self.failures.checked_sub(PATIENCE).map_or(0, pause);
        self.failures += 1;
    }

    /// Opens the quick ways as far as they lead: who learns sees all large blocks, and a plan has their
    /// addresses.
    fn set_gates(&mut self) {
        let learns = self.learner.is_some();
        let small = self.large.checked_sub(1).map_or(0, size_of_class);
        self.taken_up_to = if learns || self.plan.is_some() { small } else { usize::MAX };
        self.put_below = if learns { self.large } else { CLASSES };
    }

    fn stop_learning(&mut self) {
        self.learner = None;
        self.rest();
        self.set_gates();
    }

    /// Whether something was learned that a block of this class would begin.
    pub(in crate::caching) fn has_learned(&self, class: usize) -> bool {
        class >= self.large && self.learner.as_ref().is_some_and(|learner| learner.is_period_from(class))
    }

    /// The period that was learned.
    pub(in crate::caching) fn period(&self) -> Option<Vec<PeriodRequest>> {
        self.learner.as_ref().map(|learner| learner.period(|class| size_of_class(class) as u64))
    }

    /// Does without a plan for what was learned. Perhaps it is a part of a longer period.
    pub(in crate::caching) fn decline(&mut self) {
        self.least = 2 * self.learner.as_ref().map_or(0, |learner| learner.events());
        self.stop_learning();
    }

    /// Begins to follow what was learned; without a plan learning ends for now.
    pub(in crate::caching) fn follow(&mut self, plan: Option<ThreadPlan>) {
        if plan.is_none() {
            self.stop_learning();
            return;
        }
        self.least = self.learner.take().map_or(0, |learner| learner.events());
        self.plan = plan;
        self.set_gates();
    }

    /// The plan, not followed any more.
    pub(in crate::caching) fn take_plan(&mut self) -> Option<ThreadPlan> {
        let plan = self.plan.take()?;
        if plan.periods() >= WORTH {
            // It was worth it.
            (self.least, self.pause, self.failures) = (0, 0, 0);
        } else {
            self.least *= 2;
            self.rest();
        }
        self.set_gates();
        Some(plan)
    }

    pub(in crate::caching) fn plan(&self) -> Option<&ThreadPlan> {
        self.plan.as_ref()
    }

    /// Takes all blocks out of the stacks from class `from` on, not counted under tags any more; whether
    /// there were any.
    pub(in crate::caching) fn drain(&mut self, from: usize, mut give: impl FnMut(Box<Record>)) -> bool {
        let before = self.cached;
        let mut mask = u64::MAX << (from % 64);
        for word in from / 64..WORDS {
            let mut filled = self.filled[word] & mask;
            // Of the first word some classes may be left out.
            self.filled[word] ^= filled;
            mask = u64::MAX;
            while filled != 0 {
                let class = 64 * word + filled.trailing_zeros() as usize;
                filled &= filled - 1;
                while let Some(record) = self.pop(class) {
                    self.tags.leave(&record);
                    give(record);
                }
            }
        }
        self.cached != before
    }

    /// The first large class.
    pub(in crate::caching) fn large(&self) -> usize {
        self.large
    }

    /// Bytes of records that the heap does not know: what was told last, and now.
    pub(in crate::caching) fn tell(&mut self) -> (usize, usize) {
        let plan = self.plan.as_ref().map_or(0, ThreadPlan::bytes);
        let now = plan + self.learner.as_ref().map_or(0, |learner| learner.bytes());
        (std::mem::replace(&mut self.told, now), now)
    }

    /// What is counted under tags here.
    pub(in crate::caching) fn tags(&mut self) -> &mut TagCounts {
        &mut self.tags
    }

    /// Adds what is counted under tags to `sums`, but for what is in the stacks.
    pub(in crate::caching) fn add_tags_to(&self, sums: &mut TagSums) {
        sums.add(&self.tags);
        for (_, record) in self.records() {
            sums.leave(record);
        }
    }

    /// All blocks, to look at, with their classes.
    pub(in crate::caching) fn records(&self) -> impl Iterator<Item = (usize, &Record)> + '_ {
        (0..CLASSES).flat_map(|class| {
            let mut next = self.tops[class];
            std::iter::from_fn(move || {
                // SAFETY: a record of the stack, which owns it and is borrowed.
                let record = unsafe { next?.as_ref() };
                next = record.link();
                Some((class, record))
            })
        })
    }

    /// Whether the bits, the bytes and the plan say what is there.
    pub(in crate::caching) fn is_consistent(&self) -> bool {
        let bytes: usize = self.records().map(|(_, record)| record.granted).sum();
        let listed = |class: usize| self.filled[class / 64] & (1 << (class % 64)) != 0;
        bytes == self.cached
            && (0..CLASSES).all(|class| self.tops[class].is_none() || listed(class))
            && self.plan.as_ref().is_none_or(ThreadPlan::is_consistent)
    }
}

/// A plan that was followed for this many periods was worth making.
const WORTH: u64 = 64;

impl Drop for Front {
    fn drop(&mut self) {
        // The engine has emptied it; what is left after a panic is only the records' memory.
        self.drain(0, drop);
    }
}
