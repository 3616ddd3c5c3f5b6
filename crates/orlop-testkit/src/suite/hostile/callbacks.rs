//! Every place where an allocator calls its user, and how a scene gets there.

use super::backing::HostileBacking;
use super::scene::Scene;
use super::{HostileMaker, HostileRig, Struck};
use orlop_alloc::adaptor::{Decision, Limit, Logging, Retry, TotalMemory, Warn};
use orlop_alloc::backing::{Region, RegionChange, Visited, Visitor};
use orlop_alloc::context::{Budget, CpuConfig};
use orlop_alloc::{Allocator, AllocatorRef, Context, Event, Observer};
use orlop_core::MemoryKind;
use std::any::Any;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// A callback, by the name that a failure tells, and the allocator that has it. `None` where there can be none.
pub(super) type HostileCallback = (&'static str, fn(&HostileMaker, &Arc<Scene>) -> Option<HostileRig>);

pub(super) const CALLBACKS: &[HostileCallback] = &[
    ("an observer", observer),
    ("the end of an observer", end_of_observer),
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

/// What the program asks for at a time is below this; all that lives may be above.
pub(super) const BOUND: usize = 600 << 10;

struct StrikingObserver(Arc<Scene>);

impl Observer for StrikingObserver {
    fn observe(&self, _: &Event<'_>) {
        self.0.strike();
    }
}

fn observer(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let rig = maker.plain();
    rig.allocator.set_observer(Some(Arc::new(StrikingObserver(Arc::clone(scene)))));
    Some(rig)
}

/// An observer that strikes when it is dropped, and has itself dropped now and then.
struct StrikeOnDrop(Arc<Scene>);

impl Observer for StrikeOnDrop {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Freed { .. })
            && let Some(allocator) = self.0.handle()
            && allocator.observer().is_some()
        {
            allocator.set_observer(Some(Arc::new(StrikeOnDrop(Arc::clone(&self.0)))));
        }
    }
}

impl Drop for StrikeOnDrop {
    fn drop(&mut self) {
        self.0.strike();
    }
}

fn end_of_observer(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let rig = maker.plain();
    rig.allocator.set_observer(Some(Arc::new(StrikeOnDrop(Arc::clone(scene)))));
    Some(rig)
}

fn backing(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    maker.over(|backing| Arc::new(HostileBacking::new(backing, Arc::clone(scene))))
}

fn visitor(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    maker.over(|backing| {
        let scene = Arc::clone(scene);
        let first: Visitor = Arc::new(|_, _, _| ());
        Arc::new(Visited::new(backing, vec![first, Arc::new(move |_, _, _| scene.strike())]))
    })
}

/// Puts something before the allocator of a rig.
fn under<A: Allocator>(rig: HostileRig, adapt: impl FnOnce(AllocatorRef) -> A) -> Option<HostileRig> {
    let HostileRig { allocator, counts, kept } = rig;
    Some(HostileRig { allocator: AllocatorRef::new(adapt(allocator)).erase(), counts, kept })
}

fn retry(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let scene = Arc::clone(scene);
    under(maker.plain(), |upstream| {
        Retry::new(Limit::new(upstream, BOUND), 2, move |_, _, _| {
            scene.strike();
            Decision::Retry
        })
    })
}

fn warning(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let scene = Arc::clone(scene);
    under(maker.plain(), |upstream| {
        let warn = Warn::builder(upstream).memory(TotalMemory::Bytes(10_000));
        warn.single(0.1, u32::MAX).total(0.1, u32::MAX).callback(move |_| scene.strike()).build()
    })
}

fn log_callback(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let scene = Arc::clone(scene);
    under(maker.plain(), |upstream| Logging::to_callback(upstream, move |_| scene.strike()))
}

struct Writer(Arc<Scene>);

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

fn log_writer(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let writer = Writer(Arc::clone(scene));
    under(maker.plain(), |upstream| Logging::to_writer(upstream, writer))
}

struct Tracing(Arc<Scene>);

impl Subscriber for Tracing {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.strike();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A writer that has no room.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Warnings, a log that fails, visitors that panic: all that is traced in normal running.
fn subscriber(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let calls = AtomicU64::new(0);
    let bad = {
        let scene = Arc::clone(scene);
        move |_: RegionChange, _: &Region, _: Option<u32>| {
            if scene.is_armed() && calls.fetch_add(1, Ordering::Relaxed) % 4 == 1 {
                resume_unwind(Box::new(Struck));
            }
        }
    };
    let over = maker.with(|backing| Arc::new(Visited::new(backing, vec![Arc::new(bad)])));
    let mut rig = under(over, |upstream| {
        let warn = Warn::builder(upstream).memory(TotalMemory::Bytes(10_000));
        Logging::to_writer(warn.single(0.1, u32::MAX).total(0.1, u32::MAX).build(), Full)
    })?;
    let guard: Box<dyn Any> = Box::new(tracing::subscriber::set_default(Tracing(Arc::clone(scene))));
    rig.kept.push(guard);
    Some(rig)
}

/// An allocator behind a context with a budget, through which the program allocates.
fn in_context(maker: &HostileMaker, scene: &Arc<Scene>, budget: Budget) -> Option<(HostileRig, Context)> {
    let rig = maker.plain();
    let device = rig.allocator.device();
    let context = Context::with(device, CpuConfig::default());
    context.register(device, MemoryKind::Default, rig.allocator.clone()).ok()?;
    context.set_budget(device, MemoryKind::Default, budget).ok()?;
    scene.allocate_through(context.clone(), device);
    Some((rig, context))
}

fn pressure(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let (rig, context) = in_context(maker, scene, Budget::hard(BOUND as u64))?;
    let scene = Arc::clone(scene);
    context.on_pressure(
        MemoryKind::Default,
        Arc::new(move |_| {
            scene.strike();
            1
        }),
    );
    Some(rig)
}

fn budget(maker: &HostileMaker, scene: &Arc<Scene>) -> Option<HostileRig> {
    let (rig, context) = in_context(maker, scene, Budget::hard(BOUND as u64).soft(1000))?;
    context.set_observer(Some(Arc::new(StrikingObserver(Arc::clone(scene)))));
    Some(rig)
}
