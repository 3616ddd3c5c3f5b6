//! [`Error`]: why the simulated driver cannot be used.

use std::path::PathBuf;

/// Why a call of this crate failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The simulation needs Linux: files in memory that are mapped at fixed addresses.
    #[error("the simulated driver runs on Linux only")]
    Unsupported,
    /// The library was not built, or is not where cargo puts it.
    #[error("{name} was not found beside this program or in cargo's output folder")]
    NotFound {
        /// The file name.
        name: String,
    },
    /// Another library called `libcuda.so` is loaded: the real driver, or a second copy of this one.
    #[error("a CUDA driver is loaded already: load the simulated one before the first call of CUDA")]
    OtherDriver,
    /// The simulated driver is loaded with other options.
    #[error("the simulated driver is loaded already, with other options")]
    OtherOptions,
    /// The file could not be read.
    #[error("{path}: {kind}")]
    File {
        /// The file.
        path: PathBuf,
        /// What failed.
        kind: std::io::ErrorKind,
    },
    /// The library to load has no such symbol, so that it cannot be removed.
    #[error("the simulated driver has no symbol {symbol}")]
    NoSymbol {
        /// The symbol.
        symbol: String,
    },
    /// The dynamic loader refused the library.
    #[error("the dynamic loader refused the library: {message}")]
    Loader {
        /// What the loader says.
        message: String,
    },
    /// The driver refused a request.
    #[error("{request}: the simulated driver returned {code}")]
    Driver {
        /// The request.
        request: &'static str,
        /// The `CUresult`.
        code: i32,
    },
}

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Turns a code into a result.
pub(crate) fn check(request: &'static str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::Driver { request, code }) }
}
