//! The driver's library. cudarc may be linked with it or load it at run time: this crate needs to know
//! neither, and gets the same one.

use libloading::Library;

/// Opens the driver, which is never unloaded: it has threads of its own. Returns `None` if there is none.
#[cfg(unix)]
pub(super) fn open() -> Option<&'static Library> {
    use libloading::os::unix::{Library as UnixLibrary, RTLD_LAZY};

    // A library that the program has loaded comes first, so that there is one driver in the process.
    let ways = [
        ("libcuda.so", libc::RTLD_NOLOAD),
        ("libcuda.so.1", libc::RTLD_NOLOAD),
        ("libcuda.so.1", 0),
        ("libcuda.so", 0),
    ];
    // SAFETY: these names are the driver's, whose initialisers any use of CUDA runs.
    let open = |(name, flag)| unsafe { UnixLibrary::open(Some(name), RTLD_LAZY | flag) }.ok();
    let library = ways.into_iter().find_map(open)?;
    Some(Box::leak(Box::new(library.into())))
}

/// Opens the driver, which is never unloaded: it has threads of its own. Returns `None` if there is none.
#[cfg(windows)]
pub(super) fn open() -> Option<&'static Library> {
    // SAFETY: the name is the driver's, whose initialisers any use of CUDA runs.
    let library = unsafe { Library::new("nvcuda.dll") }.ok()?;
    Some(Box::leak(Box::new(library)))
}
