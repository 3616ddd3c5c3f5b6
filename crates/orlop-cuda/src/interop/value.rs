//! [`KernelValue`]: plain data as an argument of a kernel.

use super::acquire;
use crate::device::DeviceStream;
use bytemuck::NoUninit;
use cudarc::driver::DeviceRepr;
use orlop_alloc::{MemoryBlock, Result};

/// A value that a kernel gets by its bytes, such as a packed accessor of a tensor:
/// `launch_builder(&kernel).arg(&value)`. The kernel declares a parameter of the same layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct KernelValue<T: NoUninit>(T);

// SAFETY: the driver copies the bytes of the value, all of which are initialised.
unsafe impl<T: NoUninit> DeviceRepr for KernelValue<T> {}

impl<T: NoUninit> KernelValue<T> {
    /// Creates an argument of a value without addresses.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Creates an argument of a value with addresses in a block, for a kernel that will be launched on
    /// `stream`: as [`KernelPointer::of`](super::KernelPointer::of), it makes the stream wait for the other
    /// users of the block, and records it.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`](super::KernelPointer::of).
    pub fn of(value: T, block: &MemoryBlock, stream: &DeviceStream) -> Result<Self> {
        acquire(block, stream)?;
        Ok(Self(value))
    }

    /// Returns the value.
    pub const fn get(&self) -> &T {
        &self.0
    }
}
