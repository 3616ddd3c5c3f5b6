//! The callbacks of allocators, each installed with hostile code.

use super::backing::HostileBacking;
use super::setup::{HostileFactory, HostileSetup};
use super::state::{HostileState, InjectedPanic};
use crate::subscriber::EventSubscriber;
use orlop_alloc::adaptor::{Decision, Limit, Retry};
use orlop_alloc::backing::{Region, RegionChange, Visited, Visitor};
use orlop_alloc::{Allocator, AllocatorRef, Event, Observer};
use orlop_context::Context;
use orlop_context::observe::{Logging, Warn, WarnBuilder};
use orlop_context::{AllocatorConfig, Budget};
use orlop_core::MemoryKind;
use std::any::Any;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of a callback, for messages, and the function that creates an allocator with it: `None` if it
/// cannot have the callback.
pub(super) type HostileCallback =
    (&'static str, fn(&HostileFactory, &Arc<HostileState>) -> Option<HostileSetup>);

pub(super) const CALLBACKS: &[HostileCallback] = &[
    ("an observer", observer),
    ("the drop of an observer", end_of_observer),
    ("a backing", backing),
    ("a visitor", visitor),
    ("a retry callback", retry),
    ("a warning callback", warning),
    ("a log callback", log_callback),
    ("a log's writer", log_writer),
    ("a tracing subscriber", subscriber),
    ("a pressure callback", pressure),
    ("an observer of a budget", budget),
];

/// A single request of the program is smaller than this; the live blocks together may be larger.
pub(super) const BOUND: usize = 600 << 10;

struct StrikingObserver(Arc<HostileState>);

impl Observer for StrikingObserver {
    fn observe(&self, _: &Event<'_>) {
        self.0.strike();
    }
}

fn observer(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let setup = factory.plain();
    setup.allocator.add_observer(Arc::new(StrikingObserver(Arc::clone(state))));
    Some(setup)
}

/// An observer with hostile code in its drop, which replaces itself at times.
struct StrikeOnDrop(Arc<HostileState>);

impl Observer for StrikeOnDrop {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Freed { .. })
            && let Some(allocator) = self.0.handle()
            && let Some(current) = allocator.observers().first()
        {
            allocator.remove_observer(current);
            allocator.add_observer(Arc::new(StrikeOnDrop(Arc::clone(&self.0))));
        }
    }
}

impl Drop for StrikeOnDrop {
    fn drop(&mut self) {
        self.0.strike();
    }
}

fn end_of_observer(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let setup = factory.plain();
    setup.allocator.add_observer(Arc::new(StrikeOnDrop(Arc::clone(state))));
    Some(setup)
}

fn backing(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    factory.over(|backing| Arc::new(HostileBacking::new(backing, Arc::clone(state))))
}

fn visitor(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    factory.over(|backing| {
        let state = Arc::clone(state);
        let first: Visitor = Arc::new(|_, _, _| ());
        Arc::new(Visited::new(backing, vec![first, Arc::new(move |_, _, _| state.strike())]))
    })
}

/// Puts an adaptor before the allocator of a setup.
fn under<A: Allocator>(setup: HostileSetup, adapt: impl FnOnce(AllocatorRef) -> A) -> Option<HostileSetup> {
    let HostileSetup { allocator, counts, kept } = setup;
    Some(HostileSetup { allocator: adapt(allocator).into_ref().erase(), counts, kept })
}

fn retry(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let state = Arc::clone(state);
    under(factory.plain(), |upstream| {
        Retry::new(Limit::new(upstream, BOUND), 2, move |_, _, _| {
            state.strike();
            Decision::Retry
        })
    })
}

/// Adds an observer to the allocator of a setup.
fn observed(setup: HostileSetup, observer: impl Observer + 'static) -> Option<HostileSetup> {
    setup.allocator.add_observer(Arc::new(observer));
    Some(setup)
}

fn warn() -> WarnBuilder {
    Warn::builder().memory(10_000).single(0.1, u32::MAX).total(0.1, u32::MAX)
}

fn warning(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let state = Arc::clone(state);
    observed(factory.plain(), warn().callback(move |_| state.strike()).build())
}

fn log_callback(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let state = Arc::clone(state);
    observed(factory.plain(), Logging::to_callback(move |_| state.strike()))
}

struct Writer(Arc<HostileState>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.strike();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.strike();
        Ok(())
    }
}

fn log_writer(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let writer = Writer(Arc::clone(state));
    observed(factory.plain(), Logging::to_writer(writer))
}

/// A writer that is always full.
struct FullWriter;

impl Write for FullWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Traces everything of a normal run: warnings, a log that fails, visitors that panic.
fn subscriber(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let calls = AtomicU64::new(0);
    let bad = {
        let state = Arc::clone(state);
        move |_: RegionChange, _: &Region, _: Option<u32>| {
            if state.is_armed() && calls.fetch_add(1, Ordering::Relaxed) % 4 == 1 {
                resume_unwind(Box::new(InjectedPanic));
            }
        }
    };
    let over = factory.with(|backing| Arc::new(Visited::new(backing, vec![Arc::new(bad)])));
    let mut setup = observed(observed(over, warn().build())?, Logging::to_writer(FullWriter))?;
    let state = Arc::clone(state);
    let strike = EventSubscriber(move |_: &tracing::Event<'_>| state.strike());
    let guard: Box<dyn Any> = Box::new(tracing::subscriber::set_default(strike));
    setup.kept.push(guard);
    Some(setup)
}

/// Creates an allocator behind a context with a budget, through which the program allocates.
fn in_context(
    factory: &HostileFactory,
    state: &Arc<HostileState>,
    budget: Budget,
) -> Option<(HostileSetup, Context)> {
    let setup = factory.plain();
    let device = setup.allocator.device();
    let context = Context::with(device, AllocatorConfig::default());
    context.register(device, MemoryKind::Default, setup.allocator.clone()).ok()?;
    context.set_budget(device, MemoryKind::Default, budget).ok()?;
    state.allocate_through(context.clone(), device);
    Some((setup, context))
}

fn pressure(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let (setup, context) = in_context(factory, state, Budget::hard(BOUND as u64))?;
    let state = Arc::clone(state);
    context.on_pressure(
        MemoryKind::Default,
        Arc::new(move |_| {
            state.strike();
            1
        }),
    );
    Some(setup)
}

fn budget(factory: &HostileFactory, state: &Arc<HostileState>) -> Option<HostileSetup> {
    let (setup, context) = in_context(factory, state, Budget::hard(BOUND as u64).soft(1000))?;
    context.add_observer(Arc::new(StrikingObserver(Arc::clone(state))));
    Some(setup)
}
