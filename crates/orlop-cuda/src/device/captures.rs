//! Captures of graphs: they are marked for all allocators of a device, and what they forbid is done after
//! them.
//!
//! Memory that a capturing stream used cannot be given back while it captures: the event, the wait or the
//! free would become a part of the graph, or end the capture. The driver is asked before each such call
//! ([`DriverScope::refuse_capturing`](super::DriverScope)), so that a capture without a mark is left whole
//! too. What is refused is kept here and tried again.

use super::{CudaDevice, stream_table};
use crate::error::CudaError;
use orlop_alloc::engine_support::trace_guarded;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Marks a capture for all allocators of a device, until it is dropped: see [`CudaDevice::capture_scope`].
#[must_use = "the mark ends when it is dropped"]
pub struct CaptureScope {
    device: CudaDevice,
}

impl CudaDevice {
    /// Marks that a stream captures, for all allocators of this device, those of pinned memory included:
    /// begin it before the capture, and drop it after the capture has ended. Scopes may overlap.
    ///
    /// Until then no event is recorded or queried for freed blocks, no stream waits for another, and no
    /// memory is released or moved. Blocks that are freed meanwhile, and that streams other than their own
    /// used, are reused after their work, after the scope. The memory of a graph is its own as long as it is
    /// in a private pool ([`DeviceAllocator::begin_allocate_to_pool`]), or in blocks that are kept.
    ///
    /// A capture without a scope is not ended either: each call that would end it is refused
    /// ([`CudaError::Capturing`]), or made after it. Finding that out costs calls of the driver.
    ///
    /// ```no_run
    /// # use orlop_cuda::CudaDevice;
    /// # use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    /// let device = CudaDevice::new(0)?;
    /// let stream = device.create_stream()?;
    /// let scope = device.capture_scope();
    /// stream.cudarc().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    /// // Launches on `stream`, and requests for it.
    /// let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0))?;
    /// drop(scope);
    /// # drop(graph);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`DeviceAllocator::begin_allocate_to_pool`]: orlop_device::DeviceAllocator::begin_allocate_to_pool
    pub fn capture_scope(&self) -> CaptureScope {
        self.state().captures.begin();
        CaptureScope { device: self.clone() }
    }
}

impl CaptureScope {
    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        self.device.state().captures.end();
        stream_table::sweep();
    }
}

impl fmt::Debug for CaptureScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureScope").field("device", &self.device.device()).finish()
    }
}

/// Gives memory back, unless a capture forbids it. It keeps what it needs.
pub(crate) type DeferredFree = Box<dyn FnMut() -> Result<(), CudaError> + Send>;

static DEFERRED: Mutex<Vec<DeferredFree>> = Mutex::new(Vec::new());
static HAS_DEFERRED: AtomicBool = AtomicBool::new(false);

/// Keeps a free that a capture forbids.
pub(crate) fn free_after_capture(free: DeferredFree) {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner).push(free);
    // Relaxed: a hint; the list is behind a lock.
    HAS_DEFERRED.store(true, Ordering::Relaxed);
}

/// Tries the frees that a capture forbade before.
pub(crate) fn run_deferred_frees() {
    // Relaxed: as above.
    if !HAS_DEFERRED.swap(false, Ordering::Relaxed) {
        return;
    }
    // Not called with the list locked: they call the driver.
    let deferred = std::mem::take(&mut *DEFERRED.lock().unwrap_or_else(PoisonError::into_inner));
    for mut free in deferred {
        match free() {
            Ok(()) => {}
            Err(CudaError::Capturing { .. }) => free_after_capture(free),
            Err(error) => {
                trace_guarded(|| tracing::error!(%error, "device memory leaked"));
                // What it keeps may be memory that a stream still uses.
                std::mem::forget(free);
            }
        }
    }
}
