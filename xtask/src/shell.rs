//! Running programs: quietly with a log that is shown on failure, or with their output passed through.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The number of lines of a failed program's log that are shown; the log file has the rest.
const SHOWN_LINES: usize = 300;

/// The time limit of a program in `ci`: a test that hangs becomes a failed step.
const CI_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The location of the workspace, and the mode of running programs in it.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    root: PathBuf,
    target: PathBuf,
    quiet: bool,
}

impl Shell {
    /// Returns the workspace that this program was built from.
    pub(crate) fn new() -> Self {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf);
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target, quiet: false }
    }

    /// Returns the same workspace in quiet mode: the output of programs goes to logs.
    pub(crate) fn quiet(&self) -> Self {
        Self { quiet: true, ..self.clone() }
    }

    /// Returns the folder of the root `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns Cargo's target folder.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the command `cargo ARGS` in the workspace root.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.program("cargo");
        command.args(args);
        command
    }

    /// Returns the command `cargo ARGS` with the nightly toolchain.
    pub(crate) fn nightly_cargo(&self, args: &[&str]) -> Command {
        let mut command = self.program("rustup");
        command.args(["run", "nightly", "cargo"]).args(args);
        command
    }

    /// Returns the command for a program in the workspace root, without the variables that `cargo run` sets:
    /// build scripts that watch them would run again.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.root);
        for (key, _) in std::env::vars_os() {
            let Some(text) = key.to_str() else { continue };
            if text == "CARGO" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&key);
            }
        }
        command
    }

    /// Runs a program to its end. In quiet mode its output goes to a log named `label`, which is shown if it
    /// fails.
    pub(crate) fn run(&self, label: &str, command: &mut Command) -> Result<()> {
        if !self.quiet {
            return self.run_loud(command);
        }
        let log = self.log_path(label)?;
        let outcome = run_logged(command, &log, CI_LIMIT);
        if !matches!(&outcome, Ok(status) if status.success()) {
            show_tail(&log);
        }
        demand_success(command, outcome?)
    }

    /// Runs a program to its end with its output passed through.
    pub(crate) fn run_loud(&self, command: &mut Command) -> Result<()> {
        let status =
            command.status().map_err(|source| Error::Spawn { command: describe(command), source })?;
        demand_success(command, status)
    }

    /// Runs a program that may fail here. `Err` has the reason from its output, in one line.
    pub(crate) fn attempt(
        &self,
        label: &str,
        command: &mut Command,
        limit: Duration,
    ) -> Result<std::result::Result<(), String>> {
        let log = self.log_path(label)?;
        match run_logged(command, &log, limit) {
            Ok(status) if status.success() => Ok(Ok(())),
            Ok(status) => Ok(Err(reason(&log).unwrap_or_else(|| status.to_string()))),
            Err(error @ (Error::Spawn { .. } | Error::TimedOut { .. })) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Runs a program to its end and returns its standard output; its standard error is passed through.
    pub(crate) fn capture(&self, command: &mut Command) -> Result<String> {
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|source| Error::Spawn { command: describe(command), source })?;
        demand_success(command, output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns `true` if a program runs successfully with these arguments, such as `--version`.
    pub(crate) fn answers(&self, program: &str, args: &[&str]) -> bool {
        self.output_of(program, args).is_some()
    }

    /// Returns the output of a program, or `None` if it is missing or fails.
    pub(crate) fn output_of(&self, program: &str, args: &[&str]) -> Option<String> {
        let output = self.program(program).args(args).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn log_path(&self, label: &str) -> Result<PathBuf> {
        let folder = self.target.join("xtask");
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        Ok(folder.join(format!("{}.log", file_name(label))))
    }
}

/// Converts a label to a file name: unusual characters become dashes.
pub(crate) fn file_name(label: &str) -> String {
    label.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

/// Starts a program with both outputs in one file and no input.
pub(crate) fn spawn_logged(command: &mut Command, log: &Path) -> Result<Child> {
    let file = File::create(log).map_err(Error::io(log))?;
    let twin = file.try_clone().map_err(Error::io(log))?;
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(twin)
        .spawn()
        .map_err(|source| Error::Spawn { command: describe(command), source })
}

fn run_logged(command: &mut Command, log: &Path, limit: Duration) -> Result<ExitStatus> {
    let mut child = spawn_logged(command, log)?;
    wait(&mut child, command, limit)
}

fn wait(child: &mut Child, command: &Command, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    let failed = |source| Error::Wait { command: describe(command), source };
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            stop(child).map_err(failed)?;
            return Err(Error::TimedOut { command: describe(command), limit });
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a child process with all of its descendants, and waits for it.
pub(crate) fn stop(child: &mut Child) -> io::Result<()> {
    let listing = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
    let table =
        listing.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // Its descendants would continue without it. Where there is no `ps`, they do.
    let children = descendants(&table, child.id());
    child.kill()?;
    if !children.is_empty() {
        let ids = children.iter().map(u32::to_string);
        // Descendants that have already ended are not an error.
        let _ = Command::new("kill").arg("-KILL").args(ids).stderr(Stdio::null()).status()?;
    }
    child.wait().map(drop)
}

/// Returns all processes below `ancestor`, from a table of process and parent ids.
fn descendants(table: &str, ancestor: u32) -> Vec<u32> {
    let parse = |line: &str| {
        let (process, parent) = line.trim().split_once(char::is_whitespace)?;
        Some((process.parse::<u32>().ok()?, parent.trim().parse::<u32>().ok()?))
    };
    let pairs: Vec<(u32, u32)> = table.lines().filter_map(parse).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let known = found.clone();
        found.extend(pairs.iter().filter(|(id, of)| *of == parent && !known.contains(id)).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

fn demand_success(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { Err(Error::Failed { command: describe(command), status }) }
}

/// Returns the command as a shell command line.
fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

fn show_tail(log: &Path) {
    let Ok(bytes) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        eprintln!("    {line}");
    }
}

/// Returns the line that best explains a failure: the first error, else the last line.
fn reason(log: &Path) -> Option<String> {
    let bytes = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let chosen = lines().find(|line| line.starts_with("error")).or_else(|| lines().next_back())?;
    Some(chosen.trim_start_matches("error: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_file_names() {
        assert_eq!(file_name("loom --mutate/a.b"), "loom---mutate-a.b");
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let table = "  1 0\n 10 1\n 11 10\n 12 11\n 13 10\n 20 1\nnonsense\n";
        assert_eq!(descendants(table, 10), [11, 13, 12]);
        assert!(descendants(table, 20).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let shell = Shell::new();
        let start = Instant::now();
        let mut command = shell.program("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let answer = shell.attempt("hang-test", &mut command, Duration::from_millis(100)).unwrap();
        assert!(answer.is_err_and(|why| why.contains("killed")));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn an_attempt_gives_the_programs_own_reason() {
        let shell = Shell::new();
        let mut command = shell.program("sh");
        command.args(["-c", "echo one; echo 'error: two' >&2; echo three; exit 1"]);
        let answer = shell.attempt("attempt-test", &mut command, Duration::from_secs(10)).unwrap();
        assert_eq!(answer, Err("two".to_owned()));
    }

    #[test]
    fn a_missing_program_is_a_reason_not_an_error() {
        let shell = Shell::new();
        let mut command = shell.program("orlop-no-such-program");
        let answer = shell.attempt("missing-test", &mut command, Duration::from_secs(10)).unwrap();
        assert!(answer.is_err_and(|why| why.contains("cannot be started")));
    }
}
