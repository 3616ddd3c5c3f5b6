//! Growth of the BFC engine: the steps for a request that found no free chunk.
//!
//! The order is TensorFlow's: a new region; stamped chunks, merged although they are not safe for every use;
//! wholly free regions, released so that a larger one fits. The backing is called without the heap's lock
//! (see [`GrowableHeap`](orlop_sync::GrowableHeap)).

use super::Bfc;
use super::chunks::RegionMap;
use super::heap::{GrowthOutcome, Heap, HeapBlock, HeapRequest};
use super::policy::RegionGrowth;
use crate::Refusal;
use crate::backing::Backing;
use crate::{Error, OutOfMemory, Result};
use orlop_host::shield::report;
use orlop_sync::{HeapGrowth, Mutex};
use std::sync::atomic::Ordering;

/// The steps of growth, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrowthStep {
    Extend,
    MergeStamped,
    ReleaseFree,
    Refuse,
}

struct GrowthSteps<'a, B: Backing> {
    engine: &'a Bfc<B>,
    step: GrowthStep,
    /// Free regions that were released so that a larger one fits.
    released: usize,
}

impl<B: Backing> HeapGrowth<Heap> for GrowthSteps<'_, B> {
    type Error = Error;

    fn grow(&mut self, heap: &Mutex<Heap>, wanted: &HeapRequest<'_>) -> Result<GrowthOutcome> {
        loop {
            match self.step {
                GrowthStep::Extend => {
                    self.step = GrowthStep::MergeStamped;
                    if let Some(map) = self.engine.extend(heap, wanted) {
                        return Ok(GrowthOutcome::NewRegion(map));
                    }
                }
                GrowthStep::MergeStamped => {
                    self.step = GrowthStep::ReleaseFree;
                    let mut heap = heap.lock();
                    if wanted.request.freed_before == 0
                        && !heap.stamps.is_empty()
                        && heap.merge_stamped(wanted.rounded)
                    {
                        return Ok(GrowthOutcome::Retry);
                    }
                }
                GrowthStep::ReleaseFree => {
                    self.step = GrowthStep::Refuse;
                    self.released = self.engine.release_free(heap, wanted.rounded);
                    if self.released > 0
                        && let Some(map) = self.engine.extend(heap, wanted)
                    {
                        return Ok(GrowthOutcome::NewRegion(map));
                    }
                }
                GrowthStep::Refuse => return Err(self.engine.refuse(heap, wanted)),
            }
        }
    }
}

impl<B: Backing> Bfc<B> {
    /// Grows the heap for a request that found no free chunk, and takes a chunk.
    #[cold]
    pub(super) fn grow(&self, wanted: &HeapRequest<'_>) -> Result<HeapBlock> {
        self.backing.check_not_entered()?;
        let mut steps = GrowthSteps { engine: self, step: GrowthStep::Extend, released: 0 };
        let taken = self.heap.take_or_grow(wanted, &mut steps);
        if steps.released > 0 {
            report(|| {
                tracing::warn!(
                    allocator = &*self.name,
                    regions = steps.released,
                    "free regions released so that a larger one fits: memory is nearly full"
                );
            });
        }
        taken
    }

    /// Reserves a region that holds the request, if the limit and the backing allow it. The growth lock is
    /// held.
    fn extend(&self, heap: &Mutex<Heap>, wanted: &HeapRequest<'_>) -> Option<RegionMap> {
        let (growth, granule, reserved) = {
            let heap = heap.lock();
            (heap.policy.growth, heap.policy.granule, heap.reserved)
        };
        let available = granule.round_down(self.limit.saturating_sub(reserved));
        if wanted.rounded > available {
            return None;
        }
        let align = wanted.request.align.max(self.region_align);
        // With a limit, TensorFlow's rules apply unchanged. Without one, a request may be absurdly large;
        // when it fails, it must not change the size of later regions.
        let unlimited = self.limit == usize::MAX;
        let before = self.next_region.load(Ordering::Relaxed);
        let mut enlarged = false;
        let region_bytes = match growth {
            RegionGrowth::Steps { step } => {
                wanted.rounded.checked_next_multiple_of(step.max(1)).unwrap_or(wanted.rounded)
            }
            RegionGrowth::WholeLimit | RegionGrowth::Doubling { .. } => {
                let mut region_bytes = before;
                while region_bytes < wanted.rounded {
                    region_bytes =
                        region_bytes.checked_mul(2).filter(|&bytes| bytes > 0).unwrap_or(wanted.rounded);
                    enlarged = true;
                }
                self.next_region.store(region_bytes, Ordering::Relaxed);
                region_bytes
            }
        };
        let mut bytes = region_bytes.min(available);
        let mut region = self.backing.reserve(bytes, align);
        if region.is_none() && !self.backpedalled.swap(true, Ordering::Relaxed) {
            while region.is_none() {
                let less = granule.round_up(nine_tenths(bytes)).ok()?;
                // Below ten granules, rounding up undoes the reduction. TensorFlow then loops for ever.
                if less < wanted.rounded || less >= bytes {
                    if unlimited && bytes == region_bytes {
                        self.backpedalled.store(false, Ordering::Relaxed);
                    }
                    break;
                }
                bytes = less;
                region = self.backing.reserve(bytes, align);
            }
        }
        if region.is_some() && !enlarged {
            self.next_region.store(region_bytes.saturating_mul(2), Ordering::Relaxed);
        }
        if region.is_none() && unlimited {
            self.next_region.store(before, Ordering::Relaxed);
        }
        let region = region?;
        let map = RegionMap::new(region, None);
        if map.is_none() {
            // SAFETY: it was reserved above, and no pointer into it exists elsewhere.
            unsafe { self.backing.release(region) };
        }
        map
    }

    /// Releases wholly free regions if the policy says so and if that could make room for `rounded` bytes.
    /// Returns how many. The growth lock is held.
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
        for removed in freed {
            // SAFETY: the region came from this backing; its chunks were all free and have been removed from
            // the heap.
            unsafe { removed.release(&self.backing) };
        }
        regions
    }

    #[cold]
    fn refuse(&self, heap: &Mutex<Heap>, wanted: &HeapRequest<'_>) -> Error {
        let &HeapRequest { request, rounded } = wanted;
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
}

/// Returns the size of TensorFlow's next attempt, in its single-precision arithmetic.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rule is defined in floats"
)]
fn nine_tenths(bytes: usize) -> usize {
    (bytes as f32 * 0.9) as usize
}
