//! `setup`: installs what the other commands need, and reports it.
//!
//! A missing network never fails the run: what cannot be installed is skipped with the installer's message,
//! and the command that needs it is skipped too.

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::report::{Outcome, Report};
use crate::shell::Shell;
use crate::workspace::{members, oldest_toolchain};

/// The version of cargo-deny for which `deny.toml` is written.
const CARGO_DENY: &str = "0.20.2";

/// A build without optimisation takes a third of the time, and the check runs for seconds only.
const FAST_BUILD: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
];

/// The targets that `targets` checks.
pub(crate) const TARGETS: [&str; 4] =
    ["aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// A target without an operating system: `orlop-core` must build for it.
pub(crate) const BARE_METAL: &str = "thumbv7em-none-eabihf";

/// The names of browsers of the Chromium family.
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The time limit of a download.
pub(crate) const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);

/// Runs every installation.
pub(crate) fn run(shell: &Shell, report: &mut Report) {
    report.step("setup: cargo-deny", || cargo_deny(shell));
    report.step("setup: nightly", || nightly(shell));
    report.step("setup: msrv", || oldest(shell));
    report.step("setup: miri", || component(shell, "miri"));
    report.step("setup: rust-src", || component(shell, "rust-src"));
    for name in TARGETS.into_iter().chain([BARE_METAL]) {
        report.step(&format!("setup: {name}"), || target(shell, name));
    }
    report.step("setup: chromium", || chromium(shell));
}

/// Returns `true` if any version of cargo-deny is installed.
pub(crate) fn has_cargo_deny(shell: &Shell) -> bool {
    shell.answers("cargo", &["deny", "--version"])
}

/// Returns `true` if a nightly toolchain is installed.
pub(crate) fn has_nightly(shell: &Shell) -> bool {
    has_toolchain(shell, "nightly")
}

/// Returns `true` if this toolchain is installed.
pub(crate) fn has_toolchain(shell: &Shell, name: &str) -> bool {
    shell.answers("rustup", &["run", name, "rustc", "--version"])
}

/// Returns `true` if nightly has a component.
pub(crate) fn has_component(shell: &Shell, name: &str) -> bool {
    shell
        .output_of("rustup", &["component", "list", "--toolchain", "nightly", "--installed"])
        .is_some_and(|list| list.lines().any(|line| line.starts_with(name)))
}

/// Returns `true` if the workspace's own toolchain can build for a target.
pub(crate) fn has_target(shell: &Shell, name: &str) -> bool {
    shell
        .output_of("rustup", &["target", "list", "--installed"])
        .is_some_and(|list| list.lines().any(|line| line == name))
}

fn there() -> Outcome {
    Outcome::Passed("already there".to_owned())
}

fn cargo_deny(shell: &Shell) -> Result<Outcome> {
    let wanted = format!("cargo-deny {CARGO_DENY}");
    if shell.output_of("cargo", &["deny", "--version"]).is_some_and(|version| version.trim() == wanted) {
        return Ok(there());
    }
    let mut command = shell.cargo(&["install", "--locked", "cargo-deny", "--version", CARGO_DENY]);
    command.envs(FAST_BUILD).env("CARGO_TARGET_DIR", shell.target().join("cargo-deny"));
    Ok(match shell.attempt("setup-cargo-deny", &mut command, 4 * DOWNLOAD_LIMIT)? {
        Ok(()) => Outcome::Passed(format!("installed {CARGO_DENY}, built without optimisation")),
        Err(why) => cannot("cargo-deny", &why),
    })
}

fn nightly(shell: &Shell) -> Result<Outcome> {
    if has_nightly(shell) {
        return Ok(there());
    }
    rustup(shell, "nightly", &["toolchain", "install", "nightly", "--profile", "minimal"])
}

/// Installs the toolchain of the workspace's `rust-version`.
fn oldest(shell: &Shell) -> Result<Outcome> {
    let oldest = oldest_toolchain(&members(shell)?)?;
    if has_toolchain(shell, &oldest) {
        return Ok(there());
    }
    rustup(shell, &oldest, &["toolchain", "install", &oldest, "--profile", "minimal"])
}

fn component(shell: &Shell, name: &str) -> Result<Outcome> {
    if !has_nightly(shell) {
        return Ok(cannot(name, "there is no nightly toolchain"));
    }
    if has_component(shell, name) {
        return Ok(there());
    }
    rustup(shell, name, &["component", "add", "--toolchain", "nightly", name])
}

fn target(shell: &Shell, name: &str) -> Result<Outcome> {
    if has_target(shell, name) {
        return Ok(there());
    }
    rustup(shell, name, &["target", "add", name])
}

fn rustup(shell: &Shell, what: &str, args: &[&str]) -> Result<Outcome> {
    let mut command = shell.program("rustup");
    command.args(args);
    Ok(match shell.attempt(&format!("setup-{what}"), &mut command, DOWNLOAD_LIMIT)? {
        Ok(()) => Outcome::Passed("installed with rustup".to_owned()),
        Err(why) => cannot(what, &why),
    })
}

/// Installs a browser of the Chromium family, in which the tests of HTML reports open their pages.
fn chromium(shell: &Shell) -> Result<Outcome> {
    if CHROMIUM.iter().any(|name| shell.answers(name, &["--version"])) {
        return Ok(there());
    }
    apt(shell, "chromium", "the tests of reports")
}

fn apt(shell: &Shell, package: &str, user: &str) -> Result<Outcome> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return Ok(cannot(package, &format!("there is no apt-get; install it by hand for {user}")));
    }
    if shell.output_of("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        return Ok(cannot(package, &format!("only root may use apt-get; install it by hand for {user}")));
    }
    let install = format!("apt-get update -q && apt-get install -q -y --no-install-recommends {package}");
    let mut command = shell.program("sh");
    command.args(["-c", &install]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(match shell.attempt(&format!("setup-{package}"), &mut command, DOWNLOAD_LIMIT)? {
        Ok(()) => Outcome::Passed("installed with apt-get".to_owned()),
        Err(why) => cannot(package, &why),
    })
}

fn cannot(what: &str, why: &str) -> Outcome {
    Outcome::Skipped(format!("{what} cannot be installed here: {why}"))
}
