//! Observers that end at unusual times: inside an event, with their allocator, on two threads at once.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, AllocatorRef, Error, Event, Observer, RegionAction, Request, Tag};
use orlop_context::observe::{LogSwitch, Logging};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn count(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|&&byte| byte == b'\n').count()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_is_flushed_and_dropped_with_its_allocator() {
    let (lines, switch) = (Lines::default(), LogSwitch::new());
    let allocator = Direct::new(System::new()).into_ref().erase();
    let log = Logging::to_writer(BufWriter::new(lines.clone())).switched_by(switch.clone());
    Arc::new(log).attach(&allocator);
    drop(allocator.allocate(&Request::new(100)).unwrap());
    switch.set_enabled(false);
    drop(allocator.allocate(&Request::new(100)).unwrap());
    // A log that is off is complete, and it can be turned on again.
    assert_eq!(lines.count(), 3);
    switch.set_enabled(true);
    drop(allocator.allocate(&Request::new(100)).unwrap());
    drop(allocator);
    assert_eq!((lines.count(), Arc::strong_count(&lines.0)), (5, 1));
}

/// A log that was removed from its allocator, whether it was on or off, is complete and stays removed.
#[test]
fn a_log_that_is_removed_stays_removed_and_is_complete() {
    let request = Request::new(100);
    for (is_on, is_kept) in [(true, true), (true, false), (false, true), (false, false)] {
        let (lines, switch) = (Lines::default(), LogSwitch::new());
        let allocator = Direct::new(System::new()).into_ref().erase();
        let log = Logging::to_writer(BufWriter::new(lines.clone())).switched_by(switch.clone());
        let log = Arc::new(log);
        log.attach(&allocator);
        drop(allocator.allocate(&request).unwrap());
        switch.set_enabled(is_on);
        let kept = is_kept.then(|| Arc::clone(&log));
        drop(log);
        for observer in allocator.observers() {
            drop(allocator.remove_observer(&observer));
        }
        assert_eq!(Arc::strong_count(&lines.0), 1 + usize::from(is_kept), "on: {is_on}");
        for enabled in [!is_on, is_on, !is_on, true] {
            switch.set_enabled(enabled);
            assert!(allocator.observers().is_empty(), "on: {is_on}, kept: {is_kept}");
        }
        drop(allocator.allocate(&request).unwrap());
        let Some(log) = kept else {
            assert_eq!(lines.count(), 3, "on: {is_on}");
            continue;
        };
        // It can be attached again.
        log.attach(&allocator);
        drop(allocator.allocate(&request).unwrap());
        assert!(log.flush());
        assert_eq!(lines.count(), 5, "on: {is_on}");
    }
}

#[test]
fn a_log_is_attached_once_and_detached_whether_it_is_on_or_off() {
    for is_on in [true, false] {
        let lines = Lines::default();
        let [allocator, other] = [(); 2].map(|()| Direct::new(System::new()).into_ref().erase());
        let log = Arc::new(Logging::to_writer(lines.clone()));
        for allocator in [&allocator, &allocator, &other] {
            log.attach(allocator);
        }
        log.switch().set_enabled(is_on);
        log.attach(&allocator);
        assert_eq!((allocator.observers().len(), other.observers().len()), (1, 1));
        log.detach(&allocator);
        assert_eq!((allocator.observers().len(), other.observers().len()), (0, 1));
        log.switch().set_enabled(true);
        for allocator in [&allocator, &other] {
            drop(allocator.allocate(&Request::new(100)).unwrap());
        }
        // The header, and the two lines of the other allocator.
        assert_eq!((lines.count(), allocator.observers().len()), (3, 0));
    }
}

/// Removes itself at the first block.
struct Once {
    itself: OnceLock<Arc<dyn Observer>>,
    allocator: AllocatorRef,
    seen: Arc<AtomicU64>,
    /// Uses the context at the end.
    ended: Arc<AtomicBool>,
    context: Context,
}

impl Observer for Once {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Allocated { .. } = event {
            self.seen.fetch_add(1, Ordering::Relaxed);
            drop(self.allocator.remove_observer(self.itself.get().unwrap()));
        }
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        self.context.add_observer(Arc::new(Quiet));
        self.ended.store(true, Ordering::Relaxed);
    }
}

struct Quiet;

impl Observer for Quiet {
    fn observe(&self, _: &Event<'_>) {}

    fn watches_blocks(&self) -> bool {
        false
    }
}

/// Holds an observer for itself, until it is removed.
struct Holder(Mutex<Option<Arc<Once>>>);

impl Observer for Holder {
    fn observe(&self, event: &Event<'_>) {
        let inner = self.0.lock().unwrap().clone();
        if let (Some(once), Event::Allocated { .. }) = (inner, event) {
            once.observe(event);
            self.0.lock().unwrap().take();
        }
    }
}

#[test]
fn an_observer_that_removes_itself_inside_an_event_is_dropped_at_once() {
    let (done, is_done) = sync_channel(1);
    std::thread::spawn(move || {
        let allocator = Direct::new(System::new()).into_ref().erase();
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        context.register(Device::CPU, MemoryKind::Default, allocator.clone()).unwrap();
        let (seen, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let once = Once {
            itself: OnceLock::new(),
            allocator: allocator.clone(),
            seen: seen.clone(),
            ended: ended.clone(),
            context: context.clone(),
        };
        let once = Arc::new(once);
        let holder: Arc<Holder> = Arc::new(Holder(Mutex::new(Some(once.clone()))));
        once.itself.set(holder.clone()).ok().unwrap();
        let weak = Arc::downgrade(&holder);
        drop((once, allocator.add_observer(holder)));
        drop(context.allocate(Device::CPU, &Request::new(100)).unwrap());
        drop(context.allocate(Device::CPU, &Request::new(100)).unwrap());
        // If something still kept it, it would end here, where the context is locked.
        context.add_observer(Arc::new(Quiet));
        assert_eq!((seen.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)), (1, true));
        assert_eq!(weak.strong_count(), 0);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("the thread fails or waits for itself");
}

/// Waits inside the first release until it may go on.
struct Slow {
    inside: SyncSender<()>,
    go: Mutex<Receiver<()>>,
    releases: AtomicU64,
}

impl Observer for Slow {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Region { event, .. } = event
            && event.action == RegionAction::Released
            && self.releases.fetch_add(1, Ordering::Relaxed) == 0
        {
            self.inside.send(()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
    }
}

#[test]
fn the_last_regions_are_reported_if_another_thread_is_inside_the_observer() {
    let (inside, is_inside) = sync_channel(1);
    let (go, may_go) = sync_channel(1);
    let slow = Arc::new(Slow { inside, go: Mutex::new(may_go), releases: AtomicU64::new(0) });
    let allocator = Direct::new(System::new()).into_ref();
    drop(allocator.add_observer(slow.clone()));
    let [first, last] = [(); 2].map(|()| allocator.allocate(&Request::new(100)).unwrap());
    drop(allocator);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(first));
        is_inside.recv().unwrap();
        // The allocator ends here.
        drop(last);
        go.send(()).unwrap();
    });
    assert_eq!((slow.releases.load(Ordering::Relaxed), Arc::strong_count(&slow)), (2, 1));
}

#[test]
fn a_gate_restarts_the_peaks_of_the_allocator_behind() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let allocator = Direct::new(System::new()).into_ref().erase();
    context.register(Device::CPU, MemoryKind::Default, allocator.clone()).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Default, Budget::hard(1 << 20)).unwrap();
    drop(context.allocate(Device::CPU, &Request::new(1 << 16)).unwrap());
    let gate = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    assert_eq!(gate.stats().totals, allocator.stats().totals);
    gate.reset_peaks();
    assert_eq!(gate.stats().totals.all.peak_bytes, 0);
}

#[test]
fn a_refusal_by_a_budget_has_tags_of_the_refused_kind_only() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let allocator = Bfc::new(System::new()).into_ref().erase();
    context.register(Device::CPU, MemoryKind::Default, allocator).unwrap();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 10).strict()).unwrap();
    let weights = Request::new(1 << 16).kind(MemoryKind::Persistent).tag(Tag::new("weights"));
    let _weights = context.allocate(Device::CPU, &weights).unwrap();
    let large = Request::new(1 << 16).kind(MemoryKind::Workspace);
    let Err(Error::OutOfMemory(report)) = context.allocate(Device::CPU, &large) else { panic!() };
    assert!(report.by_tag.is_empty(), "{report}");
}

/// Counts blocks, and is used by several threads.
#[derive(Default)]
struct Blocks(AtomicU64);

impl Observer for Blocks {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Allocated { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn threads_that_add_remove_and_switch_leave_the_fast_path_as_the_list_says() {
    let allocator = Caching::new(System::new()).into_ref().erase();
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, allocator.clone()).unwrap();
    let (shared, switch) = (Arc::<Blocks>::default(), LogSwitch::new());
    let log = Arc::new(Logging::to_callback(|_| {}).switched_by(switch.clone()));
    log.attach(&allocator);
    let request = Request::new(100);
    let rounds = if cfg!(miri) { 3 } else { 300 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (allocator, context, switch, shared) = (&allocator, &context, &switch, &shared);
            scope.spawn(move || {
                for round in 0..rounds {
                    let observer = shared.clone() as Arc<dyn Observer>;
                    match (thread + round) % 4 {
                        0 => context.add_observer(observer),
                        1 => context.remove_observer(&observer),
                        2 => drop(allocator.add_observer(Arc::new(Blocks::default()))),
                        _ => switch.set_enabled(round % 2 == 0),
                    }
                    drop(context.allocate(Device::CPU, &request).unwrap());
                    for other in allocator.observers() {
                        drop(allocator.remove_observer(&other));
                    }
                }
            });
        }
    });
    switch.set_enabled(false);
    context.remove_observer(&(shared.clone() as Arc<dyn Observer>));
    // A log that is off stays, without events of blocks.
    let observers = allocator.observers();
    assert!(observers.iter().all(|observer| !observer.watches_blocks()));
    assert!(context.observers().is_empty());
    // The engine caches a size when it was freed a few times.
    for _ in 0..1000 {
        drop(allocator.allocate(&request).unwrap());
    }
    let is_cached = || allocator.allocate_cached(&request).is_some();
    assert!(is_cached());
    // The engine may keep the watch, but not the observer.
    assert_eq!(Arc::strong_count(&shared), 1);
    drop(allocator.add_observer(shared.clone()));
    assert!(!is_cached());
}
