//! What the tests share.

use cudarc::driver::CudaContext;
use orlop_cudasim_control::{ExclusiveDriver, SimulatedDriver, SimulationConfig};
use std::sync::Arc;

/// Starts the driver anew for one test.
pub(crate) fn driver(config: &SimulationConfig) -> ExclusiveDriver {
    SimulatedDriver::exclusive(config).expect("the simulated driver is built with the tests")
}

/// Starts the driver with the default configuration, and returns a context of its device.
pub(crate) fn start() -> (ExclusiveDriver, Arc<CudaContext>) {
    let driver = driver(&SimulationConfig::new());
    let context = CudaContext::new(0).expect("there is a device");
    (driver, context)
}
