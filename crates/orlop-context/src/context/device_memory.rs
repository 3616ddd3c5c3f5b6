//! The size of a device's memory, and how much of it is free: see [`DeviceMemory`].

use super::Context;
use orlop_alloc::{Allocator as _, DeviceMemory, Error, Result};
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
        let of_ops = self.ops(device).ok().and_then(|ops| ops.memory());
        let of_allocators =
            || self.inner.routes.get(device)?.distinct().into_iter().find_map(|one| one.device_memory());
        of_ops.or_else(of_allocators).ok_or(Error::MemoryUnknown { device })
    }
}
