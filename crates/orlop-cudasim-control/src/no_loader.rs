//! In place of the dynamic loader on systems where the driver is not simulated.

use crate::config::DriverOptions;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_void};
use std::path::Path;

/// Fails: the simulation needs Linux.
pub(crate) fn open(path: &Path, options: &DriverOptions) -> Result<*mut c_void> {
    let _ = (path, options);
    Err(Error::Unsupported)
}

/// Fails: the simulation needs Linux.
pub(crate) fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void> {
    let _ = (library, name);
    Err(Error::Unsupported)
}
