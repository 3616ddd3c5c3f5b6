//! Blocks that thread caches do not have: of retired streams, during captures and slow paths, of a lost
//! device.

use super::MIB;
use super::thread_caches::{allocate, free, on};
use crate::{
    BackingError, CaptureCount, DeviceAllocator, DeviceBacking, DriverFailure, EventId, NullDevice, Policy,
};
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request};
use orlop_core::{Device, StreamId};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

type Caching = AllocatorRef<DeviceAllocator<HookedDevice>>;

type Hook = Box<dyn FnOnce() + Send>;

/// A device that counts captures, can be lost, cannot zero, and calls a hook before it allocates.
#[derive(Clone)]
struct HookedDevice(Arc<HookedState>);

struct HookedState {
    device: NullDevice,
    captures: CaptureCount,
    is_lost: AtomicBool,
    hook: Mutex<Option<Hook>>,
}

impl HookedDevice {
    fn new() -> Self {
        Self(Arc::new(HookedState {
            device: NullDevice::new(Device::cuda(0), 64 << 20),
            captures: CaptureCount::new(),
            is_lost: AtomicBool::new(false),
            hook: Mutex::new(None),
        }))
    }
}

impl fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.device.fmt(f)
    }
}

// SAFETY: as for the device behind; what fails has no effect.
unsafe impl DeviceBacking for HookedDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let hook = self.0.hook.lock().expect("no panic").take();
        if let Some(hook) = hook {
            hook();
        }
        self.0.device.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.device.release(address, bytes) }
    }

    unsafe fn zero(&self, _: usize, _: usize, _: StreamId) -> Result<(), BackingError> {
        Err(BackingError::Unsupported)
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        self.0.device.record(stream)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        if self.0.is_lost.load(Ordering::Relaxed) {
            return Err(BackingError::Lost(DriverFailure { call: "query", code: 2, name: "LOST" }));
        }
        self.0.device.query(event)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.0.device.synchronize(event)
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.0.device.wait(stream, event)
    }

    fn capture_count(&self) -> Option<CaptureCount> {
        Some(self.0.captures.clone())
    }

    fn memory(&self) -> u64 {
        64 << 20
    }

    fn device(&self) -> Device {
        Device::cuda(0)
    }

    fn name(&self) -> &str {
        "hooked"
    }
}

/// Returns a device, and an allocator of it in which this thread has a cache.
fn hooked(policy: Policy) -> (HookedDevice, Caching) {
    let device = HookedDevice::new();
    let allocator = DeviceAllocator::new(device.clone(), policy).into_ref();
    drop(allocate(&allocator, &on(512, 1)));
    allocator.empty_cache().expect("a device that works");
    (device, allocator)
}

/// Returns `true` if a block of a stream is cached when it is freed.
fn caches(allocator: &Caching, stream: u64) -> bool {
    let block = allocate(allocator, &on(4096, stream));
    let before = allocator.cached_blocks();
    drop(block);
    allocator.cached_blocks() > before
}

/// A block of before the retirement is the default stream's when it is freed, whether its stream is back or
/// not: the stream waits before it gets the memory.
#[test]
fn a_stream_that_comes_back_waits_for_its_blocks_of_before() {
    for is_back in [false, true] {
        let (device, allocator) = hooked(Policy::orlop_without_pages());
        let default = allocate(&allocator, &Request::new(512));
        let before = allocate(&allocator, &on(20 * MIB, 6));
        allocator.retire_stream(StreamId::from_raw(6)).unwrap();
        if is_back {
            // The second one takes the slow path, which opens the caches.
            drop([1, 2].map(|bytes| allocate(&allocator, &on(bytes * MIB, 6))));
        }
        let before = free(before);
        let waits = device.0.device.waits();
        let again = allocate(&allocator, &on(20 * MIB, 6));
        assert_eq!(again.as_ptr().as_ptr().addr(), before);
        assert!(device.0.device.waits() > waits, "is back: {is_back}");
        drop((again, default));
        assert!(caches(&allocator, 6), "blocks of after it are cached");
        allocator.verify().unwrap();
    }
}

#[test]
fn caches_are_open_after_a_capture_of_the_device() {
    let (device, allocator) = hooked(Policy::orlop());
    device.0.captures.begin();
    allocator.empty_cache().unwrap();
    assert!(!caches(&allocator, 1));
    device.0.captures.end();
    assert!(caches(&allocator, 1));
    allocator.mark_capture_begin();
    assert!(!caches(&allocator, 1));
    allocator.mark_capture_end().unwrap();
    assert!(caches(&allocator, 1));
}

#[test]
fn a_lost_device_has_no_cached_blocks() {
    let (device, allocator) = hooked(Policy::orlop_without_pages());
    let used = allocate(&allocator, &on(512, 1));
    used.record_stream(StreamId::from_raw(2)).unwrap();
    drop(used);
    // The event of that block is recorded before the engine grows, and queried by the next request.
    device.0.device.set_events_done(false);
    let grown = allocate(&allocator, &on(30 * MIB, 1));
    drop(allocate(&allocator, &on(4096, 1)));
    device.0.is_lost.store(true, Ordering::Relaxed);
    allocator.allocate(&on(8192, 1)).unwrap_err();
    assert!(allocator.loss().is_some());
    allocator.allocate(&on(4096, 1)).unwrap_err();
    drop(grown);
    allocator.verify().unwrap();
}

/// While a request waits for the device, another thread frees blocks: the request's search has found none, so
/// they go where the next step of the ladder finds them.
#[test]
fn caches_are_closed_during_a_slow_path() {
    let (device, allocator) = hooked(Policy::orlop_without_pages());
    let block = allocate(&allocator, &on(40 * MIB, 1));
    let (to_thread, blocks) = mpsc::channel::<Block>();
    let (to_main, freed) = mpsc::channel();
    let owner = allocator.clone();
    let thread = thread::spawn(move || {
        drop(allocate(&owner, &on(512, 1)));
        to_main.send(()).expect("main waits");
        blocks.into_iter().for_each(|block| {
            drop(block);
            to_main.send(()).expect("main waits");
        });
    });
    freed.recv().expect("the thread has a cache");
    let sender = to_thread.clone();
    *device.0.hook.lock().unwrap() = Some(Box::new(move || {
        sender.send(block).expect("the thread waits");
        freed.recv().expect("the thread frees it");
    }));
    // It needs the memory of that block.
    let served = allocate(&allocator, &on(50 * MIB, 1));
    assert_eq!(allocator.device_stats().num_ooms, 0);
    drop((served, to_thread));
    thread.join().unwrap();
    allocator.verify().unwrap();
}

/// Another thread that verifies or reads figures finds each block of a cache that is full counted once.
#[test]
fn a_spill_is_never_on_its_way() {
    let rounds = if cfg!(miri) { 3 } else { 2_000 };
    let (_, allocator) = hooked(Policy::orlop());
    let other = allocator.clone();
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let thread = thread::spawn(move || {
        drop(allocate(&other, &on(512, 1)));
        for _ in 0..rounds {
            let blocks: Vec<Block> = (1..40).map(|count| allocate(&other, &on(512 * count, 1))).collect();
            drop(blocks);
        }
        done.store(true, Ordering::Relaxed);
    });
    while !is_done.load(Ordering::Relaxed) {
        allocator.verify().unwrap();
    }
    thread.join().unwrap();
    allocator.verify().unwrap();
}

/// One thread's peak is exact, though it frees a block that is not cached while its cache has told nothing.
#[test]
fn a_free_without_the_cache_tells_of_the_cache() {
    let (_, allocator) = hooked(Policy::orlop());
    let cached = allocate(&allocator, &on(4096, 1));
    let shared = allocate(&allocator, &on(8192, 1));
    shared.record_stream(StreamId::from_raw(2)).unwrap();
    allocator.reset_peak();
    drop(cached);
    allocator.reset_peak();
    let cached = allocate(&allocator, &on(4096, 1));
    drop(shared);
    assert_eq!(allocator.device_stats().allocated_bytes.all.peak, 4096 + 8192);
    drop(cached);
}

/// What needs a lock of the allocator ends without it.
#[test]
fn nothing_panics_inside_of_the_engines_lock() {
    let (_, allocator) = hooked(Policy::orlop());
    drop(allocate(&allocator, &on(4096, 1)));
    allocator.with_engine(|_| {
        let error = allocator.allocate(&on(4096, 1)).unwrap_err();
        assert!(matches!(error, Error::Reentrant { .. }), "{error}");
        assert_eq!(allocator.trim(0), 0);
    });
    let block = allocate(&allocator, &on(4096, 1));
    allocator.with_engine(|_| {
        drop(block);
        let error = allocator.allocate(&on(4096, 1).zeroed()).unwrap_err();
        assert!(matches!(error, Error::CannotZero { .. }), "{error}");
    });
    allocator.verify().unwrap();
    assert_eq!(allocator.device_stats().allocation.all.current, 0);
}

/// Another thread frees a block before the engine is told that a cache handed it out: until then there are
/// fewer than zero live bytes.
#[test]
fn no_figure_of_a_refusal_is_negative() {
    let (_, allocator) = hooked(Policy::orlop());
    drop(allocate(&allocator, &on(20 * MIB, 1)));
    assert_eq!(allocator.device_stats().allocation.all.current, 0);
    let block = allocate(&allocator, &on(20 * MIB, 1));
    let other = allocator.clone();
    let refuse = move || {
        drop(block);
        other.allocate(&on(isize::MAX.unsigned_abs(), 1)).unwrap_err()
    };
    let refused = thread::spawn(refuse).join().unwrap();
    let Error::OutOfMemory(report) = refused else { panic!("{refused}") };
    assert_eq!((report.live, report.free), (0, report.reserved));
    assert_eq!(allocator.usage().deferred, 0);
    allocator.verify().unwrap();
}
