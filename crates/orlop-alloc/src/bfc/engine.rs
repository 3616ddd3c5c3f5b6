//! The BFC engine as an allocator: a lock around the heap and a backing below it.

use super::BfcBuilder;
use super::heap::{Heap, HeapBlock, HeapRequest};
use super::policy::BfcPolicy;
use crate::backing::{Backing, BackingRef, Region, Shielded};
use crate::{
    Allocator, Error, LookupResult, OutOfMemory, RawBlock, RegionWatch, Request, Result, Semantics, TagUse,
    Usage,
};
use orlop_core::{Alignment, Device};
use orlop_sync::{CentralHeap as _, GrowableHeap};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The BFC engine: best fit with coalescing over any backing, by the rules of a [`BfcPolicy`].
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::bfc::{Bfc, BfcPolicy};
/// use orlop_alloc::{Allocator, Request};
///
/// let engine = Bfc::builder(System::new()).policy(BfcPolicy::tensorflow()).limit(64 << 20).build();
/// let allocator = engine.into_ref();
/// let block = allocator.allocate(&Request::new(1000))?;
/// assert_eq!((block.len(), block.capacity()), (1000, 1024));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Bfc<B: Backing = BackingRef> {
    pub(super) name: Box<str>,
    pub(super) backing: Shielded<B>,
    pub(super) limit: usize,
    /// The minimum alignment of regions: the policy's granule.
    pub(super) region_align: Alignment,
    pub(super) heap: GrowableHeap<Heap>,
    /// Bytes of the first region.
    pub(super) first_region: usize,
    /// Bytes of the next region. Written under the growth lock only.
    pub(super) next_region: AtomicUsize,
    /// Whether the engine has already retried smaller regions after a refusal of the backing. Written under
    /// the growth lock only.
    pub(super) backpedalled: AtomicBool,
    pub(super) clock: Option<Arc<AtomicU64>>,
}

impl<B: Backing> Bfc<B> {
    /// Creates an engine with TensorFlow's policy and no limit.
    #[must_use]
    pub fn new(backing: B) -> Self {
        Self::builder(backing).build()
    }

    /// Returns a builder with TensorFlow's policy and no limit.
    pub fn builder(backing: B) -> BfcBuilder<B> {
        BfcBuilder::new(backing)
    }

    /// Returns the policy.
    pub fn policy(&self) -> BfcPolicy {
        self.heap.lock().policy.clone()
    }

    /// Returns the limit of reserved bytes; `usize::MAX` without one.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<B: Backing> Bfc<B> {
    fn deliver(&self, request: &Request, taken: HeapBlock) -> Result<RawBlock> {
        let HeapBlock { block, dirty } = taken;
        // SAFETY: the bytes lie inside the chunk just taken, which no user has a pointer to yet.
        if request.zeroed && dirty > 0 && !unsafe { self.backing.zero(block.ptr, dirty.min(request.bytes)) } {
            // SAFETY: the block was just taken, and no user has it.
            unsafe { self.deallocate(block) }?;
            return Err(Error::CannotZero { device: self.backing.device() });
        }
        Ok(block)
    }

    fn stamp(&self) -> u64 {
        // Relaxed: stamps are only compared; they order no other memory accesses.
        self.clock.as_ref().map_or(0, |clock| clock.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }
}

// SAFETY: 1. chunks in use are disjoint parts of regions (heap invariants 1 and 2), and start at multiples of
// the granule, or of the request's alignment where that is larger. 2. regions are initialised by the
// backing's promise. 3. `deliver` zeroes the bytes that were handed out before; the rest of a zeroed region
// is still zero. 4. all state is behind the heap's lock. 5. a region with a live block is released only when
// the engine is dropped.
unsafe impl<B: Backing> Allocator for Bfc<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let wanted = HeapRequest::new(request, self.region_align)?;
        // A statement of its own, so that the lock is released before the heap grows.
        let found = self.heap.lock().take(&wanted);
        let taken = match found {
            Some(taken) => taken,
            None => self.grow(&wanted)?,
        };
        self.deliver(request, taken)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let stamp = self.stamp();
        let mut heap = self.heap.lock();
        let chunk = heap.check(&block)?;
        // SAFETY: `check` found that it is a block of this engine, whose records come from the heap.
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
        // SAFETY: the record is this engine's, and the values are the heap's for this block.
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
                // Region sizes start again from the first: the current size may be more than the backing ever
                // gives again.
                self.next_region.store(self.first_region, Ordering::Relaxed);
                self.backpedalled.store(false, Ordering::Relaxed);
            }
            freed
        });
        let bytes = freed.iter().map(|removed| removed.bytes() as u64).sum();
        for removed in freed {
            // SAFETY: the region came from this backing; its chunks were all free and have been removed from
            // the heap.
            unsafe { removed.release(&self.backing) };
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
        // SAFETY: the caller gave the block up (guaranteed by the caller).
        if let Some(block) = unsafe { heap.block_of(chunk) } {
            // SAFETY: it is a block of this engine, whose records come from the heap.
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
        // Dropped with the lock released: the destructor of an observer may run arbitrary code.
        drop(ended);
    }

    fn verify(&self) -> Result<()> {
        self.heap.lock().verify()
    }
}

impl<B: Backing> Drop for Bfc<B> {
    fn drop(&mut self) {
        let mut heap = self.heap.lock();
        heap.note_all_removed();
        let regions: Vec<Region> = heap.regions.iter().map(|(_, map)| map.region).collect();
        drop(heap);
        for region in regions {
            // SAFETY: the region came from this backing and was not released before. Blocks keep their engine
            // alive, so no block is live when it is dropped.
            unsafe { self.backing.release(region) };
        }
    }
}
