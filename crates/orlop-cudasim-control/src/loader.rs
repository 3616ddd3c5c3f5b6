//! The dynamic loader: opening the library, with symbols removed on request.

use crate::config::DriverOptions;
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};

/// The name that the dynamic loader knows a driver by.
const SONAME: &CStr = c"libcuda.so";

/// Opens the library at `path` with these options.
pub(crate) fn open(path: &Path, options: &DriverOptions) -> Result<*mut c_void> {
    // SAFETY: the name is a terminated string; with `RTLD_NOLOAD` nothing is loaded.
    let other = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !other.is_null() {
        return Err(Error::OtherDriver);
    }
    if options.missing.is_empty() {
        return open_file(path);
    }
    let copy = without_symbols(path, &options.missing)?;
    let opened = open_file(copy.as_path());
    // Once mapped, the file is not needed; a failure leaves a file in the folder for temporary ones.
    let _ = std::fs::remove_file(&copy);
    opened
}

fn open_file(path: &Path) -> Result<*mut c_void> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::NotFound { name: path.display().to_string() })?;
    // SAFETY: the name is a terminated string; the library has no initializers.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() { Err(Error::Loader { message: loader_message() }) } else { Ok(library) }
}

fn loader_message() -> String {
    // SAFETY: no precondition.
    let message: *mut c_char = unsafe { libc::dlerror() };
    if message.is_null() {
        return String::new();
    }
    // SAFETY: not null, therefore a terminated string that is valid until this thread's next call of the
    // loader.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// Returns the address of a function of the library.
pub(crate) fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void> {
    // SAFETY: the handle is of a library that stays loaded; the name is a terminated string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(Error::NoSymbol { symbol: name.to_string_lossy().into_owned() });
    }
    Ok(found)
}

/// Writes a copy of the library in which these symbols have another name, and returns its path.
///
/// The loader looks names up by a hash and then compares them: a changed name is not found.
fn without_symbols(path: &Path, missing: &[String]) -> Result<PathBuf> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| Error::File { path, kind: error.kind() }
    };
    let mut bytes = std::fs::read(path).map_err(file_error(path))?;
    for symbol in missing {
        let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let places: Vec<usize> =
            (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
        if symbol.is_empty() || places.is_empty() {
            return Err(Error::NoSymbol { symbol: symbol.clone() });
        }
        for at in places {
            bytes[at + 1] = b'_';
        }
    }
    let copy = std::env::temp_dir().join(format!("orlop-cudasim-{}.so", std::process::id()));
    std::fs::write(&copy, bytes).map_err(file_error(&copy))?;
    Ok(copy)
}
