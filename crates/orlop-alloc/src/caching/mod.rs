//! The caching engine: nearly as fast as a free list, nearly as tight as best fit.
//!
//! ```text
//!  allocate ─► the thread's stack of the class ─► the heap: best fit ─► merge what is cached ─► grow in place
//!                 (no lock, nothing shared)         (one lock)            (own, then others')
//!  free ─────► the thread's stack of the class
//! ```
//!
//! A returned block goes onto a stack of the thread that returned it and is used for the next request of its size
//! class. Merging it with its neighbours is put off. But blocks that wait unmerged are in the way of others that
//! would fit, and what is held grows: so before a block is cut from the heap, the thread merges what it has cached
//! if that is more than a part of what is held, the *slack*. Whenever the heap has to grow although as many bytes
//! are free, the slack is halved. Nothing is ever gained while something cached would do.
//!
//! `docs/caching.md` tells the whole story.

mod builder;
mod classes;
mod follow;
#[cfg(all(unix, not(loom)))]
mod fork;
mod growth;
mod index;
mod maintenance;
#[cfg(all(test, not(loom)))]
mod period_tests;
mod plan;
mod release;
mod tags;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread_cache;
mod token;

pub use self::builder::CachingBuilder;
use self::classes::{CLASSES, GRANULE, class_for, size_of_class};
use self::follow::PlanFate;
use self::growth::Search;
use self::index::ClassIndex;
pub use self::maintenance::{Maintenance, MaintenanceBuilder, Pressure};
use self::plan::{MAX_DIVERGENCES, ThreadPlan};
use self::tags::TagSums;
use self::thread_cache::Front;
use self::token::Token;
use crate::backing::{Backing, BackingRef, Shielded};
use crate::central::heap::{Heap, HeapBlock, HeapRequest};
use crate::{
    AllocationId, Allocator, Error, LookupResult, OutOfMemory, RawBlock, Record, RegionWatch, Request,
    Result, Semantics, StreamUses, Tag, TagUse, Usage,
};
use crossbeam_utils::CachePadded;
use orlop_core::Device;
use orlop_sync::{
    BlockCounter, CentralHeap as _, CounterGuard, GrowableHeap, OwnerState, RemoteFreeList, ShardedCounters,
    thread_slot,
};
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(all(unix, not(loom)))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// No class: the block goes to the heap at once.
const UNCACHED: usize = CLASSES;

/// A thread caches at most this part of what is held, or so many bytes if that is more.
const MOST_PART: usize = 2;
const LEAST_MOST: usize = 1 << 20;

/// Large are the classes from this part of the most on that the thread ever had, rounded to a power of two.
const LARGE_PART: usize = 4096;

/// Of the others, this part of what is held may be cached.
const SMALL_SLACK: usize = 64;

/// A log has one allocation for so many bytes that are held, and at least and at most so many.
const LOG_PART: usize = 3200;
const LOGGED: [usize; 2] = [64, 4096];

/// The caching engine; see the head of its file.
///
/// ```
/// use orlop_alloc::backing::Mmap;
/// use orlop_alloc::caching::Caching;
/// use orlop_alloc::Request;
///
/// let allocator = Caching::builder(Mmap::new()).build();
/// let block = allocator.allocate(&Request::new(10_000))?;
/// assert!(block.capacity() <= 10_000 + 10_000 / 32 + 64);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Caching<B: Backing = BackingRef> {
    /// Counts, and what each thread has at hand.
    counters: ShardedCounters<Front>,
    heap: GrowableHeap<Heap<ClassIndex>>,
    backing: Shielded<B>,
    limit: usize,
    /// One part in so many of what is held may be cached when a block is cut from the heap. Never less than at
    /// first: see `growth`.
    slack: AtomicUsize,
    /// By slot: its blocks that other threads brought back.
    remote_frees: Box<[CachePadded<RemoteFreeList<Record>>]>,
    /// Whether periods are learned.
    learns: bool,
    /// How many plans there are, what the heap grew by beside them, and what they and the logs take.
    plans: AtomicUsize,
    grown_beside: AtomicUsize,
    notes: AtomicUsize,
    /// How many plans there were.
    marks: AtomicU32,
    /// Not zero: held over forks.
    #[cfg(all(unix, not(loom)))]
    forks: AtomicU64,
    name: Box<str>,
}

impl<B: Backing> Caching<B> {
    /// Begins without a limit.
    pub fn builder(backing: B) -> CachingBuilder<B> {
        CachingBuilder::new(backing)
    }

    /// The most bytes that may be held.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<B: Backing> Caching<B> {
    /// A block from what the thread has at hand or from the heap as it is; and how many of its bytes have to be made zero
    /// before it is counted.
    #[inline(always)]
    fn search(&self, wanted: &HeapRequest<'_>, class: usize) -> Option<(RawBlock, usize)> {
        let request = wanted.request;
        let slot = thread_slot::current();
        let mut held = self.counters.enter(slot);
        let figures = held.counts();
        let front = held.value();
        front.set_home(slot.index());
        if front.has_learned(class) {
            self.follow(front);
        }
        if front.plan().is_some_and(ThreadPlan::is_left) {
            // With the quick ways open again, though what it asks for is at hand and nothing has to be merged.
            self.end_plan(front, &mut self.heap.lock());
        }
        // First what other threads brought back, because the plan's step may wait for that.
        self.take_back(front);
        // The quick way was not open, or the bytes must be zero.
        let (mut block, dirty) = if let Some(mut record) = front.take(class) {
            record.assign(request);
            (RawBlock::new(record), request.bytes)
        } else {
            let mut heap = self.heap.lock();
            self.tidy(front, figures.balance(), &mut heap);
            let HeapBlock { mut block, dirty } = heap.take(wanted)?;
            // SAFETY: a record of ours, and the token is our note.
            let record = unsafe { block.record_mut() };
            record.token = Token::new(record.token, class, slot.index()).0;
            (block, dirty)
        };
        // SAFETY: as above.
        front.note_taken(unsafe { block.record_mut() });
        self.tell(front);
        let dirty = deliver(held, request, &block, dirty);
        Some((block, dirty))
    }

    /// Makes a block that nobody else knows yet zero, and counts it; its first `dirty` bytes may be other than zero. Outside
    /// the slot, because a backing is user code.
    #[inline(never)]
    fn deliver_zeroed(&self, request: &Request, block: RawBlock, dirty: usize) -> Result<RawBlock> {
        // SAFETY: it holds what was asked for, and nobody else knows it yet.
        let is_zero = unsafe { self.backing.zero(block.ptr, dirty.min(request.bytes)) };
        let mut held = self.counters.enter(thread_slot::current());
        if !is_zero {
            held.value().tags().enter(&block);
            // SAFETY: every block of this engine has a record of this engine's.
            self.put_back(held.value(), unsafe { block.into_record() })?;
            return Err(Error::CannotZero { device: self.backing.device() });
        }
        let _clean = deliver(held, request, &block, 0);
        Ok(block)
    }

    /// Takes a record back, in the slot of this front.
    fn put_back(&self, front: &mut Front, record: Box<Record>) -> Result<()> {
        let token = Token(record.token);
        if token.class() >= CLASSES {
            front.tags().leave(&record);
            self.heap.lock().put_record(record);
        } else if token.home() != front.home() {
            self.bring_home(front, record);
        } else {
            if !token.is_planned() && !front.has_room() {
                self.make_room(front);
            }
            if let Some(record) = front.put(record) {
                self.heap.lock().put_placed(record)?;
            }
        }
        Ok(())
    }

    /// What is done before a block is cut from the heap: whatever waits and would be in the way is merged.
    fn tidy(&self, front: &mut Front, live: usize, heap: &mut Heap<ClassIndex>) {
        if front.plan().is_some_and(|plan| plan.divergences() > MAX_DIVERGENCES) {
            self.end_plan(front, heap);
        }
        let large = class_for((front.most_live(live) / LARGE_PART).next_power_of_two());
        if front.would_change(large) {
            front.drain(0, |record| heap.put_record(record));
            front.set_large(large);
        }
        if self.learns {
            front.maybe_learn((heap.reserved / LOG_PART).clamp(LOGGED[0], LOGGED[1]));
        }
        if front.cached().saturating_mul(self.slack.load(Ordering::Relaxed)) > heap.reserved {
            if front.plan().is_some() {
                front.drain(front.large(), |record| heap.put_record(record));
            }
            // Beside a plan there is no gain in merging what is small.
            if front.plan().is_none() || front.cached().saturating_mul(SMALL_SLACK) > heap.reserved {
                front.drain(0, |record| heap.put_record(record));
            }
        }
    }

    /// [`Allocator::take_cached`] for a block that the slot has, but counted under another tag than the request's, or not at
    /// all as a plan's are. Not inlined, so that the way of all others needs no stack frame.
    #[inline(never)]
    fn take_counted(&self, request: &Request) -> Option<RawBlock> {
        let mut held = self.counters.try_enter()?;
        let figures = held.counts();
        let allowed = |granted| !figures.exceeds_limit(request.kind, granted);
        let found = held.value().take_counted(request, allowed)?;
        // SAFETY: taken just now.
        Some(unsafe { hand_out(held, found, request) })
    }

    /// The quick way of a block, with no stream's use, that this slot does not keep without counting it: one with a tag goes
    /// back to the plan, one of another slot goes home.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::give_cached`].
    #[inline(never)]
    unsafe fn give_elsewhere(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        // SAFETY: the engine is there until the block has left (the caller's promise).
        let engine = unsafe { this.as_ref() };
        let Some(mut held) = engine.counters.try_enter() else { return Some(block) };
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record of this engine's, and the caller uses it no more.
        if !unsafe { held.value().put_planned_counted(block.record()) } {
            let token = Token(block.token);
            if token.home() == held.value().home() || token.class() >= CLASSES {
                return Some(block);
            }
            // SAFETY: every block of this engine has a record of this engine's.
            engine.bring_home(held.value(), unsafe { block.into_record() });
        }
        held.count_out_open(kind, granted, requested);
        None
    }

    /// Gives a block, of a class and with no stream's use, to the slot that handed it out. This front counts it.
    fn bring_home(&self, front: &mut Front, mut record: Box<Record>) {
        front.tags().leave(&record);
        record.tag = Tag::NONE;
        // Who frees its address a second time is told.
        record.id = AllocationId::NONE;
        self.remote_frees[Token(record.token).home()].push(record);
    }

    /// With no quick way for a block: makes room for it, or finds out that there is.
    fn make_room(&self, front: &mut Front) {
        let mut heap = self.heap.lock();
        let most = (heap.reserved / MOST_PART).max(LEAST_MOST);
        if front.cached() >= most {
            front.drain(0, |record| heap.put_record(record));
        }
        front.set_most(most);
    }
}

/// Counts a block that is handed out, also under its tag, unless the request is for zeroed memory and the first `dirty`
/// bytes may be other than zero. Leaves the slot, and returns how many bytes [`Caching::deliver_zeroed`] must zero before
/// it counts the block.
#[inline(always)]
fn deliver(mut held: CounterGuard<'_, Front>, request: &Request, block: &RawBlock, dirty: usize) -> usize {
    let dirty = if request.zeroed { dirty } else { 0 };
    if dirty == 0 {
        held.value().tags().enter(block);
        held.count_in(request.kind, block.granted, request.bytes);
    }
    dirty
}

/// Makes a record a block for a request of its kind and tag, and counts it. Calls nothing.
///
/// # Safety
///
/// The record, of a block of so many bytes, was just taken from the slot's front.
#[inline(always)]
unsafe fn hand_out(
    held: CounterGuard<'_, Front>,
    (mut place, granted): (NonNull<Record>, usize),
    request: &Request,
) -> RawBlock {
    let id = held.count_in_below_limit(request.kind, granted, request.bytes);
    // SAFETY: nobody else has it (the caller).
    let record = unsafe { place.as_mut() };
    record.assign_like(request, id);
    // SAFETY: a record of ours, which goes with the block from now on.
    unsafe { RawBlock::from_record(place) }
}

// SAFETY: 1. blocks are chunks in use, which are disjoint (heap invariants 1 and 2) and begin at multiples of the
// granule or of the request's alignment; a block is with one user, or in one stack. 2. regions are initialised by
// the backing's promise. 3. the quick way has no zeroed requests; `deliver_zeroed` zeroes what was used before.
// 4. stacks are behind slots, the rest behind mutexes. 5. regions go when the engine is dropped, or when wholly free.
// 6. each way out enters the ledger and each way in leaves it, last of all.
unsafe impl<B: Backing> Allocator for Caching<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        // Kinds that cannot be here never pass: the first block of a kind is notable, and checked.
        // One comparison for both.
        if request.align.log2() | u32::from(request.zeroed) << 8 > GRANULE.log2() {
            return None;
        }
        let mut held = self.counters.try_enter()?;
        let figures = held.counts();
        let allowed = |granted| !figures.exceeds_limit(request.kind, granted);
        // Each way to its own end: one for both would have to look again for what is known.
        if !held.value().plans_for(request.bytes) {
            if let Some(found) = held.value().take_stacked(request, allowed)? {
                // SAFETY: taken just now.
                return Some(unsafe { hand_out(held, found, request) });
            }
        } else if request.tag == Tag::NONE {
            let found = held.value().take_planned(request, allowed)?;
            // SAFETY: taken just now.
            return Some(unsafe { hand_out(held, found, request) });
        }
        // A call with nothing to keep is a jump: the slot is left, and entered again.
        drop(held);
        self.take_counted(request)
    }

    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        if !block.uses.is_empty() {
            return Some(block);
        }
        // SAFETY: the engine is there until the block has left (the caller's promise).
        let engine = unsafe { this.as_ref() };
        let Some(mut held) = engine.counters.try_enter() else { return Some(block) };
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record of this engine's, and the caller uses it no more.
        if !unsafe { held.value().put_quickly(block.record()) } {
            // As in `take_cached`.
            drop(held);
            // SAFETY: the caller's promise; the block is as it was.
            return unsafe { Self::give_elsewhere(this, block) };
        }
        held.count_out_open(kind, granted, requested);
        None
    }

    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let class = if request.align <= GRANULE { class_for(request.bytes) } else { UNCACHED };
        let rounded =
            if class < CLASSES { size_of_class(class) } else { GRANULE.round_up(request.bytes.max(1))? };
        let wanted = HeapRequest { request, rounded };
        if let Some((block, dirty)) = self.search(&wanted, class) {
            return if dirty == 0 { Ok(block) } else { self.deliver_zeroed(request, block, dirty) };
        }
        self.backing.check_not_entered()?;
        let HeapBlock { mut block, dirty } = self.heap.take_or_grow(&wanted, &mut Search::new(self))?;
        let slot = thread_slot::current();
        let mut held = self.counters.enter(slot);
        let front = held.value();
        front.set_home(slot.index());
        // SAFETY: a record of ours, and the token is our note.
        let record = unsafe { block.record_mut() };
        record.token = Token::new(record.token, class, slot.index()).0;
        front.note_taken(record);
        let dirty = deliver(held, request, &block, dirty);
        if dirty == 0 { Ok(block) } else { self.deliver_zeroed(request, block, dirty) }
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { Self::deallocate_counted(NonNull::from(self), block) }.map(|_| ())
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine is there until the block has left (the caller's promise).
        let engine = unsafe { this.as_ref() };
        // SAFETY: every block of this engine has a record of this engine's.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        record.uses = StreamUses::new();
        // Inside the slot, because after `count_out` the engine may be gone. Nobody who has the heap waits for a slot.
        let slot = thread_slot::current();
        let mut held = engine.counters.enter(slot);
        let front = held.value();
        front.set_home(slot.index());
        engine.put_back(front, record)?;
        Ok(held.count_out(kind, granted, requested))
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.widen(block, bytes) }
    }

    fn counter(&self) -> Option<&dyn BlockCounter> {
        Some(&self.counters)
    }

    unsafe fn close(this: NonNull<Self>) -> OwnerState {
        // SAFETY: the engine is there until then (the caller's promise).
        let counters = NonNull::from(unsafe { &this.as_ref().counters });
        // SAFETY: the caller's promise.
        unsafe { ShardedCounters::close(counters) }
    }

    fn set_statistics(&mut self, on: bool) {
        self.counters.set_counted(on);
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        let slots = self.counters.slots() * size_of::<Front>() + size_of_val(&*self.remote_frees);
        self.heap.lock().usage(slots + self.notes.load(Ordering::Relaxed))
    }

    fn reset_peak(&self) {
        self.heap.lock().reset_peak();
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        let address = ptr.as_ptr().addr();
        if let Some(planned) = self.find_planned(address) {
            return planned.map(|(size, _)| size);
        }
        self.heap.lock().find(address).ok().map(|(_, found)| found.granted)
    }

    fn trim(&self, target: u64) -> u64 {
        let target = usize::try_from(target).unwrap_or(usize::MAX);
        if self.backing.is_entered() {
            return 0;
        }
        self.heap.while_not_growing(|locked| {
            self.merge_all(locked, PlanFate::End);
            self.release_down_to(locked, target)
        })
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, _: Option<usize>) -> Result<LookupResult> {
        let address = ptr.as_ptr().addr();
        let block = match self.find_planned(address) {
            Some(planned) => {
                let (_, record) = planned.ok_or(Error::DoubleFree { address })?;
                // SAFETY: a record of a live block, which was given up (the caller's promise).
                unsafe { RawBlock::from_record(record) }
            }
            None => {
                let heap = self.heap.lock();
                let (index, _) = heap.find(address)?;
                // SAFETY: the block was given up (the caller's promise); the chunk is in use, and no lease.
                unsafe { heap.block_of(index) }.ok_or(Error::DoubleFree { address })?
            }
        };
        if block.id == AllocationId::NONE {
            return Err(Error::DoubleFree { address });
        }
        let found = LookupResult {
            requested: block.requested,
            granted: block.granted,
            id: block.id,
            kind: block.kind,
        };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(block) }?;
        Ok(found)
    }

    fn has_raw_deleter(&self) -> bool {
        true
    }

    fn describe(&self, report: &mut OutOfMemory) {
        growth::describe(&self.heap.lock(), report);
        report.set_tags(self.tag_uses());
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        let mut sums = TagSums::default();
        self.counters.for_each_slot(|front| front.add_tags_to(&mut sums));
        let totals = self.counters.totals();
        sums.uses(|kind| totals.kinds[kind.index()].live_bytes)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let ended = self.heap.lock().watch(watch);
        // With the lock released: an observer's end may run anything.
        drop(ended);
    }

    fn verify(&self) -> Result<()> {
        self.heap.lock().verify()?;
        let mut broken = None;
        self.counters.for_each_slot(|front| {
            if !front.is_consistent() {
                broken = Some(Error::Corrupt { rule: "what is cached adds up", address: 0 });
            }
            let heap = self.heap.lock();
            for (class, record) in front.records() {
                let token = Token(record.token);
                let fits = token.class() == class && size_of_class(class) <= record.granted;
                if !fits || token.home() != front.home() || !heap.holds(record) {
                    let rule = "a cached block is a chunk in use that holds its class";
                    broken = Some(Error::Corrupt { rule, address: record.address() });
                }
            }
            for lease in front.plan().iter().flat_map(|plan| plan.extents()) {
                if !heap.holds(lease) {
                    broken =
                        Some(Error::Corrupt { rule: "a plan's memory is in use", address: lease.address() });
                }
            }
        });
        broken.map_or(Ok(()), Err)
    }
}

impl<B: Backing> Drop for Caching<B> {
    fn drop(&mut self) {
        #[cfg(all(unix, not(loom)))]
        self.end_forks();
        self.heap.while_not_growing(|locked| {
            self.merge_all(locked, PlanFate::End);
            let removed: Vec<_> = {
                let mut heap = locked.lock();
                let regions: Vec<_> = heap.regions.iter().map(|(index, _)| index).collect();
                regions.into_iter().filter_map(|index| heap.remove_region(index)).collect()
            };
            for removed in removed {
                // SAFETY: gained from this backing and not given back; blocks keep their engine alive, so none
                // lives when it is dropped.
                unsafe { removed.release(&self.backing) };
            }
        });
    }
}
