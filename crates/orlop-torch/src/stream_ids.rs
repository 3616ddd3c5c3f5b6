//! [`StreamIds`]: the streams that PyTorch names, and the ids that the engine knows them by.

use orlop_core::StreamId;
use orlop_cuda::{CudaDevice, CudaError, DeviceStream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{PoisonError, RwLock};

/// `cudaStreamLegacy`, another name of the default stream.
const LEGACY: usize = 1;

/// The streams of a device.
///
/// They are borrowed for good: PyTorch destroys none of its own. A stream that a program wraps
/// (`torch.cuda.ExternalStream`) must exist as long as blocks that it used, as with PyTorch's own allocator.
#[derive(Debug, Default)]
pub(crate) struct StreamIds {
    streams: RwLock<HashMap<usize, DeviceStream>>,
}

impl StreamIds {
    /// Returns the id of a stream.
    ///
    /// # Errors
    ///
    /// [`CudaError::PerThreadStream`].
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the device, and exists as long as blocks that it used.
    pub(crate) unsafe fn id(&self, device: &CudaDevice, stream: *mut c_void) -> Result<StreamId, CudaError> {
        if stream.is_null() || stream.addr() == LEGACY {
            return Ok(device.default_stream());
        }
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = known.get(&stream.addr()) {
            return Ok(stream.id());
        }
        drop(known);
        // SAFETY: guaranteed by the caller.
        let borrowed = unsafe { device.borrow_stream(stream.cast()) }?;
        let mut known = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first: one stream has one id.
        Ok(known.entry(stream.addr()).or_insert(borrowed).id())
    }
}
