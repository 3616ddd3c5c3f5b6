//! `loom`: the model checker over the concurrent protocols of allocators, tensors and the recorder.
//!
//! The tests are built once, in a separate target folder, and the test program is then run directly: the
//! mutation driver (see [`crate::mutate`]) runs the same program with one weakened ordering after the other.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;

/// The depth of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchDepth {
    /// Every interleaving with at most two preemptions: finds nearly all errors, in minutes.
    Short,
    /// Three preemptions and longer executions.
    Full,
}

impl SearchDepth {
    fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Short => &[("LOOM_MAX_PREEMPTIONS", "2"), ("LOOM_MAX_BRANCHES", "10000")],
            Self::Full => &[("LOOM_MAX_PREEMPTIONS", "3"), ("LOOM_MAX_BRANCHES", "10000")],
        }
    }
}

/// A crate with models.
#[derive(Debug)]
pub(crate) struct ModelCrate {
    pub(crate) package: &'static str,
    /// The arguments of `cargo test` that select the models.
    arguments: &'static [&'static str],
    /// The name of that target.
    target: &'static str,
}

/// All crates with models.
pub(crate) const MODEL_CRATES: [ModelCrate; 4] = [
    ModelCrate { package: "orlop-sync", arguments: &["--test", "loom"], target: "loom" },
    ModelCrate { package: "orlop-alloc", arguments: &["--test", "loom"], target: "loom" },
    ModelCrate { package: "orlop-tensor", arguments: &["--lib"], target: "orlop_tensor" },
    ModelCrate { package: "orlop-trace", arguments: &["--test", "loom"], target: "loom" },
];

/// Runs the models, all or those whose name contains `filter`.
pub(crate) fn run(shell: &Shell, depth: SearchDepth, filter: Option<&str>) -> Result<Outcome> {
    for model_crate in &MODEL_CRATES {
        let models = Models::build(shell, model_crate)?;
        let mut command = models.command(shell, depth);
        command.args(filter);
        shell.run(&format!("loom-{}", model_crate.package), &mut command)?;
    }
    Ok(Outcome::passed())
}

/// The test program of a crate with models.
#[derive(Debug)]
pub(crate) struct Models {
    program: PathBuf,
    folder: PathBuf,
}

impl ModelCrate {
    /// Returns the folder of the crate.
    pub(crate) fn folder(&self, shell: &Shell) -> PathBuf {
        shell.root().join("crates").join(self.package)
    }
}

impl Models {
    /// Builds the tests with `--cfg loom`.
    pub(crate) fn build(shell: &Shell, model_crate: &ModelCrate) -> Result<Self> {
        let mut command = shell.cargo(&["test", "--quiet", "--release", "-p", model_crate.package]);
        command.args(model_crate.arguments);
        command.args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.env("RUSTFLAGS", with_rustflags("--cfg loom"));
        command.env("CARGO_TARGET_DIR", shell.target().join("loom"));
        let messages = shell.capture(&mut command)?;
        let program = messages.lines().filter_map(|line| executable(line, model_crate.target)).next_back();
        program
            .map(|program| Self { program, folder: model_crate.folder(shell) })
            .ok_or_else(|| Error::NoTestBinary { target: model_crate.target.to_owned() })
    }

    /// Returns the command that runs the models, in the folder that `cargo test` would use.
    pub(crate) fn command(&self, shell: &Shell, depth: SearchDepth) -> Command {
        let mut command = shell.program(&self.program.to_string_lossy());
        command.env("CARGO_MANIFEST_DIR", &self.folder).current_dir(&self.folder);
        command.env_remove("ORLOP_LOOM_MUTATE").envs(depth.environment().iter().copied());
        command
    }
}

/// Appends these flags to the caller's own.
pub(crate) fn with_rustflags(flags: &str) -> String {
    match std::env::var("RUSTFLAGS") {
        Ok(own) if !own.trim().is_empty() => format!("{own} {flags}"),
        Ok(_) | Err(_) => flags.to_owned(),
    }
}

#[derive(Deserialize)]
struct CargoMessage {
    executable: Option<PathBuf>,
    target: Option<BuiltTarget>,
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
}

/// Returns the test program, if this message of cargo reports it.
fn executable(line: &str, name: &str) -> Option<PathBuf> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    message.target.filter(|target| target.name == name)?;
    message.executable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_test_program_among_cargos_messages() {
        let message = |kind: &str, executable: &str| {
            let target = format!(r#"{{"name":"loom","kind":["{kind}"]}}"#);
            format!(r#"{{"reason":"compiler-artifact","target":{target},"executable":{executable}}}"#)
        };
        let (ours, dependency) = (&message("test", r#""/t/loom-1""#), &message("lib", "null"));
        assert_eq!(executable(ours, "loom"), Some(PathBuf::from("/t/loom-1")));
        assert_eq!(executable(dependency, "loom"), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#, "loom"), None);
        assert_eq!(executable("not json", "loom"), None);
    }
}
