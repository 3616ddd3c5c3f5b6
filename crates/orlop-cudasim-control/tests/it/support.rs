//! What the tests share.

use cudarc::driver::{CudaContext, CudaStream, sys};
use orlop_cudasim_control::{ExclusiveDriver, RaceReport, SimulatedDriver, SimulationConfig};
use std::sync::Arc;

/// Calls a function of the driver.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the tests pass pointers to values of the right types, and addresses and handles that the
        // simulated driver checks.
        unsafe { cudarc::driver::sys::$function($($argument),*) }
    };
}

pub(crate) const OK: sys::CUresult = sys::CUresult::CUDA_SUCCESS;

/// Starts the driver anew for one test.
pub(crate) fn driver(config: &SimulationConfig) -> ExclusiveDriver {
    SimulatedDriver::exclusive(config).expect("the simulated driver is built with the tests")
}

/// The driver that runs the kernels of compilers: the simulated one, or the machine's own if
/// `ORLOP_TEST_REAL_DRIVER` is set. That one shows that the results which the tests expect are a GPU's.
pub(crate) struct KernelDriver(Option<ExclusiveDriver>);

impl KernelDriver {
    pub(crate) fn start() -> Self {
        let is_real = std::env::var_os("ORLOP_TEST_REAL_DRIVER").is_some();
        Self((!is_real).then(|| driver(&SimulationConfig::new())))
    }

    /// Returns the simulated driver, which finds races and refuses what it cannot run.
    pub(crate) fn simulated(&self) -> Option<&ExclusiveDriver> {
        self.0.as_ref()
    }

    pub(crate) fn take_races(&self) -> Vec<RaceReport> {
        self.0.as_ref().map_or_else(Vec::new, |driver| driver.take_races())
    }
}

/// Starts the driver with the default configuration, and returns a context of its device.
pub(crate) fn start() -> (ExclusiveDriver, Arc<CudaContext>) {
    start_with(&SimulationConfig::new())
}

pub(crate) fn start_with(config: &SimulationConfig) -> (ExclusiveDriver, Arc<CudaContext>) {
    let driver = driver(config);
    let context = CudaContext::new(0).expect("there is a device");
    (driver, context)
}

/// Returns a stream's handle as a number.
pub(crate) fn handle(stream: &Arc<CudaStream>) -> u64 {
    stream.cu_stream().expose_provenance() as u64
}

/// Returns a device address as one of the host.
pub(crate) fn at(address: sys::CUdeviceptr) -> usize {
    usize::try_from(address).expect("64-bit addresses")
}

/// Allocates device memory.
pub(crate) fn allocate(bytes: usize) -> sys::CUdeviceptr {
    let mut address = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, bytes)), OK);
    address
}

/// Allocates pinned host memory.
pub(crate) fn allocate_pinned(bytes: usize) -> *mut std::ffi::c_void {
    let mut address = std::ptr::null_mut();
    assert_eq!(cu!(cuMemHostAlloc(&raw mut address, bytes, 0)), OK);
    address
}
