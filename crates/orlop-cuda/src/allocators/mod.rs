//! Allocators over CUDA's memory.
//!
//! | allocator | memory | a freed block |
//! |---|---|---|
//! | [`caching_allocator`] | the device's, in pages or regions | is reused after the streams that used it |
//! | [`DriverAllocator::stream_ordered`] | a [`MemoryPool`] | returns to it in the order of its stream |
//! | [`DriverAllocator::direct`] | `cuMemAlloc` for each block | is released when its streams are done |
//! | [`PinnedAllocator`] | the host's, locked for copies | is reused after the streams that used it |

mod driver_allocator;
mod linked;
mod pinned;
mod pool;

pub use self::driver_allocator::DriverAllocator;
pub(crate) use self::linked::Link;
pub use self::linked::{LinkedAllocator, MemoryUse};
pub use self::pinned::{PinnedAllocator, PinnedLedger};
pub(crate) use self::pool::MadeCurrent;
pub use self::pool::{CurrentPool, MemoryPool, PoolUsage};

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::memory::CudaMemory;
use orlop_device::{DeviceAllocator, DeviceBacking as _, DeviceConfig, Policy};

/// Creates a caching allocator with orlop's policy: [`Policy::orlop`] where the device can map pages,
/// [`Policy::orlop_without_pages`] where not.
///
/// Dropping a block waits for nothing. Its memory is reused by the same stream at once, and by others when
/// the streams that used it are done; events, which are recorded and queried for that, come from a pool.
///
/// ```no_run
/// use orlop_alloc::{Allocator, Request};
/// use orlop_cuda::{CudaDevice, caching_allocator};
///
/// let device = CudaDevice::new(0)?;
/// let (compute, copies) = (device.create_stream()?, device.create_stream()?);
/// let allocator = caching_allocator(&device)?.into_ref();
/// let block = allocator.allocate(&Request::new(1 << 20).stream(compute.id()))?;
/// block.record_stream(copies.id())?;
/// drop(block); // Reused after the work that both streams have now.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Failures of the driver.
pub fn caching_allocator(device: &CudaDevice) -> Result<DeviceAllocator<CudaMemory>, CudaError> {
    let memory = CudaMemory::new(device)?;
    let policy = policy_for(&memory);
    Ok(DeviceAllocator::new(memory, policy))
}

/// Creates an allocator as [`caching_allocator`] does, with these settings: a limit, regions in place of
/// pages, memory that is reserved at once.
///
/// # Errors
///
/// Failures of the driver; those of [`DeviceConfig::build`].
pub fn configured_allocator(
    device: &CudaDevice,
    config: &DeviceConfig,
) -> orlop_alloc::Result<DeviceAllocator<CudaMemory>> {
    let memory = CudaMemory::new(device)?;
    let policy = policy_for(&memory);
    config.build(memory, policy)
}

/// Returns the policy that suits this memory.
pub(crate) fn policy_for(memory: &CudaMemory) -> Policy {
    if memory.page_granularity().is_some() { Policy::orlop() } else { Policy::orlop_without_pages() }
}

/// Creates a caching allocator with another policy, such as [`Policy::torch`]. It has pages if the policy and
/// the device have them.
///
/// # Errors
///
/// Failures of the driver.
pub fn caching_allocator_with(
    device: &CudaDevice,
    policy: Policy,
) -> Result<DeviceAllocator<CudaMemory>, CudaError> {
    Ok(DeviceAllocator::new(memory_for(device, &policy)?, policy))
}

/// Returns the memory of a device that suits this policy.
pub(crate) fn memory_for(device: &CudaDevice, policy: &Policy) -> Result<CudaMemory, CudaError> {
    match policy.growth {
        orlop_device::Growth::Pages { .. } => CudaMemory::new(device),
        _ => Ok(CudaMemory::in_regions(device)),
    }
}
