//! `loom`: the model checker over the concurrent protocols of allocators, tensors and the recorder.
//!
//! The tests are built once, in a separate target folder, and the test program is then run directly: the
//! mutation driver (see [`crate::mutate`]) runs the same program with one weakened ordering after the other.

use std::path::PathBuf;
use std::process::Command;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;
use crate::workspace::executable;

/// The depth of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchDepth {
    /// Every interleaving with at most two preemptions: finds nearly all errors, in minutes.
    Short,
    /// Three preemptions.
    Full,
}

impl SearchDepth {
    fn preemptions(self) -> &'static str {
        match self {
            Self::Short => "2",
            Self::Full => "3",
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

/// What a short search runs, and nothing else of its programs: only this is optimised for it.
const SEARCHED: [&str; 4] = ["loom", "generator", "orlop-sync", "orlop-alloc"];

/// All crates with models.
pub(crate) const MODEL_CRATES: [ModelCrate; 4] = [
    ModelCrate { package: "orlop-sync", arguments: &["--test", "loom"], target: "loom" },
    ModelCrate { package: "orlop-alloc", arguments: &["--test", "loom"], target: "loom" },
    ModelCrate { package: "orlop-tensor", arguments: &["--lib"], target: "orlop_tensor" },
    ModelCrate { package: "orlop-trace", arguments: &["--test", "loom"], target: "loom" },
];

/// Runs the models, all or those whose name contains `filter`.
pub(crate) fn run(shell: &Shell, depth: SearchDepth, filter: Option<&str>) -> Result<Outcome> {
    let mut count = 0;
    for model_crate in &MODEL_CRATES {
        let models = Models::build(shell, model_crate, depth)?;
        let selected = models.count(shell, depth, filter)?;
        if selected == 0 && filter.is_some() {
            continue;
        }
        if selected == 0 {
            return Err(Error::empty("model", Some(model_crate.package)));
        }
        count += selected;
        let mut command = models.command(shell, depth);
        command.args(filter);
        shell.run(&format!("loom-{}", model_crate.package), &mut command)?;
    }
    match count {
        0 => Err(Error::empty("model", filter)),
        count => Ok(Outcome::Passed(format!("models: {count}"))),
    }
}

/// Returns the number of tests in the output of `--list`.
fn listed(output: &str) -> usize {
    output.lines().filter(|line| line.ends_with(": test")).count()
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
    /// Builds the tests with `--cfg loom`. A short search takes seconds, and its build minutes.
    pub(crate) fn build(shell: &Shell, model_crate: &ModelCrate, depth: SearchDepth) -> Result<Self> {
        let mut command = shell.cargo(&["test", "--quiet", "--release", "-p", model_crate.package]);
        command.args(model_crate.arguments);
        command.args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.env("RUSTFLAGS", with_rustflags("--cfg loom"));
        command.env("CARGO_TARGET_DIR", shell.target().join("loom"));
        if depth == SearchDepth::Short {
            command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
            for package in SEARCHED {
                command.args(["--config", &format!("profile.release.package.{package}.opt-level=1")]);
            }
        }
        let messages = shell.capture(&mut command)?;
        let program = executable(&messages, model_crate.target)?;
        Ok(Self { program, folder: model_crate.folder(shell) })
    }

    /// Returns the number of models whose name contains `filter`.
    fn count(&self, shell: &Shell, depth: SearchDepth, filter: Option<&str>) -> Result<usize> {
        let mut command = self.command(shell, depth);
        command.args(filter).arg("--list");
        shell.capture(&mut command).map(|output| listed(&output))
    }

    /// Returns the command that runs the models, in the folder that `cargo test` would use.
    pub(crate) fn command(&self, shell: &Shell, depth: SearchDepth) -> Command {
        let mut command = shell.program(&self.program.to_string_lossy());
        command.env("CARGO_MANIFEST_DIR", &self.folder).current_dir(&self.folder);
        command.env("LOOM_MAX_PREEMPTIONS", depth.preemptions()).env("LOOM_MAX_BRANCHES", "10000");
        command.env_remove("ORLOP_LOOM_MUTATE");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted() {
        assert_eq!(listed("mutex::a: test\nmutex::b: test\n\n2 tests, 0 benchmarks\n"), 2);
        assert_eq!(listed("0 tests, 0 benchmarks\n"), 0);
    }

    #[test]
    fn an_empty_selection_is_an_error() {
        let text = Error::empty("model", Some("zzz")).to_string();
        assert_eq!(text, "nothing to check: no model has a name with `zzz`");
    }
}
