//! Hostile user code wherever storages, blocks and arrays call it: storage hooks, deleters, owners of foreign
//! memory, destructors of elements. It panics, allocates from the calling allocator, drops the last handle
//! and other blocks, reads statistics, and changes the hooks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Storage, StorageHook, Tensor, TensorOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Runs a test on a thread of its own, with a timeout.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (sender, done) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        test();
        sender.send(()).unwrap();
    });
    match done.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => runner.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostileAction {
    Panic,
    Allocate,
    Abandon,
    Ask,
}

const ALL: [HostileAction; 4] =
    [HostileAction::Panic, HostileAction::Allocate, HostileAction::Abandon, HostileAction::Ask];

/// An allocator and blocks of it that user code can access.
#[derive(Debug)]
struct HostileState {
    action: HostileAction,
    handle: Mutex<Option<AllocatorRef>>,
    blocks: Mutex<Vec<Block>>,
    calls: AtomicU32,
}

impl HostileState {
    fn new(action: HostileAction, allocator: &AllocatorRef) -> Arc<Self> {
        let blocks = (1..4).map(|n| allocator.allocate(&Request::new(n * 1000)).unwrap()).collect();
        Arc::new(Self {
            action,
            handle: Mutex::new(Some(allocator.clone())),
            blocks: Mutex::new(blocks),
            calls: AtomicU32::new(0),
        })
    }

    fn strike(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.action {
            HostileAction::Panic if !std::thread::panicking() => resume_unwind(Box::new("user code")),
            HostileAction::Panic => {}
            HostileAction::Allocate => {
                let handle = self.handle.lock().unwrap().clone();
                if let Some(allocator) = handle {
                    let tensor = Tensor::zeros([100], TensorOptions::new().allocator(&allocator)).unwrap();
                    drop(tensor);
                    let block = allocator.allocate(&Request::new(777)).unwrap();
                    let oldest = {
                        let mut blocks = self.blocks.lock().unwrap();
                        blocks.push(block);
                        blocks.remove(0)
                    };
                    drop(oldest);
                }
            }
            HostileAction::Abandon => {
                let blocks = std::mem::take(&mut *self.blocks.lock().unwrap());
                let handle = self.handle.lock().unwrap().take();
                drop(handle);
                drop(blocks);
            }
            HostileAction::Ask => {
                let handle = self.handle.lock().unwrap().clone();
                if let Some(allocator) = handle {
                    allocator.verify().unwrap();
                    allocator.trim(0);
                    assert!(allocator.stats().usage.reserved >= allocator.stats().live());
                    for observer in allocator.observers() {
                        allocator.remove_observer(&observer);
                    }
                }
            }
        }
    }

    /// Checks that no block is lost.
    fn check(&self, allocator: Option<AllocatorRef>, name: &str) {
        assert!(self.calls.load(Ordering::Relaxed) > 0, "{name}");
        drop(std::mem::take(&mut *self.blocks.lock().unwrap()));
        let kept = self.handle.lock().unwrap().take();
        let Some(allocator) = allocator.or(kept) else { return };
        allocator.verify().unwrap();
        assert_eq!(allocator.stats().live(), 0, "{name}");
        assert!(allocator.allocate(&Request::new(5000)).is_ok(), "{name}");
    }
}

type Engine = (&'static str, fn() -> AllocatorRef);

const ENGINES: [Engine; 6] = [
    ("direct", || Direct::new(System::new()).into_ref().erase()),
    ("bfc", || Bfc::new(System::new()).into_ref().erase()),
    ("caching", || Caching::new(System::new()).into_ref().erase()),
    ("pool", || Pool::new(System::new()).into_ref().erase()),
    ("pow2", || Pow2::new(System::new()).into_ref().erase()),
    ("arena", || Arena::new(System::new(), 4096).into_ref().erase()),
];

/// Creates something, and returns the operation on it.
type HostileTest = fn(&AllocatorRef, &Arc<HostileState>) -> Box<dyn FnOnce()>;

/// Runs each action over each engine; the test does not keep the handle whose last clone `Abandon` drops.
fn each(test: HostileTest) {
    watched(move || {
        for (engine, make) in ENGINES {
            for action in ALL {
                let name = format!("{engine}, {action:?}");
                let allocator = make();
                let state = HostileState::new(action, &allocator);
                let last = test(&allocator, &state);
                let kept = (action != HostileAction::Abandon).then_some(allocator);
                let result = catch_unwind(AssertUnwindSafe(last));
                assert_eq!(result.is_err(), action == HostileAction::Panic, "{name}");
                state.check(kept, &name);
            }
        }
    });
}

/// Runs the action when it is dropped.
struct StrikeOnDrop(Arc<HostileState>);

impl Drop for StrikeOnDrop {
    fn drop(&mut self) {
        self.0.strike();
    }
}

#[test]
fn destructors_of_elements() {
    each(|allocator, state| {
        // Elements after the first are dropped during its unwind, and do nothing.
        let array = allocator.allocate_typed(5, |_| StrikeOnDrop(Arc::clone(state))).unwrap();
        Box::new(move || drop(array))
    });
}

#[test]
fn constructors_of_elements() {
    each(|allocator, state| {
        let (allocator, state) = (allocator.clone(), Arc::clone(state));
        Box::new(move || drop(allocator.allocate_typed(3, |_| state.strike()).unwrap()))
    });
}

/// An owner of foreign memory is dropped with the last of a storage, a view and a lazy copy.
#[test]
fn owners_of_foreign_memory() {
    each(|_, state| {
        let mut owner = (vec![7u8; 64], StrikeOnDrop(Arc::clone(state)));
        let ptr = NonNull::from(owner.0.as_mut_slice()).cast();
        // SAFETY: the vector's elements do not move when their owner does, and nothing else uses them.
        let storage = unsafe { Storage::foreign(ptr, 64, MemoryKind::Default, owner) };
        let view = Tensor::bind(&storage, 8, [4], DType::U8).unwrap();
        drop(storage);
        assert_eq!(view.to_vec::<u8>().unwrap(), [7; 4]);
        Box::new(move || drop(view))
    });
}

const FAR: Device = Device::custom(81, 0);

/// A hook that is hostile once, and then allocates normally.
#[derive(Debug)]
struct Hook(Arc<HostileState>, AtomicU32);

impl StorageHook for Hook {
    fn allocate(&self, _: &Context, _: Device, request: &Request) -> orlop_alloc::Result<Block> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            // It removes itself meanwhile.
            let ours = orlop_tensor::clear_storage_hook(FAR.device_type());
            self.0.strike();
            orlop_tensor::set_storage_hook(FAR.device_type(), ours.unwrap());
        }
        let null = Direct::new(orlop_alloc::backing::Null::new(FAR)).into_ref();
        null.allocate(request)
    }
}

#[test]
fn storage_hooks() {
    watched(|| {
        for action in ALL {
            let allocator = Caching::new(System::new()).into_ref().erase();
            let state = HostileState::new(action, &allocator);
            drop(allocator);
            let hook = Arc::new(Hook(Arc::clone(&state), AtomicU32::new(0)));
            orlop_tensor::set_storage_hook(FAR.device_type(), hook.clone());
            let make =
                || Storage::new(100, &TensorOptions::new().device(FAR)).map(|storage| storage.nbytes());
            let made = catch_unwind(AssertUnwindSafe(make));
            assert_eq!(made.is_err(), action == HostileAction::Panic, "{action:?}");
            // A panic left it removed: no lock is held, so it can be installed again.
            orlop_tensor::set_storage_hook(FAR.device_type(), hook);
            assert_eq!(make().unwrap(), 100);
            orlop_tensor::clear_storage_hook(FAR.device_type());
            state.check(None, &format!("{action:?}"));
        }
    });
}
