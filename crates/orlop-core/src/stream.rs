//! [`StreamId`]: streams, the queues of device work, by number.
//!
//! A number belongs to one stream of the process and is never used for another: not for a stream of another
//! device, and not for a later one at the same driver handle. So one integer comparison says whether work
//! is ordered by its stream. The numbers are of four kinds:
//!
//! | number | stream |
//! |---|---|
//! | 0 | the host's own work ([`StreamId::HOST`]); in a recording of a device, the device's default stream |
//! | from 1 | a stream that a backend created or adopted ([`StreamId::unique`]) |
//! | with a mark in the highest 16 bits | the default stream of a device ([`StreamId::default_of`]) |
//! | any | a stream of a recording, by the recording's number ([`StreamId::from_raw`]) |

use core::fmt;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Device, DeviceType, stack_str::StackStr};

/// The number of a stream, unique in the process and never reused.
///
/// Prints as `default`, `default of cuda:0`, or in hexadecimal.
///
/// ```
/// use orlop_core::{Device, StreamId};
///
/// let (first, second) = (StreamId::default_of(Device::cuda(0)), StreamId::default_of(Device::cuda(1)));
/// assert!(first != second && first != StreamId::HOST);
/// assert_eq!(StreamId::default_of(Device::CPU), StreamId::HOST);
/// assert_ne!(StreamId::unique(), StreamId::unique());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct StreamId(u64);

/// The highest 16 bits of the default streams of devices. Neither driver handles, which are addresses, nor
/// counted numbers reach it.
const DEFAULT_MARK: u64 = 0xdefa << 48;

/// Where the type of the device is in the number of its default stream, above its index.
const TYPE_SHIFT: u32 = 16;

/// Added to the private-use numbers of device types.
const CUSTOM: u64 = 1 << 8;

/// Above the numbers of all device types.
const LAST: u64 = CUSTOM << 1;

/// The number of the next stream.
#[cfg(target_has_atomic = "64")]
static NEXT: AtomicU64 = AtomicU64::new(1);

impl StreamId {
    /// The work of the host, which is done when a call returns. A request for this stream to the allocator of
    /// another device is a request for the default stream of that device.
    pub const HOST: Self = Self(0);

    /// Returns the default stream of a device; the host's for the CPU.
    #[inline]
    #[must_use]
    pub const fn default_of(device: Device) -> Self {
        let device_type = match device.device_type() {
            DeviceType::Cpu => return Self::HOST,
            DeviceType::Cuda => 1,
            DeviceType::Custom(id) => CUSTOM + id as u64,
        };
        Self(DEFAULT_MARK | device_type << TYPE_SHIFT | device.index() as u64)
    }

    /// Returns a new number, for a stream that a backend creates or adopts. Missing on targets without 64-bit
    /// atomics.
    #[cfg(target_has_atomic = "64")]
    #[must_use]
    pub fn unique() -> Self {
        // Only uniqueness matters: 2^63 calls take centuries.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates the id of the stream with this number, for recordings and replays: their numbers are unrelated
    /// to those of the process's streams.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns `true` for the host's stream, and for the default stream of a device.
    #[inline]
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 == 0 || self.default_device().is_some()
    }

    /// Returns the device, other than the CPU, whose default stream this is.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the result is compared with the whole number")]
    pub const fn default_device(self) -> Option<Device> {
        let device_type = match self.0 >> TYPE_SHIFT & 0xffff_ffff {
            1 => DeviceType::Cuda,
            number @ CUSTOM..LAST => DeviceType::Custom(number as u8),
            _ => return None,
        };
        match Device::new(device_type, self.0 as u16) {
            Ok(device) if Self::default_of(device).0 == self.0 => Some(device),
            _ => None,
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("default");
        }
        match self.default_device() {
            Some(device) => StackStr::<32>::pad(f, format_args!("default of {device}")),
            None => StackStr::<24>::pad(f, format_args!("{:#x}", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    #[test]
    fn prints_as_default_or_number() {
        assert_eq!(StreamId::default().to_string(), "default");
        assert_eq!(StreamId::from_raw(u64::MAX).to_string(), "0xffffffffffffffff");
        assert_eq!(format!("{:<8}|", StreamId::from_raw(16)), "0x10    |");
        assert_eq!(
            StreamId::default_of(Device::custom(255, 65535)).to_string(),
            "default of custom255:65535"
        );
    }

    #[test]
    fn default_streams_are_distinct_and_know_their_device() {
        let devices = [
            Device::cuda(0),
            Device::cuda(1),
            Device::cuda(u16::MAX),
            Device::custom(0, 0),
            Device::custom(1, 0),
            Device::custom(255, 1),
        ];
        for (place, &device) in devices.iter().enumerate() {
            let stream = StreamId::default_of(device);
            assert_eq!(stream.default_device(), Some(device));
            assert!(stream.is_default() && stream != StreamId::HOST);
            assert!(devices[..place].iter().all(|&other| StreamId::default_of(other) != stream));
        }
        assert_eq!(StreamId::default_of(Device::CPU), StreamId::HOST);
        assert!(StreamId::HOST.is_default() && StreamId::HOST.default_device().is_none());
    }

    #[test]
    fn other_numbers_are_no_default_stream() {
        let mark = DEFAULT_MARK;
        let type_only = 1 << TYPE_SHIFT;
        let numbers = [
            1,
            2,
            type_only,
            mark,
            mark | 7,
            mark | 2 << 16,
            mark | 0x200 << 16,
            mark | 1 << 40 | type_only,
            u64::MAX,
        ];
        for number in numbers {
            let stream = StreamId::from_raw(number);
            assert!(stream.default_device().is_none() && !stream.is_default(), "{number:#x}");
            assert_eq!(stream.raw(), number);
        }
    }

    #[test]
    fn new_numbers_are_new() {
        let (first, second) = (StreamId::unique(), StreamId::unique());
        assert!(first != second && !first.is_default() && first.default_device().is_none());
    }
}
