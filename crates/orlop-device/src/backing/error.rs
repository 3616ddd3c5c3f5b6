//! The errors of a device's calls.
//!
//! An engine handles three cases differently: there is no memory, so it makes room and tries again; a call
//! failed, so the request fails with that error; the device is lost, so it makes no further call.

use crate::error::DeviceError;

/// A failed call of a [`DeviceBacking`](super::DeviceBacking).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The device, or the host for pinned memory, has no memory for the call.
    #[error("there is no memory for it")]
    OutOfMemory,
    /// The backing does not have the call.
    #[error("the backing does not support it")]
    Unsupported,
    /// The call is illegal while a stream captures. It had no effect.
    #[error("it is illegal while a stream captures")]
    Capturing,
    /// The call failed. The device still works.
    #[error("{0}")]
    Failed(DriverFailure),
    /// The device is lost: no call will succeed any more.
    #[error("the device is lost: {0}")]
    Lost(DriverFailure),
    /// The backing panicked.
    #[error("the backing panicked")]
    Panicked,
}

impl BackingError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(self) -> bool {
        matches!(self, Self::OutOfMemory)
    }

    /// Returns `true` if the device works as it should: it has no memory, or not this call.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::Unsupported)
    }

    /// Returns `true` if the call was not executed, so that memory which it was to release is unchanged.
    pub(crate) fn had_no_effect(self) -> bool {
        matches!(self, Self::Capturing | Self::Unsupported)
    }
}

/// A driver's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {name} ({code})")]
pub struct DriverFailure {
    /// The driver's function: `cuMemAlloc_v2`.
    pub call: &'static str,
    /// The number of the error: 700.
    pub code: i32,
    /// The name of the error: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: &'static str,
}

/// A failed call, by the name of the trait function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallFailure {
    pub(crate) call: &'static str,
    pub(crate) error: BackingError,
}

impl CallFailure {
    /// Returns `true` if the device is lost.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self.error, BackingError::Lost(_))
    }
}

impl From<CallFailure> for DeviceError {
    fn from(CallFailure { call, error }: CallFailure) -> Self {
        Self::Backing { call, error }
    }
}
