//! Observers of a context, over external memory and allocators that are passed with a request.

use super::external::foreign;
use super::{KIND, arena, context, request};
use orlop_alloc::adaptor::Tracking;
use orlop_alloc::backing::System;
use orlop_alloc::engine::{Direct, UpstreamArena};
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Event, Observer, Request, Usage,
    engine_support::{RawBlock, RegionWatch},
};
use orlop_context::Context;
use orlop_context::profile::{LeakCheck, MemorySteps};
use orlop_core::Device;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Live bytes by the events observed.
#[derive(Default)]
struct Sum(AtomicI64);

impl Observer for Sum {
    fn observe(&self, event: &Event<'_>) {
        let signed = |bytes: usize| i64::try_from(bytes).expect("a small block");
        match event {
            Event::Allocated { block, .. } => self.0.fetch_add(signed(block.granted), Ordering::Relaxed),
            Event::Freed { block, .. } => self.0.fetch_sub(signed(block.granted), Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[test]
fn observers_receive_all_that_is_counted() {
    let gone = Arc::new(AtomicUsize::new(0));
    let (context, sum) = (context(), Arc::new(Sum::default()));
    let (arena, late) = (arena(), arena());
    let early = context.allocate_from(&arena, &request(64)).unwrap();
    drop(early);
    context.add_observer(Arc::clone(&sum) as Arc<dyn Observer>);
    let blocks = [
        context.adopt(foreign(1000, KIND, &gone)),
        context.allocate_from(&arena, &request(64)).unwrap(),
        context.allocate_from(&late, &request(128)).unwrap(),
    ];
    assert_eq!(sum.0.load(Ordering::Relaxed), 1192);
    drop(blocks);
    assert_eq!(sum.0.load(Ordering::Relaxed), 0);
    context.remove_observer(&(Arc::clone(&sum) as Arc<dyn Observer>));
    drop(context.allocate_from(&late, &request(128)).unwrap());
    assert!(late.observers().is_empty() && arena.observers().is_empty());
}

/// Counts the region events it receives.
#[derive(Default)]
struct Regions(AtomicUsize);

impl Observer for Regions {
    fn observe(&self, event: &Event<'_>) {
        let is_region = matches!(event, Event::Region { .. });
        self.0.fetch_add(is_region.into(), Ordering::Relaxed);
    }
}

/// Each observer of an arena receives each region once, however many contexts share the arena.
#[test]
fn observers_of_several_contexts_receive_a_shared_arena_once() {
    let arena = arena();
    let contexts = [context(), context()];
    let told = [Arc::new(Regions::default()), Arc::new(Regions::default())];
    for (context, told) in contexts.iter().zip(&told) {
        context.add_observer(Arc::clone(told) as Arc<dyn Observer>);
    }
    for _ in 0..10 {
        for context in &contexts {
            drop(context.allocate_from(&arena, &request(64)).unwrap());
        }
    }
    assert_eq!(told.map(|told| told.0.load(Ordering::Relaxed)), [1, 1]);
}

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Runs one hook when it is first watched, and another when it is first trimmed.
struct Hooked {
    inner: Direct<System>,
    watched: Arc<Hook>,
    trimmed: Arc<Hook>,
}

fn run(hook: &Hook) {
    let hook = hook.lock().expect("no panic").take();
    hook.into_iter().for_each(|hook| hook());
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

// SAFETY: the inner allocator's, unchanged.
unsafe impl Allocator for Hooked {
    fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
        self.inner.allocate(request)
    }
    unsafe fn deallocate(&self, block: RawBlock) -> orlop_alloc::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.deallocate(block) }
    }
    fn device(&self) -> Device {
        Device::CPU
    }
    fn name(&self) -> &str {
        "hooked"
    }
    fn usage(&self) -> Usage {
        self.inner.usage()
    }
    fn trim(&self, _: u64) -> u64 {
        run(&self.trimmed);
        0
    }
    fn watch_regions(&self, _: &Arc<RegionWatch>) {
        run(&self.watched);
    }
}

/// An explicit allocator is dropped while its context accesses it: its destructor may use the context.
#[test]
fn a_last_handle_that_is_dropped_by_a_callback_ends_with_nothing_locked() {
    let (watched, trimmed): (Arc<Hook>, Arc<Hook>) = Default::default();
    let context = context();
    let hooked = Hooked {
        inner: Direct::new(System::new()),
        watched: Arc::clone(&watched),
        trimmed: Arc::clone(&trimmed),
    };
    let hooked = hooked.into_ref().erase();
    drop(context.allocate_from(&hooked, &request(64)).unwrap());
    *watched.lock().unwrap() = Some(Box::new(move || drop(hooked)));
    let (ended, end) = std::sync::mpsc::channel();
    let inside = context.clone();
    *trimmed.lock().unwrap() = Some(Box::new(move || {
        inside.add_observer(Arc::new(Regions::default()));
        ended.send(()).unwrap();
    }));
    std::thread::spawn(move || context.add_observer(Arc::new(Regions::default())));
    end.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
}

/// What the profiles of a context saw of one block from `allocate`: allocations, bytes, and live blocks.
fn profiled(context: &Context, allocate: impl Fn() -> Block) -> (u64, u64, usize, u64) {
    let (steps, check) = (MemorySteps::on(context), LeakCheck::on(context));
    let step = steps.step("one");
    let block = allocate();
    let step = step.finish().all;
    let leaks = check.so_far().blocks().len();
    drop(block);
    assert!(check.finish().blocks().is_empty() && steps.step("none").finish().all.live_before == 0);
    (step.allocations, step.allocated_bytes, leaks, context.stats(Device::CPU).live())
}

/// A block is reported once, as it is counted once: also by an adaptor over an allocator of the context,
/// whichever of the two the context knows first, and whenever the profile began.
#[test]
fn a_block_of_an_adaptor_is_observed_once() {
    let below = || Direct::new(System::new()).into_ref().erase();
    let over = |below: &AllocatorRef| Tracking::new(below.clone()).into_ref().erase();
    for is_registered in [true, false] {
        for adaptor_is_first in [true, false] {
            let context = context();
            let below = below();
            let over = over(&below);
            let pair = if adaptor_is_first { [&over, &below] } else { [&below, &over] };
            let introduce = || {
                for allocator in pair {
                    if is_registered {
                        context.register(Device::CPU, KIND, allocator.clone()).unwrap();
                    }
                    drop(context.allocate_from(allocator, &request(64)).unwrap());
                }
            };
            let later = Arc::new(Sum::default());
            context.add_observer(Arc::clone(&later) as Arc<dyn Observer>);
            introduce();
            let of_over = || context.allocate_from(&over, &request(4096)).unwrap();
            assert_eq!(profiled(&context, of_over), (1, 4096, 1, 0), "{is_registered}, {adaptor_is_first}");
            let block = of_over();
            assert_eq!(later.0.load(Ordering::Relaxed), 4096, "{is_registered}, {adaptor_is_first}");
            drop(block);
            let of_below = || context.allocate_from(&below, &request(4096)).unwrap();
            assert_eq!(profiled(&context, of_below), (1, 4096, 1, 0));
        }
    }
}

/// The segment of an arena over an allocator of the context is a block of that.
#[test]
fn a_segment_of_an_arena_is_observed_once() {
    let context = context();
    let below = context.allocator(Device::CPU, KIND).unwrap();
    let block = || {
        let arena = UpstreamArena::new(below.clone(), 4096).into_ref().erase();
        context.allocate_from(&arena, &request(1000)).unwrap()
    };
    assert_eq!(profiled(&context, block), (1, 4096, 1, 0));
}

/// Counts refusals.
#[derive(Default)]
struct Refused(AtomicUsize);

impl Observer for Refused {
    fn observe(&self, event: &Event<'_>) {
        self.0.fetch_add(usize::from(matches!(event, Event::OutOfMemory { .. })), Ordering::Relaxed);
    }
}

#[test]
fn what_an_adaptor_refuses_is_observed() {
    let (context, refused) = (context(), Arc::new(Refused::default()));
    context.add_observer(Arc::clone(&refused) as Arc<dyn Observer>);
    let over = super::limited(&context.allocator(Device::CPU, KIND).unwrap());
    assert!(context.allocate_from(&over, &request(2 << 20)).is_err());
    assert_eq!(refused.0.load(Ordering::Relaxed), 1);
}
