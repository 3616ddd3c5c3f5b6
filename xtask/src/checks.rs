//! The checks that are a single call of cargo.

use crate::error::{Error, Result};
use crate::golden;
use crate::report::{Outcome, Report};
use crate::setup::{TARGETS, has_cargo_deny, has_target, has_toolchain};
use crate::shell::Shell;
use crate::workspace::{Member, members, oldest_toolchain, package_args};
use clap::ValueEnum;
use std::path::Path;
use std::process::Command;

/// Members that run only on the machine that builds them.
const HOST_ONLY: [&str; 2] = ["orlop-benches", "xtask"];

/// Checks that the sources are formatted.
pub(crate) fn fmt(shell: &Shell) -> Result<Outcome> {
    shell.run("fmt", &mut shell.cargo(&["fmt", "--all", "--check"]))?;
    Ok(Outcome::passed())
}

/// Checks that no lint fires in the workspace, including tests and benches.
pub(crate) fn clippy(shell: &Shell) -> Result<Outcome> {
    let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell.run("clippy", &mut shell.cargo(&args))?;
    Ok(Outcome::passed())
}

/// Runs the README's test command, to the end of all suites; its output is always shown. The conformance
/// suite, which takes the longest, runs a quarter of its random programs here.
pub(crate) fn test(shell: &Shell) -> Result<Outcome> {
    let mut command = shell.cargo(&["test", "--no-fail-fast"]);
    if std::env::var_os("ORLOP_CONFORMANCE_CASES").is_none() {
        command.env("ORLOP_CONFORMANCE_CASES", "1");
    }
    shell.run_loud(&mut command)?;
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

/// Checks the published members with the oldest compiler that they promise to build with, with all features,
/// and so with all dependencies.
pub(crate) fn msrv(shell: &Shell) -> Result<Outcome> {
    let members = members(shell)?;
    let toolchain = oldest_toolchain(&members)?;
    if !has_toolchain(shell, &toolchain) {
        return Ok(Outcome::Skipped(format!(
            "Rust {toolchain} is not installed; `cargo xtask setup` says why"
        )));
    }
    let packages = published(&members);
    let mut command = shell.program("rustup");
    command.args(["run", &toolchain, "cargo", "check", "--quiet", "--locked", "--all-features"]);
    command.args(package_args(&packages)).env("CARGO_TARGET_DIR", shell.target().join("msrv"));
    shell.run("msrv", &mut command)?;
    Ok(Outcome::Passed(format!("Rust {toolchain}: {} crates", packages.len())))
}

/// Compares the published members with the last release, of which the tag is `v` and its version: a change
/// that breaks programs needs another version.
pub(crate) fn semver(shell: &Shell) -> Result<Outcome> {
    let tag = shell.output_of("git", &["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    let Some(tag) = tag.as_deref().map(str::trim).filter(|tag| !tag.is_empty()) else {
        return Ok(Outcome::Skipped("no release is tagged: there is nothing to compare with".to_owned()));
    };
    if !shell.answers("cargo", &["semver-checks", "--version"]) {
        return Ok(Outcome::Skipped("no cargo-semver-checks: cargo install cargo-semver-checks".to_owned()));
    }
    let members = members(shell)?;
    let libraries: Vec<&str> = members
        .iter()
        .filter(|member| member.is_published() && member.is_library())
        .map(|member| member.name.as_str())
        .collect();
    let mut command = shell.cargo(&["semver-checks", "--baseline-rev", tag]);
    shell.run("semver", command.args(package_args(&libraries)))?;
    Ok(Outcome::Passed(format!("{} crates as of {tag}", libraries.len())))
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
    command.arg("--").args(args);
    if !args.is_empty() {
        let mut list = shell.cargo(&[]);
        list.args(command.get_args()).arg("--list");
        let listed = shell.capture(&mut list)?;
        if !listed.lines().any(|line| line.ends_with(": benchmark") || line.ends_with(": bench")) {
            return Err(Error::empty("bench", Some(&args.join(" "))));
        }
    }
    shell.run_loud(&mut command)?;
    Ok(Outcome::passed())
}

/// Builds the program that checks and measures CUDA's allocators, and runs it unless it is to be copied to
/// another machine.
pub(crate) fn gpu(shell: &Shell, simulated: bool, build_only: bool) -> Result<Outcome> {
    for example in ["gpu", "gpu_costs", "gpu_facts"] {
        shell.run_loud(&mut shell.cargo(&[
            "build",
            "--release",
            "-p",
            "orlop-cuda",
            "--example",
            example,
        ]))?;
        let program = shell.target().join("release").join("examples").join(example);
        if build_only {
            println!("{}", program.display());
            continue;
        }
        let mut command = Command::new(program);
        if simulated {
            command.args(["--simulated", "--quick"]);
        }
        shell.run_loud(&mut command)?;
    }
    Ok(Outcome::passed())
}

/// The tests of `stress`, one for each engine; the default engine is first.
const STRESSED: [&str; 4] = ["caching", "bfc", "pow2", "pool"];

/// Runs eight threads against each engine in turn, for `minutes` minutes in all.
pub(crate) fn stress(shell: &Shell, minutes: u32) -> Result<Outcome> {
    // Half of the time is for the default engine.
    let half = minutes.saturating_mul(60) / 2;
    for name in STRESSED {
        let seconds = if name == STRESSED[0] { half } else { half / 3 };
        let mut command =
            shell.cargo(&["test", "--release", "-p", "orlop-testkit", "--test", "stress", name]);
        shell.run_loud(command.env("ORLOP_STRESS_SECONDS", seconds.max(1).to_string()))?;
    }
    Ok(Outcome::passed())
}

/// Runs `steps` steps of the engine over a KV pool.
pub(crate) fn kv_drift(shell: &Shell, steps: u64) -> Result<Outcome> {
    let mut command = shell.cargo(&["test", "--release", "-p", "orlop-kv", "--test", "steady"]);
    command.args(["a_long_run", "--", "--nocapture"]).env("ORLOP_KV_STEPS", steps.to_string());
    shell.run_loud(&mut command)?;
    Ok(Outcome::passed())
}

/// A long check of the CUDA allocators on the simulated driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CudaCheck {
    /// Random programs of one and of four threads: 50 for each allocator, of 100,000 operations
    Races,
    /// Each call of the driver fails, with every code that it can return
    Faults,
    /// A million steps of tensors that are copied and dropped
    Drift,
}

impl CudaCheck {
    /// Returns its test, and the variables that make it long.
    fn test(self) -> (&'static str, &'static [(&'static str, &'static str)]) {
        match self {
            Self::Races => (
                "programs::random_programs_have_no_race",
                &[("ORLOP_CUDA_SEEDS", "50"), ("ORLOP_CUDA_OPERATIONS", "100000")],
            ),
            Self::Faults => ("failures::every_call_fails_in_turn", &[("ORLOP_CUDA_ALL_CODES", "1")]),
            Self::Drift => {
                ("drift::long_loops_of_two_streams_do_not_grow", &[("ORLOP_CUDA_STEPS", "1000000")])
            }
        }
    }
}

/// Runs a long version of a test of the CUDA allocators, of all allocators or of the named ones. Variables
/// that are set already stay.
pub(crate) fn cuda(shell: &Shell, check: CudaCheck, allocators: Option<&str>) -> Result<Outcome> {
    let (test, variables) = check.test();
    let mut command = shell.cargo(&["test", "--release", "-p", "orlop-cuda", "--test", "it", "--", test]);
    command.args(["--exact", "--nocapture"]);
    for (name, value) in variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
        command.env(name, value);
    }
    if let Some(allocators) = allocators {
        command.env("ORLOP_CUDA_ALLOCATORS", allocators);
    }
    shell.run_loud(&mut command)?;
    Ok(Outcome::passed())
}

/// Compares PyTorch's recorded answers with those of the CUDA allocators, if the folder has them.
pub(crate) fn cuda_golden(shell: &Shell, data: &Path) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the simulated driver is for Linux".to_owned()));
    }
    if golden::torch_programs(data)?.is_empty() {
        return Ok(Outcome::Skipped("no data".to_owned()));
    }
    let data = data.canonicalize().map_err(Error::io(data))?;
    let args = ["test", "--quiet", "--release", "-p", "orlop-cuda", "--test", "it", "golden::"];
    shell.run("golden-cuda", shell.cargo(&args).env("ORLOP_CUDA_GOLDEN", data))?;
    Ok(Outcome::passed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that matches no test passes.
    #[test]
    fn the_tests_of_stress_exist() {
        let names = crate::source::test_names("orlop-testkit");
        for name in STRESSED {
            assert!(names.contains(&format!("stress::{name}")), "{name}");
        }
    }

    /// A filter that matches no test passes.
    #[test]
    fn the_long_tests_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/orlop-cuda/tests/it");
        for check in CudaCheck::value_variants() {
            let (module, function) = check.test().0.split_once("::").expect("a path");
            let files = [format!("{module}.rs"), format!("{module}/mod.rs")].map(|name| folder.join(name));
            let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).expect("the module");
            assert!(text.contains(&format!("#[test]\nfn {function}(")), "{module}::{function}");
        }
    }
}
