//! The driver's result codes, with their names and descriptions.

/// A `CUresult`.
pub(crate) type CUresult = i32;

/// A code other than `CUDA_SUCCESS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) CUresult);

/// The result of the body of a call.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

macro_rules! codes {
    ($($constant:ident $code:literal $name:literal $text:literal)*) => {
        #[allow(dead_code)] // The table names every code that a fault may inject.
        impl Failure {
            $(pub(crate) const $constant: Self = Self($code);)*
        }

        /// Returns the name and the description of a code.
        pub(crate) fn describe(
            code: CUresult,
        ) -> Option<(&'static std::ffi::CStr, &'static std::ffi::CStr)> {
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($code => Some(($name, $text)),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument"
    OUT_OF_MEMORY 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory"
    NOT_INITIALIZED 3 c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error"
    DEINITIALIZED 4 c"CUDA_ERROR_DEINITIALIZED" c"driver shutting down"
    DEVICE_UNAVAILABLE 46 c"CUDA_ERROR_DEVICE_UNAVAILABLE" c"device is busy or unavailable"
    NO_DEVICE 100 c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected"
    INVALID_DEVICE 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal"
    INVALID_IMAGE 200 c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid"
    INVALID_CONTEXT 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context"
    MAP_FAILED 205 c"CUDA_ERROR_MAP_FAILED" c"mapping of buffer object failed"
    ALREADY_MAPPED 208 c"CUDA_ERROR_ALREADY_MAPPED" c"resource already mapped"
    NOT_MAPPED 211 c"CUDA_ERROR_NOT_MAPPED" c"resource not mapped"
    ECC_UNCORRECTABLE 214 c"CUDA_ERROR_ECC_UNCORRECTABLE" c"uncorrectable ECC error encountered"
    UNSUPPORTED_LIMIT 215 c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"limit is not supported on this architecture"
    PEER_ACCESS_UNSUPPORTED 217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        c"peer access is not supported between these two devices"
    INVALID_PTX 218 c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed"
    NVLINK_UNCORRECTABLE 220 c"CUDA_ERROR_NVLINK_UNCORRECTABLE"
        c"uncorrectable NVLink error encountered"
    CONTAINED 226 c"CUDA_ERROR_CONTAINED" c"an exception on the device was contained"
    FILE_NOT_FOUND 301 c"CUDA_ERROR_FILE_NOT_FOUND" c"file not found"
    OPERATING_SYSTEM 304 c"CUDA_ERROR_OPERATING_SYSTEM"
        c"OS call failed or operation not supported on this OS"
    INVALID_HANDLE 400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle"
    ILLEGAL_STATE 401 c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state"
    NOT_FOUND 500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found"
    NOT_READY 600 c"CUDA_ERROR_NOT_READY" c"device not ready"
    ILLEGAL_ADDRESS 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES 701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        c"too many resources requested for launch"
    LAUNCH_TIMEOUT 702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"the launch timed out and was terminated"
    PEER_ACCESS_ALREADY_ENABLED 704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
        c"peer access is already enabled"
    PEER_ACCESS_NOT_ENABLED 705 c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access has not been enabled"
    PRIMARY_CONTEXT_ACTIVE 708 c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"
        c"cannot set while device is active in this process"
    CONTEXT_IS_DESTROYED 709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed"
    ASSERT 710 c"CUDA_ERROR_ASSERT" c"device-side assert triggered"
    HOST_MEMORY_ALREADY_REGISTERED 712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
        c"part or all of the requested memory range is already mapped"
    HOST_MEMORY_NOT_REGISTERED 713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
        c"pointer does not correspond to a registered memory region"
    HARDWARE_STACK_ERROR 714 c"CUDA_ERROR_HARDWARE_STACK_ERROR" c"hardware stack error"
    ILLEGAL_INSTRUCTION 715 c"CUDA_ERROR_ILLEGAL_INSTRUCTION" c"an illegal instruction was encountered"
    MISALIGNED_ADDRESS 716 c"CUDA_ERROR_MISALIGNED_ADDRESS" c"misaligned address"
    INVALID_ADDRESS_SPACE 717 c"CUDA_ERROR_INVALID_ADDRESS_SPACE"
        c"operation not supported on global/shared address space"
    INVALID_PC 718 c"CUDA_ERROR_INVALID_PC" c"invalid program counter"
    LAUNCH_FAILED 719 c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure"
    TENSOR_MEMORY_LEAK 721 c"CUDA_ERROR_TENSOR_MEMORY_LEAK" c"tensor memory was not deallocated"
    NOT_PERMITTED 800 c"CUDA_ERROR_NOT_PERMITTED" c"operation not permitted"
    NOT_SUPPORTED 801 c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported"
    SYSTEM_NOT_READY 802 c"CUDA_ERROR_SYSTEM_NOT_READY" c"system not yet initialized"
    SYSTEM_DRIVER_MISMATCH 803 c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        c"system has unsupported display driver / cuda driver combination"
    MPS_CLIENT_TERMINATED 810 c"CUDA_ERROR_MPS_CLIENT_TERMINATED" c"the MPS client was terminated"
    STREAM_CAPTURE_UNSUPPORTED 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        c"operation not permitted when stream is capturing"
    STREAM_CAPTURE_INVALIDATED 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
        c"operation failed due to a previous error during capture"
    STREAM_CAPTURE_MERGE 902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE"
        c"operation would result in a merge of separate capture sequences"
    STREAM_CAPTURE_UNMATCHED 903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"
        c"capture was not ended in the same stream as it began"
    STREAM_CAPTURE_UNJOINED 904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
        c"capturing stream has unjoined work"
    STREAM_CAPTURE_ISOLATION 905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
        c"dependency created on uncaptured work in another stream"
    STREAM_CAPTURE_IMPLICIT 906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        c"operation would make the legacy stream depend on a capturing blocking stream"
    CAPTURED_EVENT 907 c"CUDA_ERROR_CAPTURED_EVENT"
        c"operation not permitted on an event last recorded in a capturing stream"
    STREAM_CAPTURE_WRONG_THREAD 908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
        c"attempt to terminate a thread-local capture sequence from another thread"
    TIMEOUT 909 c"CUDA_ERROR_TIMEOUT" c"wait operation timed out"
    EXTERNAL_DEVICE 911 c"CUDA_ERROR_EXTERNAL_DEVICE" c"an external device failed"
    UNKNOWN 999 c"CUDA_ERROR_UNKNOWN" c"unknown error"
}

impl Failure {
    /// Returns `true` for errors after which a context is unusable: every later call on it returns the code.
    pub(crate) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
    }
}
