//! `loom`: the model checker over the concurrent protocols of `orlop-alloc`.
//!
//! The tests are built once, in a target folder of their own, and the test program is then run directly: the mutation
//! driver (see [`crate::mutate`]) runs the very same program with one weakened ordering after the other.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;

/// How far the model checker looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Every interleaving with at most two preemptions: finds nearly all that there is, in minutes.
    Short,
    /// Three preemptions and longer executions.
    Full,
}

impl Depth {
    fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Short => &[("LOOM_MAX_PREEMPTIONS", "2"), ("LOOM_MAX_BRANCHES", "10000")],
            Self::Full => &[("LOOM_MAX_PREEMPTIONS", "3"), ("LOOM_MAX_BRANCHES", "10000")],
        }
    }
}

/// The crate whose protocols are modelled.
pub(crate) fn crate_folder(shell: &Shell) -> PathBuf {
    shell.root().join("crates/orlop-alloc")
}

/// Says why there is nothing to check, if so.
pub(crate) fn missing(shell: &Shell) -> Option<Outcome> {
    let folder = crate_folder(shell).join("tests");
    let there = folder.join("loom.rs").exists() || folder.join("loom/main.rs").exists();
    (!there).then(|| Outcome::Skipped("orlop-alloc has no loom tests yet".to_owned()))
}

/// Runs the models, all or those whose name contains `filter`.
pub(crate) fn run(shell: &Shell, depth: Depth, filter: Option<&str>) -> Result<Outcome> {
    if let Some(outcome) = missing(shell) {
        return Ok(outcome);
    }
    let models = Models::build(shell)?;
    let mut command = models.command(shell, depth);
    command.args(filter);
    shell.run("loom", &mut command)?;
    Ok(Outcome::passed())
}

/// The built test program.
#[derive(Debug)]
pub(crate) struct Models {
    program: PathBuf,
}

impl Models {
    /// Builds the tests with `--cfg loom`.
    pub(crate) fn build(shell: &Shell) -> Result<Self> {
        let mut command =
            shell.cargo(&["test", "--quiet", "--release", "-p", "orlop-alloc", "--test", "loom"]);
        command.args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.env("RUSTFLAGS", with_rustflags("--cfg loom"));
        command.env("CARGO_TARGET_DIR", shell.target().join("loom"));
        let messages = shell.capture(&mut command)?;
        let program = messages.lines().filter_map(executable).next_back();
        program
            .map(|program| Self { program })
            .ok_or_else(|| Error::NoTestBinary { target: "loom".to_owned() })
    }

    /// A run of the models, in the folder that `cargo test` would run them in.
    pub(crate) fn command(&self, shell: &Shell, depth: Depth) -> Command {
        let mut command = shell.program(&self.program.to_string_lossy());
        let folder = crate_folder(shell);
        command.env("CARGO_MANIFEST_DIR", &folder).current_dir(folder);
        command.env_remove("ORLOP_LOOM_MUTATE").envs(depth.environment().iter().copied());
        command
    }
}

/// These flags after the caller's own.
pub(crate) fn with_rustflags(flags: &str) -> String {
    match std::env::var("RUSTFLAGS") {
        Ok(own) if !own.trim().is_empty() => format!("{own} {flags}"),
        Ok(_) | Err(_) => flags.to_owned(),
    }
}

#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<BuiltTarget>,
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
}

/// The test program, if this message of cargo announces it.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Message = serde_json::from_str(line).ok()?;
    message.target.filter(|target| target.name == "loom")?;
    message.executable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_test_program_among_cargos_messages() {
        let ours = r#"{"reason":"compiler-artifact","target":{"name":"loom","kind":["test"]},"executable":"/t/loom-1"}"#;
        let dependency =
            r#"{"reason":"compiler-artifact","target":{"name":"loom","kind":["lib"]},"executable":null}"#;
        assert_eq!(executable(ours), Some(PathBuf::from("/t/loom-1")));
        assert_eq!(executable(dependency), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(executable("not json"), None);
    }
}
