//! [`DeviceStream`]: the streams that programs create, adopt and borrow.

use super::stream_table::{StreamEntry, known_at, known_entry};
use super::{CudaDevice, DeviceState, order};
use crate::driver::abi;
use crate::error::CudaError;
use cudarc::driver::CudaStream;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::StreamId;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::{fmt, ptr};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A stream of a device, under an id that blocks carry.
///
/// Clones are the same stream. When the last one is dropped, the stream is no longer known by its id, and if
/// nothing else refers to it, it is destroyed. Work that it was given still runs, and blocks that it used are
/// reused only after that work.
#[derive(Clone)]
pub struct DeviceStream {
    entry: Arc<StreamEntry>,
}

impl CudaDevice {
    /// Creates a stream. It does not wait for the default stream, nor the default stream for it.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if a stream captures that the default stream would wait for; failures of the
    /// driver.
    pub fn create_stream(&self) -> Result<DeviceStream, CudaError> {
        let scope = self.state().enter()?;
        // cudarc keeps the errors of drops, and returns them from the next call, whatever that is.
        if let Err(error) = self.context().check_err() {
            let error = scope.driver().failure_of("a drop of cudarc", error);
            trace_guarded(|| tracing::warn!(%error, "an earlier error of cudarc"));
        }
        let default = ptr::null_mut();
        scope.refuse_capturing(default, "CudaStream::fork")?;
        // While there is one stream, cudarc notes no uses of its slices. So it waits when there is another
        // one, and a fork does not.
        let is_first = !self.context().is_in_multi_stream_mode() && self.context().is_event_tracking();
        // The fork waits for the work of the default stream so far, on the device.
        let stream = self.context().default_stream().fork();
        let stream = stream.map_err(|error| scope.driver().failure_of("CudaStream::fork", error))?;
        if is_first {
            scope.finish_stream(default)?;
        }
        self.add_stream(stream)
    }

    /// Adopts a stream of cudarc, which is kept as long as the result. A stream that is known already keeps
    /// its id.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherContext`] if it is a stream of another context; [`CudaError::PerThreadStream`].
    pub fn adopt_stream(&self, stream: Arc<CudaStream>) -> Result<DeviceStream, CudaError> {
        if stream.context().cu_ctx() != self.context().cu_ctx() {
            return Err(CudaError::OtherContext { device: self.device() });
        }
        self.add_stream(stream)
    }

    /// Borrows a stream that other code destroys.
    ///
    /// # Errors
    ///
    /// [`CudaError::PerThreadStream`].
    ///
    /// # Safety
    ///
    /// `stream` is a `CUstream` of the device's context ([`CudaDevice::context`]), and exists until the last
    /// clone of the result was dropped, and the last of [`DeviceStream::cudarc`].
    pub unsafe fn borrow_stream(
        &self,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<DeviceStream, CudaError> {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.context().wrap_borrowed_stream(stream) };
        self.add_stream(stream)
    }

    fn add_stream(&self, stream: Arc<CudaStream>) -> Result<DeviceStream, CudaError> {
        if stream.cu_stream().addr() == PER_THREAD {
            return Err(CudaError::PerThreadStream { device: self.device() });
        }
        Ok(DeviceStream { entry: known_entry(self.state(), stream) })
    }
}

impl DeviceStream {
    /// Returns the driver's handle.
    pub(crate) fn handle(&self) -> abi::Handle {
        self.entry.handle()
    }

    /// Returns `true` for cudarc's stream of this one. The default streams of all devices have one handle.
    pub(crate) fn is(&self, stream: &CudaStream) -> bool {
        let own = self.cudarc();
        stream.cu_stream() == own.cu_stream() && stream.context().cu_ctx() == own.context().cu_ctx()
    }

    /// Returns the stream that is known for one of cudarc.
    pub(crate) fn known(stream: &CudaStream) -> Option<Self> {
        known_at(ptr::from_ref(stream).addr()).map(|entry| Self { entry })
    }

    pub(crate) fn device(&self) -> &Arc<DeviceState> {
        self.entry.device()
    }

    /// Returns `true` if nothing else can give the stream work by cudarc: this is the last handle, and
    /// cudarc's stream has no other owner.
    pub(crate) fn is_only_owner(&self) -> bool {
        let is_last = Arc::strong_count(&self.entry) == 1;
        // Partner: the release of another handle's drop, before which it may have cloned cudarc's stream.
        fence(Ordering::Acquire);
        is_last && Arc::strong_count(self.entry.cudarc()) == 1
    }

    /// Returns the id, for requests, recorded uses, and operations.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.entry.id()
    }

    /// Returns the stream as one of cudarc, for launches. Work that it is given after the last
    /// [`DeviceStream`] was dropped is not waited for by blocks that were used under its id.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        self.entry.cudarc()
    }

    /// Waits, on the host, for all work of the stream.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if the stream captures; failures of the driver, those of earlier work
    /// included.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.device().enter()?.finish_stream(self.entry.handle())
    }

    /// Makes this stream wait, on the device, for the work that another was given so far. If the other one
    /// captures, this one becomes a part of the capture.
    ///
    /// # Errors
    ///
    /// [`CudaError::UnknownStream`]; [`CudaError::Capturing`] if this stream captures and the other one does
    /// not, or in another capture; failures of the driver.
    pub fn wait_for(&self, other: StreamId) -> Result<(), CudaError> {
        order(self.id(), other)
    }
}

impl fmt::Debug for DeviceStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device().device();
        f.debug_struct("DeviceStream").field("id", &self.id()).field("device", &device).finish()
    }
}
