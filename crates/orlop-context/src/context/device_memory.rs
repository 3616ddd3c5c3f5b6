//! The size of a device's memory, and how much of it is free.
//!
//! For a device, its operations ([`DeviceOps`](orlop_alloc::engine_support::DeviceOps)) are queried first,
//! then the allocators that serve it. For the CPU it is the machine's memory, or that of the process's
//! control group if that is less.

use super::Context;
use orlop_alloc::{DeviceMemory, Error, Result};
use orlop_core::Device;

impl Context {
    /// Returns the size of `device`'s memory and how much is free. The device's operations report it
    /// ([`Context::register_ops`]), or else an allocator that serves the device.
    ///
    /// ```
    /// use orlop_alloc::Error;
    /// use orlop_context::Context;
    /// use orlop_core::Device;
    ///
    /// let (context, gpu) = (Context::new(), Device::cuda(0));
    /// // Nothing is registered that could report it.
    /// assert!(matches!(context.device_memory(gpu), Err(Error::MemoryUnknown { device }) if device == gpu));
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::MemoryUnknown`] if neither reports it: the device has no registrations, its backend does not
    /// report memory, or, for the CPU, the system is not Linux.
    pub fn device_memory(&self, device: Device) -> Result<DeviceMemory> {
        let reported = self.ops(device).ok().and_then(|ops| ops.memory());
        reported.or_else(|| self.memory_of_allocators(device)).ok_or(Error::MemoryUnknown { device })
    }
}
