//! [`Failure`]: the result codes of the runtime. Those that the driver has too have the same numbers there.

use std::ffi::CStr;

/// The result of a call.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A result code other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) i32);

macro_rules! codes {
    ($($constant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        #[allow(dead_code)] // The table of names has codes that no call returns.
        impl Failure {
            $(pub(crate) const $constant: Self = Self($number);)*
        }

        /// The names and texts of the codes.
        const TEXTS: &[(i32, &CStr, &CStr)] =
            &[(0, c"cudaSuccess", c"no error"), $(($number, $name, $text),)*];
    };
}

codes! {
    INVALID_VALUE = 1, c"cudaErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"cudaErrorMemoryAllocation", c"out of memory";
    NOT_INITIALIZED = 3, c"cudaErrorInitializationError", c"initialization error";
    NO_DEVICE = 100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"cudaErrorInvalidDevice", c"invalid device ordinal";
    INVALID_CONTEXT = 201, c"cudaErrorDeviceUninitialized", c"invalid device context";
    INVALID_HANDLE = 400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle";
    NOT_FOUND = 500, c"cudaErrorSymbolNotFound", c"named symbol not found";
    NOT_READY = 600, c"cudaErrorNotReady", c"device not ready";
    ALREADY_ACCESSIBLE = 704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled";
    NOT_SUPPORTED = 801, c"cudaErrorNotSupported", c"operation not supported (by a dry run)";
    ILLEGAL_CAPTURE = 900, c"cudaErrorStreamCaptureUnsupported", c"not permitted while a stream captures";
    NO_CAPTURE = 901, c"cudaErrorStreamCaptureInvalidated", c"the stream does not capture";
    UNMATCHED_CAPTURE = 903, c"cudaErrorStreamCaptureUnmatched", c"the capture began in another stream";
    CAPTURED_EVENT = 907, c"cudaErrorCapturedEvent", c"the event is part of a capture";
    CUDNN_BAD_PARAMETER = 2000, c"CUDNN_STATUS_BAD_PARAM", c"the parameters do not fit";
    UNKNOWN = 999, c"cudaErrorUnknown", c"unknown error";
}

/// Returns the name and the text of a code.
pub(crate) fn texts(code: i32) -> (&'static CStr, &'static CStr) {
    let found = TEXTS.iter().find(|(number, ..)| *number == code);
    found.map_or((c"unrecognized error code", c"unrecognized error code"), |(_, name, text)| (name, text))
}
