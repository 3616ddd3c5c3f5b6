//! Requests that a budget refuses, as the observers of a context receive them.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Event, Observer, Refusal, RefusalCause, Request};
use orlop_context::observe::{LogAction, Logging};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::{Arc, Mutex};

const KIB: usize = 1 << 10;

/// A way to allocate in a context.
type Way<'a> = dyn Fn(&Request) -> orlop_alloc::Result<Block> + 'a;

/// Writes events down, with the requested bytes.
#[derive(Default)]
struct Events(Mutex<Vec<(&'static str, usize)>>);

impl Events {
    /// Returns the events since the last call.
    fn take(&self) -> Vec<(&'static str, usize)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let seen = match event {
            Event::Allocated { block, .. } => ("allocated", block.requested),
            Event::Freed { block, .. } => ("freed", block.requested),
            Event::OutOfMemory { report } if report.refusal == Refusal::Budget => {
                ("out of budget", report.requested)
            }
            Event::OutOfMemory { report } => ("out of memory", report.requested),
            Event::RequestFailed { request, error, allocator } => {
                assert!(error.is_out_of_memory() && *allocator == "system", "{allocator}: {error}");
                ("failed", request.bytes)
            }
            _ => return,
        };
        self.0.lock().unwrap().push(seen);
    }
}

/// Returns a context with a budget of 16 KiB, and its events.
fn budgeted(budget: Budget) -> (Context, Arc<Events>) {
    let (context, events) = (Context::with(Device::CPU, AllocatorConfig::new()), Arc::<Events>::default());
    let allocator = Direct::new(System::new()).into_ref();
    context.register(Device::CPU, MemoryKind::Default, allocator).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Default, budget).unwrap();
    context.add_observer(events.clone());
    (context, events)
}

fn strict() -> Budget {
    Budget::hard(16 << 10).strict()
}

fn refused(bytes: usize) -> [(&'static str, usize); 2] {
    [("out of budget", bytes), ("failed", bytes)]
}

#[test]
fn each_way_to_a_budget_reports_a_refusal_once() {
    let (context, events) = budgeted(strict());
    let request = Request::new(32 * KIB);
    let gate = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    let explicit = Direct::new(System::new()).into_ref().erase();
    let ways: [&Way; 4] = [
        &|request| context.allocate(Device::CPU, request),
        &|request| gate.allocate(request),
        &|request| context.allocate_from(&gate, request),
        &|request| context.allocate_from(&explicit, request),
    ];
    for (way, allocate) in ways.iter().enumerate() {
        for request in [request, request.no_retry()] {
            assert!(allocate(&request).is_err());
            assert_eq!(events.take(), refused(32 * KIB), "way {way}, retry: {}", request.retry);
        }
    }
}

/// A block that the engine rounds up beyond the budget goes back before the refusal is reported.
#[test]
fn a_refused_rounding_is_reported_after_the_block_went_back() {
    let bfc = |name: &str| Bfc::builder(System::new()).name(name).build().into_ref().erase();
    let (context, events) = budgeted(Budget::hard(1000).strict());
    context.register(Device::CPU, MemoryKind::Default, bfc("system")).unwrap();
    let explicit: AllocatorRef = bfc("system");
    let request = Request::new(1000);
    let refused = |result: orlop_alloc::Result<Block>| {
        assert!(result.is_err());
        let [out_of_budget, failed] = refused(1000);
        assert_eq!(events.take(), [("allocated", 1000), ("freed", 1000), out_of_budget, failed]);
    };
    refused(context.allocate(Device::CPU, &request));
    refused(context.allocate_from(&explicit, &request));
    assert_eq!(context.stats(Device::CPU).totals.all.live_bytes, 0);
}

/// As with other refusals, each attempt is reported: also one after which the ladder finds memory.
#[test]
fn a_request_that_the_ladder_serves_was_refused_before() {
    let (context, events) = budgeted(strict());
    let cache = Arc::new(Mutex::new(Some(context.allocate(Device::CPU, &Request::new(12 * KIB)).unwrap())));
    let holder = Arc::clone(&cache);
    context.on_pressure(
        MemoryKind::Default,
        Arc::new(move |_| {
            drop(holder.lock().unwrap().take());
            0
        }),
    );
    events.take();
    let block = context.allocate(Device::CPU, &Request::new(8 * KIB)).unwrap();
    let [out_of_budget, failed] = refused(8 * KIB);
    assert_eq!(events.take(), [out_of_budget, failed, ("freed", 12 * KIB), ("allocated", 8 * KIB)]);
    drop(block);
}

/// The refusals of a request, as its outcome names them.
#[derive(Default)]
struct Outcomes {
    refused: Mutex<Vec<(u64, RefusalCause, MemoryKind)>>,
    settled: Mutex<Vec<(Vec<u64>, bool)>>,
}

impl Observer for Outcomes {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::OutOfMemory { report } => {
                self.refused.lock().unwrap().push((report.number, report.refusal.cause(), report.kind));
            }
            Event::Settled { refusals, is_served, .. } => {
                self.settled.lock().unwrap().push((refusals.to_vec(), *is_served));
            }
            _ => {}
        }
    }

    fn watches_blocks(&self) -> bool {
        false
    }
}

impl Outcomes {
    /// Returns the causes of the refusals since the last call, and whether the request was served: all of
    /// them belong to one.
    fn take(&self) -> (Vec<RefusalCause>, bool) {
        let refused = std::mem::take(&mut *self.refused.lock().unwrap());
        let settled = std::mem::take(&mut *self.settled.lock().unwrap());
        let [(numbers, is_served)] = &settled[..] else { panic!("{settled:?}") };
        assert_eq!(refused.iter().map(|&(number, ..)| number).collect::<Vec<_>>(), *numbers);
        (refused.iter().map(|&(_, cause, _)| cause).collect(), *is_served)
    }
}

#[test]
fn the_outcome_of_a_refused_request_names_its_refusals() {
    let (context, _) = budgeted(Budget::hard(16 << 10));
    let outcomes = Arc::<Outcomes>::default();
    context.add_observer(outcomes.clone());
    let request = Request::new(32 * KIB);
    // Nothing to borrow from: one attempt.
    assert!(context.allocate(Device::CPU, &request).is_err());
    assert_eq!(outcomes.take(), (vec![RefusalCause::Budget], false));
    // One loan later it fits.
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(64 << 10)).unwrap();
    drop(context.allocate(Device::CPU, &request).unwrap());
    assert_eq!(outcomes.take(), (vec![RefusalCause::Budget], true));
    let explicit = Direct::new(System::new()).into_ref().erase();
    drop(context.allocate_from(&explicit, &request).unwrap());
    assert_eq!(outcomes.take(), (vec![RefusalCause::Budget], true));
    // A callback that frees something brings another attempt.
    let small = Mutex::new(Some(context.allocate(Device::CPU, &Request::new(KIB)).unwrap()));
    context.on_pressure(
        MemoryKind::Default,
        Arc::new(move |_| {
            drop(small.lock().unwrap().take());
            0
        }),
    );
    assert!(context.allocate(Device::CPU, &Request::new(1 << 20)).is_err());
    assert_eq!(outcomes.take(), (vec![RefusalCause::Budget; 2], false));
}

/// An observer of the allocator alone, which a budget hides, receives the outcome too.
#[test]
fn an_allocators_own_observer_receives_the_outcome() {
    let (context, _) = budgeted(Budget::hard(u64::MAX));
    let outcomes = Arc::<Outcomes>::default();
    let limited = Limit::new(Bfc::new(System::new()), 32 << 10).into_ref().erase();
    let _delivery = limited.add_observer(outcomes.clone());
    context.register(Device::CPU, MemoryKind::KvCache, limited).unwrap();
    let request = Request::new(24 * KIB).kind(MemoryKind::KvCache);
    let held = Mutex::new(Some(context.allocate(Device::CPU, &request).unwrap()));
    context.on_pressure(
        MemoryKind::KvCache,
        Arc::new(move |_| {
            drop(held.lock().unwrap().take());
            0
        }),
    );
    let block = context.allocate(Device::CPU, &request).unwrap();
    assert_eq!(outcomes.take(), (vec![RefusalCause::Limit], true));
    // Without a retry there is no outcome to wait for.
    assert!(context.allocate(Device::CPU, &request.no_retry()).is_err());
    assert!(outcomes.settled.lock().unwrap().is_empty());
    drop(block);
}

/// A refusal by the allocator itself is reported by its handle, and not again by the budget's gate.
#[test]
fn a_refusal_behind_a_budget_is_reported_once() {
    let (context, events) = budgeted(Budget::hard(u64::MAX).strict());
    assert!(context.allocate(Device::CPU, &Request::new(1 << 60).no_retry()).is_err());
    assert_eq!(events.take(), [("out of memory", 1 << 60), ("failed", 1 << 60)]);
}

#[test]
fn a_log_has_the_refusals_of_a_budget() {
    let (context, _) = budgeted(strict());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let log = Logging::to_callback(move |record| seen.lock().unwrap().push((record.action, record.bytes)));
    context.add_observer(Arc::new(log));
    assert!(context.allocate(Device::CPU, &Request::new(32 * KIB)).is_err());
    assert_eq!(*lines.lock().unwrap(), [(LogAction::AllocateFailure, 32 * KIB)]);
}
