//! Initialization, version and symbol lookup.

use crate::abi::{Out, Text};
use crate::call::calls;
use crate::codes::Failure;
use std::ffi::c_void;

calls! {
    fn cuInit(flags: u32) Free |driver| {
        if flags != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        if driver.devices.is_empty() {
            return Err(Failure::NO_DEVICE);
        }
        driver.is_initialized = true;
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<i32>) Free |driver| { version.set(driver.config.version) }

    fn cuGetProcAddress(
        symbol: Text,
        function: Out<*mut c_void>,
        _version: i32,
        _flags: u64,
    ) Free |_driver| {
        let found = lookup(&symbol.get()?);
        function.set(found.unwrap_or(std::ptr::null_mut()))?;
        found.map(|_| ()).ok_or(Failure::NOT_FOUND)
    }

    fn cuGetProcAddress_v2(
        symbol: Text,
        function: Out<*mut c_void>,
        version: i32,
        _flags: u64,
        status: Out<i32>,
    ) Free |driver| {
        // `CU_GET_PROC_ADDRESS_SUCCESS`, `_SYMBOL_NOT_FOUND`, `_VERSION_NOT_SUFFICIENT`.
        let found = lookup(&symbol.get()?);
        let is_newer = version > driver.config.version;
        status.set_optional(match found {
            None => 1,
            Some(_) if is_newer => 2,
            Some(_) => 0,
        });
        function.set(found.filter(|_| !is_newer).unwrap_or(std::ptr::null_mut()))?;
        if found.is_some() && !is_newer { Ok(()) } else { Err(Failure::NOT_FOUND) }
    }

    fn cuGetExportTable(table: Out<*const c_void>, _id: usize) Free |_driver| {
        table.set(std::ptr::null())?;
        Err(Failure::NOT_SUPPORTED)
    }
}

/// Returns the newest version of an exported function of this library.
fn lookup(symbol: &str) -> Option<*mut c_void> {
    if !symbol.starts_with("cu") {
        return None;
    }
    let library = this_library()?;
    ["_v4", "_v3", "_v2", ""].iter().find_map(|suffix| {
        let name = std::ffi::CString::new(format!("{symbol}{suffix}")).ok()?;
        // SAFETY: the handle is that of this library, which stays loaded; the name is a terminated string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    })
}

/// Returns a handle of the library that this function is in.
fn this_library() -> Option<*mut c_void> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here: *const c_void = this_library as *const c_void;
    // SAFETY: the structure is valid for writes.
    let known = unsafe { libc::dladdr(here, found.as_mut_ptr()) };
    if known == 0 {
        return None;
    }
    // SAFETY: all bytes are initialized, by zero at least, and any value of the fields is valid.
    let found = unsafe { found.assume_init() };
    // SAFETY: a file name that `dladdr` returned is a terminated string; the library is loaded already.
    let handle = unsafe { libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}
