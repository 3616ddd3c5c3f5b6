//! [`WatchedDevice`]: the interface between random programs and a checking device.

use super::DeviceFault;
use orlop_core::StreamId;
use orlop_device::{DeviceBacking, NullDevice};

/// A device that a [`DeviceProgram`](super::DeviceProgram) runs over. The default methods check nothing.
pub trait WatchedDevice: DeviceBacking {
    /// Submits work on a new block to a stream.
    fn begin_use(&self, address: usize, bytes: usize, stream: StreamId) {
        let _ = (address, bytes, stream);
    }

    /// Submits more work on a block to a stream.
    fn go_on(&self, address: usize, bytes: usize, stream: StreamId) {
        let _ = (address, bytes, stream);
    }

    /// Sets whether a capture is in progress.
    fn set_capturing(&self, is_capturing: bool) {
        let _ = is_capturing;
    }

    /// Destroys a stream: no call may name it any more.
    fn end_stream(&self, stream: StreamId) {
        let _ = stream;
    }

    /// Returns the first fault.
    ///
    /// # Errors
    ///
    /// The first fault.
    fn fault(&self) -> Result<(), DeviceFault> {
        Ok(())
    }

    /// Returns `true` if calls fail only when the memory of the device is used up.
    fn never_fails(&self) -> bool {
        false
    }

    /// Returns the reserved bytes.
    fn reserved(&self) -> u64;
}

impl WatchedDevice for NullDevice {
    fn never_fails(&self) -> bool {
        true
    }

    fn reserved(&self) -> u64 {
        self.used()
    }
}
