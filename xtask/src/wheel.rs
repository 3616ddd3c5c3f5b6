//! `wheel`: the Python package, built, installed into a fresh environment, and tested there.
//!
//! `integrations/python` is a workspace of its own: nothing else needs Python. What the tests need beside the
//! package comes from PyPI; without it, the step is skipped with the reason. The tests of packages that are
//! not installed are skipped by pytest, with theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::report::{Outcome, Report};
use crate::setup::DOWNLOAD_LIMIT;
use crate::shell::Shell;

/// The folder of the package.
const PACKAGE: &str = "integrations/python";

/// The version of maturin that `pyproject.toml` asks for.
const MATURIN: &str = "maturin>=1.9,<2";

/// What the tests need.
const TESTED_WITH: [&str; 6] = ["duckdb", "mypy", "numpy", "pandas", "pytest", "ruff"];

/// What is run in the environment, in the package's folder.
const CHECKS: [(&str, &[&str]); 4] = [
    ("wheel-ruff-format", &["ruff", "format", "--check", "."]),
    ("wheel-ruff", &["ruff", "check", "--quiet", "."]),
    ("wheel-mypy", &["mypy"]),
    ("wheel-pytest", &["pytest", "-q", "-rs"]),
];

/// The frameworks that the package has hooks for, and what their trainers need.
const FRAMEWORKS: [&str; 4] = ["torch", "lightning", "transformers", "accelerate"];

/// The oldest Python that the package supports.
const OLDEST: (u32, u32) = (3, 11);

/// The time limit of the frameworks' download: several gigabytes.
const FRAMEWORKS_LIMIT: Duration = Duration::from_secs(1800);

/// Checks the package's Rust sources, builds the wheel and tests it. With `frameworks`, the newest PyTorch
/// and the frameworks on it are installed, too. `python` is the interpreter of the environment.
pub(crate) fn run(shell: &Shell, report: &mut Report, python: &Path, frameworks: bool) {
    report.step("wheel: sources", || sources(shell));
    let mut wheel = None;
    report.step("wheel: build", || match Environment::new(shell, "wheel-tools", python, &[MATURIN])? {
        Err(why) => Ok(Outcome::Skipped(why)),
        Ok(tools) => {
            let built = build(shell, &tools)?;
            let size = fs::metadata(&built).map_err(Error::io(&built))?.len();
            wheel = Some(built);
            Ok(Outcome::Passed(format!("{:.1} MB", size as f64 / 1e6)))
        }
    });
    report.step("wheel: test", || match &wheel {
        None => Ok(Outcome::Skipped("no wheel was built".to_owned())),
        Some(wheel) => test(shell, python, wheel, frameworks),
    });
}

/// Checks the format and the lints of the Rust sources, with the workspace's own builds of what they use.
pub(crate) fn sources(shell: &Shell) -> Result<Outcome> {
    let manifest = format!("{PACKAGE}/Cargo.toml");
    let manifest = ["--manifest-path", &manifest];
    shell.run("wheel-fmt", shell.cargo(&["fmt"]).args(manifest).arg("--check"))?;
    let mut clippy = shell.cargo(&["clippy", "--quiet", "--locked"]);
    clippy.args(manifest).args(["--", "-D", "warnings"]).env("CARGO_TARGET_DIR", shell.target());
    shell.run("wheel-clippy", &mut clippy)?;
    Ok(Outcome::passed())
}

/// Builds the wheel and returns its path.
fn build(shell: &Shell, tools: &Environment) -> Result<PathBuf> {
    let folder = shell.target().join("wheel").join("dist");
    remove(&folder)?;
    let mut command = shell.program(&tools.program("maturin"));
    command.args(["build", "--release", "--locked", "--interpreter", &tools.program("python"), "--out"]);
    command.arg(&folder).current_dir(shell.root().join(PACKAGE));
    command.env("CARGO_TARGET_DIR", shell.target().join("wheel"));
    shell.run("wheel-build", &mut command)?;
    let mut files = fs::read_dir(&folder).map_err(Error::io(&folder))?;
    match files.next() {
        Some(file) => Ok(file.map_err(Error::io(&folder))?.path()),
        None => Err(Error::empty("wheel", None)),
    }
}

/// Installs the wheel into a fresh environment and runs the tests there.
fn test(shell: &Shell, python: &Path, wheel: &Path, frameworks: bool) -> Result<Outcome> {
    let wheel = wheel.to_string_lossy();
    let packages: Vec<&str> = TESTED_WITH.into_iter().chain([&*wheel]).collect();
    let environment = match Environment::new(shell, "wheel-test", python, &packages)? {
        Ok(environment) => environment,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut with = "without the frameworks: --frameworks installs them".to_owned();
    if frameworks {
        match environment.install(shell, &FRAMEWORKS, FRAMEWORKS_LIMIT)? {
            Ok(()) => with = format!("with {}", FRAMEWORKS.join(", ")),
            Err(why) => with = format!("without the frameworks, which cannot be installed here: {why}"),
        }
    }
    for (name, args) in CHECKS {
        let mut command = shell.program(&environment.program("python"));
        command.arg("-m").args(args).current_dir(shell.root().join(PACKAGE));
        shell.run(name, &mut command)?;
    }
    Ok(Outcome::Passed(with))
}

/// An environment of Python.
struct Environment(PathBuf);

impl Environment {
    /// Makes a fresh environment below the target folder and installs packages. `Err` has the reason why that
    /// is impossible here.
    fn new(
        shell: &Shell,
        name: &str,
        python: &Path,
        packages: &[&str],
    ) -> Result<std::result::Result<Self, String>> {
        let python = python.to_string_lossy();
        if let Err(why) = check_version(shell.output_of(&python, &["--version"]).as_deref()) {
            return Ok(Err(format!("{python}: {why}")));
        }
        let folder = shell.target().join("wheel").join(name);
        remove(&folder)?;
        let mut command = shell.program(&python);
        command.args(["-m", "venv"]).arg(&folder);
        if let Err(why) = shell.attempt(name, &mut command, DOWNLOAD_LIMIT)? {
            return Ok(Err(why));
        }
        let environment = Self(folder);
        Ok(environment.install(shell, packages, DOWNLOAD_LIMIT)?.map(|()| environment))
    }

    fn install(
        &self,
        shell: &Shell,
        packages: &[&str],
        limit: Duration,
    ) -> Result<std::result::Result<(), String>> {
        let mut command = shell.program(&self.program("python"));
        command.args(["-m", "pip", "install", "--quiet"]).args(packages);
        shell.attempt("wheel-pip", &mut command, limit)
    }

    fn program(&self, name: &str) -> String {
        let folder = if cfg!(windows) { "Scripts" } else { "bin" };
        self.0.join(folder).join(name).to_string_lossy().into_owned()
    }
}

/// Checks the output of `python --version`. `Err` has the reason why it is not enough.
fn check_version(output: Option<&str>) -> std::result::Result<(), String> {
    let output = output.map(str::trim).ok_or("this Python is missing")?;
    let mut numbers = output.trim_start_matches("Python ").split('.').map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= OLDEST { Ok(()) } else { Err(format!("{output} is older than {}.{}", OLDEST.0, OLDEST.1)) }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(check_version(Some("Python 3.11.7\n")), Ok(()));
        assert_eq!(check_version(Some("Python 4.0.0\n")), Ok(()));
        assert_eq!(
            check_version(Some("Python 3.10.13\n")),
            Err("Python 3.10.13 is older than 3.11".to_owned())
        );
        assert!(check_version(None).is_err());
    }
}
