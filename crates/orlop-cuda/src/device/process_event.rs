//! [`ProcessEvent`]: the order of two processes' work on memory that they share.

use super::owned_event::OwnedEvent;
use super::{CudaDevice, DeviceState, DeviceStream};
use crate::driver::abi::{self, IpcHandle};
use crate::driver::{Driver, call};
use crate::error::CudaError;
use orlop_device::DriverFailure;
use std::ptr;
use std::sync::Arc;

/// An event that processes share: one records it in a stream, and streams of the others wait for it, on the
/// device.
///
/// The record comes before the wait: the process that recorded it tells the other one so, by any means, and
/// that one then makes its stream wait. A wait is for the last record when it is called. Both processes can
/// record it and wait for it.
///
/// ```no_run
/// # use orlop_cuda::{CudaDevice, DeviceStream};
/// # fn run(device: &CudaDevice, stream: &DeviceStream) -> Result<(), orlop_cuda::CudaError> {
/// let event = device.create_process_event()?;
/// let exported = event.export()?; // Sent to the other process, with an exported block.
/// // Launches on `stream` that write the block.
/// event.record(stream)?; // Then the other process is told.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProcessEvent {
    event: OwnedEvent,
}

impl CudaDevice {
    /// Creates an event that other processes open with [`CudaDevice::import_event`].
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`]; failures of the driver.
    pub fn create_process_event(&self) -> Result<ProcessEvent, CudaError> {
        let event = OwnedEvent::create(self.state(), abi::EVENT_DISABLE_TIMING | abi::EVENT_INTERPROCESS);
        Ok(ProcessEvent { event: event.map_err(|error| or_unsupported(self.state(), error))? })
    }

    /// Opens an event that another process exported with [`ProcessEvent::export`].
    ///
    /// # Errors
    ///
    /// [`CudaError::NotExported`] if the bytes are not those of an export; [`CudaError::Unsupported`];
    /// failures of the driver, for instance for an event of this process itself, or of a process that is
    /// gone.
    ///
    /// # Safety
    ///
    /// The bytes are the result of [`ProcessEvent::export`], and the exporting process keeps the event until
    /// the result is dropped.
    pub unsafe fn import_event(&self, exported: &[u8]) -> Result<ProcessEvent, CudaError> {
        let wrong = CudaError::NotExported { device: self.device() };
        let exported = IpcHandle(exported.try_into().map_err(|_| wrong)?);
        let open = self.driver().symbols.cuIpcOpenEventHandle;
        let open = open.ok_or(CudaError::DriverTooOld { symbol: "cuIpcOpenEventHandle" })?;
        let scope = self.state().enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle.
        let code = unsafe { open(&raw mut handle, exported) };
        let opened = scope.driver().check("cuIpcOpenEventHandle", code);
        opened.map_err(|failure| or_unsupported(self.state(), failure.into()))?;
        // SAFETY: opened above.
        Ok(ProcessEvent { event: unsafe { OwnedEvent::of(self.state(), handle) } })
    }
}

impl ProcessEvent {
    /// Returns the event as 64 bytes for other processes, to be sent by any means. An event that came from
    /// another process is exported by that one.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`]; failures of the driver.
    pub fn export(&self) -> Result<Vec<u8>, CudaError> {
        let device = self.event.device();
        let get = device.driver.symbols.cuIpcGetEventHandle;
        let get = get.ok_or(CudaError::DriverTooOld { symbol: "cuIpcGetEventHandle" })?;
        let mut exported = IpcHandle([0; 64]);
        let scope = device.enter()?;
        // SAFETY: it writes one handle, of an event that exists.
        let code = unsafe { get(&raw mut exported, self.event.handle()) };
        let got = scope.driver().check("cuIpcGetEventHandle", code);
        got.map_err(|failure| or_unsupported(device, failure.into()))?;
        Ok(exported.0.to_vec())
    }

    /// Records the event in a stream, in place of an earlier record.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherDevice`]; [`CudaError::Capturing`]; failures of the driver.
    pub fn record(&self, stream: &DeviceStream) -> Result<(), CudaError> {
        self.in_stream(stream, "cuEventRecord", |driver| {
            // SAFETY: both exist, and are of one device.
            unsafe { call!(driver, cuEventRecord(self.event.handle(), stream.handle())) }
        })
    }

    /// Makes a stream wait, on the device, for the work before the last record, by whichever process that was
    /// made. The host does not wait. Without a record nothing is waited for.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherDevice`]; [`CudaError::Capturing`]; failures of the driver.
    pub fn wait(&self, stream: &DeviceStream) -> Result<(), CudaError> {
        self.in_stream(stream, "cuStreamWaitEvent", |driver| {
            // SAFETY: both exist, and are of one device.
            unsafe { call!(driver, cuStreamWaitEvent(stream.handle(), self.event.handle(), 0)) }
        })
    }

    /// Returns `true` if the work before the last record is done, or there is no record.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn is_complete(&self) -> Result<bool, CudaError> {
        self.event.device().beside_captures(|driver| {
            // SAFETY: it exists.
            match unsafe { call!(driver, cuEventQuery(self.event.handle())) } {
                Err(DriverFailure { code: abi::NOT_READY, .. }) => Ok(false),
                queried => queried.map(|()| true),
            }
        })
    }

    /// Waits, on the host, for the work before the last record.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let scope = self.event.device().enter()?;
        // SAFETY: it exists.
        Ok(unsafe { call!(scope.driver(), cuEventSynchronize(self.event.handle())) }?)
    }

    /// Makes a call on a stream of the event's device that does not capture: it would be a part of the graph.
    fn in_stream(
        &self,
        stream: &DeviceStream,
        name: &'static str,
        call: impl Fn(&'static Driver) -> Result<(), DriverFailure>,
    ) -> Result<(), CudaError> {
        let device = self.event.device();
        if !Arc::ptr_eq(device, stream.device()) {
            return Err(CudaError::OtherDevice { stream: stream.id(), device: device.device() });
        }
        device.refuse_capturing(stream.handle(), name)?;
        device.on_stream(stream.handle(), call)
    }
}

/// Names what a driver does not do.
fn or_unsupported(device: &DeviceState, error: CudaError) -> CudaError {
    match error {
        CudaError::Failed(failure) if failure.code == abi::NOT_SUPPORTED => {
            CudaError::Unsupported { device: device.device(), what: "events that processes share" }
        }
        error => error,
    }
}
