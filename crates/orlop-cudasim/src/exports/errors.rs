//! Names and descriptions of codes. They need no initialization and are not counted.

use crate::abi::Out;
use crate::codes::{CUresult, Failure, describe};
use std::ffi::c_char;

#[allow(non_snake_case)] // The names are the driver's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetErrorName(code: CUresult, name: Out<*const c_char>) -> CUresult {
    let found = describe(code).map(|(name, _)| name);
    answer(&name, found)
}

#[allow(non_snake_case)] // The names are the driver's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetErrorString(code: CUresult, text: Out<*const c_char>) -> CUresult {
    let found = describe(code).map(|(_, text)| text);
    answer(&text, found)
}

fn answer(out: &Out<*const c_char>, found: Option<&'static std::ffi::CStr>) -> CUresult {
    let written = out.set(found.map_or(std::ptr::null(), |text| text.as_ptr()));
    match (written, found) {
        (Ok(()), Some(_)) => 0,
        _ => Failure::INVALID_VALUE.0,
    }
}
