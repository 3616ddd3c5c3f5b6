//! The steps of the reclaim ladder ([`Context::run_ladder`]), and what is reported of it.

use super::budget::BudgetAccounts;
use super::ladder::{Pressure, StepCount};
use super::routes::DeviceRoutes;
use super::{Context, Inner, sum_bytes};
use orlop_alloc::engine_support::ContextHandle as _;
use orlop_alloc::{
    Allocator as _, AllocatorRef, Block, Error, Event, LadderStep, OutOfMemory, Refusal, Request, Result,
};
use orlop_core::MemoryKind;
use std::sync::Arc;

/// The maximum number of loans that are tried for a request.
const MAX_LOANS: usize = 3;

impl Inner {
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
        for observer in behind.into_iter().chain([allocator]).flat_map(AllocatorRef::shared_observers) {
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
    /// Returns how often each step of the ladder was taken, and the bytes it freed.
    #[must_use]
    pub fn ladder(&self) -> [StepCount; LadderStep::ALL.len()] {
        self.inner.counts.read()
    }

    /// Takes the steps of the ladder for a request that did not fit, and calls `again` after each that freed
    /// something. Ends early, with the last refusal, when `is_needed` returns `false`. Reports the outcome.
    #[cold]
    pub(super) fn run_ladder(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        report: Box<OutOfMemory>,
        again: &dyn Fn() -> Result<Block>,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        let mut refusals = vec![report.number];
        let mut again = || {
            let result = again();
            if let Err(Error::OutOfMemory(report)) = &result {
                refusals.push(report.number);
            }
            result
        };
        let result = self.run_ladder_steps(routes, allocator, request, report, &mut again, is_needed);
        let is_served = result.is_ok() || !is_needed();
        self.inner.report_settled(routes, allocator, request, &refusals, is_served);
        result
    }

    fn run_ladder_steps(
        &self,
        routes: &DeviceRoutes,
        allocator: &AllocatorRef,
        request: &Request,
        mut report: Box<OutOfMemory>,
        again: &mut dyn FnMut() -> Result<Block>,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Block> {
        let (device, kind, tag) = (allocator.device(), request.kind, request.tag);
        let mut tried = Vec::new();
        for step in LadderStep::ALL {
            let needed = report.rounded as u64;
            let over_budget = report.refusal == Refusal::Budget;
            let bytes = match step {
                // A budget bounds live bytes. Giving cached memory back does not change those.
                LadderStep::OwnCache if !over_budget => allocator.trim(0),
                LadderStep::OtherCaches if !over_budget => {
                    let own = routes.registered(kind).or(routes.registered(MemoryKind::Default));
                    let is_own = |other: &&AllocatorRef| own.is_some_and(|own| own.same_as(other));
                    let others = routes.counted().into_iter().filter(|other| !is_own(other));
                    sum_bytes(others.map(|other| other.trim(0)))
                }
                LadderStep::Callbacks if over_budget => {
                    self.inner.run_callbacks_for_budget(routes, device, kind, tag, needed, is_needed)
                }
                LadderStep::Callbacks => {
                    let pressure = Pressure { device, kind, tag, bytes: needed };
                    self.inner.run_callbacks_for_memory(routes, &pressure, is_needed)
                }
                LadderStep::Borrow if over_budget => {
                    let Some(accounts) = routes.accounts() else { continue };
                    let (lent, result) = try_with_loan(accounts, kind, &mut report, again);
                    self.inner.note(step, kind, lent);
                    tried.push((step, lent));
                    match result {
                        Some(result) => return result,
                        None => continue,
                    }
                }
                _ => continue,
            };
            self.inner.note(step, kind, bytes);
            tried.push((step, bytes));
            if step == LadderStep::Callbacks && !is_needed() {
                break;
            }
            // A callback may free memory elsewhere, which no statistics here show, and which the backing may
            // have lacked.
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
        Err(Error::OutOfMemory(report))
    }
}

/// Borrows budget for a request and tries again. Returns the bytes lent, and what the request gave if budget
/// no longer refuses it.
///
/// Only a retry shows what the engine grants for the request. A loan that was too small is repaid before a
/// larger one is taken, so that the last one is what was lent.
fn try_with_loan(
    accounts: &BudgetAccounts,
    kind: MemoryKind,
    report: &mut Box<OutOfMemory>,
    again: &mut dyn FnMut() -> Result<Block>,
) -> (u64, Option<Result<Block>>) {
    for _ in 0..MAX_LOANS {
        let lent = accounts.borrow(kind, report.rounded as u64);
        // Without a loan the next try would not get one either.
        if lent == 0 {
            break;
        }
        let loan = RepayOnDrop(accounts, kind);
        match again() {
            Err(Error::OutOfMemory(refused)) => {
                drop(loan);
                *report = refused;
                if report.refusal != Refusal::Budget {
                    return (lent, None);
                }
            }
            result => {
                std::mem::forget(loan);
                return (lent, Some(result));
            }
        }
    }
    (0, None)
}

/// A loan for a request that is tried again, and may fail, also by a panic of its allocator.
struct RepayOnDrop<'a>(&'a BudgetAccounts, MemoryKind);

impl Drop for RepayOnDrop<'_> {
    fn drop(&mut self) {
        self.0.repay(self.1);
    }
}
