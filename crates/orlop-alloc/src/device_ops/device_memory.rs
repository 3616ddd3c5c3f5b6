//! The size of a device's memory, and how much of it is free.
//!
//! For a device, [`DeviceOps`](crate::DeviceOps) are queried first, then the allocators that serve it. For
//! the CPU it is the machine's memory, or that of the process's control group if that is less.

use crate::{Context, Error, Result};
use orlop_core::{ByteSize, Device};
use std::fmt;

/// The memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The total that this process may use.
    pub total: u64,
    /// What can still be allocated from the device by any process. Memory cached by allocators is not free:
    /// add [`Stats::cached`](crate::Stats::cached) to get what this process could use.
    pub free: u64,
}

/// Writes, for example, `3.00 GiB free of 16.0 GiB`.
impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free of {}", ByteSize(self.free), ByteSize(self.total))
    }
}

/// Returns the memory of a device in the thread's current context: see [`Context::device_memory`].
///
/// ```
/// use orlop_alloc::device_memory;
/// use orlop_core::Device;
///
/// match device_memory(Device::CPU) {
///     Ok(memory) => println!("{memory}"),
///     Err(error) => println!("{error}"),
/// }
/// assert!(device_memory(Device::cuda(7)).is_err());
/// ```
///
/// # Errors
///
/// [`Error::MemoryUnknown`]
pub fn device_memory(device: Device) -> Result<DeviceMemory> {
    Context::with_current(|context| context.device_memory(device))
}

impl Context {
    /// Returns the size of `device`'s memory and how much is free. The device's operations report it
    /// ([`Context::register_ops`]), or else an allocator that serves the device.
    ///
    /// ```
    /// use orlop_alloc::{Context, Error};
    /// use orlop_core::Device;
    ///
    /// let (context, gpu) = (Context::new(), Device::cuda(0));
    /// // Nothing was registered that could tell.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{DeviceOps, DevicePtr};
    use orlop_core::StreamId;
    use std::ptr::NonNull;
    use std::sync::Arc;

    const GPU: Device = Device::cuda(0);

    /// A backend that reports its memory and supports nothing else.
    #[derive(Debug)]
    struct ReportedMemory(Option<DeviceMemory>);

    // SAFETY: it accesses no memory.
    unsafe impl DeviceOps for ReportedMemory {
        unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, _: usize, _: StreamId) -> Result<()> {
            Err(Error::NoCopyPath { from: from.device, to: to.device })
        }
        unsafe fn fill(&self, _: NonNull<u8>, _: &[u8], _: usize, _: StreamId) -> Result<()> {
            Err(Error::NoDeviceOps { device: GPU })
        }
        fn synchronize(&self, _: StreamId) -> Result<()> {
            Ok(())
        }
        fn memory(&self) -> Option<DeviceMemory> {
            self.0
        }
    }

    #[test]
    fn operations_are_queried_first() {
        let context = Context::new();
        context.register_ops(GPU, Arc::new(ReportedMemory(None)));
        assert!(context.device_memory(GPU).is_err());
        let memory = DeviceMemory { total: 5, free: 3 };
        context.register_ops(GPU, Arc::new(ReportedMemory(Some(memory))));
        assert_eq!(context.device_memory(GPU).unwrap(), memory);
        assert_eq!(context.scope(|| device_memory(GPU)).unwrap(), memory);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_processor_has_memory() {
        let memory = device_memory(Device::CPU).unwrap();
        assert!(memory.total > 1 << 20 && memory.free <= memory.total, "{memory}");
    }
}
