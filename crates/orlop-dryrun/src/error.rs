//! The error of this crate.

use std::io;
use std::path::PathBuf;

/// The result of this crate's operations.
pub type Result<T, E = DryRunError> = std::result::Result<T, E>;

/// The errors of preparing a dry run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DryRunError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A file is no shared library of this machine's kind.
    #[error("{}: not a 64-bit ELF library: {fault}", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The folder holds no PyTorch that was built for CUDA.
    #[error("{}: no PyTorch for CUDA is installed there (no library needs libcudart.so)", path.display())]
    NoCudaTorch {
        /// The folder of packages.
        path: PathBuf,
    },
    /// The path of the output folder has a character that separates folders in the loader's and Python's
    /// variables: the program would run without the injection.
    #[error("{}: a dry run cannot write there, because the path has one of `:;$`", path.display())]
    UnusableOutput {
        /// The folder.
        path: PathBuf,
    },
    /// No GPU has this name.
    #[error("unknown GPU {name:?}: choose one of {}, or set its memory with --memory", known.join(", "))]
    UnknownGpu {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// A setting in the environment is invalid.
    #[error("the environment variable {variable} has the invalid value {value:?}")]
    InvalidSetting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The machine is not one for which stand-ins can be written.
    #[error("a dry run needs Linux on x86-64")]
    UnsupportedMachine,
}
