//! How much memory a device has, and how much of it is free (P30).
//!
//! Of a device, its [`DeviceOps`](crate::DeviceOps) are asked, then the allocators that serve it. Of the CPU it is the
//! machine's memory, or that of the process's control group where that is less.

use crate::{Context, Error, Result};
use orlop_core::{ByteSize, Device};
use std::fmt;

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All of it, as far as this process may have it.
    pub total: u64,
    /// What can still be had, whoever holds the rest. What allocators have cached is not free: add
    /// [`Stats::cached`](crate::Stats::cached) for what this process could use.
    pub free: u64,
}

/// `3.00 GiB free of 16.0 GiB`.
impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free of {}", ByteSize(self.free), ByteSize(self.total))
    }
}

/// Memory of a device of the thread's current context, now: see [`Context::device_memory`].
///
/// ```
/// use orlop_alloc::device_memory;
/// use orlop_core::Device;
///
/// match device_memory(Device::CPU) {
///     Ok(memory) => println!("{memory}"),
///     Err(nobody_knows) => println!("{nobody_knows}"),
/// }
/// assert!(device_memory(Device::cuda(7)).is_err());
/// ```
///
/// # Errors
///
/// [`Error::MemoryUnknown`].
pub fn device_memory(device: Device) -> Result<DeviceMemory> {
    Context::with_current(|context| context.device_memory(device))
}

impl Context {
    /// How much memory `device` has and how much is free, now. A device is told by its operations
    /// ([`Context::register_ops`]) or by an allocator that serves it.
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
    /// [`Error::MemoryUnknown`] if nobody can tell: a device that nothing was registered for, a backend that does not say,
    /// for the CPU a system other than Linux.
    pub fn device_memory(&self, device: Device) -> Result<DeviceMemory> {
        let told = self.ops(device).ok().and_then(|ops| ops.memory());
        told.or_else(|| self.memory_of_allocators(device)).ok_or(Error::MemoryUnknown { device })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{DeviceOps, Place};
    use orlop_core::StreamId;
    use std::ptr::NonNull;
    use std::sync::Arc;

    const GPU: Device = Device::cuda(0);

    /// A backend that knows its memory and can do nothing else.
    #[derive(Debug)]
    struct Told(Option<DeviceMemory>);

    // SAFETY: it touches nothing.
    unsafe impl DeviceOps for Told {
        unsafe fn copy(&self, to: Place, from: Place, _: usize, _: StreamId) -> Result<()> {
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
    fn operations_are_asked() {
        let context = Context::new();
        context.register_ops(GPU, Arc::new(Told(None)));
        assert!(context.device_memory(GPU).is_err());
        let memory = DeviceMemory { total: 5, free: 3 };
        context.register_ops(GPU, Arc::new(Told(Some(memory))));
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
