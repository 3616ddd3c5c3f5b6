//! No method of an allocator's author runs while a context is locked: it may change the context, also on
//! another thread, and what it changes there holds.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::engine_support::{RawBlock, RegionWatch};
use orlop_alloc::{Allocator, AllocatorRef, Event, Observer, Request, Result, Semantics, forward};
use orlop_context::observe::Logging;
use orlop_context::{Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIND: MemoryKind = MemoryKind::KvCache;
const METHODS: [&str; 4] = ["name", "wraps", "watch_regions", "semantics"];

type Plan = Option<(&'static str, Box<dyn FnOnce() + Send>)>;

/// What the author does in the next call of one of the methods.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Plan>>);

impl Script {
    fn next_time(&self, method: &'static str, act: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some((method, Box::new(act)));
    }

    fn play(&self, method: &str) {
        let planned = self.0.lock().unwrap().take_if(|(planned, _)| *planned == method);
        if let Some((_, act)) = planned {
            act();
        }
    }

    /// Returns `true` if the method was called since.
    fn was_played(&self) -> bool {
        self.0.lock().unwrap().take().is_none()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

/// An adaptor whose author has other plans.
#[derive(Debug)]
struct Author(AllocatorRef, Script);

// SAFETY: blocks are the upstream's, unchanged, and return to it.
unsafe impl Allocator for Author {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        Allocator::allocate(&self.0, request)
    }

    fn name(&self) -> &str {
        self.1.play("name");
        self.0.name()
    }

    fn wraps(&self, other: &AllocatorRef) -> bool {
        self.1.play("wraps");
        self.0.wraps(other)
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.1.play("watch_regions");
        self.0.watch_regions(watch);
    }

    fn semantics(&self) -> Semantics {
        self.1.play("semantics");
        self.0.semantics()
    }

    forward!(0; except name, wraps, watch_regions, semantics);
}

/// Counts allocations.
#[derive(Default)]
struct Allocations(AtomicU64);

impl Observer for Allocations {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Allocated { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn direct() -> AllocatorRef {
    Direct::new(System::new()).into_ref().erase()
}

/// Runs `act` on another thread. Returns `false` if it does not end.
fn elsewhere(act: impl FnOnce() + Send + 'static) -> bool {
    let (ended, waits) = channel();
    std::thread::spawn(move || {
        act();
        let _ = ended.send(());
    });
    waits.recv_timeout(Duration::from_secs(10)).is_ok()
}

/// What a program does with a context, and the author's allocator.
const PROGRAM: [fn(&Context, &AllocatorRef); 5] = [
    |context, author| context.register(Device::CPU, KIND, author.clone()).unwrap(),
    |context, author| drop(context.allocate_from(author, &Request::new(100)).unwrap()),
    |context, _| drop(context.allocate_from(&direct(), &Request::new(100)).unwrap()),
    |context, _| context.add_observer(Arc::<Allocations>::default()),
    |context, _| context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap(),
];

/// What the author does meanwhile.
const CHANGES: [fn(&Context, &AllocatorRef); 5] = [
    |context, other| context.register(Device::CPU, KIND, other.clone()).unwrap(),
    |context, other| drop(context.allocate_from(other, &Request::new(100)).unwrap()),
    |context, _| context.add_observer(Arc::<Allocations>::default()),
    |context, _| context.observers().iter().for_each(|observer| context.remove_observer(observer)),
    |context, _| context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap(),
];

/// Each observer of the context sees each block of each allocator once, and every request is bounded.
fn check(context: &Context, allocators: &[&AllocatorRef], text: &str) {
    let observers = context.observers();
    let last = Arc::<Allocations>::default();
    context.add_observer(last.clone());
    let has_budget = context.budget_status(Device::CPU, KIND).budget.hard.is_some();
    for allocator in allocators {
        let others = allocator.observers();
        let known = observers.iter().filter(|observer| others.iter().any(|o| Arc::ptr_eq(o, observer)));
        let is_counted = allocator.has_observer(&(last.clone() as Arc<dyn Observer>));
        assert!(!is_counted || known.count() == observers.len(), "{text}: an observer is missing");
        let before = last.0.load(Ordering::Relaxed);
        drop(context.allocate_from(allocator, &Request::new(100).kind(KIND)).unwrap());
        assert_eq!(last.0.load(Ordering::Relaxed) - before, 1, "{text}: reported once");
        let large = context.allocate_from(allocator, &Request::new(2 << 20).kind(KIND));
        assert_eq!(large.is_err(), has_budget, "{text}: bounded by the budget");
    }
    context.observers().iter().for_each(|observer| context.remove_observer(observer));
    assert!(
        allocators.iter().all(|allocator| {
            // A budget observes explicit allocators itself.
            allocator.observers().len() <= usize::from(has_budget)
        }),
        "{text}: an observer stays"
    );
}

#[test]
fn an_author_may_change_the_context_in_every_method() {
    let mut played = 0;
    for method in METHODS {
        for (step, program) in PROGRAM.iter().enumerate() {
            for (act, change) in CHANGES.iter().enumerate() {
                for on_another_thread in [false, true] {
                    for with_budget in [false, true] {
                        let text = format!("{method}, {step}, {act}, {on_another_thread}, {with_budget}");
                        let (context, script, below) = (Context::new(), Script::default(), direct());
                        let author = Author(below.clone(), script.clone()).into_ref().erase();
                        let other = direct();
                        context.add_observer(Arc::<Allocations>::default());
                        if step >= 2 {
                            context.register(Device::CPU, MemoryKind::Persistent, below.clone()).unwrap();
                            drop(context.allocate_from(&author, &Request::new(100)).unwrap());
                        }
                        if with_budget {
                            context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
                        }
                        let (inside, changed) = (context.clone(), other.clone());
                        let act = move || change(&inside, &changed);
                        script.next_time(method, move || {
                            if on_another_thread {
                                assert!(elsewhere(act), "the context is locked");
                            } else {
                                act();
                            }
                        });
                        let (user, handle) = (context.clone(), author.clone());
                        let program = *program;
                        assert!(elsewhere(move || program(&user, &handle)), "{text}: it hangs or panics");
                        played += usize::from(script.was_played());
                        check(&context, &[&author, &other], &text);
                    }
                }
            }
        }
    }
    assert!(played > 100, "{played} of the author's methods were called");
}

#[test]
fn an_author_may_use_the_switch_of_a_log_that_is_attached() {
    for on_another_thread in [false, true] {
        let (below, script, other) = (direct(), Script::default(), direct());
        let author = Author(below, script.clone()).into_ref().erase();
        let log = Arc::new(Logging::to_callback(|_| {}));
        let (inside, more) = (Arc::clone(&log), other.clone());
        script.next_time("name", move || {
            let act = move || {
                inside.switch().set_enabled(false);
                inside.attach(&more);
            };
            if on_another_thread {
                assert!(elsewhere(act), "the switch is locked");
            } else {
                act();
            }
        });
        let (user, handle) = (Arc::clone(&log), author.clone());
        assert!(elsewhere(move || user.attach(&handle)), "it hangs or panics");
        assert!(script.was_played());
        for (is_on, lines) in [(false, 0), (true, 4)] {
            log.switch().set_enabled(is_on);
            for allocator in [&author, &other] {
                drop(allocator.allocate(&Request::new(100)).unwrap());
            }
            assert_eq!(log.lines(), lines, "both logs are as the switch says");
        }
    }
}
