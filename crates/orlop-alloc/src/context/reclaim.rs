//! Budgets, callbacks, and the climb up the reclaim ladder.

use super::budget::{Accounts, Budget, Gate, Standing};
use super::ladder::{LadderStep, Pressure, PressureCallback, PressureId, StepCount};
use super::routes::DeviceRoutes;
use super::{Context, Inner, map};
use crate::observer::{Event, observe};
use crate::shield::{report, shielded};
use crate::{Allocator, AllocatorRef, Block, Error, OutOfMemory, Refusal, Request, Result, Tag};
use orlop_core::{Device, MemoryKind};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Called by a gate when a request passes a soft budget: with the request, and by how many bytes.
#[derive(Clone)]
pub(super) struct SoftHook(Arc<Call>);

type Call = dyn Fn(&Request, u64) + Send + Sync;

impl SoftHook {
    pub(super) fn call(&self, request: &Request, over: u64) {
        (self.0)(request, over);
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
    kinds: [Vec<(PressureId, PressureCallback)>; MemoryKind::COUNT],
    /// How many there ever were.
    made: u64,
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

/// What is held on a device, to be compared with what is held later.
#[derive(Debug, Clone, Copy)]
struct Held {
    live: u64,
    reserved: u64,
}

impl Held {
    /// How much less it is now: blocks that went back can be used again whether or not the memory went back too.
    fn less(self, now: Self) -> u64 {
        self.live.saturating_sub(now.live).max(self.reserved.saturating_sub(now.reserved))
    }

    /// What all allocators that are counted hold of one device.
    fn of(routes: &DeviceRoutes) -> Self {
        let mut held = Self { live: 0, reserved: 0 };
        for (_, _, stats) in map::figures(routes) {
            held.live = held.live.saturating_add(stats.live());
            held.reserved = held.reserved.saturating_add(stats.usage.reserved);
        }
        held
    }
}

impl Inner {
    /// Runs the kind's callbacks, in the order they were registered, until they freed enough; the bytes that is, as
    /// `measure` says. Nothing from inside of one: a callback may allocate, and must not find itself called for that.
    fn run_callbacks(&self, pressure: &Pressure, measure: impl Fn() -> Held) -> u64 {
        let Some(_inside) = Inside::enter() else { return 0 };
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
            // A panic of the callback's is its own affair: the request, and the accounts, go on.
            if shielded(|| callback(pressure)).is_none() {
                report(|| tracing::error!(kind = %pressure.kind, "a pressure callback panicked"));
            }
            freed = before.less(measure());
        }
        freed
    }

    /// Runs the kind's callbacks because a budget was passed by `over` bytes. The bytes of the budget that are free because
    /// of that.
    pub(super) fn relieve(
        &self,
        routes: &DeviceRoutes,
        device: Device,
        kind: MemoryKind,
        tag: Tag,
        over: u64,
    ) -> u64 {
        let live = || routes.accounts().map_or(0, |accounts| accounts.standing(kind).live);
        self.run_callbacks(&Pressure { device, kind, tag, bytes: over }, || Held {
            live: live(),
            reserved: 0,
        })
    }

    pub(super) fn note(&self, step: LadderStep, kind: MemoryKind, bytes: u64) {
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
    /// [`Error::InvalidRequest`] for a host kind on another device; as for [`Context::allocator`].
    pub fn set_budget(&self, device: Device, kind: MemoryKind, budget: Budget) -> Result<()> {
        kind.check_on(device)?;
        // Makes the CPU's allocators, which the gates go before.
        self.device(device, kind)?;
        let _changing = self.changing();
        let routes = self.inner.routes.get_or_new(device);
        // Relaxed: as with the gates, a request that is under way may see the budget or not.
        self.inner.has_budgets.store(true, Ordering::Relaxed);
        let first = routes.accounts().is_none();
        let accounts = Arc::clone(routes.accounts_or_new());
        accounts.set(kind, budget);
        if first {
            // One gate for each allocator, so that kinds behind the same one stay so.
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

    /// Where `kind` stands on `device`; all zero if no budget was ever set there.
    #[must_use]
    pub fn standing(&self, device: Device, kind: MemoryKind) -> Standing {
        let routes = self.inner.routes.get(device);
        routes
            .and_then(|routes| routes.accounts().map(|accounts| accounts.standing(kind)))
            .unwrap_or_default()
    }

    /// Registers a callback that frees memory when `kind` needs some (X4): see [`Pressure`]. It stays until it is removed by
    /// the id, or the context goes.
    pub fn on_pressure(&self, kind: MemoryKind, callback: PressureCallback) -> PressureId {
        let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.made += 1;
        let id = PressureId(callbacks.made);
        callbacks.kinds[kind.index()].push((id, callback));
        id
    }

    /// Removes a callback; whether it was there. A request that is climbing the ladder just then may still call it.
    pub fn remove_on_pressure(&self, id: PressureId) -> bool {
        let removed = {
            let mut callbacks = self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = callbacks.kinds.iter_mut();
            all.find_map(|kind| {
                let index = kind.iter().position(|&(known, _)| known == id)?;
                Some(kind.remove(index))
            })
        };
        // Dropped here, without the lock: what it holds may do anything when it goes.
        removed.is_some()
    }

    /// How often each step of the ladder was taken so far, and what it brought.
    #[must_use]
    pub fn ladder(&self) -> [StepCount; LadderStep::ALL.len()] {
        self.inner.counts.read()
    }

    /// Puts a gate before an allocator, adds it to `routes` and returns it.
    pub(super) fn add_gate(
        &self,
        routes: &DeviceRoutes,
        upstream: AllocatorRef,
        accounts: &Arc<Accounts>,
    ) -> AllocatorRef {
        let device = upstream.device();
        // The gate belongs to the context's routes: a strong reference would be a circle.
        let context = Arc::downgrade(&self.inner);
        let over_soft = SoftHook(Arc::new(move |request: &Request, over| {
            if let Some(inner) = context.upgrade()
                && let Some(routes) = inner.routes.get(device)
            {
                let freed = inner.relieve(&routes, device, request.kind, request.tag, over);
                inner.note(LadderStep::Callbacks, request.kind, freed);
            }
        }));
        // Observers watch the allocator behind the gate, so that each block is reported once.
        let gate = Gate::new(upstream.clone(), Arc::clone(accounts), over_soft);
        let gate = AllocatorRef::new(gate).erase();
        routes.add_gate(upstream, gate.clone());
        gate
    }

    /// Tries every step for a request that did not fit, and `again` after each that brought something.
    #[cold]
    pub(super) fn climb(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        mut report: Box<OutOfMemory>,
        again: &dyn Fn() -> Result<Block>,
    ) -> Result<Block> {
        let (device, kind, tag) = (allocator.device(), request.kind, request.tag);
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
                    let own = routes.registered(kind).or(routes.registered(MemoryKind::Default));
                    let is_own = |other: &&AllocatorRef| own.is_some_and(|own| own.same_as(other));
                    routes
                        .counted()
                        .into_iter()
                        .filter(|other| !is_own(other))
                        .map(|other| other.trim(0))
                        .sum()
                }
                LadderStep::Callbacks if over_budget => self.inner.relieve(routes, device, kind, tag, needed),
                LadderStep::Callbacks => {
                    let pressure = Pressure { device, kind, tag, bytes: needed };
                    self.inner.run_callbacks(&pressure, || Held::of(routes))
                }
                LadderStep::Borrow if over_budget => {
                    routes.accounts().map_or(0, |accounts| accounts.borrow(kind, needed))
                }
                _ => continue,
            };
            self.inner.note(step, kind, bytes);
            tried.push((step, bytes));
            // What a callback frees elsewhere shows in no figure of ours, and may be what the backing lacked.
            let is_unseen = step == LadderStep::Callbacks && report.refusal == Refusal::Backing;
            if bytes == 0 && !is_unseen {
                continue;
            }
            match again() {
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
