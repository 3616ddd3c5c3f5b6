//! [`PinnedMemory`]: host memory that is locked for copies by any device.

use crate::device::{self, CudaDevice};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::{
    Access,
    engine_support::{DeviceOps, HostOps},
};
use orlop_core::{Device, StreamId};
use orlop_device::{BackingError, DeviceBacking, EventId};
use std::ptr;

/// Host memory that is locked for copies (`cuMemHostAlloc`), for all devices. The driver waits for a device
/// to lock and unlock memory, so it is kept and reused: see
/// [`PinnedAllocator`](crate::PinnedAllocator).
///
/// The stream of the host ([`StreamId::HOST`]) is the host itself, whose work is complete when a call
/// returns.
#[derive(Debug)]
pub struct PinnedMemory {
    device: CudaDevice,
    memory: u64,
}

impl PinnedMemory {
    /// Creates a source of pinned memory. The device is the one through which the driver is called; the
    /// memory is locked for all devices.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        // Unknown only where the system does not say: the driver then is the limit.
        let memory = HostOps.memory().map_or(u64::MAX / 2, |memory| memory.total);
        Self { device: device.clone(), memory }
    }

    fn reserve(&self, bytes: usize) -> Result<usize, CudaError> {
        let mut address = ptr::null_mut();
        let scope = self.device.state().enter()?;
        let flags = abi::HOST_ALLOC_PORTABLE;
        // SAFETY: it writes one pointer.
        unsafe { call!(scope.driver(), cuMemHostAlloc(&raw mut address, bytes, flags)) }?;
        // Safe code may read all of it.
        // SAFETY: new host memory of this many bytes.
        unsafe { address.cast::<u8>().write_bytes(0, bytes) };
        Ok(address.expose_provenance())
    }
}

// SAFETY: 1. regions are the driver's, which do not overlap and begin at pages of the host; they are
// initialised. 2. events are the driver's; the host's own work is complete. 3. calls that fail have no
// effect.
unsafe impl DeviceBacking for PinnedMemory {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        Ok(self.reserve(bytes)?)
    }

    unsafe fn release(&self, address: usize, _: usize) -> Result<(), BackingError> {
        let scope = self.device.state().enter()?;
        let start = ptr::with_exposed_provenance_mut(address);
        // SAFETY: a region from `allocate`, released once (guaranteed by the caller).
        Ok(unsafe { call!(scope.driver(), cuMemFreeHost(start)) }.map_err(CudaError::from)?)
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        if stream != StreamId::HOST {
            return Err(BackingError::Unsupported);
        }
        let start = ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: host memory, and the caller's alone (guaranteed by the caller).
        unsafe { start.write_bytes(0, bytes) };
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        Ok(self.device.state().record_use(stream)?)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        Ok(self.device.state().query_use(event)?)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        Ok(self.device.state().synchronize_use(event)?)
    }

    fn forget(&self, event: EventId) {
        device::forget(event);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        Ok(self.device.state().wait_for_use(stream, event)?)
    }

    fn has_ended(&self, stream: StreamId) -> bool {
        device::has_ended(stream)
    }

    fn is_capturing(&self, stream: StreamId) -> bool {
        device::is_capturing(stream)
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn access(&self) -> Access {
        Access::Host
    }

    fn name(&self) -> &str {
        "cuda-pinned"
    }
}
