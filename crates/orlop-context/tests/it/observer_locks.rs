//! No code of an observer, and no destructor, runs while a context is locked, and panics end at the call.

use orlop_alloc::adaptor::Tracking;
use orlop_alloc::backing::{System, Visited, Visitor};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, AllocatorRef, Event, Observer, Request};
use orlop_context::{Budget, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIND: MemoryKind = MemoryKind::KvCache;

struct Quiet;

impl Observer for Quiet {
    fn observe(&self, _: &Event<'_>) {}
}

/// Returns `true` if the context is not locked: another thread changes its observers.
fn is_unlocked(context: &Context) -> bool {
    let (context, (changed, waits)) = (context.clone(), channel());
    std::thread::spawn(move || {
        context.add_observer(Arc::new(Quiet));
        let _ = changed.send(());
    });
    waits.recv_timeout(Duration::from_secs(10)).is_ok()
}

/// Asks the context whether it is locked.
struct Asks {
    context: Context,
    unlocked: Arc<Mutex<Vec<bool>>>,
}

impl Asks {
    fn ask(&self) {
        let unlocked = is_unlocked(&self.context);
        if let Ok(mut all) = self.unlocked.lock() {
            all.push(unlocked);
        }
    }
}

struct WatchesAndAsks(Asks);

impl Observer for WatchesAndAsks {
    fn observe(&self, _: &Event<'_>) {}

    fn watches_blocks(&self) -> bool {
        self.0.ask();
        true
    }
}

struct AsksAtTheEnd(Asks);

impl Drop for AsksAtTheEnd {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// It is asked once, before the lock, however many allocators there are, and not again for a later one.
#[test]
fn an_observer_is_asked_once_and_may_use_the_context() {
    let (context, unlocked) = (Context::new(), Arc::default());
    for kind in [MemoryKind::Default, KIND] {
        context.register(Device::CPU, kind, Direct::new(System::new()).into_ref()).unwrap();
    }
    let asks = Asks { context: context.clone(), unlocked: Arc::clone(&unlocked) };
    context.add_observer(Arc::new(WatchesAndAsks(asks)));
    context.register(Device::CPU, KIND, Direct::new(System::new()).into_ref()).unwrap();
    drop(context.allocate(Device::CPU, &Request::new(100).kind(KIND)).unwrap());
    assert_eq!(*unlocked.lock().unwrap(), [true]);
}

struct PanicsWhenAsked(Arc<AtomicU32>);

impl Observer for PanicsWhenAsked {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Allocated { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn watches_blocks(&self) -> bool {
        panic!("in watches_blocks")
    }
}

#[test]
fn an_observer_that_panics_when_it_is_asked_watches_blocks() {
    let (context, seen) = (Context::new(), Arc::new(AtomicU32::new(0)));
    context.add_observer(Arc::new(PanicsWhenAsked(Arc::clone(&seen))));
    for _ in 0..2 {
        drop(context.allocate(Device::CPU, &Request::new(100)).unwrap());
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

/// An allocator that is refused, or not needed, ends with the context unlocked.
#[test]
fn an_allocator_that_is_not_registered_ends_outside_the_lock() {
    let (context, unlocked) = (Context::new(), Arc::default());
    let asks = AsksAtTheEnd(Asks { context: context.clone(), unlocked: Arc::clone(&unlocked) });
    let visitor: Visitor = Arc::new(move |_, _, _| asks.0.ask());
    let refused = Direct::new(Visited::new(System::new(), vec![visitor])).into_ref();
    assert!(context.register(Device::cuda(0), KIND, refused).is_err());
    assert_eq!(*unlocked.lock().unwrap(), [true]);
}

/// Returns `true` for the events that it is about.
type IsIt = fn(&Event<'_>) -> bool;

/// Removes itself from everything that it observes at the first such event; its destructor panics.
struct Bomb {
    context: Context,
    allocator: AllocatorRef,
    is_it: IsIt,
    removed: Arc<AtomicU32>,
}

impl Observer for Bomb {
    fn observe(&self, event: &Event<'_>) {
        if (self.is_it)(event) && self.removed.fetch_add(1, Ordering::Relaxed) == 0 {
            for observer in self.context.observers() {
                self.context.remove_observer(&observer);
            }
            for observer in self.allocator.observers() {
                drop(self.allocator.remove_observer(&observer));
            }
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.removed.fetch_add(100, Ordering::Relaxed);
        panic!("the destructor of an observer");
    }
}

#[test]
fn an_observer_that_ends_itself_in_an_event_of_the_ladder_may_panic() {
    let is_reclaimed = |event: &Event<'_>| matches!(event, Event::Reclaimed { .. });
    let is_settled = |event: &Event<'_>| matches!(event, Event::Settled { .. });
    let cases: [(IsIt, bool); 3] = [(is_reclaimed, true), (is_settled, true), (is_settled, false)];
    for (is_it, of_context) in cases {
        let context = Context::new();
        context.set_budget(Device::CPU, KIND, Budget::hard(4096).strict()).unwrap();
        let tracked = Tracking::new(Direct::new(System::new()).into_ref().erase()).into_ref().erase();
        context.register(Device::CPU, KIND, tracked.clone()).unwrap();
        let freed = Arc::new(Mutex::new(None));
        let frees = Arc::clone(&freed);
        let _callback = context.on_pressure(
            KIND,
            Arc::new(move |_| {
                drop(frees.lock().ok().and_then(|mut block| block.take()));
                0
            }),
        );
        let request = Request::new(4096).kind(KIND);
        *freed.lock().unwrap() = Some(context.allocate(Device::CPU, &request).unwrap());
        let removed = Arc::default();
        let (allocator, count) = (tracked.clone(), Arc::clone(&removed));
        let bomb = Arc::new(Bomb { context: context.clone(), allocator, is_it, removed: count });
        if of_context {
            context.add_observer(bomb);
        } else {
            drop(tracked.add_observer(bomb));
        }
        let block = context.allocate(Device::CPU, &request).unwrap();
        assert_eq!(removed.load(Ordering::Relaxed), 101, "of the context: {of_context}");
        drop(block);
        assert_eq!(context.budget_status(Device::CPU, KIND).live, 0);
    }
}

/// A callback that is not called, because another one freed enough, may have been removed meanwhile.
#[test]
fn a_removed_callback_that_was_not_called_may_panic_when_it_is_dropped() {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            panic!("the destructor of a callback");
        }
    }
    let context = Context::new();
    context.set_budget(Device::CPU, KIND, Budget::hard(4096).strict()).unwrap();
    let request = Request::new(4096).kind(KIND);
    let block = Mutex::new(Some(context.allocate(Device::CPU, &request).unwrap()));
    let second = Arc::new(Mutex::new(None));
    let (ids, inside) = (Arc::clone(&second), context.clone());
    context.on_pressure(
        KIND,
        Arc::new(move |_| {
            drop(block.lock().ok().and_then(|mut block| block.take()));
            let id = ids.lock().ok().and_then(|mut id| id.take());
            assert!(id.is_none_or(|id| inside.remove_on_pressure(id)));
            0
        }),
    );
    let ends = Ends;
    let id = context.on_pressure(
        KIND,
        Arc::new(move |_| {
            let _ends = &ends;
            0
        }),
    );
    *second.lock().unwrap() = Some(id);
    drop(context.allocate(Device::CPU, &request).unwrap());
    assert!(second.lock().unwrap().is_none());
}
