//! [`Device`]: a device type and an index.
//!
//! A [`Device`] is a four-byte `Copy` value. It is used as a key of the allocator registry, a field of blocks
//! and a column of traces. What a device can do is known to the allocators registered for it.
//!
//! [`DeviceType::Custom`] numbers are for backends outside this workspace, like the private-use planes of
//! Unicode. orlop gives them no meaning: a program that links two such backends assigns the numbers.

use core::{fmt, str::FromStr};

use crate::{Error, Expected, Result, stack_str::StackStr};

/// A family of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceType {
    /// Host memory.
    #[default]
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// A backend outside orlop, by its private-use number. Prints as `custom3`.
    Custom(u8),
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Cuda => f.pad("cuda"),
            Self::Custom(id) => StackStr::<16>::pad(f, format_args!("custom{id}")),
        }
    }
}

impl FromStr for DeviceType {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            _ => s.strip_prefix("custom").and_then(parse_number).map(Self::Custom).ok_or(PARSE_ERROR),
        }
    }
}

/// A device: a type and an index among the devices of that type.
///
/// ```
/// use orlop_core::{Device, DeviceType};
///
/// let gpu: Device = "cuda:1".parse()?;
/// assert_eq!(gpu, Device::cuda(1));
/// assert_eq!(gpu.device_type(), DeviceType::Cuda);
/// assert_eq!(Device::custom(3, 0).to_string(), "custom3:0");
/// assert_eq!(Device::CPU.to_string(), "cpu");
/// # Ok::<(), orlop_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    device_type: DeviceType,
    index: u16,
}

impl Device {
    /// Host memory. There is one CPU device; NUMA nodes are the concern of allocators.
    pub const CPU: Self = Self { device_type: DeviceType::Cpu, index: 0 };

    /// Creates a device from its type and index.
    ///
    /// # Errors
    /// [`Error::CpuIndex`] for a CPU index other than 0.
    pub const fn new(device_type: DeviceType, index: u16) -> Result<Self> {
        match (device_type, index) {
            (DeviceType::Cpu, 1..) => Err(Error::CpuIndex { index }),
            _ => Ok(Self { device_type, index }),
        }
    }

    /// Returns the CUDA device with ordinal `index`, as the driver numbers them in this process.
    #[must_use]
    pub const fn cuda(index: u16) -> Self {
        Self { device_type: DeviceType::Cuda, index }
    }

    /// Returns device `index` of the backend with private-use number `id`.
    #[must_use]
    pub const fn custom(id: u8, index: u16) -> Self {
        Self { device_type: DeviceType::Custom(id), index }
    }

    /// Returns the type of the device.
    #[inline]
    #[must_use]
    pub const fn device_type(self) -> DeviceType {
        self.device_type
    }

    /// Returns the index among the devices of its type; 0 for the CPU.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u16 {
        self.index
    }

    /// Returns `true` for the CPU.
    #[inline]
    #[must_use]
    pub const fn is_cpu(self) -> bool {
        matches!(self.device_type, DeviceType::Cpu)
    }

    /// Returns `true` for a CUDA device.
    #[inline]
    #[must_use]
    pub const fn is_cuda(self) -> bool {
        matches!(self.device_type, DeviceType::Cuda)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cpu() {
            return self.device_type.fmt(f);
        }
        StackStr::<24>::pad(f, format_args!("{}:{}", self.device_type, self.index))
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses `type` (index 0) or `type:index`.
    fn from_str(s: &str) -> Result<Self> {
        let (device_type, index) = match s.split_once(':') {
            None => (s, 0),
            Some((device_type, index)) => (device_type, parse_number(index).ok_or(PARSE_ERROR)?),
        };
        Self::new(device_type.parse()?, index)
    }
}

const PARSE_ERROR: Error = Error::Parse { expected: Expected::Device };

/// Parses decimal digits only. `u16::from_str` alone would accept a sign.
fn parse_number<N: FromStr>(digits: &str) -> Option<N> {
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    static_assertions::const_assert!(size_of::<Device>() <= 4);
    static_assertions::const_assert!(size_of::<Option<Device>>() <= 4);

    #[test]
    fn prints_what_it_parses() {
        for device in
            [Device::CPU, Device::cuda(0), Device::cuda(65535), Device::custom(3, 0), Device::custom(255, 7)]
        {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::cuda(0)));
        assert_eq!("cpu:0".parse(), Ok(Device::CPU));
        assert_eq!(format!("[{:>8}]", Device::cuda(1)), "[  cuda:1]");
    }

    #[test]
    fn refuses_what_is_no_device() {
        for text in [
            "",
            "gpu",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda:+1",
            "cuda:65536",
            "cuda:1:2",
            "custom",
            "custom256:0",
        ] {
            assert_eq!(text.parse::<Device>(), Err(PARSE_ERROR), "{text:?}");
        }
        assert_eq!("cpu:1".parse::<Device>(), Err(Error::CpuIndex { index: 1 }));
    }
}
