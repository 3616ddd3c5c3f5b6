//! The central engine as an allocator: a lock around the heap, a backing under it, and the order in which
//! memory is looked for when the heap has none.
//!
//! The order is TensorFlow's: free chunks; a new region; stamped chunks, merged although they are not safe
//! for all; wholly free regions given back so that a larger one fits. The lock is not held while the backing
//! is asked (see [`GrowableHeap`]).

use super::chunks::Mapped;
use super::heap::{Ask, Heap, Taken};
use super::policy::{Policy, RegionGrowth};
use super::regions::Gain;
use crate::Refusal;
use crate::backing::{Backing, BackingRef, Region, Shielded};
use crate::shield::report;
use crate::{
    Allocator, AllocatorRef, Error, LookupResult, OutOfMemory, RawBlock, RegionWatch, Request, Result,
    Semantics, TagUse, Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{CentralHeap as _, GrowableHeap, HeapGrowth, Mutex};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Best fit with coalescing over any backing, by the rules of a [`Policy`].
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::central::{Central, Policy};
/// use orlop_alloc::Request;
///
/// let allocator = Central::builder(System::new()).policy(Policy::tensorflow()).limit(64 << 20).build();
/// let block = allocator.allocate(&Request::new(1000))?;
/// assert_eq!((block.len(), block.capacity()), (1000, 1024));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Central<B: Backing = BackingRef> {
    name: Box<str>,
    backing: Shielded<B>,
    limit: usize,
    /// Region addresses are multiples of this at least.
    region_align: Alignment,
    heap: GrowableHeap<Heap>,
    /// The first region's size.
    first_region: usize,
    /// The next region's size. Written under the growth lock only.
    next_region: AtomicUsize,
    /// Whether the backing ever refused and less was tried. Written under the growth lock only.
    backpedalled: AtomicBool,
    clock: Option<Arc<AtomicU64>>,
}

/// Settings of a [`Central`].
#[derive(Debug)]
pub struct CentralBuilder<B: Backing> {
    backing: B,
    policy: Policy,
    limit: usize,
    name: Option<Box<str>>,
    clock: Option<Arc<AtomicU64>>,
    counted: bool,
}

impl<B: Backing> Central<B> {
    /// Begins with TensorFlow's rules and no limit.
    pub fn builder(backing: B) -> CentralBuilder<B> {
        let policy = Policy::tensorflow();
        CentralBuilder { backing, policy, limit: usize::MAX, name: None, clock: None, counted: true }
    }

    /// The rules in force.
    pub fn policy(&self) -> Policy {
        self.heap.lock().policy.clone()
    }

    /// The most bytes that may be reserved.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<B: Backing> CentralBuilder<B> {
    /// By these rules.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Never reserving more than so many bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Under this name; else the policy's.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// With a clock: each free is stamped with its next tick (T9).
    #[must_use]
    pub fn clock(mut self, clock: Arc<AtomicU64>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Without byte statistics (T19).
    #[must_use]
    pub fn without_statistics(mut self) -> Self {
        self.counted = false;
        self
    }

    /// The engine itself, for putting under an adaptor.
    #[must_use]
    pub fn build_engine(self) -> Central<B> {
        let granule = self.policy.granule;
        let (device, access) = (self.backing.device(), self.backing.access());
        // TensorFlow rounds the first region up, and the whole pool down to what the limit leaves.
        let first = match self.policy.growth {
            RegionGrowth::WholeLimit => granule.round_down(self.limit),
            RegionGrowth::Doubling { first } => {
                granule.round_up(first.min(self.limit)).unwrap_or_else(|_| granule.round_down(first))
            }
            RegionGrowth::Steps { .. } => 0,
        };
        Central {
            name: self.name.unwrap_or_else(|| self.policy.name.into()),
            backing: Shielded::new(self.backing),
            limit: self.limit,
            region_align: granule,
            heap: GrowableHeap::new(Heap::new(self.policy, device, access)),
            first_region: first,
            next_region: AtomicUsize::new(first),
            backpedalled: AtomicBool::new(false),
            clock: self.clock,
        }
    }

    /// The engine behind a handle.
    #[must_use]
    pub fn build(self) -> AllocatorRef<Central<B>> {
        let counted = self.counted;
        AllocatorRef::with_statistics(self.build_engine(), counted)
    }
}

/// Where a request that found nothing is on its way; the steps are taken in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Extend,
    MergeStamped,
    ReleaseFree,
    GiveUp,
}

struct Search<'a, B: Backing> {
    engine: &'a Central<B>,
    step: Step,
    /// How many free regions were given back so that a larger one fits.
    released: usize,
}

impl<B: Backing> HeapGrowth<Heap> for Search<'_, B> {
    type Error = Error;

    fn grow(&mut self, heap: &Mutex<Heap>, ask: &Ask<'_>) -> Result<Gain> {
        loop {
            match self.step {
                Step::Extend => {
                    self.step = Step::MergeStamped;
                    if let Some(mapped) = self.engine.extend(heap, ask) {
                        return Ok(Gain::Region(mapped));
                    }
                }
                Step::MergeStamped => {
                    self.step = Step::ReleaseFree;
                    let mut heap = heap.lock();
                    if ask.request.freed_before == 0
                        && !heap.stamps.is_empty()
                        && heap.merge_stamped(ask.rounded)
                    {
                        return Ok(Gain::Nothing);
                    }
                }
                Step::ReleaseFree => {
                    self.step = Step::GiveUp;
                    self.released = self.engine.release_free(heap, ask.rounded);
                    if self.released > 0
                        && let Some(mapped) = self.engine.extend(heap, ask)
                    {
                        return Ok(Gain::Region(mapped));
                    }
                }
                Step::GiveUp => return Err(self.engine.refuse(heap, ask)),
            }
        }
    }
}

impl<B: Backing> Central<B> {
    /// A chunk for a request that found none.
    #[cold]
    fn grow(&self, ask: &Ask<'_>) -> Result<Taken> {
        self.backing.check_not_entered()?;
        let mut search = Search { engine: self, step: Step::Extend, released: 0 };
        let taken = self.heap.take_or_grow(ask, &mut search);
        if search.released > 0 {
            report(|| {
                tracing::warn!(
                    allocator = &*self.name,
                    regions = search.released,
                    "free regions given back so that a larger one fits: memory is nearly full"
                );
            });
        }
        taken
    }

    /// Gets a region that holds the request, if limit and backing allow. The growth lock is held.
    fn extend(&self, heap: &Mutex<Heap>, ask: &Ask<'_>) -> Option<Mapped> {
        let (growth, granule, reserved) = {
            let heap = heap.lock();
            (heap.policy.growth, heap.policy.granule, heap.reserved)
        };
        let available = granule.round_down(self.limit.saturating_sub(reserved));
        if ask.rounded > available {
            return None;
        }
        let align = ask.request.align.max(self.region_align);
        // A real limit keeps requests below it, and the rules below are TensorFlow's. Without one a request may
        // be absurd, and must leave no trace.
        let unlimited = self.limit == usize::MAX;
        let before = self.next_region.load(Ordering::Relaxed);
        let mut enlarged = false;
        let wanted = match growth {
            RegionGrowth::Steps { step } => {
                ask.rounded.checked_next_multiple_of(step.max(1)).unwrap_or(ask.rounded)
            }
            RegionGrowth::WholeLimit | RegionGrowth::Doubling { .. } => {
                let mut wanted = before;
                while wanted < ask.rounded {
                    wanted = wanted.checked_mul(2).filter(|&bytes| bytes > 0).unwrap_or(ask.rounded);
                    enlarged = true;
                }
                self.next_region.store(wanted, Ordering::Relaxed);
                wanted
            }
        };
        let mut bytes = wanted.min(available);
        let mut region = self.backing.reserve(bytes, align);
        if region.is_none() && !self.backpedalled.swap(true, Ordering::Relaxed) {
            while region.is_none() {
                let less = granule.round_up(nine_tenths(bytes)).ok()?;
                // Below ten granules rounding takes back what the step took away: TensorFlow goes on for ever.
                if less < ask.rounded || less >= bytes {
                    if unlimited && bytes == wanted {
                        self.backpedalled.store(false, Ordering::Relaxed);
                    }
                    break;
                }
                bytes = less;
                region = self.backing.reserve(bytes, align);
            }
        }
        if region.is_some() && !enlarged {
            self.next_region.store(wanted.saturating_mul(2), Ordering::Relaxed);
        }
        if region.is_none() && unlimited {
            self.next_region.store(before, Ordering::Relaxed);
        }
        let region = region?;
        let mapped = Mapped::new(region, None);
        if mapped.is_none() {
            // SAFETY: gained above, and nobody else knows it.
            unsafe { self.backing.release(region) };
        }
        mapped
    }

    /// Gives wholly free regions back, if the policy says so and if it could help, and says how many. The growth lock is
    /// held.
    fn release_free(&self, heap: &Mutex<Heap>, rounded: usize) -> usize {
        let freed = {
            let mut heap = heap.lock();
            if !heap.policy.release_when_stuck {
                return 0;
            }
            let free = heap.free_regions();
            let total: usize = free.iter().map(|&(_, bytes)| bytes).sum();
            if total == 0 || rounded > self.limit.saturating_sub(heap.reserved).saturating_add(total) {
                return 0;
            }
            free.into_iter().filter_map(|(index, _)| heap.remove_region(index)).collect::<Vec<_>>()
        };
        let regions = freed.len();
        for gone in freed {
            // SAFETY: gained from this backing; its chunks were all free and are gone from the heap.
            unsafe { gone.release(&self.backing) };
        }
        regions
    }

    #[cold]
    fn refuse(&self, heap: &Mutex<Heap>, ask: &Ask<'_>) -> Error {
        let &Ask { request, rounded } = ask;
        let heap = heap.lock();
        let over = rounded > heap.policy.granule.round_down(self.limit.saturating_sub(heap.reserved));
        let refusal = match (over, heap.policy.growth) {
            (true, RegionGrowth::WholeLimit) => Refusal::Full,
            (true, _) => Refusal::Limit,
            (false, _) => Refusal::Backing,
        };
        let mut report = OutOfMemory::new(refusal, &self.name, self.backing.device(), request);
        heap.describe(&mut report);
        report.rounded = rounded;
        report.limit = (self.limit != usize::MAX).then_some(self.limit as u64);
        report.into()
    }

    fn deliver(&self, request: &Request, taken: Taken) -> Result<RawBlock> {
        let Taken { block, dirty } = taken;
        // SAFETY: inside the chunk just taken, which nobody else knows yet.
        if request.zeroed && dirty > 0 && !unsafe { self.backing.zero(block.ptr, dirty.min(request.bytes)) } {
            // SAFETY: taken just now, and used by nobody.
            unsafe { self.deallocate(block) }?;
            return Err(Error::CannotZero { device: self.backing.device() });
        }
        Ok(block)
    }

    fn stamp(&self) -> u64 {
        // Relaxed: stamps are compared, nothing is read because of them.
        self.clock.as_ref().map_or(0, |clock| clock.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// TensorFlow's back-pedal step, in its single-precision arithmetic.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rule is defined in floats"
)]
fn nine_tenths(bytes: usize) -> usize {
    (bytes as f32 * 0.9) as usize
}

// SAFETY: 1. chunks in use are disjoint parts of regions (heap invariants 1 and 2) and begin at multiples of
// the granule, or of the request's alignment where that is larger. 2. regions are initialised by the backing's
// promise. 3. `deliver` zeroes what was handed out before; the rest of a zeroed region still is. 4. everything
// is behind the heap's lock. 5. regions are returned when the engine is dropped, not before, save free ones.
unsafe impl<B: Backing> Allocator for Central<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let ask = Ask::new(request, self.region_align)?;
        // On a line of its own: the heap is not locked while it grows.
        let found = self.heap.lock().take(&ask);
        let taken = match found {
            Some(taken) => taken,
            None => self.grow(&ask)?,
        };
        self.deliver(request, taken)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let stamp = self.stamp();
        let mut heap = self.heap.lock();
        let chunk = heap.check(&block)?;
        // SAFETY: `check` found it to be one of ours, whose records come from the heap.
        heap.put(chunk, unsafe { block.into_record() }, stamp);
        Ok(())
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let mut heap = self.heap.lock();
        let Ok(rounded) = heap.policy.granule.round_up(bytes) else { return false };
        let Some(granted) = heap.check(block).ok().and_then(|index| heap.extend(index, rounded, bytes))
        else {
            return false;
        };
        // SAFETY: a record of ours, and what the heap says of the block now.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (granted, bytes);
        true
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        self.heap.lock().usage(0)
    }

    fn reset_peak(&self) {
        self.heap.lock().reset_peak();
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    fn trim(&self, target: u64) -> u64 {
        if self.backing.is_entered() {
            return 0;
        }
        let freed = self.heap.while_not_growing(|heap| {
            let mut heap = heap.lock();
            let mut freed = Vec::new();
            for (index, _) in heap.free_regions() {
                if heap.reserved as u64 <= target {
                    break;
                }
                freed.extend(heap.remove_region(index));
            }
            if !freed.is_empty() {
                // Growth begins anew: the step it had come to may be more than the backing ever gives again.
                self.next_region.store(self.first_region, Ordering::Relaxed);
                self.backpedalled.store(false, Ordering::Relaxed);
            }
            freed
        });
        let bytes = freed.iter().map(|gone| gone.bytes() as u64).sum();
        for gone in freed {
            // SAFETY: gained from this backing; its chunks were all free and are gone from the heap.
            unsafe { gone.release(&self.backing) };
        }
        bytes
    }

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.heap.lock().find(address).ok().map(|(_, found)| found)
    }

    fn has_tracked_sizes(&self) -> bool {
        true
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, _: Option<usize>) -> Result<LookupResult> {
        let stamp = self.stamp();
        let mut heap = self.heap.lock();
        let (chunk, found) = heap.find(ptr.as_ptr().addr())?;
        // SAFETY: the caller's promise: the block was given up.
        if let Some(block) = unsafe { heap.block_of(chunk) } {
            // SAFETY: one of ours, whose records come from the heap.
            heap.put(chunk, unsafe { block.into_record() }, stamp);
        }
        Ok(found)
    }

    fn has_raw_deleter(&self) -> bool {
        true
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.heap.lock().stamps.advance(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.heap.lock().describe(report);
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        self.heap.lock().tag_uses()
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let ended = self.heap.lock().watch(watch);
        // With the lock released: an observer's end may run anything.
        drop(ended);
    }

    fn verify(&self) -> Result<()> {
        self.heap.lock().verify()
    }
}

impl<B: Backing> Drop for Central<B> {
    fn drop(&mut self) {
        let mut heap = self.heap.lock();
        heap.note_all_gone();
        let regions: Vec<Region> = heap.regions.iter().map(|(_, mapped)| mapped.region).collect();
        drop(heap);
        for region in regions {
            // SAFETY: gained from this backing and not given back; blocks keep their engine alive, so none
            // lives when it is dropped.
            unsafe { self.backing.release(region) };
        }
    }
}
