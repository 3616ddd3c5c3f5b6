//! Throwing `std::bad_alloc` out of a callback of ONNX Runtime.
//!
//! ONNX Runtime writes through the result of its allocator without a check: null ends the process. An
//! exception that leaves the callback unwinds its frames, and the function of its C interface turns it into a
//! status. The exception has to come from the C++ library that ONNX Runtime is linked with. `libstdc++`
//! exports a function that throws it, which is called here, so that building needs no C++ compiler.

use crate::{Error, Result};
use libloading::Library;
use std::io;

/// The file of the library, and the mangled `void std::__throw_bad_alloc()`.
const LIBRARY: &str = "libstdc++.so.6";
const SYMBOL: &[u8] = b"_ZSt17__throw_bad_allocv";

type ThrowFn = unsafe extern "C-unwind" fn() -> !;

/// The function that throws `std::bad_alloc`.
#[derive(Debug)]
pub(crate) struct BadAlloc {
    throw: ThrowFn,
    /// Keeps the function loaded.
    _library: Library,
}

impl BadAlloc {
    /// Finds the function in the process, where ONNX Runtime has loaded its library.
    pub(crate) fn find() -> Result<Self> {
        let unavailable = |error| Error::NoBadAlloc(io::Error::new(io::ErrorKind::NotFound, error));
        // SAFETY: the initialisers of the C++ library have no preconditions; in a process with ONNX Runtime,
        // the library is loaded already.
        let library = unsafe { Library::new(LIBRARY) }.map_err(unavailable)?;
        // SAFETY: the function takes nothing, and throws: it does not return.
        let throw = *unsafe { library.get::<ThrowFn>(SYMBOL) }.map_err(unavailable)?;
        Ok(Self { throw, _library: library })
    }

    /// Throws the exception.
    ///
    /// # Safety
    ///
    /// 1. Every frame of Rust between this one and the handler of C++ is of a function with an ABI that may
    ///    unwind;
    /// 2. none of them has a value that is dropped on the way, and none catches panics.
    pub(crate) unsafe fn throw(&self) -> ! {
        // SAFETY: the library is loaded as long as `self`; the caller guarantees that unwinding is allowed.
        unsafe { (self.throw)() }
    }
}
