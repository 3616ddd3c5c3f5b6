//! `loom`: the model checker over the concurrent protocols, of allocators, of tensors and of the recorder.
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

/// A crate with models, and where they are.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) package: &'static str,
    /// What `cargo test` is told to build.
    arguments: &'static [&'static str],
    /// What cargo calls that.
    target: &'static str,
}

/// All of them.
pub(crate) const SUBJECTS: [Subject; 4] = [
    Subject { package: "orlop-sync", arguments: &["--test", "loom"], target: "loom" },
    Subject { package: "orlop-alloc", arguments: &["--test", "loom"], target: "loom" },
    Subject { package: "orlop-tensor", arguments: &["--lib"], target: "orlop_tensor" },
    Subject { package: "orlop-trace", arguments: &["--test", "loom"], target: "loom" },
];

/// Runs the models, all or those whose name contains `filter`.
pub(crate) fn run(shell: &Shell, depth: Depth, filter: Option<&str>) -> Result<Outcome> {
    for subject in &SUBJECTS {
        let models = Models::build(shell, subject)?;
        let mut command = models.command(shell, depth);
        command.args(filter);
        shell.run(&format!("loom-{}", subject.package), &mut command)?;
    }
    Ok(Outcome::passed())
}

/// The built test program of a subject.
#[derive(Debug)]
pub(crate) struct Models {
    program: PathBuf,
    folder: PathBuf,
}

impl Subject {
    /// Where the crate is.
    pub(crate) fn folder(&self, shell: &Shell) -> PathBuf {
        shell.root().join("crates").join(self.package)
    }
}

impl Models {
    /// Builds the tests with `--cfg loom`.
    pub(crate) fn build(shell: &Shell, subject: &Subject) -> Result<Self> {
        let mut command = shell.cargo(&["test", "--quiet", "--release", "-p", subject.package]);
        command.args(subject.arguments);
        command.args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.env("RUSTFLAGS", with_rustflags("--cfg loom"));
        command.env("CARGO_TARGET_DIR", shell.target().join("loom"));
        let messages = shell.capture(&mut command)?;
        let program = messages.lines().filter_map(|line| executable(line, subject.target)).next_back();
        program
            .map(|program| Self { program, folder: subject.folder(shell) })
            .ok_or_else(|| Error::NoTestBinary { target: subject.target.to_owned() })
    }

    /// A run of the models, in the folder that `cargo test` would run them in.
    pub(crate) fn command(&self, shell: &Shell, depth: Depth) -> Command {
        let mut command = shell.program(&self.program.to_string_lossy());
        command.env("CARGO_MANIFEST_DIR", &self.folder).current_dir(&self.folder);
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
fn executable(line: &str, name: &str) -> Option<PathBuf> {
    let message: Message = serde_json::from_str(line).ok()?;
    message.target.filter(|target| target.name == name)?;
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
        assert_eq!(executable(ours, "loom"), Some(PathBuf::from("/t/loom-1")));
        assert_eq!(executable(dependency, "loom"), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#, "loom"), None);
        assert_eq!(executable("not json", "loom"), None);
    }
}
