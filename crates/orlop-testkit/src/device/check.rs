//! What a random program asks of the device under its engine.

use super::{DeviceFault, MockDevice};
use orlop_core::StreamId;
use orlop_device::{DeviceBacking, NullDevice};

/// A device that a [`DeviceProgram`](super::DeviceProgram) runs over. One that watches nothing checks nothing.
pub trait WatchedDevice: DeviceBacking {
    /// Work on a new block is put into a stream.
    fn begin_use(&self, address: usize, bytes: usize, stream: StreamId) {
        let _ = (address, bytes, stream);
    }

    /// More work on a block is put into a stream.
    fn go_on(&self, address: usize, bytes: usize, stream: StreamId) {
        let _ = (address, bytes, stream);
    }

    /// A capture begins or ends.
    fn set_capturing(&self, is_capturing: bool) {
        let _ = is_capturing;
    }

    /// Returns the first fault that was found.
    ///
    /// # Errors
    ///
    /// That fault.
    fn fault(&self) -> Result<(), DeviceFault> {
        Ok(())
    }

    /// Returns the bytes that are held.
    fn held(&self) -> u64;
}

impl WatchedDevice for MockDevice {
    fn begin_use(&self, address: usize, bytes: usize, stream: StreamId) {
        Self::begin_use(self, address, bytes, stream);
    }

    fn go_on(&self, address: usize, bytes: usize, stream: StreamId) {
        Self::go_on(self, address, bytes, stream);
    }

    fn set_capturing(&self, is_capturing: bool) {
        Self::set_capturing(self, is_capturing);
    }

    fn fault(&self) -> Result<(), DeviceFault> {
        Self::fault(self)
    }

    fn held(&self) -> u64 {
        self.used()
    }
}

impl WatchedDevice for NullDevice {
    fn held(&self) -> u64 {
        self.used()
    }
}
