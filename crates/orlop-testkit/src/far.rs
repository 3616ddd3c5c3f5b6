//! Memory that says it is a device's.

use orlop_alloc::Access;
use orlop_alloc::backing::{Backing, Region, System};
use orlop_core::{Alignment, Device};
use std::ptr::NonNull;

/// Host memory that says that only a device can reach it: engines must treat it as that, and tests can look at it all the
/// same. Fresh regions are dirty.
#[derive(Debug)]
pub struct FarBacking(System);

impl FarBacking {
    /// Where it says it is.
    pub const DEVICE: Device = Device::custom(211, 0);

    /// The system's memory.
    #[must_use]
    pub fn new() -> Self {
        Self(System::new())
    }
}

impl Default for FarBacking {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the system's regions, which are host memory, initialised, and not said to be zero.
unsafe impl Backing for FarBacking {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.0.reserve(bytes, align)?;
        // SAFETY: host memory, just gained, and known to nobody else.
        unsafe { region.ptr.write_bytes(0xc3, region.bytes) };
        Some(Region { zeroed: false, ..region })
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.release(region) };
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

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.zero(ptr, bytes) }
    }
}
