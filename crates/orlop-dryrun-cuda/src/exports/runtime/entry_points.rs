//! Functions of the driver by their names.

use crate::abi::{Out, Text};
use crate::call::remembered;
use crate::code::{Failure, Outcome};
use std::ffi::CString;

/// Later forms of functions have the first form's name and one of these ends.
const ENDS: [&str; 3] = ["_v3", "_v2", ""];

/// Sets the address of the driver's function of this name. The second result is 0 if it was found, else 1.
fn find(name: Text, function: &Out<usize>, result: &Out<i32>) -> Outcome {
    let name = name.get();
    let address = ENDS.iter().find_map(|end| symbol(&format!("{name}{end}")));
    result.set_optional(i32::from(address.is_none()));
    function.set(address.unwrap_or(0))?;
    address.map(drop).ok_or(Failure::NOT_FOUND)
}

/// Returns the address of a function of the libraries of the process.
fn symbol(name: &str) -> Option<usize> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a terminated string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then(|| found.expose_provenance())
}

// The loader's lock is taken while a name is looked up: the machine is not locked.

/// Returns the driver's function of this name.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPoint(
    name: Text,
    function: Out<usize>,
    _flags: u64,
    result: Out<i32>,
) -> i32 {
    remembered(find(name, &function, &result))
}

/// Returns the driver's function of this name, as of a version.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPointByVersion(
    name: Text,
    function: Out<usize>,
    _version: u32,
    _flags: u64,
    result: Out<i32>,
) -> i32 {
    remembered(find(name, &function, &result))
}
