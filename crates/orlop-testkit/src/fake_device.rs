//! Host memory that is declared as device memory.

use orlop_alloc::backing::{Backing, Region, System};
use orlop_alloc::{Access, forward_backing};
use orlop_core::{Alignment, Device};

/// Host memory that is declared as accessible only by a device: engines must not access it, but tests can.
/// Fresh regions are dirty.
#[derive(Debug)]
pub struct FakeDeviceBacking(System);

impl FakeDeviceBacking {
    /// The declared device.
    pub const DEVICE: Device = Device::custom(211, 0);

    /// Creates a backing over the system allocator.
    #[must_use]
    pub fn new() -> Self {
        Self(System::new())
    }
}

impl Default for FakeDeviceBacking {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: regions of the system allocator, which are host memory, initialised, and not declared zero.
unsafe impl Backing for FakeDeviceBacking {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.0.reserve(bytes, align)?;
        // SAFETY: host memory, just allocated, and not used by anything else.
        unsafe { region.ptr.write_bytes(0xc3, region.bytes) };
        Some(Region { zeroed: false, ..region })
    }

    fn device(&self) -> Device {
        Self::DEVICE
    }

    fn access(&self) -> Access {
        Access::Device
    }

    fn name(&self) -> &str {
        "far"
    }

    forward_backing!(0; except reserve, device, access, name);
}
