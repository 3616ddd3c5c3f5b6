//! [`StreamId`]: streams, the queues of device work, by number.
//!
//! This crate only compares them: a block records which streams used it, and a trace names them. Backends
//! choose the numbers, usually the driver's handles, and know how to wait for a stream.

use core::fmt;

use crate::stack_str::StackStr;

/// The number of a stream on some device. 0 is every device's default stream.
///
/// Numbers of different devices are unrelated. Prints as `default`, or in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct StreamId(u64);

impl StreamId {
    /// The default stream.
    pub const DEFAULT: Self = Self(0);

    /// Creates the id of the stream that the backend identifies by `raw`.
    #[inline]
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the backend's number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns `true` for the default stream.
    #[inline]
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() {
            f.pad("default")
        } else {
            StackStr::<24>::pad(f, format_args!("{:#x}", self.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    #[test]
    fn prints_as_default_or_handle() {
        assert_eq!(StreamId::default().to_string(), "default");
        assert_eq!(StreamId::new(u64::MAX).to_string(), "0xffffffffffffffff");
        assert_eq!(format!("{:<8}|", StreamId::new(16)), "0x10    |");
    }
}
