//! The checks that are a single call of cargo.

use crate::error::Result;
use crate::report::{Outcome, Report};
use crate::setup::{TARGETS, has_cargo_deny, has_target};
use crate::shell::Shell;
use crate::workspace::{Member, members, package_args};
use std::process::Command;

/// Members that run only on the machine that builds them.
const HOST_ONLY: [&str; 2] = ["orlop-benches", "xtask"];

/// Checks that the sources are formatted.
pub(crate) fn fmt(shell: &Shell) -> Result<Outcome> {
    shell.run("fmt", &mut shell.cargo(&["fmt", "--all", "--check"]))?;
    Ok(Outcome::passed())
}

/// Checks that no lint fires in the workspace, including tests and benches, and that no published code calls
/// `expect`.
///
/// The second lint is not in the workspace's list, because the helper functions of tests may call `expect`.
pub(crate) fn clippy(shell: &Shell) -> Result<Outcome> {
    let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell.run("clippy", &mut shell.cargo(&args))?;
    let members = members(shell)?;
    let mut command = shell.cargo(&["clippy", "--quiet", "--lib", "--bins"]);
    command.args(package_args(&published(&members))).args(["--", "-D", "clippy::expect_used"]);
    shell.run("clippy-expect", &mut command)?;
    Ok(Outcome::passed())
}

/// Runs the README's test command; its output is always shown.
pub(crate) fn test(shell: &Shell) -> Result<Outcome> {
    shell.run_loud(&mut shell.cargo(&["test"]))?;
    Ok(Outcome::passed())
}

/// Checks that the documentation builds without a warning.
pub(crate) fn doc(shell: &Shell) -> Result<Outcome> {
    let mut command = shell.cargo(&["doc", "--quiet", "--no-deps", "--all-features"]);
    for member in members(shell)?.iter().filter(|member| member.is_library()) {
        if !HOST_ONLY.contains(&member.name.as_str()) {
            command.args(["-p", &member.name]);
        }
    }
    shell.run("doc", command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::passed())
}

/// Makes the packages of all published members, without building them.
///
/// `--offline`: the index was read when the workspace was built, and nothing is published.
pub(crate) fn package(shell: &Shell) -> Result<Outcome> {
    let members = members(shell)?;
    let published = published(&members);
    let mut command = shell.cargo(&["package", "--quiet", "--no-verify", "--offline", "--allow-dirty"]);
    shell.run("package", command.args(package_args(&published)))?;
    Ok(Outcome::Passed(format!("{} packages", published.len())))
}

/// Checks bans, licences and sources of all dependencies. Advisories need a database that is not available
/// everywhere.
pub(crate) fn deny(shell: &Shell, report: &mut Report) {
    report.step("deny", || {
        if !has_cargo_deny(shell) {
            return Ok(Outcome::Skipped(
                "no cargo-deny; `cargo xtask setup` installs it or says why not".to_owned(),
            ));
        }
        let args = ["deny", "--log-level", "error", "check", "bans", "licenses", "sources"];
        shell.run("deny", &mut shell.cargo(&args))?;
        Ok(Outcome::Passed("bans, licenses, sources".to_owned()))
    });
    report.step("deny: advisories", || {
        Ok(Outcome::Skipped("the advisory database needs a network that CI does not have".to_owned()))
    });
}

/// Type-checks the workspace for the supported systems.
pub(crate) fn targets(shell: &Shell, report: &mut Report) {
    for target in TARGETS {
        report.step(&format!("targets: {target}"), || {
            if !has_target(shell, target) {
                return Ok(Outcome::Skipped(format!(
                    "{target} is not installed; `cargo xtask setup` says why"
                )));
            }
            let members = members(shell)?;
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().filter(|name| !HOST_ONLY.contains(name)).collect();
            let mut command = shell.cargo(&["check", "--quiet", "--target", target]);
            shell.run(&format!("targets-{target}"), command.args(package_args(&names)))?;
            Ok(Outcome::passed())
        });
    }
}

/// Returns the names of the members that are published.
fn published(members: &[Member]) -> Vec<&str> {
    members.iter().filter(|member| member.is_published()).map(|member| member.name.as_str()).collect()
}

/// Runs the named benches, or all of them.
pub(crate) fn bench(shell: &Shell, names: &[String], args: &[String]) -> Result<Outcome> {
    let mut command = shell.cargo(&["bench", "-p", "orlop-benches"]);
    if names.is_empty() {
        command.arg("--benches");
    }
    command.args(names.iter().flat_map(|name| ["--bench", name]));
    shell.run_loud(command.arg("--").args(args))?;
    Ok(Outcome::passed())
}

/// Builds the program that checks and measures CUDA's allocators, and runs it unless it is to be copied to
/// another machine.
pub(crate) fn gpu(shell: &Shell, simulated: bool, build_only: bool) -> Result<Outcome> {
    shell.run_loud(&mut shell.cargo(&["build", "--release", "-p", "orlop-cuda", "--example", "gpu"]))?;
    let program = shell.target().join("release").join("examples").join("gpu");
    if build_only {
        println!("{}", program.display());
        return Ok(Outcome::passed());
    }
    let mut command = Command::new(program);
    if simulated {
        command.args(["--simulated", "--quick"]);
    }
    shell.run_loud(&mut command)?;
    Ok(Outcome::passed())
}

/// Runs eight threads against each engine in turn, for `minutes` minutes in all.
pub(crate) fn stress(shell: &Shell, minutes: u32) -> Result<Outcome> {
    let names = ["caching", "bfc", "pow2", "pool"];
    // Half of the time is for the default engine.
    let half = minutes.saturating_mul(60) / 2;
    for name in names {
        let seconds = if name == names[0] { half } else { half / 3 };
        let mut command =
            shell.cargo(&["test", "--release", "-p", "orlop-testkit", "--test", "stress", name]);
        shell.run_loud(command.env("ORLOP_STRESS_SECONDS", seconds.max(1).to_string()))?;
    }
    Ok(Outcome::passed())
}
