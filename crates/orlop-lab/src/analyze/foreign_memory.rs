//! Memory of the device that the recorded allocator did not have: the driver's context, libraries such as
//! NCCL, and other processes.
//!
//! A recording shows it only where a request failed: the device then had the free bytes of the event, and the
//! allocator its reserved bytes. What is missing from the device's memory was of others. Which of them had it
//! is not recorded.

use super::out_of_memory::OutOfMemoryReport;
use serde::Serialize;

/// Without the size of the device, a size that is given for it is taken for its own up to this excess over
/// what the recording shows: 1/10.
const MAX_EXCESS: u64 = 10;

/// What a recorded allocator could have had of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ForeignMemory {
    /// The size of the device in bytes, if it is recorded.
    pub device: Option<u64>,
    /// The least bytes that were reserved or free when a request failed.
    pub min_available: u64,
    /// The most bytes that were reserved or free when a request failed. The difference came and went with
    /// other processes and libraries.
    pub max_available: u64,
}

impl ForeignMemory {
    /// Returns what failed requests show; `None` if none failed for lack of device memory.
    pub(super) fn of(device: Option<u64>, failed: &[OutOfMemoryReport]) -> Option<Self> {
        let by_device = failed.iter().filter(|failed| failed.limit.is_none() && failed.device_free > 0);
        let available = || by_device.clone().filter_map(OutOfMemoryReport::memory);
        let (min_available, max_available) = (available().min()?, available().max()?);
        Some(Self { device, min_available, max_available })
    }

    /// Returns the bytes of others when a request failed, if the size of the device is recorded: the least.
    #[must_use]
    pub fn taken(&self) -> Option<u64> {
        self.device?.checked_sub(self.max_available)
    }

    /// Returns the bytes of others on a device of `device` bytes. If the size of the recorded device is
    /// unknown, `device` is taken for it as long as it is not much more than the recording shows; otherwise
    /// `None`.
    #[must_use]
    pub fn taken_of(&self, device: u64) -> Option<u64> {
        self.taken().or_else(|| {
            let excess = device.checked_sub(self.max_available)?;
            (excess <= self.max_available / MAX_EXCESS).then_some(excess)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_follows_from_the_size_of_the_device() {
        let known = ForeignMemory { device: Some(80), min_available: 70, max_available: 75 };
        assert_eq!((known.taken(), known.taken_of(40)), (Some(5), Some(5)));
        let unknown = ForeignMemory { device: None, ..known };
        assert_eq!(unknown.taken(), None);
        assert_eq!([80, 75, 40, 96].map(|device| unknown.taken_of(device)), [Some(5), Some(0), None, None]);
    }
}
