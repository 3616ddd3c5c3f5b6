//! The numbers of devices in histories.
//!
//! PyTorch's files number CUDA devices from 0 and have no others, so CUDA devices keep their numbers. The
//! other families follow from 2^16: host memory first, then the custom ones.

use orlop_core::{Device, DeviceType};
use std::fmt;

/// The number of devices in a family: an index has 16 bits.
const FAMILY: u32 = 1 << 16;

/// Returns the number of a device in a [`History`](crate::history::History).
///
/// ```
/// use orlop_core::Device;
/// use orlop_trace::formats::{device_number, numbered_device};
///
/// assert_eq!(device_number(Device::cuda(1)), 1);
/// assert_eq!(numbered_device(device_number(Device::CPU)), Some(Device::CPU));
/// ```
#[must_use]
pub fn device_number(device: Device) -> u32 {
    let family = match device.device_type() {
        DeviceType::Cuda => 0,
        DeviceType::Custom(id) => 2 + u32::from(id),
        // Host memory. Future families will get their own numbers.
        _ => 1,
    };
    family * FAMILY + u32::from(device.index())
}

/// Returns the device with a number from [`device_number`]; `None` for other numbers.
#[must_use]
pub fn numbered_device(number: u32) -> Option<Device> {
    let index = u16::try_from(number % FAMILY).ok()?;
    match number / FAMILY {
        0 => Some(Device::cuda(index)),
        1 => Device::new(DeviceType::Cpu, index).ok(),
        family => Some(Device::custom(u8::try_from(family - 2).ok()?, index)),
    }
}

/// A device in messages, by its number: `device 0` for a GPU, `cpu` for the host's memory.
///
/// ```
/// use orlop_core::Device;
/// use orlop_trace::formats::{DeviceLabel, device_number};
///
/// let label = |device| DeviceLabel(device_number(device)).to_string();
/// assert_eq!([label(Device::cuda(1)), label(Device::CPU)], ["device 1", "cpu"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLabel(pub u32);

impl fmt::Display for DeviceLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match numbered_device(self.0).filter(|device| !device.is_cuda()) {
            Some(device) => device.fmt(f),
            None => write!(f, "device {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_devices() {
        for device in
            [Device::CPU, Device::cuda(0), Device::cuda(65535), Device::custom(0, 1), Device::custom(255, 9)]
        {
            assert_eq!(numbered_device(device_number(device)), Some(device));
        }
        assert_eq!(device_number(Device::cuda(3)), 3);
        assert_eq!(numbered_device(FAMILY + 1), None);
        assert_eq!(numbered_device(u32::MAX), None);
        assert_eq!(DeviceLabel(FAMILY + 1).to_string(), "device 65537");
    }
}
