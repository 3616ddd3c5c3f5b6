//! Where the KV memory is.

use super::Result;
use orlop::prelude::*;

#[cfg(feature = "cuda")]
pub(crate) use on_device::Place;
#[cfg(not(feature = "cuda"))]
pub(crate) use on_host::Place;

#[cfg(not(feature = "cuda"))]
mod on_host {
    use super::{Context, Device, Result};
    use orlop::kv::KvTiers;

    /// The host.
    pub(crate) struct Place;

    impl Place {
        pub(crate) fn new(_: &Context) -> Result<Self> {
            Ok(Self)
        }

        pub(crate) fn device(&self) -> Device {
            Device::CPU
        }

        /// Returns no tiers: the pool is in host memory.
        pub(crate) fn tiers(&self, _: &Context, _: u64) -> Result<Option<KvTiers>> {
            Ok(None)
        }

        pub(crate) fn check(&self) -> Result<()> {
            Ok(())
        }
    }
}

#[cfg(feature = "cuda")]
mod on_device {
    use super::{Context, Device, Result};
    use orlop::cuda::{CudaDevice, CudaError, DeviceStream, install};
    use orlop::kv::{DeviceTransfer, KvTiers};
    use orlop_cudasim_control::SimulatedDriver;

    /// The first CUDA device, or the simulated one if there is no driver.
    pub(crate) struct Place {
        device: CudaDevice,
        /// Of the steps, and of copies between the device and the host tier.
        streams: [DeviceStream; 2],
        simulated: Option<SimulatedDriver>,
    }

    impl Place {
        pub(crate) fn new(context: &Context) -> Result<Self> {
            let (device, simulated) = match CudaDevice::new(0) {
                Err(error @ CudaError::DriverNotFound) => {
                    println!("{error}; the KV memory is on the simulated device");
                    let driver = SimulatedDriver::load()?;
                    (CudaDevice::new(0)?, Some(driver))
                }
                device => (device?, None),
            };
            install(context, &device)?;
            let streams = [device.create_stream()?, device.create_stream()?];
            context.set_stream(device.device(), streams[0].id());
            Ok(Self { device, streams, simulated })
        }

        pub(crate) fn device(&self) -> Device {
            self.device.device()
        }

        /// Returns tiers with `bytes` bytes of pinned host memory. Their copies have a stream of their own:
        /// the blocks' stream uses order it with the steps, by events.
        pub(crate) fn tiers(&self, context: &Context, bytes: u64) -> Result<Option<KvTiers>> {
            let transfer = DeviceTransfer::new(context.ops(self.device())?, self.streams[1].id());
            Ok(Some(KvTiers::new(context, bytes, Box::new(transfer))))
        }

        /// Checks that the simulated driver has seen no unordered accesses.
        pub(crate) fn check(&self) -> Result<()> {
            match self.simulated.map(|driver| driver.races()) {
                Some(races) if !races.is_empty() => {
                    Err(format!("{} races: {}", races.len(), races[0]).into())
                }
                _ => Ok(()),
            }
        }
    }
}
