//! Captures that the backing knows of, and streams that it does not know.

use super::{on, torch};
use crate::backing::{BackingError, CaptureCount, DeviceBacking, EventId};
use crate::{DeviceError, Engine, Policy};
use orlop_core::{Device, StreamId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const MEMORY: u64 = 64 << 20;

/// A device of which a stream may capture: nothing can be recorded in it then.
#[derive(Debug, Clone, Default)]
struct CapturingDevice {
    marked: CaptureCount,
    capturing: Arc<Mutex<Option<StreamId>>>,
    next: Arc<AtomicUsize>,
    used: Arc<AtomicUsize>,
    records: Arc<AtomicUsize>,
}

impl CapturingDevice {
    fn set_capturing(&self, stream: Option<StreamId>) {
        *self.capturing.lock().expect("no panic") = stream;
    }
}

// SAFETY: 1. addresses are handed out once. 2. nothing ever runs in a stream. 3. what fails has no effect.
unsafe impl DeviceBacking for CapturingDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > 64 << 20 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(BackingError::OutOfMemory);
        }
        Ok(self.next.fetch_add(1 << 40, Ordering::Relaxed) + (1 << 40))
    }

    unsafe fn release(&self, _: usize, bytes: usize) -> Result<(), BackingError> {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        if *self.capturing.lock().expect("no panic") == Some(stream) {
            return Err(BackingError::Capturing);
        }
        self.records.fetch_add(1, Ordering::Relaxed);
        Ok(EventId(0))
    }

    fn query(&self, _: EventId) -> Result<bool, BackingError> {
        Ok(true)
    }

    fn synchronize(&self, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn wait(&self, _: StreamId, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn knows_stream(&self, stream: StreamId) -> bool {
        stream.raw() < 100
    }

    fn capture_count(&self) -> Option<CaptureCount> {
        Some(self.marked.clone())
    }

    fn memory(&self) -> u64 {
        MEMORY
    }

    fn device(&self) -> Device {
        Device::cuda(0)
    }

    fn name(&self) -> &str {
        "capturing"
    }
}

fn policies() -> [Policy; 3] {
    [Policy::orlop(), Policy::orlop_without_pages(), torch("")]
}

/// One mark counts for all engines of the device.
#[test]
fn captures_are_marked_at_the_device() {
    for policy in policies() {
        let device = CapturingDevice::default();
        let mut engines = [(); 2].map(|()| Engine::new(device.clone(), policy.clone()));
        let blocks = engines.each_mut().map(|engine| {
            let block = engine.allocate(on(20, 1)).unwrap();
            engine.record_stream(block, StreamId::from_raw(2)).unwrap();
            block
        });
        let before = device.records.load(Ordering::Relaxed);
        device.marked.begin();
        device.marked.begin();
        for (engine, block) in engines.iter_mut().zip(blocks) {
            engine.free(block).unwrap();
            engine.allocate(on(40, 1)).unwrap_err();
            assert_eq!(engine.trim(0), Ok(0));
        }
        device.marked.end();
        assert!(device.marked.is_capturing(), "there were two");
        assert_eq!(device.records.load(Ordering::Relaxed), before, "no event in a capture");
        device.marked.end();
        device.marked.end();
        for engine in &mut engines {
            engine.trim(0).unwrap();
            assert_eq!(engine.stats().reserved_bytes.all.current, 0, "{}", policy.name);
            engine.verify().unwrap();
        }
    }
}

/// What a capture without a mark forbids is done after it, and is no failure.
#[test]
fn a_capture_without_a_mark_is_no_failure() {
    for policy in policies() {
        let device = CapturingDevice::default();
        let mut engine = Engine::new(device.clone(), policy.clone());
        let block = engine.allocate(on(40, 1)).unwrap();
        engine.record_stream(block, StreamId::from_raw(2)).unwrap();
        device.set_capturing(Some(StreamId::from_raw(2)));
        engine.free(block).unwrap();
        let refused = engine.allocate(on(40, 1)).unwrap_err();
        let is_named = matches!(refused, DeviceError::Backing { error: BackingError::Capturing, .. });
        assert!(is_named, "{}: {refused}", policy.name);
        assert_eq!((engine.stats().num_failed_calls, engine.last_failure()), (0, None));
        engine.verify().unwrap();
        device.set_capturing(None);
        engine.allocate(on(40, 1)).unwrap();
        engine.verify().unwrap();
    }
}

#[test]
fn requests_for_streams_of_no_device_are_refused() {
    for policy in policies() {
        let mut engine = Engine::new(CapturingDevice::default(), policy);
        for _ in 0..2 {
            let refused = engine.allocate(on(1, 200)).unwrap_err();
            assert_eq!(refused, DeviceError::UnknownStream { stream: StreamId::from_raw(200) });
            let block = engine.allocate(on(1, 7)).unwrap();
            engine.free(block).unwrap();
        }
        engine.trim(0).unwrap();
        assert_eq!(engine.stats().reserved_bytes.all.current, 0);
        engine.verify().unwrap();
    }
}
