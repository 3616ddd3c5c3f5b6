//! User code that does harm where storages, blocks and arrays call it: storage hooks, deleters, owners of foreign memory,
//! destructors of elements. Each panics, allocates from where it came from, lets go of the last handle and of other blocks,
//! asks for figures, and changes the hooks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Block, Context, Request};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Storage, StorageHook, Tensor, TensorOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Runs a test on a thread of its own, which has some seconds.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (sender, done) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        test();
        sender.send(()).unwrap();
    });
    match done.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for ever"),
        _ => runner.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mischief {
    Panic,
    Allocate,
    Abandon,
    Ask,
}

const ALL: [Mischief; 4] = [Mischief::Panic, Mischief::Allocate, Mischief::Abandon, Mischief::Ask];

/// An allocator and blocks of it that user code can reach.
#[derive(Debug)]
struct Scene {
    mischief: Mischief,
    handle: Mutex<Option<AllocatorRef>>,
    blocks: Mutex<Vec<Block>>,
    calls: AtomicU32,
}

impl Scene {
    fn new(mischief: Mischief, allocator: &AllocatorRef) -> Arc<Self> {
        let blocks = (1..4).map(|n| allocator.allocate(&Request::new(n * 1000)).unwrap()).collect();
        Arc::new(Self {
            mischief,
            handle: Mutex::new(Some(allocator.clone())),
            blocks: Mutex::new(blocks),
            calls: AtomicU32::new(0),
        })
    }

    fn strike(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.mischief {
            Mischief::Panic if !std::thread::panicking() => resume_unwind(Box::new("user code")),
            Mischief::Panic => {}
            Mischief::Allocate => {
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
            Mischief::Abandon => {
                let blocks = std::mem::take(&mut *self.blocks.lock().unwrap());
                let handle = self.handle.lock().unwrap().take();
                drop(handle);
                drop(blocks);
            }
            Mischief::Ask => {
                let handle = self.handle.lock().unwrap().clone();
                if let Some(allocator) = handle {
                    allocator.verify().unwrap();
                    allocator.trim(0);
                    assert!(allocator.stats().usage.reserved >= allocator.stats().live());
                    allocator.set_observer(None);
                }
            }
        }
    }

    /// Nothing is lost.
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
    ("direct", || Direct::new(System::new()).erase()),
    ("bfc", || Bfc::builder(System::new()).build().erase()),
    ("caching", || Caching::builder(System::new()).build().erase()),
    ("pool", || Pool::builder(System::new()).build().erase()),
    ("pow2", || Pow2::new(System::new()).erase()),
    ("arena", || Arena::new(System::new(), 4096).erase()),
];

/// Makes something, and says what to do with it.
type Test = fn(&AllocatorRef, &Arc<Scene>) -> Box<dyn FnOnce()>;

/// Each mischief over each engine; the test does not keep the handle that `Abandon` is to find the last of.
fn each(test: Test) {
    watched(move || {
        for (engine, make) in ENGINES {
            for mischief in ALL {
                let name = format!("{engine}, {mischief:?}");
                let allocator = make();
                let scene = Scene::new(mischief, &allocator);
                let last = test(&allocator, &scene);
                let kept = (mischief != Mischief::Abandon).then_some(allocator);
                let result = catch_unwind(AssertUnwindSafe(last));
                assert_eq!(result.is_err(), mischief == Mischief::Panic, "{name}");
                scene.check(kept, &name);
            }
        }
    });
}

/// Strikes when it goes.
struct Last(Arc<Scene>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.strike();
    }
}

#[test]
fn destructors_of_elements() {
    each(|allocator, scene| {
        // Those after the first go while its panic unwinds, and keep quiet.
        let array = allocator.allocate_typed(5, |_| Last(Arc::clone(scene))).unwrap();
        Box::new(move || drop(array))
    });
}

#[test]
fn constructors_of_elements() {
    each(|allocator, scene| {
        let (allocator, scene) = (allocator.clone(), Arc::clone(scene));
        Box::new(move || drop(allocator.allocate_typed(3, |_| scene.strike()).unwrap()))
    });
}

/// An owner of foreign memory goes with the last of what looks at it: a storage, a view, a lazy copy.
#[test]
fn owners_of_foreign_memory() {
    each(|_, scene| {
        let mut owner = (vec![7u8; 64], Last(Arc::clone(scene)));
        let ptr = NonNull::from(owner.0.as_mut_slice()).cast();
        // SAFETY: the vector stays where it is while its owner moves, and nobody else has it.
        let storage = unsafe { Storage::foreign(ptr, 64, MemoryKind::Default, owner) };
        let view = Tensor::bind(&storage, 8, [4], DType::U8).unwrap();
        drop(storage);
        assert_eq!(view.to_vec::<u8>().unwrap(), [7; 4]);
        Box::new(move || drop(view))
    });
}

const FAR: Device = Device::custom(81, 0);

/// A hook that is hostile once, and then makes the storage.
#[derive(Debug)]
struct Hook(Arc<Scene>, AtomicU32);

impl StorageHook for Hook {
    fn allocate(&self, _: &Context, _: Device, request: &Request) -> orlop_alloc::Result<Block> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            // It takes itself away meanwhile.
            let ours = orlop_tensor::clear_storage_hook(FAR.device_type());
            self.0.strike();
            orlop_tensor::set_storage_hook(FAR.device_type(), ours.unwrap());
        }
        let null = Direct::new(orlop_alloc::backing::Null::new(FAR));
        null.allocate(request)
    }
}

#[test]
fn storage_hooks() {
    watched(|| {
        for mischief in ALL {
            let allocator = Caching::builder(System::new()).build().erase();
            let scene = Scene::new(mischief, &allocator);
            drop(allocator);
            let hook = Arc::new(Hook(Arc::clone(&scene), AtomicU32::new(0)));
            orlop_tensor::set_storage_hook(FAR.device_type(), hook.clone());
            let make =
                || Storage::new(100, &TensorOptions::new().device(FAR)).map(|storage| storage.nbytes());
            let made = catch_unwind(AssertUnwindSafe(make));
            assert_eq!(made.is_err(), mischief == Mischief::Panic, "{mischief:?}");
            // A panic left it taken away: nobody holds a lock, so it can be put back.
            orlop_tensor::set_storage_hook(FAR.device_type(), hook);
            assert_eq!(make().unwrap(), 100);
            orlop_tensor::clear_storage_hook(FAR.device_type());
            scene.check(None, &format!("{mischief:?}"));
        }
    });
}
