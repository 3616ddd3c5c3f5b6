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
//! own statistics when a request is charged ([`BudgetAccounts`](super::budget::BudgetAccounts)). During an
//! allocation the request itself is charged, so that two threads cannot exceed a bound together.

use orlop_alloc::{Allocator as _, AllocatorRef, engine_support::WeakAllocator};
use orlop_core::MemoryKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The explicit allocators of one device.
#[derive(Debug, Default)]
pub(super) struct ExplicitAllocators {
    /// Whether there ever was one.
    any: AtomicBool,
    list: Mutex<Vec<ExplicitAllocator>>,
}

/// An allocator that was passed for a request.
#[derive(Debug)]
struct ExplicitAllocator {
    allocator: WeakAllocator,
    /// An explicit allocator whose blocks this one hands out: they are charged there.
    over: Option<WeakAllocator>,
}

impl ExplicitAllocators {
    fn list(&self) -> MutexGuard<'_, Vec<ExplicitAllocator>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an allocator that is not in the list, and removes those that are gone. Returns handles to be
    /// dropped with no lock held: any of them may be the last one by then.
    #[must_use = "to be dropped with no lock held"]
    pub(super) fn note(&self, allocator: &AllocatorRef) -> Vec<AllocatorRef> {
        let mut list = self.list();
        list.retain(|known| !known.allocator.is_destroyed());
        if list.iter().any(|known| known.allocator.refers_to(allocator)) {
            return Vec::new();
        }
        let new = allocator.downgrade();
        for known in list.iter_mut().filter(|known| known.allocator.wraps(allocator)) {
            known.over.get_or_insert_with(|| new.clone());
        }
        let others: Vec<_> = list.iter().filter_map(|known| known.allocator.upgrade()).collect();
        let over = others.iter().find(|&other| allocator.wraps(other)).map(AllocatorRef::downgrade);
        list.push(ExplicitAllocator { allocator: new, over });
        // Release is not required: a thread that sees the flag reads the list under its lock.
        self.any.store(true, Ordering::Release);
        others
    }

    /// Removes an allocator that is counted in another way from now on.
    pub(super) fn forget(&self, allocator: &AllocatorRef) {
        let mut list = self.list();
        list.retain(|known| !known.allocator.refers_to(allocator));
        for known in &mut *list {
            known.over.take_if(|over| over.refers_to(allocator));
        }
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

    /// Returns live bytes by kind.
    pub(super) fn live(&self) -> [u64; MemoryKind::COUNT] {
        let mut live = [0u64; MemoryKind::COUNT];
        if self.any.load(Ordering::Acquire) {
            let list = self.list();
            let charged = list.iter().filter(|known| known.over.is_none());
            for totals in charged.filter_map(|known| known.allocator.totals()) {
                for (sum, account) in live.iter_mut().zip(&totals.kinds) {
                    *sum = sum.saturating_add(account.live_bytes);
                }
            }
        }
        live
    }
}
