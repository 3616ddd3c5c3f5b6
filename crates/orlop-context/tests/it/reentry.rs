//! Callbacks that use the context again, that end themselves, and threads that end.

use orlop_alloc::Request;
use orlop_context::{Budget, Context, PressureId};
use orlop_core::{Device, MemoryKind, StreamId};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const KIND: MemoryKind = MemoryKind::KvCache;

fn request() -> Request {
    Request::new(8192).kind(KIND)
}

fn tight() -> Context {
    let context = Context::new();
    context.set_budget(Device::CPU, KIND, Budget::hard(4096).strict()).expect("it fits");
    context
}

/// The second request inside a callback runs none either.
#[test]
fn a_callback_that_allocates_again_and_again_is_not_entered_again() {
    let context = tight();
    let (calls, depth) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let inside = (context.clone(), Arc::clone(&calls), Arc::clone(&depth));
    context.on_pressure(
        KIND,
        Arc::new(move |_| {
            let (context, calls, depth) = &inside;
            assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "entered again");
            calls.fetch_add(1, Ordering::Relaxed);
            for _ in 0..3 {
                assert!(context.allocate(Device::CPU, &request()).is_err());
            }
            depth.fetch_sub(1, Ordering::Relaxed);
            0
        }),
    );
    for _ in 0..2 {
        assert!(context.allocate(Device::CPU, &request()).is_err());
    }
    assert!(calls.load(Ordering::Relaxed) >= 2);
    assert_eq!(depth.load(Ordering::Relaxed), 0, "a callback panicked");
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor of a capture");
    }
}

/// The last handle of a callback that removes itself is dropped by the request that ran it.
#[test]
fn a_callback_that_removes_itself_may_panic_when_it_is_dropped() {
    let context = tight();
    let id: Arc<Mutex<Option<PressureId>>> = Arc::default();
    let (own, inside, bomb) = (Arc::clone(&id), context.clone(), Bomb);
    let callback = move |_: &_| {
        let _ = &bomb;
        if let Some(id) = own.lock().unwrap().take() {
            inside.remove_on_pressure(id);
        }
        0
    };
    *id.lock().unwrap() = Some(context.on_pressure(KIND, Arc::new(callback)));
    assert!(context.allocate(Device::CPU, &request()).is_err());
    assert_eq!(context.stats(Device::CPU).live(), 0);
    assert!(context.allocate(Device::CPU, &Request::new(100).kind(KIND)).is_ok());
}

struct AtTheEnd(Context);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let stream = StreamId::unique();
        let block = self.0.on_stream(Device::CPU, stream, || self.0.allocate(Device::CPU, &Request::new(64)));
        assert!(block.is_ok());
    }
}

#[test]
fn a_stream_can_be_chosen_while_a_thread_ends() {
    thread_local! {
        static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let context = Context::new();
    let ended = std::thread::spawn({
        let context = context.clone();
        move || {
            // Created before the list of streams, so dropped after it.
            LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(context.clone())));
            context.on_stream(Device::CPU, StreamId::unique(), || ());
        }
    });
    ended.join().unwrap();
    assert_eq!(context.stats(Device::CPU).live(), 0);
}
