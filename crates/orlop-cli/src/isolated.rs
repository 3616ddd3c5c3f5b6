//! A run in a process of its own.
//!
//! What an allocator leaves behind, the next one inherits: a heap that has grown, memory that stays resident,
//! the size from which `malloc` maps. So when there are several runs, each is this program again with one
//! trace and one allocator, and its report comes back as JSON. One that is killed, for taking too much memory
//! say, is one that failed; the others go on.

use crate::arguments::ReplayArguments;
use crate::output::PREFIX;
use orlop::lab::cpu_bench::ReplayReport;
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// Replays the trace in `file` through `allocator`, otherwise as `arguments` say.
pub(crate) fn replay(
    arguments: &ReplayArguments,
    file: &Path,
    allocator: &str,
) -> Result<ReplayReport, Vec<String>> {
    let failure = |what: String| vec![format!("{}: {}: {what}", file.display(), allocator)];
    let program =
        env::current_exe().map_err(|error| failure(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
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
        let complaints = String::from_utf8_lossy(&output.stderr);
        let told: Vec<String> =
            complaints.lines().map(|line| line.strip_prefix(PREFIX).unwrap_or(line).to_owned()).collect();
        return Err(if told.is_empty() { failure(format!("ended with {}", output.status)) } else { told });
    }
    let reports: Result<Vec<ReplayReport>, _> = serde_json::from_slice(&output.stdout);
    let report = reports.ok().and_then(|mut reports| reports.pop());
    report.ok_or_else(|| failure("gave no report".to_owned()))
}
