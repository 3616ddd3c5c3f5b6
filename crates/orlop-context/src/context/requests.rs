//! Requests: to the allocator that serves a kind, or to one of the caller. And growth of blocks.

use super::Context;
use super::budget::BudgetAccounts;
use super::gate::Gate;
use super::observe::AddedObservers;
use super::routes::DeviceRoutes;
use orlop_alloc::engine_support::ContextHandle as _;
use orlop_alloc::{
    Allocator as _, AllocatorRef, Block, Error, LadderStep, MemoryBlock, Refusal, Request, Result,
};
use orlop_core::Device;
use std::sync::atomic::Ordering;

impl Context {
    /// Allocates a block for `request.kind` on `device`. If memory is short, the reclaim ladder is tried.
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocator`], and [`Error::OutOfMemory`] with the steps that were tried.
    #[inline]
    pub fn allocate(&self, device: Device, request: &Request) -> Result<Block> {
        if let Some(allocator) = self.inner.routes.place(device).and_then(|routes| routes.get(request.kind)) {
            let result = allocator.allocate_ungated(request);
            if result.is_ok() || !request.retry {
                return result;
            }
            return self.after_failure(result, device, allocator, request, &|| true);
        }
        self.allocate_slow(device, request, &|| true)
    }

    /// [`Context::allocate`] for memory that a callback of the reclaim ladder may make unnecessary, such as
    /// that of a copy whose other owner goes. The ladder ends, with the error of the last refusal, as soon as
    /// `is_needed` returns `false`.
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocate`].
    pub fn allocate_while(
        &self,
        device: Device,
        request: &Request,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        self.allocate_slow(device, request, is_needed)
    }

    /// Allocates a block for `request.kind` on `device` only if the calling thread has one cached there, as
    /// it has for most requests in a steady state. Otherwise use [`Context::allocate`].
    #[inline]
    pub fn allocate_cached(&self, device: Device, request: &Request) -> Option<Block> {
        self.inner.routes.place(device)?.get(request.kind)?.allocate_cached(request)
    }

    /// The path for devices in the map, and for devices without a registered allocator.
    #[cold]
    fn allocate_slow(
        &self,
        device: Device,
        request: &Request,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        let routes = self.device(device, request.kind)?;
        let Some(allocator) = routes.get(request.kind) else {
            request.kind.check_on(device)?;
            return Err(Error::NoAllocator { device, kind: request.kind });
        };
        self.after_failure(allocator.allocate_ungated(request), device, allocator, request, is_needed)
    }

    #[cold]
    fn after_failure(
        &self,
        result: Result<Block>,
        device: Device,
        allocator: &AllocatorRef,
        request: &Request,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        match result {
            Err(Error::OutOfMemory(report)) if request.retry => {
                let routes = self.device(device, request.kind)?;
                self.run_ladder(
                    &routes,
                    allocator,
                    request,
                    report,
                    &|| allocator.allocate_ungated(request),
                    is_needed,
                )
            }
            result => result,
        }
    }

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
        self.allocate_from_while(allocator, request, &|| true)
    }

    /// [`Context::allocate_from`] for memory that a callback may make unnecessary: see
    /// [`Context::allocate_while`].
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocate_from`].
    #[inline]
    pub fn allocate_from_while(
        &self,
        allocator: &AllocatorRef,
        request: &Request,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        if allocator.context_number() != self.inner.id.number() {
            self.note_explicit(allocator);
        }
        if !self.inner.has_budgets.load(Ordering::Relaxed) {
            return allocator.allocate_ungated(request);
        }
        self.allocate_in_budget(allocator, request, is_needed)
    }

    /// Grows a block in place so that it has at least `bytes` bytes. Returns `false` if it cannot grow, or
    /// has other owners. The difference is charged to the budget. If that has no room for it, the steps of
    /// the ladder that free budget are taken.
    #[must_use = "if not, the block is as it was"]
    pub fn grow_in_place(&self, block: &mut MemoryBlock, bytes: usize) -> bool {
        if block.requested >= bytes {
            return true;
        }
        let Some(routes) = self.inner.routes.get(block.device) else {
            return block.grow_in_place(bytes);
        };
        if grow_in_budget(&routes, block, bytes) {
            return true;
        }
        let (Some(accounts), Some(more)) = (routes.accounts(), Gate::growth(block.granted, bytes)) else {
            return false;
        };
        let (device, kind, missing) = (block.device, block.kind, accounts.missing(block.kind, more));
        if missing == 0 || !block.is_unique() {
            return false;
        }
        let freed = self.inner.run_callbacks_for_budget(&routes, device, kind, block.tag, missing, &|| true);
        self.inner.note(LadderStep::Callbacks, kind, freed);
        if freed > 0 && grow_in_budget(&routes, block, bytes) {
            return true;
        }
        let lent = accounts.borrow(kind, more);
        let is_grown = lent > 0 && grow_in_budget(&routes, block, bytes);
        if is_grown {
            self.inner.note(LadderStep::Borrow, kind, lent);
        } else {
            accounts.repay(kind);
        }
        is_grown
    }

    #[cold]
    fn note_explicit(&self, allocator: &AllocatorRef) {
        let routes = self.inner.routes.get_or_new(allocator.device());
        let mut added = AddedObservers::default();
        let prepare = || {
            // Serving allocators are counted as such, and so are adaptors over a budget gate.
            if routes.registration_of(allocator).is_some() || routes.is_over_gate(allocator) {
                added.keep(allocator, &[]);
                return None;
            }
            self.add_observers(&routes, allocator, &mut added);
            let is_bounded = routes.accounts().is_some();
            if is_bounded {
                added.delivery.append(routes.explicit.watch(allocator));
            }
            routes.explicit.prepare(allocator, is_bounded)
        };
        self.change(prepare, |new| {
            allocator.set_context_number(self.inner.id.number());
            new.as_ref().map(|new| routes.explicit.add(new))
        });
    }

    #[cold]
    fn allocate_in_budget(
        &self,
        allocator: &AllocatorRef,
        request: &Request,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        let routes = self.inner.routes.get_or_new(allocator.device());
        let Some(accounts) = routes.accounts() else { return allocator.allocate_ungated(request) };
        // The allocator is behind a gate, or is a gate.
        let serving = routes.registration_of(allocator);
        let allocate = || match serving {
            Some(serving) => serving.allocate(request),
            None if routes.is_over_gate(allocator) => allocator.allocate_ungated(request),
            None => self.allocate_charged(&routes, accounts, allocator, request),
        };
        match allocate() {
            Err(Error::OutOfMemory(report)) if request.retry && report.refusal == Refusal::Budget => {
                self.run_ladder(&routes, allocator, request, report, &allocate, is_needed)
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
        routes.explicit.check_watched(allocator);
        if accounts.charge(request.kind, bytes).is_none() {
            return Err(self.refuse(accounts, allocator, request, bytes));
        }
        let result = allocator.allocate_ungated(request);
        // From here on the allocator's own statistics include it.
        accounts.discharge(request.kind, bytes);
        let block = result?;
        let granted = block.capacity() as u64;
        if granted > bytes && accounts.is_exceeded(request.kind) {
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
                &|| true,
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

/// Grows a block in place if the budget has room for the difference.
fn grow_in_budget(routes: &DeviceRoutes, block: &mut MemoryBlock, bytes: usize) -> bool {
    let (kind, granted, is_from_gate) = (block.kind, block.granted, routes.is_from_gate(block));
    let mut grow = || block.grow_in_place(bytes);
    let Some(accounts) = routes.accounts().filter(|_| !is_from_gate) else {
        // Blocks from a gate are charged there.
        return grow();
    };
    let Some(more) = Gate::growth(granted, bytes) else { return false };
    if accounts.charge(kind, more).is_none() {
        return false;
    }
    let is_grown = grow();
    // From here on the allocator's own statistics include it.
    accounts.discharge(kind, more);
    is_grown
}
