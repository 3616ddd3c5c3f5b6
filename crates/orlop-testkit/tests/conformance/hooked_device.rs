//! [`HookedDevice`]: a device whose calls a test can stop.

use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_device::{BackingError, DeviceBacking, EventId};
use orlop_testkit::device::MockDevice;
use std::fmt;
use std::sync::Arc;

/// A mock device that calls a function before its calls that may take long.
pub(crate) struct HookedDevice {
    pub(crate) device: MockDevice,
    pub(crate) hook: Arc<dyn Fn(&'static str) + Send + Sync>,
}

impl fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

// SAFETY: as for the mock device, which every call reaches.
unsafe impl DeviceBacking for HookedDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        (self.hook)("allocate");
        self.device.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        (self.hook)("release");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.release(address, bytes) }
    }

    fn page_granularity(&self) -> Option<usize> {
        self.device.page_granularity()
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        (self.hook)("reserve_addresses");
        self.device.reserve_addresses(bytes)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        (self.hook)("release_addresses");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.release_addresses(address, bytes) }
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        (self.hook)("map");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.map(address, bytes, page) }
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        (self.hook)("unmap");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.unmap(address, bytes, page) }
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        (self.hook)("remap");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.remap(from, to, bytes, page) }
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        (self.hook)("zero");
        // SAFETY: guaranteed by the caller.
        unsafe { self.device.zero(address, bytes, stream) }
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        self.device.record(stream)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        self.device.query(event)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        (self.hook)("synchronize");
        self.device.synchronize(event)
    }

    fn forget(&self, event: EventId) {
        self.device.forget(event);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.device.wait(stream, event)
    }

    fn memory(&self) -> u64 {
        self.device.memory()
    }

    fn free_memory(&self) -> Option<u64> {
        self.device.free_memory()
    }

    fn device(&self) -> Device {
        self.device.device()
    }

    fn access(&self) -> Access {
        self.device.access()
    }

    fn name(&self) -> &str {
        "hooked"
    }
}
