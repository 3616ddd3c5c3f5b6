//! Memory that processes share.
//!
//! | module | what it holds |
//! |---|---|
//! | `regions` | blocks in regions, exported as bytes |
//! | `pages` | blocks in pages, exported as descriptors or as bytes: Linux only |
//! | `sockets` | descriptors over a Unix socket: Linux only |

#[cfg(target_os = "linux")]
mod pages;
mod regions;
#[cfg(target_os = "linux")]
mod sockets;

#[cfg(target_os = "linux")]
pub use self::pages::ExportedPages;

use crate::device::{self, CudaDevice};
use crate::driver::abi::DeviceAddress;
use crate::error::CudaError;
#[cfg(target_os = "linux")]
use crate::memory::DevicePages;
use orlop_alloc::engine_support::trace_guarded;
use std::ptr;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl CudaDevice {
    /// Returns the number of blocks of [`CudaDevice::import_memory`] and `import_pages` whose memory is open:
    /// live ones, and dropped ones that a capture keeps open, or that the driver failed to close. Closes
    /// those that an ended capture kept open.
    #[must_use]
    pub fn open_imports(&self) -> usize {
        device::run_deferred_frees();
        // Acquire: with the decrement after a close, which comes before what the exporting process is told.
        self.state().open_imports.load(Ordering::Acquire)
    }
}

/// The memory of another process behind a block.
#[derive(Debug, Clone)]
enum ImportedMemory {
    Region(DeviceAddress),
    #[cfg(target_os = "linux")]
    Pages {
        pages: Arc<DevicePages>,
        address: usize,
        bytes: usize,
    },
}

/// Memory of another process, which is closed when this is dropped, after the work of the default stream.
struct OpenImport {
    device: CudaDevice,
    memory: ImportedMemory,
}

impl OpenImport {
    /// Counts memory that was opened.
    fn new(device: &CudaDevice, memory: ImportedMemory) -> Self {
        device.state().open_imports.fetch_add(1, Ordering::Relaxed);
        Self { device: device.clone(), memory }
    }
}

/// Closes memory of another process, after the work of the default stream.
fn close(device: &CudaDevice, memory: &ImportedMemory) -> Result<(), CudaError> {
    let state = device.state();
    state.enter()?.finish_stream(ptr::null_mut())?;
    match memory {
        // SAFETY: opened once for this call, and not used any more.
        ImportedMemory::Region(base) => unsafe { state.close_exported(*base) },
        #[cfg(target_os = "linux")]
        ImportedMemory::Pages { pages, address, bytes } => {
            // SAFETY: the whole reservation of these pages, which are not used any more.
            unsafe { pages.release(state, *address, *bytes) }
        }
    }?;
    // Release: see `open_imports`.
    state.open_imports.fetch_sub(1, Ordering::Release);
    Ok(())
}

impl Drop for OpenImport {
    fn drop(&mut self) {
        // A failure is counted by `open_imports`.
        match close(&self.device, &self.memory) {
            Ok(()) => {}
            Err(CudaError::Capturing { .. }) => {
                let (device, memory) = (self.device.clone(), self.memory.clone());
                device::free_after_capture(Box::new(move || close(&device, &memory)));
            }
            Err(error) => {
                trace_guarded(|| tracing::error!(%error, "memory of another process was not closed"));
            }
        }
    }
}
