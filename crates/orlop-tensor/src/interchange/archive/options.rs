//! Options for loading archives.

use orlop_core::Device;
use std::fmt;

/// Options for loading an archive: the devices of its tensors.
///
/// ```
/// use orlop_core::Device;
/// use orlop_tensor::interchange::archive::{self, LoadOptions};
/// # use orlop_tensor::Tensor;
/// # let bytes = archive::to_bytes([("a", Tensor::from_slice(&[1u8])?)])?;
///
/// let to_host = LoadOptions::new().map_device(&|_| Device::CPU);
/// assert_eq!(archive::from_bytes_with(&bytes, &to_host)?.len(), 1);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Clone, Copy, Default)]
#[must_use]
pub struct LoadOptions<'a> {
    map_device: Option<&'a dyn Fn(Device) -> Device>,
}

impl<'a> LoadOptions<'a> {
    /// Creates options that load everything to its original device.
    pub const fn new() -> Self {
        Self { map_device: None }
    }

    /// Maps each original device to the device to load to. Memory of a host kind that moves to another device
    /// gets the default kind.
    pub const fn map_device(mut self, map: &'a dyn Fn(Device) -> Device) -> Self {
        self.map_device = Some(map);
        self
    }

    pub(super) fn device(&self, saved: Device) -> Device {
        self.map_device.map_or(saved, |map| map(saved))
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions").field("maps_device", &self.map_device.is_some()).finish()
    }
}
