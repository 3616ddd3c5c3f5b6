//! `fuzz`: readers of files under libFuzzer, with coverage and AddressSanitizer.
//!
//! The targets are in `fuzz/`, a separate package: they need a nightly compiler, and nothing else depends on
//! them.
//!
//! The short version needs neither: a test of the facade runs the same functions on mutations of the
//! repository's files.

use std::fs;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::san::host;
use crate::setup::has_nightly;
use crate::shell::Shell;

const TARGETS: [&str; 15] = [
    "archive",
    "npy",
    "npz",
    "onnx",
    "plan_csv",
    "safetensors",
    "snapshot",
    "torch_conf",
    "trace",
    "trace_binary",
    "trace_chrome",
    "trace_csv",
    "trace_pprof",
    "trace_rmm",
    "words",
];

/// The compiler flags that libFuzzer needs: counters for each branch, and the table of their positions.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions \
    --cfg fuzzing --cfg orlop_asan";

/// The largest allocation in MiB: readers must not allocate out of proportion to their input.
const MAX_ALLOCATION_MIB: &str = "256";

/// The limit of the short version's written memory in KiB, for all readers together.
const MAX_DATA_KIB: u32 = 2 << 20;

/// The duration of the short version, for each reader.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FuzzLength {
    /// A number of mutations, the same on every machine, so that results are reproducible.
    Mutations(u32),
    Seconds(u32),
}

/// The duration for every change: a second or two per reader.
pub(crate) const SHORT: FuzzLength = FuzzLength::Mutations(10_000);

/// Checks that a target of this name exists.
fn known(target: Option<&str>) -> Result<()> {
    match target {
        Some(name) if !TARGETS.contains(&name) => Err(Error::EmptySelection {
            what: "target",
            selection: format!("is called `{name}`: {}", TARGETS.join(", ")),
        }),
        _ => Ok(()),
    }
}

/// Runs every reader, or the named one, for this duration, with the workspace's compiler.
pub(crate) fn short(shell: &Shell, target: Option<&str>, length: FuzzLength) -> Result<Outcome> {
    known(target)?;
    let test = ["test", "--quiet", "-p", "orlop", "--features", "onnx", "--test", "readers"];
    // Built first, because the compiler may use more memory.
    shell.run("fuzz-short-build", shell.cargo(&test).arg("--no-run"))?;
    let mut command = if cfg!(unix) {
        let mut command = shell.program("sh");
        command.args(["-c", &format!("ulimit -d {MAX_DATA_KIB} && exec \"$@\""), "sh", "cargo"]);
        command
    } else {
        shell.program("cargo")
    };
    command.args(test).arg("--").arg("--nocapture");
    if let Some(target) = target {
        command.args([target, "--exact"]);
    }
    let (name, number, unit) = match length {
        FuzzLength::Mutations(number) => ("ORLOP_FUZZ_MUTATIONS", number, "mutations"),
        FuzzLength::Seconds(number) => ("ORLOP_FUZZ_SECONDS", number, "s"),
    };
    shell.run("fuzz-short", command.env(name, number.to_string()))?;
    let targets = target.map_or_else(|| TARGETS.join(", "), str::to_owned);
    Ok(Outcome::Passed(format!("{number} {unit} each: {targets}")))
}

/// Runs every target, or the named one, for `seconds` seconds each.
pub(crate) fn run(shell: &Shell, target: Option<&str>, seconds: u32) -> Result<Outcome> {
    known(target)?;
    if !has_nightly(shell) {
        return Ok(Outcome::Skipped("there is no nightly toolchain".to_owned()));
    }
    let Some(host) = host(shell) else {
        return Ok(Outcome::Skipped("rustc does not name its host".to_owned()));
    };
    if !host.ends_with("linux-gnu") {
        return Ok(Outcome::Skipped(format!("libFuzzer is not set up for {host}")));
    }
    let folder = shell.root().join("fuzz");
    let built = shell.target().join("fuzz");
    let mut command = shell.nightly_cargo(&["build", "--quiet", "--release", "--target", &host]);
    command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &built);
    shell.run("fuzz-build", &mut command)?;
    let chosen: Vec<&str> =
        TARGETS.into_iter().filter(|name| target.is_none_or(|target| target == *name)).collect();
    for name in &chosen {
        let corpus = folder.join("corpus").join(name);
        let artifacts = folder.join("artifacts").join(name);
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let program = built.join(&host).join("release").join(name);
        let mut command = shell.program(&program.to_string_lossy());
        command.arg(&corpus).arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args([
            &format!("-malloc_limit_mb={MAX_ALLOCATION_MIB}"),
            "-print_final_stats=1",
            "-max_len=65536",
        ]);
        // The initial inputs, in addition to those of earlier runs.
        for member in ["orlop-onnx", "orlop-tensor", "orlop-trace"] {
            let data = shell.root().join("crates").join(member).join("tests/data");
            let seeds = data.join(name.replace("npz", "npy"));
            if seeds.exists() {
                command.arg(seeds);
            }
        }
        if *name == "plan_csv" {
            command.arg(shell.root().join("testdata/plan/minimalloc"));
        }
        if name.starts_with("trace_") {
            command.arg(shell.root().join("testdata/traces"));
        }
        shell.run(&format!("fuzz-{name}"), &mut command)?;
    }
    Ok(Outcome::Passed(chosen.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_unknown_target_is_an_error() {
        assert!(known(None).is_ok() && known(Some("npy")).is_ok());
        assert!(known(Some("np")).is_err());
    }

    #[test]
    fn every_reader_is_a_target() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let readers = fs::read_to_string(folder.join("readers.rs")).unwrap();
        for name in TARGETS {
            assert!(folder.join("targets").join(format!("{name}.rs")).exists(), "{name}");
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(readers.contains(&format!("(\"{name}\", {name})")), "{name}");
        }
        assert!(readers.contains(&format!("[Reader; {}]", TARGETS.len())));
    }
}
