//! Failed calls, and the requests that they belong to.

use super::{on, torch};
use crate::{BackingError, DeviceBacking, DriverFailure, EventId, NullDevice, Policy};
use crate::{DeviceAllocator, DeviceError, Engine};
use orlop_alloc::{Allocator, Error, Request};
use orlop_core::{Device, StreamId};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type Hook = Box<dyn FnOnce() + Send>;

/// A device whose queries can fail, whose records can lose it, and that calls a hook instead of allocating.
#[derive(Clone)]
struct FailingDevice(Arc<FailingState>);

struct FailingState {
    device: NullDevice,
    fails_to_query: AtomicBool,
    is_lost: AtomicBool,
    hook: Mutex<Option<Hook>>,
}

impl FailingDevice {
    fn new() -> Self {
        Self(Arc::new(FailingState {
            device: NullDevice::new(Device::cuda(0), 1 << 30),
            fails_to_query: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            hook: Mutex::new(None),
        }))
    }
}

impl fmt::Debug for FailingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.device.fmt(f)
    }
}

const FAILURE: DriverFailure = DriverFailure { call: "call", code: 2, name: "FAILED" };

// SAFETY: as for the device behind; what fails has no effect.
unsafe impl DeviceBacking for FailingDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        match self.0.hook.lock().expect("no panic").take() {
            Some(hook) => {
                hook();
                Err(BackingError::OutOfMemory)
            }
            None => self.0.device.allocate(bytes),
        }
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.device.release(address, bytes) }
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        if self.0.is_lost.load(Ordering::Relaxed) {
            return Err(BackingError::Lost(FAILURE));
        }
        self.0.device.record(stream)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        if self.0.fails_to_query.load(Ordering::Relaxed) {
            return Err(BackingError::Failed(FAILURE));
        }
        self.0.device.query(event)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.0.device.synchronize(event)
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.0.device.wait(stream, event)
    }

    fn memory(&self) -> u64 {
        1 << 30
    }

    fn device(&self) -> Device {
        Device::cuda(0)
    }

    fn name(&self) -> &str {
        "failing"
    }
}

/// While a request waits for the device, queries fail in another thread. The request finds no memory; that is
/// its error.
#[test]
fn the_failures_of_another_thread_are_not_those_of_a_request() {
    let device = FailingDevice::new();
    let allocator = DeviceAllocator::new(device.clone(), torch("")).into_ref();
    let cached = allocator.allocate(&Request::new(1000)).unwrap();
    let used = allocator.allocate(&Request::new(1000)).unwrap();
    used.record_stream(StreamId::from_raw(5)).unwrap();
    drop(cached);
    drop(used);
    device.0.device.set_events_done(false);
    let (other, failing) = (allocator.clone(), device.clone());
    let in_another_thread = move || {
        failing.0.fails_to_query.store(true, Ordering::Relaxed);
        drop(other.allocate(&Request::new(1000)).unwrap());
        failing.0.fails_to_query.store(false, Ordering::Relaxed);
    };
    let hook = || std::thread::spawn(in_another_thread).join().expect("cached memory serves it");
    *device.0.hook.lock().unwrap() = Some(Box::new(hook));
    let request = Request::new(2 << 30).no_retry();
    let error = allocator.allocate(&request).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let failed = allocator.with_engine(|engine| engine.last_failure());
    assert!(matches!(failed, Some(DeviceError::Backing { call: "query", .. })), "it is noted: {failed:?}");
    allocator.verify().unwrap();
}

/// Blocks whose events a lost device did not record stay as they are.
#[test]
fn nothing_is_recorded_again_once_the_device_is_lost() {
    let device = FailingDevice::new();
    let mut engine = Engine::new(device.clone(), Policy::torch(&crate::TorchConf::default()));
    let blocks: Vec<_> = (0..100).map(|_| engine.allocate(on(1, 1)).unwrap()).collect();
    device.0.is_lost.store(true, Ordering::Relaxed);
    for block in blocks {
        engine.record_stream(block, StreamId::from_raw(2)).unwrap();
        engine.free(block).unwrap();
    }
    // A retry would take the list and make a new one.
    let list = engine.pending.without_events.as_ptr();
    let is_lost = |result| matches!(result, Err(DeviceError::Backing { error: BackingError::Lost(_), .. }));
    assert!((0..10).all(|_| is_lost(engine.allocate(on(1, 1)))));
    assert!(matches!(engine.empty_cache(), Err(DeviceError::Backing { .. })));
    assert_eq!((engine.pending.without_events.len(), engine.pending.without_events.as_ptr()), (100, list));
    engine.verify().unwrap();
}
