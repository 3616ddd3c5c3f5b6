//! The simulated machine of a test.

use orlop_alloc::Block;
use orlop_cuda::{CudaDevice, DeviceStream};
use orlop_cudasim_control::{ExclusiveDriver, KernelRun, SimulatedDriver, SimulationConfig};
use std::ops::Deref;

/// A simulated driver for one test, and its first device.
pub(crate) struct Machine {
    pub(crate) device: CudaDevice,
    pub(crate) driver: ExclusiveDriver,
}

impl Deref for Machine {
    type Target = SimulatedDriver;

    fn deref(&self) -> &SimulatedDriver {
        &self.driver
    }
}

impl Machine {
    pub(crate) fn new(config: &SimulationConfig) -> Self {
        let driver = SimulatedDriver::exclusive(config).expect("the simulated driver is built");
        Self { device: CudaDevice::new(0).expect("a device"), driver }
    }

    /// Runs a kernel that writes all of a block.
    pub(crate) fn write(&self, stream: &DeviceStream, block: &Block) {
        let address = block.as_ptr().as_ptr().addr();
        let run = KernelRun::new("write").writes(address, block.len());
        self.run_kernel(handle(stream), run).expect("a launch");
    }
}

/// Returns the number that a variable is set to.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Returns `true` if the variable `ORLOP_CUDA_ALLOCATORS` names an allocator of a test, or is not set.
pub(crate) fn is_chosen(allocator: &str) -> bool {
    let chosen = std::env::var("ORLOP_CUDA_ALLOCATORS").unwrap_or_default();
    chosen.is_empty() || chosen.split(',').any(|name| name == allocator)
}

/// Returns the driver's handle of a stream.
pub(crate) fn handle(stream: &DeviceStream) -> u64 {
    stream.cudarc().cu_stream().addr() as u64
}
