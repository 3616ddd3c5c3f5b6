//! The init functions of this crate: allocators by name, and a device in a context.

use crate::allocators::{DriverAllocator, PinnedAllocator, configured_allocator, memory_for, policy_for};
use crate::device::CudaDevice;
use crate::driver::Driver;
use crate::error::CudaError;
use crate::memory::CudaMemory;
use crate::ops::CudaOps;
use orlop_alloc::{Allocator, AllocatorRef, Error, Result};
use orlop_context::registry::{Factory, Registry};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_device::{DeviceConfig, Policy, TorchConf};
use std::sync::Arc;

/// Below all factories for the CPU: the one of the highest priority is its default.
const PRIORITY: i32 = -100;

/// The settings that no allocator of a device follows.
const OWN_MEMORY: &str = "a setting of this allocator: it has the memory of a CUDA device";

/// Registers the allocators of every CUDA device by name, with the number of the device after a colon.
/// Returns the number of devices.
///
/// | name | allocator | limit |
/// |---|---|---|
/// | `cuda:0` | [`caching_allocator`] | of reserved bytes |
/// | `cuda-torch:0` | [`caching_allocator_with`] PyTorch's policy (`PYTORCH_ALLOC_CONF`) | same |
/// | `cuda-stream-ordered:0` | [`DriverAllocator::stream_ordered`] | refused |
/// | `cuda-direct:0` | [`DriverAllocator::direct`] | refused |
/// | `cuda-managed:0` | a caching allocator over [`CudaMemory::managed`] | of reserved bytes |
/// | `cuda-pinned:0` | [`PinnedAllocator`], of host memory | refused |
///
/// A device is opened when the first of its allocators is created. The caching ones, those with a limit,
/// follow the environment variables of [`DeviceConfig`], memory that is reserved before the first request
/// included; a limit of the configuration takes the place of the environment's.
///
/// [`caching_allocator`]: crate::caching_allocator
/// [`caching_allocator_with`]: crate::caching_allocator_with
///
/// # Errors
///
/// Those of [`Driver::load`]: without a driver, nothing is registered.
#[track_caller]
pub fn register(registry: &Registry) -> Result<u16, CudaError> {
    let count = Driver::load()?.device_count();
    for ordinal in 0..count {
        let factory = |name: &str, make: MakeFn| {
            Factory::new(&format!("{name}:{ordinal}"), PRIORITY, move |config| {
                config.refuse_backing(OWN_MEMORY)?;
                config.refuse_node(OWN_MEMORY)?;
                config.refuse_bfc_settings()?;
                let device = CudaDevice::new(ordinal)?;
                make(&device, config)
            })
        };
        registry.register_all([
            factory("cuda", |device, config| {
                let memory = CudaMemory::new(device)?;
                let policy = policy_for(&memory);
                limited(memory, policy, config)
            }),
            factory("cuda-torch", |device, config| {
                let policy = torch()?;
                limited(memory_for(device, &policy)?, policy, config)
            }),
            factory("cuda-managed", |device, config| {
                limited(CudaMemory::managed(device)?, Policy::orlop_without_pages(), config)
            }),
            factory("cuda-stream-ordered", |device, config| {
                unlimited(DriverAllocator::stream_ordered(device)?, config)
            }),
            factory("cuda-direct", |device, config| unlimited(DriverAllocator::direct(device), config)),
            factory("cuda-pinned", |device, config| unlimited(PinnedAllocator::new(device), config)),
        ]);
    }
    Ok(count)
}

type MakeFn = fn(&CudaDevice, &AllocatorConfig) -> Result<AllocatorRef>;

fn torch() -> Result<Policy> {
    // The newer name comes first, as in PyTorch.
    let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];
    let conf = names.into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let conf = conf.parse::<TorchConf>().map_err(Error::backend)?;
    Ok(Policy::torch(&conf))
}

/// Creates a caching allocator with the settings of the environment and of the configuration.
fn limited(memory: CudaMemory, policy: Policy, config: &AllocatorConfig) -> Result<AllocatorRef> {
    let allocator = DeviceConfig::from_env().overridden_by(config).build(memory, policy)?;
    Ok(handle(allocator, config))
}

fn unlimited(allocator: impl Allocator, config: &AllocatorConfig) -> Result<AllocatorRef> {
    let refused = |limit: usize| {
        let expected = "a setting of this allocator: it has no limit";
        Err(Error::Configuration { variable: "limit", value: limit.to_string().into(), expected })
    };
    config.limit.map_or(Ok(handle(allocator, config)), refused)
}

fn handle(allocator: impl Allocator, config: &AllocatorConfig) -> AllocatorRef {
    AllocatorRef::with_statistics(allocator, config.statistics).erase()
}

/// Gives a context a device: its caching allocator for all kinds, its operations, and pinned memory for
/// [`MemoryKind::HostPinned`] on the CPU.
///
/// ```no_run
/// use orlop_alloc::Request;
/// use orlop_context::Context;
/// use orlop_cuda::{CudaDevice, install};
///
/// let (context, device) = (Context::new(), CudaDevice::new(0)?);
/// install(&context, &device)?;
/// let block = context.allocate(device.device(), &Request::new(1 << 20))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The allocator follows the environment variables of [`DeviceConfig`].
///
/// # Errors
///
/// Failures of the driver; a variable that cannot be read.
pub fn install(context: &Context, device: &CudaDevice) -> Result<()> {
    let allocator = configured_allocator(device, &DeviceConfig::from_env())?.into_ref().erase();
    context.register(device.device(), MemoryKind::Default, allocator)?;
    context.register(Device::CPU, MemoryKind::HostPinned, PinnedAllocator::new(device))?;
    context.register_ops(device.device(), Arc::new(CudaOps::new(device)))?;
    context.set_stream(device.device(), device.default_stream());
    Ok(())
}
