//! [`OwnedEvent`]: an event of the driver that is not of the pool.

use super::DeviceState;
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::engine_support::trace_guarded;
use std::sync::Arc;
use std::{fmt, ptr};

/// An event of a device, which it keeps. Dropping it destroys it.
pub(super) struct OwnedEvent {
    device: Arc<DeviceState>,
    /// The driver's handle, as a number: it is not accessed here.
    handle: usize,
}

impl OwnedEvent {
    /// Creates an event with `CU_EVENT_*` flags.
    pub(super) fn create(device: &Arc<DeviceState>, flags: u32) -> Result<Self, CudaError> {
        let scope = device.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { call!(scope.driver(), cuEventCreate(&raw mut handle, flags)) }?;
        // SAFETY: created above.
        Ok(unsafe { Self::of(device, handle) })
    }

    /// Takes an event.
    ///
    /// # Safety
    ///
    /// It is an event of the device that nothing else destroys.
    pub(super) unsafe fn of(device: &Arc<DeviceState>, handle: abi::Handle) -> Self {
        Self { device: device.clone(), handle: handle.addr() }
    }

    pub(super) fn device(&self) -> &Arc<DeviceState> {
        &self.device
    }

    pub(super) fn handle(&self) -> abi::Handle {
        ptr::without_provenance_mut(self.handle)
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        let destroyed = self.device.enter().and_then(|scope| {
            // SAFETY: it exists, and is destroyed once.
            Ok(unsafe { call!(scope.driver(), cuEventDestroy_v2(self.handle())) }?)
        });
        if let Err(error) = destroyed {
            trace_guarded(|| tracing::error!(%error, "an event was not destroyed"));
        }
    }
}

impl fmt::Debug for OwnedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedEvent").field("device", &self.device.device()).finish_non_exhaustive()
    }
}
