//! Explicit allocators: those passed for single requests, such as an arena. They are counted, and bounded by
//! the budgets.
//!
//! A context registers such an allocator when [`Context::allocate_from`] first receives it, and keeps a weak
//! handle: its memory is counted as long as it exists, and no longer. All its live blocks count, as with
//! registered allocators; if two contexts get the same allocator, both count it.
//!
//! An allocator that is or was registered here after budgets were set has a gate. The gate also charges it
//! when it is passed explicitly: its own statistics would count the live blocks of the gate a second time.
//!
//! Other explicit allocators need no gate, and no charge for each block: their live bytes are read from their
//! own statistics when a request is charged ([`BudgetAccounts`](super::budget::BudgetAccounts)). During an
//! allocation the request itself is charged, so that two threads cannot exceed a bound together.

use super::Context;
use super::budget::BudgetAccounts;
use super::reclaim::Gate;
use super::routes::DeviceRoutes;
use orlop_alloc::{
    Allocator as _, AllocatorRef, Block, Error, LadderStep, MemoryBlock, Refusal, RegionDelivery, Request,
    Result, WeakAllocator,
};
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
    fn note(&self, allocator: &AllocatorRef) -> Vec<AllocatorRef> {
        let mut list = self.list();
        list.retain(|known| !known.allocator.is_gone());
        if list.iter().any(|known| known.allocator.is_of(allocator)) {
            return Vec::new();
        }
        let new = allocator.downgrade();
        for known in list.iter_mut().filter(|known| known.allocator.is_over(allocator)) {
            known.over.get_or_insert_with(|| new.clone());
        }
        let others: Vec<_> = list.iter().filter_map(|known| known.allocator.upgrade()).collect();
        let over = others.iter().find(|&other| allocator.is_over(other)).map(AllocatorRef::downgrade);
        list.push(ExplicitAllocator { allocator: new, over });
        // Release is not required: a thread that sees the flag reads the list under its lock.
        self.any.store(true, Ordering::Release);
        others
    }

    /// Removes an allocator that is counted in another way from now on.
    pub(super) fn forget(&self, allocator: &AllocatorRef) {
        let mut list = self.list();
        list.retain(|known| !known.allocator.is_of(allocator));
        for known in &mut *list {
            known.over.take_if(|over| over.is_of(allocator));
        }
    }

    /// Returns weak handles to all allocators in the list.
    pub(super) fn all(&self) -> Vec<WeakAllocator> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.list().iter().map(|known| known.allocator.clone()).collect()
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

impl Context {
    /// Allocates a block from `allocator`, such as an arena, instead of from the allocator that serves the
    /// kind. From now on and as long as it exists, its memory counts in [`Context::stats`] and
    /// [`Context::memory_map`]; the context's observers observe it; and the budgets of the context apply.
    ///
    /// Budgets read the allocator's live bytes from its own statistics. An allocator [without
    /// statistics](AllocatorRef::with_statistics) has none: each request is bounded, but its live blocks do
    /// not count. [Register](Context::register) such an allocator if it should count against budgets.
    ///
    /// The context does not keep the allocator alive.
    ///
    /// # Errors
    ///
    /// Those of the allocator; [`Error::OutOfMemory`] with [`Refusal::Budget`] if a budget would be exceeded
    /// even after callbacks and loans.
    #[inline]
    pub fn allocate_from(&self, allocator: &AllocatorRef, request: &Request) -> Result<Block> {
        if !allocator.is_noted_by(self.inner.number) {
            self.note_explicit(allocator);
        }
        if !self.inner.has_budgets.load(Ordering::Relaxed) {
            return allocator.allocate(request);
        }
        self.allocate_in_budget(allocator, request)
    }

    /// Grows a block in place so that it has at least `bytes` bytes. Returns `false` if it cannot grow, or
    /// has other owners. The difference is charged to the budget, which may refuse it. No memory is reclaimed
    /// for it: the caller can allocate another block instead.
    #[must_use = "if not, the block is as it was"]
    pub fn grow_in_place(&self, block: &mut MemoryBlock, bytes: usize) -> bool {
        if block.requested >= bytes {
            return true;
        }
        let (kind, granted) = (block.kind, block.granted);
        let routes = self.inner.routes.get(block.device);
        // Blocks from a gate are charged there.
        let routes = routes.as_ref().filter(|routes| !routes.is_from_gate(block));
        let Some(accounts) = routes.and_then(|routes| routes.accounts()) else {
            return block.grow_in_place(bytes);
        };
        let Some(more) = Gate::growth(granted, bytes) else { return false };
        if accounts.charge(kind, more).is_none() {
            return false;
        }
        let grown = block.grow_in_place(bytes);
        // From here on the allocator's own statistics include it.
        accounts.discharge(kind, more);
        grown
    }

    #[cold]
    fn note_explicit(&self, allocator: &AllocatorRef) {
        let changing = self.changing();
        let routes = self.inner.routes.get_or_new(allocator.device());
        let (mut delivery, mut others) = (RegionDelivery::default(), Vec::new());
        // Serving allocators are counted as such, and so are adaptors over a budget gate.
        if routes.registration_of(allocator).is_none() && !routes.is_over_gate(allocator) {
            others = routes.explicit.note(allocator);
            delivery = self.inner.observers.add_to(allocator);
        }
        allocator.set_noted_by(self.inner.number);
        drop(changing);
        drop(others);
        drop(delivery);
    }

    #[cold]
    fn allocate_in_budget(&self, allocator: &AllocatorRef, request: &Request) -> Result<Block> {
        let routes = self.inner.routes.get_or_new(allocator.device());
        let Some(accounts) = routes.accounts() else { return allocator.allocate(request) };
        // The allocator is behind a gate, or is a gate.
        let serving = routes.registration_of(allocator);
        let allocate = || match serving {
            Some(serving) => serving.allocate(request),
            None if routes.is_over_gate(allocator) => allocator.allocate(request),
            None => self.allocate_charged(&routes, accounts, allocator, request),
        };
        match allocate() {
            Err(Error::OutOfMemory(report)) if request.retry && report.refusal == Refusal::Budget => {
                self.climb(&routes, allocator, request, report, &allocate)
            }
            result => result,
        }
    }

    fn allocate_charged(
        &self,
        routes: &DeviceRoutes,
        accounts: &BudgetAccounts,
        allocator: &AllocatorRef,
        request: &Request,
    ) -> Result<Block> {
        let bytes = request.bytes as u64;
        if accounts.charge(request.kind, bytes).is_none() {
            return Err(self.refuse(accounts, allocator, request, bytes));
        }
        let result = allocator.allocate(request);
        // From here on the allocator's own statistics include it.
        accounts.discharge(request.kind, bytes);
        let block = result?;
        let granted = block.capacity() as u64;
        if granted > bytes && accounts.is_over(request.kind) {
            drop(block);
            return Err(self.refuse(accounts, allocator, request, granted));
        }
        let over = accounts.over_soft(request.kind);
        if over > 0 {
            let freed = self.inner.run_callbacks_for_budget(
                routes,
                allocator.device(),
                request.kind,
                request.tag,
                over,
            );
            self.inner.note(LadderStep::Callbacks, request.kind, freed);
        }
        Ok(block)
    }
    #[cold]
    fn refuse(
        &self,
        accounts: &BudgetAccounts,
        allocator: &AllocatorRef,
        request: &Request,
        bytes: u64,
    ) -> Error {
        let error = accounts.refuse(allocator, request, bytes);
        self.inner.report_refusal(allocator, request, &error);
        error
    }
}
