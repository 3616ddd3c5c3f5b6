//! The errors of this crate, and the meaning of the driver's result codes.

use crate::driver::abi;
use orlop_core::{Device, StreamId};
use orlop_device::{BackingError, DriverFailure};

/// Every failure of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The process has no CUDA driver: the library cannot be loaded.
    #[error("there is no CUDA driver: libcuda is not installed, or not in the loader's path")]
    DriverNotFound,
    /// The driver lacks a function.
    #[error("the CUDA driver is too old: it has no {symbol}")]
    DriverTooOld {
        /// The name of the function.
        symbol: &'static str,
    },
    /// There is a driver, and no device.
    #[error("there is no CUDA device")]
    NoDevice,
    /// The driver has fewer devices.
    #[error("there is no device cuda:{ordinal}: the driver has {count}")]
    NoSuchDevice {
        /// The number of the device.
        ordinal: u16,
        /// The number of devices.
        count: u16,
    },
    /// The process uses the device through another context already. Memory, streams and events of two
    /// contexts cannot be mixed.
    #[error("{device} is in use through another CUDA context")]
    OtherContext {
        /// The device.
        device: Device,
    },
    /// The per-thread default stream, which is another stream in each thread, so that no id can stand for it.
    #[error("{device}: the per-thread default stream is another one in each thread; create a stream")]
    PerThreadStream {
        /// The device.
        device: Device,
    },
    /// A stream that was neither created nor adopted here: see
    /// [`CudaDevice::adopt_stream`](crate::CudaDevice::adopt_stream).
    #[error("stream {stream} is not known: adopt it first")]
    UnknownStream {
        /// The stream.
        stream: StreamId,
    },
    /// Bytes that are no exported memory: see
    /// [`CudaDevice::import_memory`](crate::CudaDevice::import_memory).
    #[error("{device}: the bytes are no exported memory")]
    NotExported {
        /// The device.
        device: Device,
    },
    /// A stream of another device: it cannot access this one's memory.
    #[error("stream {stream} is not a stream of {device}")]
    OtherDevice {
        /// The stream.
        stream: StreamId,
        /// The device.
        device: Device,
    },
    /// Memory of the wrong device, or none of any device.
    #[error("the memory at {address:#x} is not memory of {device}")]
    NotOnDevice {
        /// The device.
        device: Device,
        /// The address.
        address: usize,
    },
    /// Two devices cannot access each other's memory.
    #[error("{device} cannot access the memory of {peer}")]
    NoPeerAccess {
        /// The device whose kernels would access it.
        device: Device,
        /// The device of the memory.
        peer: Device,
    },
    /// The device, or this version of orlop, does not support it.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: Device,
        /// The missing feature.
        what: &'static str,
    },
    /// There is not enough memory.
    #[error("out of memory in {call}")]
    OutOfMemory {
        /// The driver's function.
        call: &'static str,
    },
    /// A call that is illegal while a stream captures.
    #[error("{call} is illegal while a stream captures")]
    Capturing {
        /// The driver's function.
        call: &'static str,
    },
    /// A call of the driver failed; the device still works.
    #[error("{0}")]
    Failed(DriverFailure),
    /// A call failed and every later one will: the device, or the process's use of it, is lost.
    #[error("the device is lost: {0}")]
    Lost(DriverFailure),
}

impl CudaError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }
}

/// [`orlop_alloc::Error::backend_error`] returns it by type.
impl From<CudaError> for orlop_alloc::Error {
    fn from(error: CudaError) -> Self {
        if error.is_out_of_memory() { Self::backend_out_of_memory(error) } else { Self::backend(error) }
    }
}

impl From<DriverFailure> for CudaError {
    fn from(failure: DriverFailure) -> Self {
        match meaning(failure.code) {
            Meaning::OutOfMemory => Self::OutOfMemory { call: failure.call },
            Meaning::Capturing => Self::Capturing { call: failure.call },
            Meaning::Lost => Self::Lost(failure),
            Meaning::Other => Self::Failed(failure),
        }
    }
}

impl From<CudaError> for BackingError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::OutOfMemory { .. } => Self::OutOfMemory,
            CudaError::Capturing { .. } => Self::Capturing,
            CudaError::Failed(failure) => Self::Failed(failure),
            CudaError::Lost(failure) => Self::Lost(failure),
            CudaError::UnknownStream { .. } | CudaError::OtherDevice { .. } => {
                Self::Failed(failure("a stream", 400, "UNKNOWN_STREAM"))
            }
            _ => Self::Unsupported,
        }
    }
}

/// Creates the description of a failed call.
pub(crate) fn failure(call: &'static str, code: i32, name: &'static str) -> DriverFailure {
    DriverFailure { call, code, name }
}

/// Returns `true` if a call can have failed because of the context that was current: there was none, or it is
/// lost.
pub(crate) fn can_be_of_the_context(failure: DriverFailure) -> bool {
    failure.code == abi::INVALID_CONTEXT || meaning(failure.code) == Meaning::Lost
}

/// The meaning of a result code for a user of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    OutOfMemory,
    Capturing,
    Lost,
    Other,
}

/// Returns the meaning of a result code. The documentation of `CUresult` (CUDA 12.9) says of the lost ones
/// that the process must be terminated and relaunched, or that the context cannot be used; of 214 and 220 it
/// says that the error was not corrected, and the driver keeps returning them.
fn meaning(code: i32) -> Meaning {
    match code {
        abi::OUT_OF_MEMORY => Meaning::OutOfMemory,
        // CUDA_ERROR_STREAM_CAPTURE_*, CUDA_ERROR_CAPTURED_EVENT.
        900..=908 => Meaning::Capturing,
        // Deinitialised; uncorrectable errors of memory and links; a contained exception; destroyed context.
        4 | 214 | 220 | 226 | 709 => Meaning::Lost,
        // Illegal address, timeout, assertion, and errors of the hardware's execution.
        700 | 702 | 710 | 714..=719 | 721 => Meaning::Lost,
        // A client that the server of MPS ended; a device outside of CUDA that failed.
        810 | 911 => Meaning::Lost,
        _ => Meaning::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_the_errors_that_engines_know() {
        let of = |code| BackingError::from(CudaError::from(failure("cuCall", code, "NAME")));
        assert_eq!(of(2), BackingError::OutOfMemory);
        assert_eq!(of(900), BackingError::Capturing);
        assert_eq!(of(908), BackingError::Capturing);
        assert_eq!(of(1), BackingError::Failed(failure("cuCall", 1, "NAME")));
        assert_eq!(of(909), BackingError::Failed(failure("cuCall", 909, "NAME")));
        // A device in exclusive use is unavailable "at the current time".
        assert_eq!(of(46), BackingError::Failed(failure("cuCall", 46, "NAME")));
        for code in [4, 214, 220, 226, 700, 702, 709, 710, 715, 719, 721, 810, 911] {
            assert_eq!(of(code), BackingError::Lost(failure("cuCall", code, "NAME")), "{code}");
        }
    }
}
