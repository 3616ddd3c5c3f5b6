//! [`NeverDeferred`]: device memory of which an engine learns that all work is always complete.

use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_cuda::CudaMemory;
use orlop_device::{BackingError, DeviceBacking, EventId};

/// A device whose events are always complete, and whose streams never wait: nothing is deferred.
#[derive(Debug)]
pub(super) struct NeverDeferred(pub(super) CudaMemory);

// SAFETY: it breaks the second promise, for a test that shows that the check finds it.
unsafe impl DeviceBacking for NeverDeferred {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        self.0.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.release(address, bytes) }
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.zero(address, bytes, stream) }
    }

    fn record(&self, _: StreamId) -> Result<EventId, BackingError> {
        Ok(EventId(u64::MAX))
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

    fn memory(&self) -> u64 {
        self.0.memory()
    }

    fn device(&self) -> Device {
        self.0.device()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    fn name(&self) -> &str {
        "never-deferred"
    }
}
