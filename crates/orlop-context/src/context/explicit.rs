//! Explicit allocators: those passed for single requests, such as an arena. They are counted, and bounded by
//! the budgets.
//!
//! A context registers such an allocator when [`Context::allocate_from`](super::Context::allocate_from) first
//! receives it, and keeps a weak handle: its memory is counted as long as it exists, and no longer. All its
//! live blocks count, as with registered allocators; if two contexts get the same allocator, both count it.
//!
//! An allocator that is or was registered here after budgets were set has a gate. The gate also charges it
//! when it is passed explicitly: its own statistics would count the live blocks of the gate a second time.
//!
//! Other explicit allocators need no gate, and no charge for each block: their live bytes are read from their
//! own statistics ([`BudgetAccounts`](super::budget::BudgetAccounts)). During an allocation the request
//! itself is charged, so that two threads cannot exceed a bound together.
//!
//! # When statistics are read
//!
//! There may be hundreds of explicit allocators, so their statistics are not read for each request. An
//! observer adds up what they allocate; with the live bytes at the last reading, that is an upper bound of
//! the live bytes. Frees are not subtracted. Statistics are read where the bound leaves no room.

use orlop_alloc::engine_support::{RegionDelivery, WeakAllocator};
use orlop_alloc::{Allocator as _, AllocatorRef, Event, Observer};
use orlop_core::MemoryKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The explicit allocators of one device.
#[derive(Debug, Default)]
pub(super) struct ExplicitAllocators {
    /// Whether there ever was one.
    any: AtomicBool,
    list: Mutex<Vec<ExplicitAllocator>>,
    allocated: Arc<AllocatedBytes>,
    /// The number of statistics read.
    #[cfg(test)]
    reads: std::sync::atomic::AtomicUsize,
}

/// Bytes that explicit allocators have allocated since their statistics were read, by kind.
#[derive(Debug, Default)]
struct AllocatedBytes([AtomicU64; MemoryKind::COUNT]);

impl AllocatedBytes {
    fn add(&self, kind: usize, bytes: u64) {
        // Release pairs with `take`: the allocator counts a block before it is reported.
        let add = |sum: u64| Some(sum.saturating_add(bytes));
        // The function always returns a sum.
        let _before = self.0[kind].fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }

    /// Sets the sums to zero and returns them.
    fn take(&self) -> [u64; MemoryKind::COUNT] {
        std::array::from_fn(|kind| self.0[kind].swap(0, Ordering::Acquire))
    }

    /// Makes the upper bound useless, so that the statistics are read next time.
    fn set_unknown(&self) {
        self.0.iter().for_each(|sum| sum.store(u64::MAX, Ordering::Release));
    }
}

impl Observer for AllocatedBytes {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } => self.add(block.kind.index(), block.granted as u64),
            Event::Grown { block, granted, .. } => {
                self.add(block.kind.index(), block.granted.saturating_sub(*granted) as u64);
            }
            _ => {}
        }
    }
}

/// An allocator that is not in the list yet.
#[derive(Debug)]
pub(super) struct NewExplicit {
    entry: ExplicitAllocator,
    /// Those in the list that hand out its blocks.
    adaptors: Vec<WeakAllocator>,
}

/// An allocator that was passed for a request.
#[derive(Debug, Clone)]
struct ExplicitAllocator {
    allocator: WeakAllocator,
    /// An explicit allocator whose blocks this one hands out: they are charged there.
    over: Option<WeakAllocator>,
    /// Whether the allocations since the last reading are known.
    is_watched: bool,
}

impl ExplicitAllocators {
    fn list(&self) -> MutexGuard<'_, Vec<ExplicitAllocator>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.allocated) as _
    }

    /// Starts to observe an allocator, which budgets bound. The result is to be dropped with no lock held.
    pub(super) fn watch(&self, allocator: &AllocatorRef) -> RegionDelivery {
        allocator.add_observer(self.observer())
    }

    /// Has the statistics read if the allocator is no longer observed: anyone can remove its observers.
    pub(super) fn check_watched(&self, allocator: &AllocatorRef) {
        if !allocator.has_observer(&self.observer()) {
            self.allocated.set_unknown();
        }
    }

    /// Starts to observe all allocators: there are budgets from now on. The result is to be dropped with no
    /// lock held.
    pub(super) fn watch_all(&self) -> RegionDelivery {
        let mut delivery = RegionDelivery::default();
        let handles = self.handles();
        handles.iter().for_each(|allocator| delivery.append(self.watch(allocator)));
        let is_watched = |weak: &WeakAllocator| handles.iter().any(|allocator| weak.refers_to(allocator));
        for known in &mut *self.list() {
            known.is_watched = is_watched(&known.allocator);
            self.allocated.set_unknown();
        }
        delivery
    }

    /// Returns what [`add`](Self::add) adds for an allocator that is not in the list. It calls the authors'
    /// code. `is_watched` says whether the allocator is observed already, so that no allocation is missed.
    /// One on another thread at the time when that begins may be, until the statistics are read.
    pub(super) fn prepare(&self, allocator: &AllocatorRef, is_watched: bool) -> Option<NewExplicit> {
        let known = self.all();
        if known.iter().any(|known| known.refers_to(allocator)) {
            return None;
        }
        let adaptors = known.iter().filter(|known| known.wraps(allocator)).cloned().collect();
        let others = known.iter().filter_map(WeakAllocator::upgrade);
        let over = others.into_iter().find(|other| allocator.wraps(other)).map(|other| other.downgrade());
        Some(NewExplicit {
            entry: ExplicitAllocator { allocator: allocator.downgrade(), over, is_watched },
            adaptors,
        })
    }

    /// Adds an allocator, and removes those that are gone.
    pub(super) fn add(&self, new: &NewExplicit) {
        let (entry, mut list) = (&new.entry, self.list());
        list.retain(|known| !known.allocator.is_destroyed());
        for known in list.iter_mut().filter(|known| new.adaptors.contains(&known.allocator)) {
            known.over.get_or_insert_with(|| entry.allocator.clone());
        }
        for (kind, account) in
            entry.allocator.totals().iter().flat_map(|totals| totals.kinds.iter().enumerate())
        {
            self.allocated.add(kind, account.live_bytes);
        }
        list.push(entry.clone());
        // Release is not required: a thread that sees the flag reads the list under its lock.
        self.any.store(true, Ordering::Release);
    }

    /// Removes an allocator that is counted in another way from now on. The result is to be dropped with no
    /// lock held.
    pub(super) fn forget(&self, allocator: &AllocatorRef) -> RegionDelivery {
        let mut list = self.list();
        list.retain(|known| !known.allocator.refers_to(allocator));
        for known in &mut *list {
            if known.over.take_if(|over| over.refers_to(allocator)).is_some() {
                // The adaptor counts from now on.
                self.allocated.set_unknown();
            }
        }
        drop(list);
        allocator.remove_observer(&self.observer())
    }

    /// Returns weak handles to all allocators in the list.
    pub(super) fn all(&self) -> Vec<WeakAllocator> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.list().iter().map(|known| known.allocator.clone()).collect()
    }

    /// Returns handles to those that still have one. Drop them with no lock held: the destructor of an
    /// allocator may run arbitrary code.
    #[must_use = "to be dropped with no lock held"]
    pub(super) fn handles(&self) -> Vec<AllocatorRef> {
        self.all().iter().filter_map(WeakAllocator::upgrade).collect()
    }

    /// Returns the bytes allocated, by kind, since this or [`live`](Self::live) was called last.
    pub(super) fn take_allocated(&self) -> [u64; MemoryKind::COUNT] {
        if self.any.load(Ordering::Acquire) { self.allocated.take() } else { Default::default() }
    }

    /// Reads the live bytes by kind.
    pub(super) fn live(&self) -> [u64; MemoryKind::COUNT] {
        let mut live = [0u64; MemoryKind::COUNT];
        if !self.any.load(Ordering::Acquire) {
            return live;
        }
        // First: an allocation meanwhile may count twice, but is not missed.
        self.allocated.take();
        let list = self.list();
        for known in &*list {
            if !known.is_watched && !known.allocator.is_destroyed() {
                self.allocated.set_unknown();
            }
            if known.over.is_some() {
                continue;
            }
            #[cfg(test)]
            self.reads.fetch_add(1, Ordering::Relaxed);
            let Some(totals) = known.allocator.totals() else { continue };
            for (sum, account) in live.iter_mut().zip(&totals.kinds) {
                *sum = sum.saturating_add(account.live_bytes);
            }
        }
        live
    }
}

impl Drop for ExplicitAllocators {
    fn drop(&mut self) {
        let observer = self.observer();
        for allocator in self.handles() {
            drop(allocator.remove_observer(&observer));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::AllocatorConfig;
    use crate::{Budget, Context};
    use orlop_alloc::backing::System;
    use orlop_alloc::engine::Arena;
    use orlop_alloc::{Allocator as _, Request};
    use orlop_core::{Device, MemoryKind};
    use std::sync::atomic::Ordering;

    /// The statistics read since the last call.
    fn reads(context: &Context) -> usize {
        let routes = context.inner.routes.get(Device::CPU);
        routes.map_or(0, |routes| routes.explicit.reads.swap(0, Ordering::Relaxed))
    }

    #[test]
    fn requests_with_room_read_no_statistics() {
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        let budget = Budget::hard(1 << 20).soft(1 << 20);
        context.set_budget(Device::CPU, MemoryKind::Default, budget).unwrap();
        let arenas: Vec<_> = (0..200).map(|_| Arena::new(System::new(), 4096).into_ref().erase()).collect();
        let held: Vec<_> =
            arenas.iter().map(|arena| context.allocate_from(arena, &Request::new(100)).unwrap()).collect();
        assert_eq!(reads(&context), 0);
        drop(context.allocate(Device::CPU, &Request::new(100)).unwrap());
        drop(context.allocate_from(&arenas[0], &Request::new(100)).unwrap());
        assert_eq!(reads(&context), 0);
        // Past the context, and freed again: what is allocated counts until the statistics are read.
        let beside = arenas[1].allocate(&Request::new(600_000)).unwrap();
        drop(beside);
        let request = Request::new(1000);
        drop(context.allocate(Device::CPU, &request).unwrap());
        assert_eq!(reads(&context), 0);
        let large = Request::new(600_000);
        drop(context.allocate_from(&arenas[2], &large).unwrap());
        assert_eq!(reads(&context), 200, "once for the request");
        let beside = arenas[1].allocate(&large).unwrap();
        assert!(context.allocate_from(&arenas[2], &large.no_retry()).is_err());
        reads(&context);
        let live = context.budget_status(Device::CPU, MemoryKind::Default).live;
        let blocks = held.iter().chain([&beside]);
        assert_eq!(live, blocks.map(|block| block.capacity() as u64).sum::<u64>());
    }

    #[test]
    fn allocators_whose_observers_were_removed_are_bounded() {
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        context.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(1 << 20)).unwrap();
        let arena = Arena::new(System::new(), 4096).into_ref().erase();
        let request = Request::new(600_000).no_retry();
        let _first = context.allocate_from(&arena, &Request::new(100)).unwrap();
        for observer in arena.observers() {
            drop(arena.remove_observer(&observer));
        }
        let _second = context.allocate_from(&arena, &request).unwrap();
        assert!(context.allocate_from(&arena, &request).is_err());
    }

    #[test]
    fn allocators_from_before_the_budget_are_bounded() {
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        let [kept, dropped] = [(); 2].map(|()| Arena::new(System::new(), 1 << 20).into_ref().erase());
        let request = Request::new(3000).no_retry();
        let [_first, second] = [&kept, &dropped].map(|arena| context.allocate_from(arena, &request).unwrap());
        drop(dropped);
        context.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(12_000)).unwrap();
        assert!(context.allocate_from(&kept, &request).is_ok());
        let _third = kept.allocate(&request).unwrap();
        assert!(context.allocate_from(&kept, &request.clone()).is_ok());
        // Grown in place, and no handle is left to observe it.
        let mut second = second.share();
        assert!(second.grow_in_place(6000));
        assert!(context.allocate_from(&kept, &request).is_err());
        assert!(kept.observers().len() == 1);
        drop(context);
        assert!(kept.observers().is_empty(), "the context observes it no more");
    }
}
