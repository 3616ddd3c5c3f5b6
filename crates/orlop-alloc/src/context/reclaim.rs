//! Budgets, callbacks, and the climb up the reclaim ladder.

use super::budget::{Accounts, Budget, Gate, Standing};
use super::ladder::{LadderStep, Pressure, PressureCallback, StepCount};
use super::routes::DeviceRoutes;
use super::{Context, Inner};
use crate::observer::{Event, observe};
use crate::{Allocator, AllocatorRef, Block, Error, OutOfMemory, Refusal, Request, Result};
use orlop_core::{Device, MemoryKind};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// Called by a gate when a soft budget is passed: with the kind, and by how many bytes.
#[derive(Clone)]
pub(super) struct SoftHook(Arc<dyn Fn(MemoryKind, u64) + Send + Sync>);

impl SoftHook {
    pub(super) fn call(&self, kind: MemoryKind, over: u64) {
        (self.0)(kind, over);
    }
}

impl fmt::Debug for SoftHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SoftHook")
    }
}

/// Callbacks by kind.
#[derive(Default)]
pub(super) struct Callbacks {
    kinds: [Vec<PressureCallback>; MemoryKind::COUNT],
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.iter().map(Vec::len)).finish()
    }
}

thread_local! {
    /// Whether this thread is inside a callback: what it allocates there does not call again.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Says that the thread is inside a callback, until dropped.
struct Inside;

impl Inside {
    /// `None` if it is already.
    fn enter() -> Option<Self> {
        (!INSIDE.replace(true)).then_some(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Inner {
    /// Runs the kind's callbacks, in the order they were registered, until they freed enough. Nothing from
    /// inside of one: a callback may allocate, and must not find itself called for that.
    fn run_callbacks(&self, pressure: &Pressure) -> u64 {
        let Some(_inside) = Inside::enter() else { return 0 };
        let callbacks = {
            let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            callbacks.kinds[pressure.kind.index()].clone()
        };
        let mut freed = 0u64;
        for callback in callbacks {
            if freed >= pressure.bytes {
                break;
            }
            // A panic of the callback's is its own affair: the request, and the accounts, go on.
            let bytes = catch_unwind(AssertUnwindSafe(|| callback(pressure)));
            if bytes.is_err() {
                tracing::error!(kind = %pressure.kind, "a pressure callback panicked");
            }
            freed = freed.saturating_add(bytes.unwrap_or(0));
        }
        freed
    }

    fn note(&self, step: LadderStep, kind: MemoryKind, bytes: u64) {
        self.counts.add(step, bytes);
        if let Some(observer) = self.observer.get() {
            observe(&**observer, &Event::Reclaimed { step, kind, bytes });
        }
    }
}

impl Context {
    /// Bounds what `kind` may hold on `device`. Blocks handed out before the first budget on the device are
    /// not charged: set budgets before use.
    ///
    /// # Errors
    ///
    /// [`Error::Words`] for a host kind on another device; as for [`Context::allocator`].
    pub fn set_budget(&self, device: Device, kind: MemoryKind, budget: Budget) -> Result<()> {
        kind.check_on(device)?;
        // Makes the CPU's allocators, which the gates go before.
        self.device(device)?;
        let _changing = self.changing();
        let routes = self.inner.routes.get_or_new(device);
        let first = routes.accounts().is_none();
        let accounts = Arc::clone(routes.accounts_or_new());
        accounts.set(kind, budget);
        if first {
            // One gate for each allocator, so that kinds behind the same one stay so.
            for allocator in routes.distinct() {
                let gate = self.gated(allocator.clone(), &accounts);
                let serves =
                    |kind: &MemoryKind| routes.registered(*kind).is_some_and(|r| r.same_as(allocator));
                for kind in MemoryKind::ALL.into_iter().filter(serves) {
                    routes.serve(kind, gate.clone());
                }
            }
        }
        Ok(())
    }

    /// Where `kind` stands on `device`; all zero if no budget was ever set there.
    #[must_use]
    pub fn standing(&self, device: Device, kind: MemoryKind) -> Standing {
        let routes = self.inner.routes.get(device);
        routes
            .and_then(|routes| routes.accounts().map(|accounts| accounts.standing(kind)))
            .unwrap_or_default()
    }

    /// Registers a callback that frees memory when `kind` needs some (X4).
    pub fn on_pressure(&self, kind: MemoryKind, callback: PressureCallback) {
        let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.kinds[kind.index()].push(callback);
    }

    /// How often each step of the ladder was taken so far, and what it brought.
    #[must_use]
    pub fn ladder(&self) -> [StepCount; LadderStep::ALL.len()] {
        self.inner.counts.read()
    }

    /// Puts a gate before an allocator.
    pub(super) fn gated(&self, upstream: AllocatorRef, accounts: &Arc<Accounts>) -> AllocatorRef {
        let device = upstream.device();
        // The gate belongs to the context's routes: a strong reference would be a circle.
        let context = Arc::downgrade(&self.inner);
        let over_soft = SoftHook(Arc::new(move |kind, bytes| {
            if let Some(inner) = context.upgrade() {
                let freed = inner.run_callbacks(&Pressure { device, kind, bytes });
                inner.note(LadderStep::Callbacks, kind, freed);
            }
        }));
        // Observers watch the allocator behind the gate: a block is told of once.
        AllocatorRef::new(Gate::new(upstream, Arc::clone(accounts), over_soft)).erase()
    }

    /// Tries every step for a request that did not fit.
    #[cold]
    pub(super) fn climb(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        mut report: Box<OutOfMemory>,
    ) -> Result<Block> {
        let device = allocator.device();
        let mut tried = Vec::new();
        // Borrowing may take more than one try: only the first retry shows what the engine grants for the request.
        let steps = LadderStep::ALL.into_iter().chain([LadderStep::Borrow; 2]);
        for step in steps {
            let needed = report.rounded as u64;
            let over_budget = report.refusal == Refusal::Budget;
            let bytes = match step {
                // Caches are not live memory: giving them back does not help a budget.
                LadderStep::OwnCache if !over_budget => allocator.trim(0),
                LadderStep::OtherCaches if !over_budget => {
                    let own = routes.registered(request.kind).or(routes.registered(MemoryKind::Default));
                    let is_own = |other: &&AllocatorRef| own.is_some_and(|own| own.same_as(other));
                    routes
                        .distinct()
                        .into_iter()
                        .filter(|other| !is_own(other))
                        .map(|other| other.trim(0))
                        .sum()
                }
                LadderStep::Callbacks => {
                    let pressure = Pressure { device, kind: request.kind, bytes: needed };
                    self.inner.run_callbacks(&pressure)
                }
                LadderStep::Borrow if over_budget => {
                    routes.accounts().map_or(0, |accounts| accounts.borrow(request.kind, needed))
                }
                _ => continue,
            };
            self.inner.note(step, request.kind, bytes);
            tried.push((step, bytes));
            if bytes == 0 {
                continue;
            }
            match allocator.allocate(request) {
                Err(Error::OutOfMemory(again)) => report = again,
                result => return result,
            }
        }
        report.tried = tried;
        if report.refusal == Refusal::Budget {
            // Other refusals were told of by the allocator that gave them.
            if let Some(observer) = self.inner.observer.get() {
                observe(&**observer, &Event::OutOfMemory { report: &report });
            }
        }
        Err(Error::OutOfMemory(report))
    }
}
