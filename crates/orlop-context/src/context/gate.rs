//! Budget gates, and the budgets that they charge.

use super::budget::{Budget, BudgetAccounts, BudgetStatus};
use super::{Context, Inner};
use orlop_alloc::engine_support::{Charge, Charged, ContextHandle as _, RegionDelivery};
use orlop_alloc::{Allocator, AllocatorRef, Error, LadderStep, Request, Result};
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A budget gate: an allocator in front of a registered one that charges what passes to the budgets of the
/// device.
pub(super) type Gate = Charged<GateAccounts>;

/// The budgets that a gate charges.
pub(super) struct GateAccounts {
    accounts: Arc<BudgetAccounts>,
    device: Device,
    /// Weak, because the gate belongs to the context's routes: a strong reference would be a cycle.
    context: Weak<Inner>,
}

impl fmt::Debug for GateAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.accounts.fmt(f)
    }
}

impl Charge for GateAccounts {
    fn charge(&self, kind: MemoryKind, bytes: u64) -> Option<u64> {
        self.accounts.charge(kind, bytes)
    }

    fn discharge(&self, kind: MemoryKind, bytes: u64) {
        self.accounts.discharge(kind, bytes);
    }

    fn correct(&self, kind: MemoryKind, charged: u64, needed: u64) {
        self.accounts.correct(kind, charged, needed);
    }

    fn refuse(&self, upstream: &AllocatorRef, request: &Request, bytes: u64) -> Error {
        let error = self.accounts.refuse(upstream, request, bytes);
        if let Some(inner) = self.context.upgrade() {
            inner.report_refusal(upstream, request, &error);
        }
        error
    }

    fn exceeded(&self, request: &Request, bytes: u64) {
        if let Some(inner) = self.context.upgrade()
            && let Some(routes) = inner.routes.get(self.device)
        {
            let kind = request.kind;
            let (device, tag) = (self.device, request.tag);
            let freed = inner.run_callbacks_for_budget(&routes, device, kind, tag, bytes, &|| true);
            inner.note(LadderStep::Callbacks, kind, freed);
        }
    }
}

impl Context {
    /// Sets the budget of `kind` on `device`. Blocks allocated before the first budget on the device are not
    /// charged: set budgets before use. Requests by handles that were taken before are bounded and charged;
    /// those of adaptors that were put over such a handle before are not.
    ///
    /// An allocator that several contexts use is bounded by each of them for its own requests. Requests by
    /// handles of it are bounded by the one that set a budget first.
    ///
    /// An allocator that is passed for single requests ([`Context::allocate_from`]) is observed from then on,
    /// as long as the context exists: its allocations and frees do not take its fastest path.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRequest`] for a host kind on another device; else as for [`Context::allocator`].
    pub fn set_budget(&self, device: Device, kind: MemoryKind, budget: Budget) -> Result<()> {
        kind.check_on(device)?;
        // Creates the CPU's allocators, because gates go in front of them.
        self.device(device, kind)?;
        let routes = self.inner.routes.get_or_new(device);
        let (accounts, mut delivery) = (routes.new_accounts(), RegionDelivery::default());
        let prepare = || {
            if routes.accounts().is_some() {
                return Vec::new();
            }
            delivery.append(routes.explicit.watch_all());
            // One gate for each allocator, so that kinds with the same allocator still share one.
            routes.distinct().into_iter().map(|upstream| (upstream, self.gate(upstream, &accounts))).collect()
        };
        self.change(prepare, |gates| {
            let is_first = routes.accounts().is_none();
            routes.accounts_or(&accounts).set(kind, budget);
            // Relaxed: as with the gates, a request under way may miss the new budget.
            self.inner.has_budgets.store(true, Ordering::Relaxed);
            for (upstream, gate) in gates {
                routes.add_gate(upstream, gate);
                let serves =
                    |kind: &MemoryKind| routes.registered(*kind).is_some_and(|r| r.same_as(upstream));
                for kind in MemoryKind::ALL.into_iter().filter(serves) {
                    routes.serve(kind, gate.clone());
                }
            }
            is_first.then_some(())
        });
        Ok(())
    }

    /// Returns the use of the budget of `kind` on `device`; all zero if none was ever set there.
    #[must_use]
    pub fn budget_status(&self, device: Device, kind: MemoryKind) -> BudgetStatus {
        let routes = self.inner.routes.get(device);
        routes.and_then(|routes| routes.accounts().map(|accounts| accounts.status(kind))).unwrap_or_default()
    }

    /// Creates a gate for an allocator, for [`DeviceRoutes::add_gate`].
    pub(super) fn gate(&self, upstream: &AllocatorRef, accounts: &Arc<BudgetAccounts>) -> AllocatorRef {
        let (device, context) = (upstream.device(), Arc::downgrade(&self.inner));
        let accounts = GateAccounts { accounts: Arc::clone(accounts), device, context };
        // Observers watch the allocator behind the gate, so that each block is reported once.
        let gate =
            AllocatorRef::standing_for(Gate::new(upstream.clone(), accounts), upstream.clone()).erase();
        gate.set_context_number(self.id().number());
        gate
    }
}
