//! A run in its own process.
//!
//! An allocator leaves traces in a process that affect the next one: a heap that has grown, memory that stays
//! resident, the threshold from which `malloc` maps memory. So with several runs, each is a new process of
//! this program with one trace and one allocator, and its report is returned as JSON. A process that is
//! killed, for example for lack of memory, is a failed run; the others continue.

use crate::arguments::ReplayArguments;
use crate::output::{Failures, PREFIX};
use orlop::lab::cpu_bench::ReplayReport;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

/// The command that starts this program.
#[derive(Debug, Clone)]
pub enum ProgramCommand {
    /// The executable of this process.
    CurrentExecutable,
    /// An interpreter that runs a module, as in `python -m orlop`.
    Module {
        /// The interpreter.
        interpreter: PathBuf,
        /// The name of the module.
        module: &'static str,
        /// The folder of the shared libraries that come with the module.
        folder: PathBuf,
    },
}

impl ProgramCommand {
    /// Returns a command that starts this program.
    pub(crate) fn command(&self) -> io::Result<Command> {
        Ok(match self {
            Self::CurrentExecutable => Command::new(env::current_exe()?),
            Self::Module { interpreter, module, .. } => {
                let mut command = Command::new(interpreter);
                command.args(["-m", module]);
                command
            }
        })
    }
}

/// Replays the trace in `file` through `allocator` in a new process.
pub(crate) fn replay(
    arguments: &ReplayArguments,
    file: &Path,
    allocator: &str,
    program: &ProgramCommand,
) -> Result<ReplayReport, Failures> {
    let failure = |what: String| Failures::from(format!("{}: {}: {what}", file.display(), allocator));
    let mut command =
        program.command().map_err(|error| failure(format!("cannot find this program: {error}")))?;
    command.arg("replay").args(["--json", "--allocator", allocator]);
    command.args(["--threads", &arguments.threads.to_string()]);
    if let Some(backing) = &arguments.backing {
        command.args(["--backing", backing]);
    }
    if let Some(touch) = arguments.touch {
        command.args(["--touch", touch.name()]);
    }
    if let Some(passes) = arguments.repeat {
        command.args(["--repeat", &passes.to_string()]);
    }
    command.arg("--").arg(file).stdin(Stdio::null());
    let output =
        command.output().map_err(|error| failure(format!("cannot start this program again: {error}")))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let failures: Vec<String> =
            errors.lines().map(|line| line.strip_prefix(PREFIX).unwrap_or(line).to_owned()).collect();
        return match failures.is_empty() {
            true => Err(failure(format!("ended with {}", output.status))),
            false => Err(Failures(failures)),
        };
    }
    let reports: Result<Vec<ReplayReport>, _> = serde_json::from_slice(&output.stdout);
    let report = reports.ok().and_then(|mut reports| reports.pop());
    report.ok_or_else(|| failure("returned no report".to_owned()))
}
