//! Budgets, callbacks, and the steps of the reclaim ladder ([`Context::climb`]).

use super::budget::{Budget, BudgetAccounts, BudgetStatus};
use super::ladder::{Pressure, PressureCallback, PressureId, StepCount};
use super::routes::DeviceRoutes;
use super::{Context, Inner, map};
use orlop_alloc::Event;
use orlop_alloc::adaptor::{Charge, Charged};
use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Error, LadderStep, OutOfMemory, Refusal, Request, Result, Tag,
};
use orlop_core::{Device, MemoryKind};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

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
            let freed = inner.run_callbacks_for_budget(&routes, self.device, kind, request.tag, bytes);
            inner.note(LadderStep::Callbacks, kind, freed);
        }
    }
}

/// Callbacks by kind.
#[derive(Default)]
pub(super) struct Callbacks {
    kinds: [Vec<(PressureId, PressureCallback)>; MemoryKind::COUNT],
    /// The number of callbacks ever registered.
    made: u64,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.iter().map(Vec::len)).finish()
    }
}

thread_local! {
    /// Whether this thread is inside a callback: its allocations there run no callbacks.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as inside a callback until dropped.
struct CallbackGuard;

impl CallbackGuard {
    /// Returns `None` if the thread is inside a callback already.
    fn enter() -> Option<Self> {
        (!IN_CALLBACK.replace(true)).then_some(Self)
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        IN_CALLBACK.set(false);
    }
}

/// The live and reserved bytes of a device at one time.
#[derive(Debug, Clone, Copy)]
struct MemoryInUse {
    live: u64,
    reserved: u64,
}

impl MemoryInUse {
    /// Returns the bytes freed until `now`. Freed blocks count whether or not their memory was released.
    fn freed_until(self, now: Self) -> u64 {
        self.live.saturating_sub(now.live).max(self.reserved.saturating_sub(now.reserved))
    }

    /// Sums all allocators that are counted on a device.
    fn of(routes: &DeviceRoutes) -> Self {
        let mut held = Self { live: 0, reserved: 0 };
        for (_, _, stats) in map::stats_by_source(routes) {
            held.live = held.live.saturating_add(stats.live());
            held.reserved = held.reserved.saturating_add(stats.usage.reserved);
        }
        held
    }
}

impl Inner {
    /// Runs the kind's callbacks, in the order of their registration, until they freed enough. Returns the
    /// freed bytes by `measure`. Inside a callback it does nothing, because a callback may allocate and must
    /// not be called for that.
    fn run_callbacks(&self, pressure: &Pressure, measure: impl Fn() -> MemoryInUse) -> u64 {
        let Some(_guard) = CallbackGuard::enter() else { return 0 };
        let callbacks = {
            let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            callbacks.kinds[pressure.kind.index()].clone()
        };
        if callbacks.is_empty() {
            return 0;
        }
        let before = measure();
        let mut freed = 0;
        for (_, callback) in callbacks {
            if freed >= pressure.bytes {
                break;
            }
            // A panic of a callback must not disturb the request or the accounts.
            if guarded(|| callback(pressure)).is_none() {
                trace_guarded(|| tracing::error!(kind = %pressure.kind, "a pressure callback panicked"));
            }
            freed = before.freed_until(measure());
        }
        freed
    }

    /// Runs the kind's callbacks because a budget was exceeded by `over` bytes. Returns the bytes of budget
    /// that this freed.
    pub(super) fn run_callbacks_for_budget(
        &self,
        routes: &DeviceRoutes,
        device: Device,
        kind: MemoryKind,
        tag: Tag,
        over: u64,
    ) -> u64 {
        let live = || routes.accounts().map_or(0, |accounts| accounts.status(kind).live);
        self.run_callbacks(&Pressure { device, kind, tag, bytes: over }, || MemoryInUse {
            live: live(),
            reserved: 0,
        })
    }

    /// Reports a request that a budget refused, as an allocator's handle reports its own refusals: for each
    /// attempt.
    pub(super) fn report_refusal(&self, allocator: &AllocatorRef, request: &Request, error: &Error) {
        if let Error::OutOfMemory(report) = error {
            self.observers.observe(&Event::OutOfMemory { report });
        }
        self.observers.observe(&Event::RequestFailed { request, error, allocator: allocator.name() });
    }

    /// Reports that the ladder ended for a request with these refusals: to the observers of the context, and
    /// to those that were added to the allocator only.
    fn report_settled(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        refusals: &[u64],
        is_served: bool,
    ) {
        let event = Event::Settled { device: allocator.device(), request, refusals, is_served };
        let mut observers = self.observers.all();
        // The observers of an allocator watch it behind the gate.
        let behind = routes.behind_gate(allocator);
        for observer in behind.into_iter().chain([allocator]).flat_map(AllocatorRef::observers) {
            if !observers.iter().any(|known| Arc::ptr_eq(known, &observer)) {
                observers.push(observer);
            }
        }
        observers.iter().for_each(|observer| observer.notify(&event));
    }

    pub(super) fn note(&self, step: LadderStep, kind: MemoryKind, bytes: u64) {
        self.counts.add(step, bytes);
        self.observers.observe(&Event::Reclaimed { step, kind, bytes });
    }
}

impl Context {
    /// Sets the budget of `kind` on `device`. Blocks allocated before the first budget on the device are not
    /// charged: set budgets before use.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRequest`] for a host kind on another device; else as for [`Context::allocator`].
    pub fn set_budget(&self, device: Device, kind: MemoryKind, budget: Budget) -> Result<()> {
        kind.check_on(device)?;
        // Creates the CPU's allocators, because gates go in front of them.
        self.device(device, kind)?;
        let _changing = self.changing();
        let routes = self.inner.routes.get_or_new(device);
        // Relaxed: as with the gates, a request under way may miss the new budget.
        self.inner.has_budgets.store(true, Ordering::Relaxed);
        let first = routes.accounts().is_none();
        let accounts = Arc::clone(routes.accounts_or_new());
        accounts.set(kind, budget);
        if first {
            // One gate for each allocator, so that kinds with the same allocator still share one.
            for allocator in routes.distinct() {
                let gate = self.add_gate(&routes, allocator.clone(), &accounts);
                let serves =
                    |kind: &MemoryKind| routes.registered(*kind).is_some_and(|r| r.same_as(allocator));
                for kind in MemoryKind::ALL.into_iter().filter(serves) {
                    routes.serve(kind, gate.clone());
                }
            }
        }
        Ok(())
    }

    /// Returns the use of the budget of `kind` on `device`; all zero if none was ever set there.
    #[must_use]
    pub fn budget_status(&self, device: Device, kind: MemoryKind) -> BudgetStatus {
        let routes = self.inner.routes.get(device);
        routes.and_then(|routes| routes.accounts().map(|accounts| accounts.status(kind))).unwrap_or_default()
    }

    /// Registers a callback that frees memory when `kind` needs some: see [`Pressure`]. It stays until it is
    /// removed by the id, or the context is dropped.
    pub fn on_pressure(&self, kind: MemoryKind, callback: PressureCallback) -> PressureId {
        let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.made += 1;
        let id = PressureId(callbacks.made);
        callbacks.kinds[kind.index()].push((id, callback));
        id
    }

    /// Removes a callback. Returns `true` if it was registered. A request that is on the ladder at this
    /// moment may still call it.
    pub fn remove_on_pressure(&self, id: PressureId) -> bool {
        let removed = {
            let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = callbacks.kinds.iter_mut();
            all.find_map(|kind| {
                let index = kind.iter().position(|&(known, _)| known == id)?;
                Some(kind.remove(index))
            })
        };
        // Dropped here, without the lock: its destructor may run arbitrary code.
        removed.is_some()
    }

    /// Returns how often each step of the ladder was taken, and the bytes it freed.
    #[must_use]
    pub fn ladder(&self) -> [StepCount; LadderStep::ALL.len()] {
        self.inner.counts.read()
    }

    /// Puts a gate in front of an allocator, and adds it to `routes`. Returns the gate.
    pub(super) fn add_gate(
        &self,
        routes: &DeviceRoutes,
        upstream: AllocatorRef,
        accounts: &Arc<BudgetAccounts>,
    ) -> AllocatorRef {
        let (device, context) = (upstream.device(), Arc::downgrade(&self.inner));
        let accounts = GateAccounts { accounts: Arc::clone(accounts), device, context };
        // Observers watch the allocator behind the gate, so that each block is reported once.
        let gate = AllocatorRef::with_statistics(Gate::new(upstream.clone(), accounts), false).erase();
        routes.add_gate(upstream, gate.clone());
        gate
    }

    /// Takes the steps of the ladder for a request that did not fit, and calls `again` after each that freed
    /// something. Reports the outcome.
    #[cold]
    pub(super) fn climb(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        report: Box<OutOfMemory>,
        again: &dyn Fn() -> Result<Block>,
    ) -> Result<Block> {
        let mut refusals = vec![report.number];
        let result = self.climb_steps(routes, allocator, request, report, &mut || {
            let result = again();
            if let Err(Error::OutOfMemory(report)) = &result {
                refusals.push(report.number);
            }
            result
        });
        self.inner.report_settled(routes, allocator, request, &refusals, result.is_ok());
        result
    }

    fn climb_steps(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        mut report: Box<OutOfMemory>,
        again: &mut dyn FnMut() -> Result<Block>,
    ) -> Result<Block> {
        let (device, kind, tag) = (allocator.device(), request.kind, request.tag);
        let mut tried = Vec::new();
        // Borrowing may take several tries: only a retry shows what the engine grants for the request.
        let steps = LadderStep::ALL.into_iter().chain([LadderStep::Borrow; 2]);
        for step in steps {
            let needed = report.rounded as u64;
            let over_budget = report.refusal == Refusal::Budget;
            let bytes = match step {
                // A budget bounds live bytes. Giving cached memory back does not change those.
                LadderStep::OwnCache if !over_budget => allocator.trim(0),
                LadderStep::OtherCaches if !over_budget => {
                    let own = routes.registered(kind).or(routes.registered(MemoryKind::Default));
                    let is_own = |other: &&AllocatorRef| own.is_some_and(|own| own.same_as(other));
                    routes
                        .counted()
                        .into_iter()
                        .filter(|other| !is_own(other))
                        .map(|other| other.trim(0))
                        .sum()
                }
                LadderStep::Callbacks if over_budget => {
                    self.inner.run_callbacks_for_budget(routes, device, kind, tag, needed)
                }
                LadderStep::Callbacks => {
                    let pressure = Pressure { device, kind, tag, bytes: needed };
                    self.inner.run_callbacks(&pressure, || MemoryInUse::of(routes))
                }
                LadderStep::Borrow if over_budget => {
                    routes.accounts().map_or(0, |accounts| accounts.borrow(kind, needed))
                }
                _ => continue,
            };
            self.inner.note(step, kind, bytes);
            tried.push((step, bytes));
            // A callback may free memory elsewhere, which no statistics here show, and which the backing may
            // have lacked.
            let is_unseen = step == LadderStep::Callbacks && report.refusal == Refusal::Backing;
            if bytes == 0 && !is_unseen {
                // Without a loan the next try would not get one either.
                if step == LadderStep::Borrow {
                    break;
                }
                continue;
            }
            match again() {
                Err(Error::OutOfMemory(again)) => report = again,
                result => return result,
            }
        }
        report.tried = tried;
        Err(Error::OutOfMemory(report))
    }
}
