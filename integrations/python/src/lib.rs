//! The extension module `orlop._native`: the answers of the lab as JSON, the program, and tensors.
//!
//! The Python sources beside it are the public module: they make dataclasses of the JSON. Functions release
//! the GIL, call a progress function, and end with `KeyboardInterrupt` at Ctrl-C ([`task`]).

mod answers;
mod error;
mod recording;
mod task;
#[allow(unsafe_code, reason = "capsules and buffers are interfaces in C")]
mod tensor;

use orlop_cli::ProgramCommand;
// Linked for the functions that it exports: PyTorch finds them in this extension.
#[cfg(unix)]
use orlop_torch as _;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs the program with these arguments, and returns its exit code. `interpreter` starts it again as
/// `python -m orlop`. `folder` is that of the package, which has the library of dry runs.
#[pyfunction]
fn run_program(py: Python<'_>, arguments: Vec<OsString>, interpreter: PathBuf, folder: PathBuf) -> u8 {
    let program = ProgramCommand::Module { interpreter, module: "orlop", folder };
    py.detach(|| orlop_cli::run(arguments, &program))
}

/// The module. Its proofs for capsules and buffers need the interpreter's lock, which builds of Python
/// without one take for it.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::run_program;
    #[pymodule_export]
    use crate::answers::{describe, diff, fit, gate, profile, report, what_if, why_oom};
    #[pymodule_export]
    use crate::error::{InternalError, OrlopError, RecordingError};
    #[pymodule_export]
    use crate::tensor::{Tensor, empty, from_buffer, from_dlpack, live_bytes, zeros};
}
