//! Observers that are added and removed leave nothing behind.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{
    Allocator, Block, Event, Observer, Request, Usage,
    engine_support::{RawBlock, RegionWatch},
};
use orlop_context::observe::Subscription;
use orlop_context::profile::LeakCheck;
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

const KIB: usize = 1 << 10;

/// Far more iterations than there may be leftovers.
const STEPS: usize = if cfg!(miri) { 8 } else { 1000 };

fn plain(context: &Context, bytes: usize) -> Block {
    context.allocate(Device::CPU, &Request::new(bytes)).unwrap()
}

/// Counts the region events it receives.
#[derive(Default)]
struct Recorder {
    regions: AtomicU64,
    already: AtomicU64,
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Region { event, .. } = event {
            self.regions.fetch_add(1, Ordering::Relaxed);
            self.already.fetch_add(event.already.into(), Ordering::Relaxed);
        }
    }
}

#[test]
fn nothing_keeps_a_recorder_that_listened() {
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("bfc"));
    drop(plain(&context, KIB));
    let recorder = Arc::new(Recorder::default());
    let subscription = Subscription::on(&context, Arc::clone(&recorder) as Arc<dyn Observer>);
    drop(plain(&context, KIB));
    let second = Arc::new(Recorder::default());
    let second_listening = Subscription::on(&context, Arc::clone(&second) as Arc<dyn Observer>);
    drop(subscription);
    assert_eq!((Arc::strong_count(&recorder), Arc::weak_count(&recorder)), (1, 0));
    drop(plain(&context, 64 << 20));
    drop(second_listening);
    assert_eq!((Arc::strong_count(&second), Arc::weak_count(&second)), (1, 0));
    assert!(context.observers().is_empty() && second.regions.load(Ordering::Relaxed) > 1);
}

#[test]
fn only_a_new_listener_receives_existing_regions() {
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("bfc"));
    let block = plain(&context, KIB);
    let add =
        |recorder: &Arc<Recorder>| Subscription::on(&context, Arc::clone(recorder) as Arc<dyn Observer>);
    let existing = |recorder: &Recorder| recorder.already.load(Ordering::Relaxed);
    let (first, second) = (Arc::default(), Arc::default());
    let _first = add(&first);
    let regions = existing(&first);
    assert!(regions > 0);
    let _second = add(&second);
    assert_eq!((existing(&first), existing(&second)), (regions, regions));
    drop(block);
}

/// Keeps the watches it is given.
#[derive(Debug)]
struct Remembers {
    engine: Direct<System>,
    watches: Mutex<Vec<Weak<RegionWatch>>>,
}

// SAFETY: the inner engine keeps all promises.
unsafe impl Allocator for Remembers {
    fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
        self.engine.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> orlop_alloc::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.engine.deallocate(block) }
    }

    fn device(&self) -> Device {
        self.engine.device()
    }

    fn name(&self) -> &str {
        self.engine.name()
    }

    fn usage(&self) -> Usage {
        self.engine.usage()
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.watches.lock().unwrap().push(Arc::downgrade(watch));
        self.engine.watch_regions(watch);
    }
}

#[test]
fn a_check_in_every_step_leaves_nothing_behind() {
    let engine = Direct::new(System::new());
    let allocator = Remembers { engine, watches: Mutex::default() }.into_ref();
    let alive = || allocator.watches.lock().unwrap().iter().filter(|watch| watch.strong_count() > 0).count();
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, allocator.clone()).unwrap();
    for _ in 0..STEPS {
        let check = LeakCheck::on(&context);
        drop(plain(&context, KIB));
        assert!(check.finish().is_empty());
    }
    // The engine drops an ended watch when another is added.
    assert!(alive() <= 2, "{} watches are left", alive());
    let _other = LeakCheck::on(&context);
    for _ in 0..STEPS {
        drop(LeakCheck::on(&context));
    }
    assert!(alive() <= 3, "{} watches are left", alive());
}
