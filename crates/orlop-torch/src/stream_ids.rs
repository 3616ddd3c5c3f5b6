//! [`StreamIds`]: the streams that PyTorch names, and the ids that the engine knows them by.

use orlop_core::StreamId;
use orlop_cuda::{CudaDevice, CudaError, DeviceStream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock};

/// `cudaStreamLegacy`, another name of the default stream.
const LEGACY: usize = 1;

/// The streams of a device.
///
/// They are borrowed until they are retired: events are recorded in a stream after its blocks were freed,
/// when their memory is given to another stream. PyTorch destroys none of its own; one that a program wraps
/// (`torch.cuda.ExternalStream`) is retired before it is destroyed.
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
    /// `stream` is a stream of the device, and exists until [`retire`](Self::retire) returned `Ok`, or else
    /// until the end of the process.
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

    /// Waits for the work of a stream and forgets it, so that it can be destroyed. Does nothing if it is
    /// unknown or the default stream. The caller gives it no work meanwhile.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`]; failures of the driver. The stream must then not be destroyed.
    pub(crate) fn retire(&self, stream: *mut c_void) -> Result<(), CudaError> {
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let Some(retired) = known.get(&stream.addr()).cloned() else { return Ok(()) };
        drop(known);
        retired.synchronize()?;
        let mut known = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let borrowed = known.remove(&stream.addr());
        drop(known);
        let in_use = Arc::downgrade(retired.cudarc());
        // The drop of the last handle records an event in the stream, for which its id stands from then on. A
        // call of another thread can have that handle, until the call returns.
        drop((borrowed, retired));
        while in_use.strong_count() > 0 {
            std::thread::yield_now();
        }
        Ok(())
    }
}
