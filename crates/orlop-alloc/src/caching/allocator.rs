//! The caching engine as an [`Allocator`], with the fast paths of allocation and free.

use super::Caching;
use super::allocate::{hand_out, take_planned, take_tagged};
use super::classes::{GRANULE, size_of_class};
use super::follow::PlanFate;
use super::growth;
use super::tags::TagSums;
use super::thread_cache::ThreadCache;
use super::token::Token;
use crate::backing::Backing;
use crate::handle::CountingEngine;
use crate::{
    AllocationId, Allocator, AllocatorRef, Error, LookupResult, OutOfMemory, RawBlock, RegionWatch, Request,
    Result, Semantics, StreamUses, TagUse, Usage,
};
use orlop_core::Device;
use orlop_sync::{OwnerState, ShardedCounters, thread_slot};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

// SAFETY: 1. blocks are chunks in use, which are disjoint (heap invariants 1 and 2) and start at multiples of
// the granule or of the request's alignment; a block is owned by one user or by one cache. 2. regions are
// initialised by the backing's promise. 3. the fast path refuses zeroed requests; `deliver_zeroed` zeroes the
// bytes that were used before. 4. thread caches are behind slots, the rest behind mutexes. 5. regions are
// released when the engine is dropped, or when they are wholly free.
unsafe impl<B: Backing> Allocator for Caching<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.allocate_in_steps(request)
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.grow_in_place_from_heap(block, bytes) }
    }

    crate::handle::counts_itself!(counters);

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        let slots = self.counters.slots() * size_of::<ThreadCache>() + size_of_val(&*self.remote_frees);
        self.heap.lock().usage(slots + self.learning_bytes.load(Ordering::Relaxed))
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
                // SAFETY: the record of a live block, which the user gave up (guaranteed by the caller).
                unsafe { RawBlock::from_record(record) }
            }
            None => {
                let heap = self.heap.lock();
                let (index, _) = heap.find(address)?;
                // SAFETY: the user gave the block up (guaranteed by the caller); the chunk is in use, and no
                // lease.
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
        // SAFETY: guaranteed by the caller.
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
        self.counters.for_each_slot(|cache| cache.add_tags_to(&mut sums));
        let totals = self.counters.totals();
        sums.uses(|kind| totals.kinds[kind.index()].live_bytes)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        let ended = self.heap.lock().watch(watch);
        // Dropped with the lock released: the destructor of an observer may run arbitrary code.
        drop(ended);
    }

    fn verify(&self) -> Result<()> {
        self.heap.lock().verify()?;
        let mut broken = None;
        self.counters.for_each_slot(|cache| {
            if !cache.is_consistent() {
                broken = Some(Error::Corrupt { rule: "the cached bytes add up", address: 0 });
            }
            let heap = self.heap.lock();
            for (class, record) in cache.records() {
                let token = Token(record.token);
                let fits = token.class() == class && size_of_class(class) <= record.granted;
                if !fits || token.owner_slot() != cache.slot() || !heap.holds(record) {
                    let rule = "a cached block is a chunk in use that holds its class";
                    broken = Some(Error::Corrupt { rule, address: record.address() });
                }
            }
            for lease in cache.plan().iter().flat_map(|plan| plan.extents()) {
                if !heap.holds(lease) {
                    broken = Some(Error::Corrupt {
                        rule: "the memory of a plan is in use",
                        address: lease.address(),
                    });
                }
            }
        });
        broken.map_or(Ok(()), Err)
    }
}

// SAFETY: 1. each path that hands a block out counts it in, and each path that takes one back counts it out,
// as its last action, in `counters`. 2. the states are that counter's. 3. as for `allocate`.
unsafe impl<B: Backing> CountingEngine for Caching<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        // A kind that cannot be on this device never passes: the first block of a kind exceeds the slot's
        // limit, so `allocate` handles it and checks the kind. One comparison for alignment and zeroing.
        if request.align.log2() | u32::from(request.zeroed) << 8 > GRANULE.log2() {
            return not_cached();
        }
        // SAFETY: stacks and plans call nothing to hand a block out; tags are changed in `call`.
        let Some(mut guard) = (unsafe { self.counters.try_enter() }) else { return not_cached() };
        if guard.value().plans_for(request.bytes) {
            return take_planned(guard, request);
        }
        let counts = guard.counts();
        let allowed = |granted| !counts.exceeds_limit(request.kind, granted);
        match guard.value().take_stacked(request, allowed) {
            // SAFETY: just taken from the slot's cache.
            Some(Some(found)) => Some(unsafe { hand_out(guard, found, request) }),
            Some(None) => take_tagged(guard, request),
            None => {
                drop(guard);
                not_cached()
            }
        }
    }

    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        if !block.uses.is_empty() {
            return not_given(block);
        }
        // SAFETY: the engine is alive until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: stacks and plans call nothing to take a block back; tags are changed in `call`.
        let Some(mut guard) = (unsafe { engine.counters.try_enter() }) else { return not_given(block) };
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record of this engine, and the caller uses it no more.
        if !unsafe { guard.value().put_fast(block.record()) } {
            // SAFETY: guaranteed by the caller; `put_fast` changed nothing.
            return unsafe { Self::give_elsewhere(this, guard, block) };
        }
        guard.count_out(kind, granted, requested);
        None
    }

    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState> {
        // SAFETY: the engine is alive until the block is counted out (guaranteed by the caller).
        let engine = unsafe { this.as_ref() };
        // SAFETY: every block of this engine has a record of this engine.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        record.uses = StreamUses::new();
        // No thread waits for a slot while it holds the heap's lock.
        engine.counters.with(|cache| {
            cache.set_slot(thread_slot::index());
            engine.put_back(cache, record)
        })?;
        let counters = NonNull::from(&engine.counters);
        // SAFETY: the block was counted in, and leaves with this call: the engine may be dropped after it.
        Ok(unsafe { ShardedCounters::count_out(counters, kind, granted, requested) })
    }

    crate::handle::counted_by!(counters);
}

/// Leaves a request to the slow path. Cold, and called last: so the code of the fast path has no jumps over
/// what is rare.
#[cold]
#[inline(never)]
fn not_cached() -> Option<RawBlock> {
    None
}

/// Leaves a block to the slow path: see [`not_cached`].
#[cold]
#[inline(never)]
fn not_given(block: RawBlock) -> Option<RawBlock> {
    Some(block)
}

impl<B: Backing> AllocatorRef<Caching<B>> {
    /// Makes the engine work in the child of a `fork`, whatever other threads were doing. Without this, it
    /// works there only if no other thread was inside a call. It has no effect where there is no `fork`.
    ///
    /// A fork then waits until no thread is inside the engine, and keeps all threads out of it until it is
    /// done (`pthread_atfork`): the child can allocate, free, trim and verify.
    ///
    /// - Fork handlers that were registered before the first such call run while the engine is locked: they
    ///   must not use it.
    /// - A fork locks engines in the reverse order of these calls. Call it for an engine before another
    ///   engine takes memory from it.
    /// - A fork inside a backing's call, such as that of a visitor, does not wait for engines that other
    ///   threads are growing: its child must not use those.
    /// - Private memory is copied when parent or child writes to it. Memory shared between processes, and
    ///   devices, are the same for both, and the engine does not handle them.
    /// - Adaptors, and engines of other kinds, have locks of their own.
    /// - What threads that are not in the child had cached is used by the next thread with their slot, or
    ///   released by a trim. There is no [`Maintenance`](super::Maintenance) thread in the child.
    ///
    /// # Errors
    ///
    /// [`Error::ForkHandlers`] if the system registers no more handlers.
    pub fn hold_over_forks(&self) -> Result<()> {
        #[cfg(all(unix, not(loom)))]
        // SAFETY: an engine behind a handle does not move.
        unsafe { self.begin_forks() }?;
        Ok(())
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
                // SAFETY: it came from this backing and was not released before. Blocks keep their engine
                // alive, so no block is live when it is dropped.
                unsafe { removed.release(&self.backing) };
            }
        });
    }
}
