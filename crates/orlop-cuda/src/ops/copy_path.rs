//! [`CopyPath`]: from where to where a copy goes.

use crate::device::{CudaDevice, DeviceState, in_use};
use orlop_alloc::{Error, Result, engine_support::DevicePtr};
use orlop_core::{Device, DeviceType};
use std::sync::Arc;

/// From where to where a copy of a device's operations goes.
#[derive(Debug)]
pub(super) enum CopyPath {
    Within,
    /// Between two devices, of which one is the operations' own.
    Peer {
        to: Arc<DeviceState>,
        from: Arc<DeviceState>,
    },
    /// From the host, pinned or not.
    In {
        pinned: bool,
    },
    /// To the host, pinned or not.
    Out {
        pinned: bool,
    },
}

impl CopyPath {
    /// Returns the path of a copy by the operations of a device.
    ///
    /// # Errors
    ///
    /// [`Error::NoCopyPath`] if neither place is on the device, or the other one is on a device that is not
    /// open, or not CUDA's.
    pub(super) fn of(own: &CudaDevice, to: DevicePtr, from: DevicePtr) -> Result<Self> {
        let here = own.device();
        match (to.device == here, from.device == here) {
            (true, true) => Ok(Self::Within),
            (true, false) if from.device.is_cpu() => Ok(Self::In { pinned: from.is_kept }),
            (false, true) if to.device.is_cpu() => Ok(Self::Out { pinned: to.is_kept }),
            (false, false) => Err(Error::NoCopyPath { from: from.device, to: to.device }),
            _ => match [to.device, from.device].map(open_device) {
                [Some(to), Some(from)] => Ok(Self::Peer { to, from }),
                _ => Err(Error::NoCopyPath { from: from.device, to: to.device }),
            },
        }
    }

    /// Returns `true` if strided copies are made of runs: the driver has no call for them.
    pub(super) fn is_by_runs(&self) -> bool {
        match self {
            Self::In { pinned } | Self::Out { pinned } => !pinned,
            Self::Peer { .. } => true,
            Self::Within => false,
        }
    }
}

fn open_device(device: Device) -> Option<Arc<DeviceState>> {
    (device.device_type() == DeviceType::Cuda).then(|| in_use(device.index())).flatten()
}
