//! The size of a device's memory, and how much of it is free.
//!
//! For the CPU it is the machine's memory, or that of the process's control group if that is less. Devices
//! report theirs through their operations or allocators.

use orlop_core::ByteSize;
use std::fmt;

/// The memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The total that this process may use.
    pub total: u64,
    /// What can still be allocated from the device by any process. Memory cached by allocators is not free:
    /// add what theirs hold to get what this process could use.
    pub free: u64,
}

/// Writes, for example, `3.00 GiB free of 16.0 GiB`.
impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free of {}", ByteSize(self.free), ByteSize(self.total))
    }
}
