//! Where the KV memory is.

use super::Result;
use orlop::prelude::*;

/// The host.
#[cfg(not(feature = "cuda"))]
pub(crate) fn kv_device(_: &Context) -> Result<Device> {
    Ok(Device::CPU)
}

/// The first CUDA device, or the simulated one if there is no driver.
#[cfg(feature = "cuda")]
pub(crate) fn kv_device(context: &Context) -> Result<Device> {
    use orlop::cuda::{CudaDevice, CudaError, install};
    use orlop_cudasim_control::SimulatedDriver;

    let device = match CudaDevice::new(0) {
        Err(error @ CudaError::DriverNotFound) => {
            println!("{error}; the KV memory is on the simulated device");
            SimulatedDriver::load()?;
            CudaDevice::new(0)?
        }
        device => device?,
    };
    install(context, &device)?;
    Ok(device.device())
}
