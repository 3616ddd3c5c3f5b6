//! Errors and their texts.

use crate::call::{last_error, take_last_error};
use crate::code::texts;
use std::ffi::c_char;

/// Returns the last error of the thread and forgets it.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetLastError() -> i32 {
    take_last_error()
}

/// Returns the last error of the thread.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaPeekAtLastError() -> i32 {
    last_error()
}

/// Returns the name of an error.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    texts(code).0.as_ptr()
}

/// Returns the text of an error.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    texts(code).1.as_ptr()
}
