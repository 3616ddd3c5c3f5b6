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
    /// use orlop_alloc::Context;
    /// use orlop_alloc::device::{DeviceAllocator, NullDevice, Policy};
    /// use orlop_core::{Device, MemoryKind};
    ///
    /// let (context, gpu) = (Context::new(), Device::cuda(0));
    /// let allocator = DeviceAllocator::new(NullDevice::new(gpu, 80 << 30), Policy::orlop()).into_ref();
    /// context.register(gpu, MemoryKind::Default, allocator)?;
    /// assert_eq!(context.device_memory(gpu)?.to_string(), "80.0 GiB free of 80.0 GiB");
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
    use crate::adaptor::{Limit, Statistics};
    use crate::device::{DeviceAllocator, NullDevice, Policy};
    use crate::{AllocatorRef, DeviceOps, DevicePtr, Request};
    use orlop_core::{MemoryKind, StreamId};
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
    fn an_allocator_reports_its_device_memory() {
        let context = Context::new();
        assert!(matches!(context.device_memory(GPU), Err(Error::MemoryUnknown { device: GPU })));
        let device = DeviceAllocator::new(NullDevice::new(GPU, 1 << 30), Policy::orlop());
        // Adaptors forward it.
        let allocator = Limit::new(Statistics::new(device), 1 << 30);
        context.register(GPU, MemoryKind::Default, AllocatorRef::new(allocator)).unwrap();
        assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free: 1 << 30 });
        let block = context.allocate(GPU, &Request::new(100)).unwrap();
        let free = (1 << 30) - (2 << 20);
        assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free });
        // Cached memory is not free.
        drop(block);
        assert_eq!(context.device_memory(GPU).unwrap().free, free);
        context.trim(GPU);
        assert_eq!(context.device_memory(GPU).unwrap().free, 1 << 30);
    }

    #[test]
    fn operations_are_queried_first() {
        let context = Context::new();
        context.register_ops(GPU, Arc::new(ReportedMemory(None)));
        assert!(context.device_memory(GPU).is_err());
        let device = NullDevice::new(GPU, 7);
        context
            .register(GPU, MemoryKind::Default, DeviceAllocator::new(device, Policy::orlop()).into_ref())
            .unwrap();
        assert_eq!(context.device_memory(GPU).unwrap().total, 7);
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
