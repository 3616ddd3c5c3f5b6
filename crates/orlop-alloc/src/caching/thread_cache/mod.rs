//! A thread's cache of free blocks: a stack of freed, unmerged blocks for each size class, and the plan of
//! the period that the thread repeats, once that is learned.
//!
//! Classes from `first_large` on are worth a plan: there are few such blocks, and they hold nearly all bytes.
//! Smaller classes always use the stacks; they hold few bytes.

mod learning;

use crate::caching::classes::{CLASSES, class_for, size_of_class};
use crate::caching::plan::ThreadPlan;
use crate::caching::tags::{TagCounts, TagSums};
use crate::caching::token::Token;
use crate::{AllocationId, Record, Request, Tag};
use orlop_plan::period::PeriodLearner;
use orlop_sync::Linked;
use std::ptr::NonNull;

const WORDS: usize = CLASSES.div_ceil(64);

/// One thread's cache. Stacks are linked through the records of their blocks.
///
/// A stack owns its records: each is in one stack, and no other pointer to it is used.
#[derive(Debug)]
pub(in crate::caching) struct ThreadCache {
    stacks: [Option<NonNull<Record>>; CLASSES],
    /// Bit `c` is set if stack `c` was not empty after the last push. A stack whose bit is clear is empty.
    filled: [u64; WORDS],
    /// Bytes in the stacks.
    cached: usize,
    /// The fast path of frees is closed while more bytes than this are cached.
    max_cached: usize,
    /// The first large class.
    first_large: usize,
    /// The fast path serves larger requests, in bytes, from the plan only.
    fast_take_max: usize,
    /// The fast path puts only blocks of smaller classes onto stacks. At most [`CLASSES`].
    fast_put_below: usize,
    /// The maximum of live bytes seen for the thread.
    peak_live: usize,
    /// The index of the thread slot, set at the first use.
    slot: usize,
    /// [`Token::slot_bits`] of the slot: above all tokens at first.
    slot_bits: usize,
    plan: Option<ThreadPlan>,
    learner: Option<Box<PeriodLearner>>,
    /// Misses of large classes until the next attempt to learn.
    pause: u32,
    /// Failed attempts to learn.
    failures: u32,
    /// The minimum number of events of the next period to be learned.
    min_events: usize,
    /// The bytes that [`ThreadCache::swap_reported`] returned last.
    reported: usize,
    /// Bytes by tag, those of blocks in the stacks included.
    tags: TagCounts,
}

// SAFETY: the cache owns the records in its stacks, and records may be sent to other threads.
unsafe impl Send for ThreadCache {}

impl Default for ThreadCache {
    fn default() -> Self {
        Self {
            stacks: [None; CLASSES],
            filled: [0; WORDS],
            cached: 0,
            max_cached: 0,
            first_large: CLASSES,
            fast_take_max: usize::MAX,
            fast_put_below: CLASSES,
            peak_live: 0,
            slot: usize::MAX,
            slot_bits: usize::MAX / 2,
            plan: None,
            learner: None,
            pause: 0,
            failures: 0,
            min_events: 0,
            reported: 0,
            tags: TagCounts::default(),
        }
    }
}

/// Distinguishes the record from other records that exist at the same time.
#[expect(clippy::cast_possible_truncation, reason = "addresses that differ above are far apart")]
fn fingerprint(record: &Record) -> u32 {
    (std::ptr::from_ref(record).addr() / align_of::<Record>()) as u32 | 1
}

impl ThreadCache {
    /// Returns `true` if the fast path serves requests for `bytes` bytes from the plan, if at all.
    #[inline(always)]
    pub(in crate::caching) fn plans_for(&self, bytes: usize) -> bool {
        bytes > self.fast_take_max
    }

    /// Takes a block from the stack of the request's class, if `allowed` accepts its size. Returns it with
    /// its size. Returns `Some(None)` if its record has another kind or tag, so that the tag counts would
    /// change.
    #[inline(always)]
    pub(in crate::caching) fn take_stacked(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<Option<(NonNull<Record>, usize)>> {
        let top = self.stacks.get_mut(class_for(request.bytes))?;
        let place = (*top)?;
        // SAFETY: `push` put it onto the stack, which owns it.
        let record = unsafe { place.as_ref() };
        let granted = record.granted;
        // Before the kinds are compared: the compiler would then count by the record's kind, which is loaded
        // later than the request's.
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

    /// Takes a block for the request from the plan, if `allowed` accepts its size. Returns it with its size.
    /// It is not counted under its tag.
    #[inline(always)]
    pub(in crate::caching) fn take_planned(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<(NonNull<Record>, usize)> {
        let (mut place, granted) = self.plan.as_mut()?.take(request.bytes, allowed)?;
        // SAFETY: the plan hands it out, so no other pointer to it is used.
        let record = unsafe { place.as_mut() };
        (record.tag, record.kind) = (request.tag, request.kind);
        Some((place, granted))
    }

    /// Takes a block for the request from its stack or from the plan, if `allowed` accepts its size. Returns
    /// it with its size. The tag counts are updated.
    #[inline(always)]
    pub(in crate::caching) fn take_tagged(
        &mut self,
        request: &Request,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Option<(NonNull<Record>, usize)> {
        if self.plans_for(request.bytes) {
            let (place, granted) = self.take_planned(request, allowed)?;
            // SAFETY: it was just taken, so no other pointer to it is used.
            self.tags.add_block(unsafe { place.as_ref() });
            return Some((place, granted));
        }
        let top = self.stacks.get_mut(class_for(request.bytes))?;
        let mut place = (*top)?;
        // SAFETY: `push` put it onto the stack, which owns it.
        let record = unsafe { place.as_mut() };
        if !allowed(record.granted) {
            return None;
        }
        *top = record.link();
        self.cached -= record.granted;
        self.tags.remove_block(record);
        (record.tag, record.kind) = (request.tag, request.kind);
        self.tags.add_block(record);
        Some((place, record.granted))
    }

    #[inline(always)]
    fn pop(&mut self, class: usize) -> Option<Box<Record>> {
        let top = self.stacks.get_mut(class)?;
        // SAFETY: `push` put it onto the stack, which owns it; it is taken off once.
        let record = unsafe { Box::from_raw((*top)?.as_ptr()) };
        *top = record.link();
        self.cached -= record.granted;
        Some(record)
    }

    /// Caches a freed block, if the fast path is open for it and the tag counts stay the same. Returns
    /// `false`, and changes nothing, if not.
    ///
    /// # Safety
    ///
    /// It is a block of this engine, and neither the block nor its record is used any more.
    #[inline(always)]
    pub(in crate::caching) unsafe fn put_fast(&mut self, place: NonNull<Record>) -> bool {
        // SAFETY: the record is this engine's (guaranteed by the caller).
        let record = unsafe { place.as_ref() };
        let token = Token(record.token);
        if token.is_planned() {
            // SAFETY: guaranteed by the caller.
            return record.tag == Tag::NONE && unsafe { self.put_planned(place, token) };
        }
        let class = token.class_of_slot(self.slot_bits);
        if class >= self.fast_put_below || self.cached >= self.max_cached {
            return false;
        }
        // SAFETY: the class is less than `fast_put_below`, which is at most `CLASSES`; guaranteed by the
        // caller.
        unsafe { self.push(place, class) };
        true
    }

    /// Returns a block with a tag to the plan that served it, if that is the current plan. Returns `false`,
    /// and changes nothing, if not.
    ///
    /// # Safety
    ///
    /// It is a block of this engine, and neither the block nor its record is used any more.
    pub(in crate::caching) unsafe fn put_planned_tagged(&mut self, place: NonNull<Record>) -> bool {
        // SAFETY: the record is this engine's (guaranteed by the caller).
        let record = unsafe { place.as_ref() };
        let token = Token(record.token);
        if !token.is_planned() || !self.plan.as_ref().is_some_and(|plan| plan.knows(token)) {
            return false;
        }
        self.tags.remove_block(record);
        // SAFETY: guaranteed by the caller.
        unsafe { self.put_planned(place, token) }
    }

    /// Returns a block to the plan that served it. Returns `false`, and changes nothing, if that is not the
    /// current plan.
    ///
    /// # Safety
    ///
    /// It is a block of this engine, and neither the block nor its record is used any more.
    #[inline(always)]
    unsafe fn put_planned(&mut self, place: NonNull<Record>, token: Token) -> bool {
        // A mark belongs to one plan, and a plan to one slot: this slot served the block.
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.knows(token)) else { return false };
        // SAFETY: the plan served the block; the rest is guaranteed by the caller.
        unsafe { plan.put(place) };
        true
    }

    /// # Safety
    ///
    /// It is a block of this engine of this class, which is below [`CLASSES`], and neither the block nor its
    /// record is used any more.
    #[inline(always)]
    unsafe fn push(&mut self, mut place: NonNull<Record>, class: usize) {
        // SAFETY: the record is this engine's, and no other pointer to it is used (guaranteed by the caller).
        let record = unsafe { place.as_mut() };
        debug_assert!(class < CLASSES && class == Token(record.token).class());
        // SAFETY: the class is below `CLASSES` (guaranteed by the caller).
        let top = unsafe { self.stacks.get_unchecked_mut(class) };
        // So that a second free by address is detected.
        record.id = AllocationId::NONE;
        self.cached += record.granted;
        record.set_link(*top);
        *top = Some(place);
        if record.link().is_none() {
            // SAFETY: `filled` has a bit for each class below `CLASSES`.
            *unsafe { self.filled.get_unchecked_mut(class / 64) } |= 1 << (class % 64);
        }
    }

    /// Takes a block of the class: the next one of the plan if it fits, else from the stack.
    pub(in crate::caching) fn take(&mut self, class: usize) -> Option<Box<Record>> {
        if (self.first_large..CLASSES).contains(&class)
            && let Some(plan) = &mut self.plan
            && let Some(record) = plan.take_or_count(size_of_class(class))
        {
            // SAFETY: the plan leaked the record, and hands it out to this caller only.
            return Some(unsafe { Box::from_raw(record.as_ptr()) });
        }
        let mut record = self.pop(class)?;
        self.tags.remove_block(&record);
        record.token = Token(record.token).noted(0).0;
        Some(record)
    }

    /// Caches a freed block of a class below [`CLASSES`]. Returns the record if an ended plan served it; it
    /// is then no longer counted under its tag.
    pub(in crate::caching) fn put(&mut self, record: Box<Record>) -> Option<Box<Record>> {
        let token = Token(record.token);
        if token.is_planned() {
            self.tags.remove_block(&record);
            let place = NonNull::from(Box::leak(record));
            // SAFETY: it is a block of this engine, and this function owned its record.
            let kept = unsafe { self.put_planned(place, token) };
            // SAFETY: leaked just above, and the plan did not take it.
            return (!kept).then(|| unsafe { Box::from_raw(place.as_ptr()) });
        }
        if token.class() >= self.first_large
            && let Some(learner) = &mut self.learner
        {
            let bytes = size_of_class(token.class());
            learner.log_free(token.class(), bytes, token.note(), fingerprint(&record));
        }
        // SAFETY: it is a block of this engine of a class below `CLASSES`, and this function owned its
        // record.
        unsafe { self.push(NonNull::from(Box::leak(record)), token.class()) };
        None
    }

    /// Returns `true` if the fast path may cache another block.
    pub(in crate::caching) fn has_room(&self) -> bool {
        self.cached < self.max_cached
    }

    /// Returns the index of the thread slot.
    pub(in crate::caching) fn slot(&self) -> usize {
        self.slot
    }

    pub(in crate::caching) fn set_slot(&mut self, slot: usize) {
        self.slot = slot;
        self.slot_bits = Token::slot_bits(slot);
    }

    /// Returns the bytes in the stacks.
    pub(in crate::caching) fn cached(&self) -> usize {
        self.cached
    }

    /// Closes the fast path of frees while more than `bytes` bytes are cached.
    pub(in crate::caching) fn set_max_cached(&mut self, bytes: usize) {
        self.max_cached = bytes;
    }

    /// Empties the stacks from class `from` on, and gives each record to `give`; the blocks are no longer
    /// counted under tags. Returns `true` if there were any.
    pub(in crate::caching) fn drain(&mut self, from: usize, mut give: impl FnMut(Box<Record>)) -> bool {
        let before = self.cached;
        let mut mask = u64::MAX << (from % 64);
        for word in from / 64..WORDS {
            let mut filled = self.filled[word] & mask;
            // The first word may also have bits of classes below `from`.
            self.filled[word] ^= filled;
            mask = u64::MAX;
            while filled != 0 {
                let class = 64 * word + filled.trailing_zeros() as usize;
                filled &= filled - 1;
                while let Some(record) = self.pop(class) {
                    self.tags.remove_block(&record);
                    give(record);
                }
            }
        }
        self.cached != before
    }

    /// Returns the first large class.
    pub(in crate::caching) fn first_large(&self) -> usize {
        self.first_large
    }

    /// Returns the bytes of records that the heap does not count, as reported last and as they are now.
    pub(in crate::caching) fn swap_reported(&mut self) -> (usize, usize) {
        let plan = self.plan.as_ref().map_or(0, ThreadPlan::bytes);
        let now = plan + self.learner.as_ref().map_or(0, |learner| learner.bytes());
        (std::mem::replace(&mut self.reported, now), now)
    }

    /// Returns the counts by tag.
    pub(in crate::caching) fn tags(&mut self) -> &mut TagCounts {
        &mut self.tags
    }

    /// Adds the counts by tag to `sums`, without the blocks in the stacks.
    pub(in crate::caching) fn add_tags_to(&self, sums: &mut TagSums) {
        sums.add(&self.tags);
        for (_, record) in self.records() {
            sums.remove_block(record);
        }
    }

    /// Iterates over the blocks in the stacks, with their classes.
    pub(in crate::caching) fn records(&self) -> impl Iterator<Item = (usize, &Record)> + '_ {
        (0..CLASSES).flat_map(|class| {
            let mut next = self.stacks[class];
            std::iter::from_fn(move || {
                // SAFETY: a record of the stack, which owns it and is borrowed.
                let record = unsafe { next?.as_ref() };
                next = record.link();
                Some((class, record))
            })
        })
    }

    /// Returns `true` if the bitmap, the byte count and the plan agree with the stacks.
    pub(in crate::caching) fn is_consistent(&self) -> bool {
        let bytes: usize = self.records().map(|(_, record)| record.granted).sum();
        let listed = |class: usize| self.filled[class / 64] & (1 << (class % 64)) != 0;
        bytes == self.cached
            && (0..CLASSES).all(|class| self.stacks[class].is_none() || listed(class))
            && self.plan.as_ref().is_none_or(ThreadPlan::is_consistent)
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        // The engine has emptied the stacks. After a panic there may be records, whose memory is freed here.
        self.drain(0, drop);
    }
}
