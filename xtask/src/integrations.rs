//! `integrations`: what connects orlop with frameworks, each with its tests and its programs.
//!
//! `integrations/` is a workspace of its own, so that nothing of a framework is in the dependency tree of the
//! others. ONNX Runtime is installed as a Python package; where that is impossible, the step is skipped with
//! the reason.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{Error, Result};
use crate::report::{Outcome, Report};
use crate::setup::DOWNLOAD_LIMIT;
use crate::shell::Shell;

/// The workspace.
const MANIFEST: &str = "integrations/Cargo.toml";

/// The version of ONNX Runtime that the figures of `docs/onnx-runtime.md` are of.
const ONNX_RUNTIME: &str = "onnxruntime==1.32.0";

/// A model with its weights.
const CLASSIFIER: &str = "testdata/onnx-wild/rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer.onnx.gz";

/// An integration: its name on the command line, and what runs it.
type Integration = (&'static str, fn(&Shell) -> Result<Outcome>);

const ALL: [Integration; 8] = [
    ("arrow", arrow),
    ("burn", burn),
    ("candle", candle),
    ("kv-opendal", kv_opendal),
    ("kv-redis", kv_redis),
    ("kvbm", kvbm),
    ("ort", ort),
    ("peers", peers),
];

/// The global allocators that the program of `integrations/candle` is measured with.
const GLOBAL_ALLOCATORS: [&str; 4] = ["glibc", "mimalloc", "jemalloc", "orlop"];

/// Checks the sources of the workspace, and runs the named integration, or all.
pub(crate) fn run(shell: &Shell, report: &mut Report, name: Option<&str>) {
    report.step("integrations: sources", || sources(shell));
    let mut chosen =
        ALL.iter().filter(|(integration, _)| name.is_none_or(|name| name == *integration)).peekable();
    if chosen.peek().is_none() {
        report.step("integrations", || Err(Error::empty("integration", name)));
    }
    for (integration, check) in chosen {
        report.step(&format!("integrations: {integration}"), || check(shell));
    }
}

/// Checks the format and the lints.
pub(crate) fn sources(shell: &Shell) -> Result<Outcome> {
    let mut fmt = shell.cargo(&["fmt", "--manifest-path", MANIFEST, "--all", "--check"]);
    shell.run("integrations-fmt", &mut fmt)?;
    let mut clippy = cargo(shell, "clippy");
    clippy.args(["--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    shell.run("integrations-clippy", &mut clippy)?;
    Ok(Outcome::passed())
}

/// Tests `orlop-arrow`.
fn arrow(shell: &Shell) -> Result<Outcome> {
    shell.run("integrations-arrow-test", cargo(shell, "test").args(["-p", "orlop-arrow"]))?;
    Ok(Outcome::passed())
}

/// Tests `orlop-burn`, and runs its example.
fn burn(shell: &Shell) -> Result<Outcome> {
    shell.run("integrations-burn-test", cargo(shell, "test").args(["-p", "orlop-burn"]))?;
    let mut example = cargo(shell, "run");
    example.args(["--release", "-p", "orlop-burn", "--example", "mapped_weights"]);
    shell.run("integrations-burn-example", &mut example)?;
    Ok(Outcome::passed())
}

/// Tests `orlop-candle`, records its program, and measures it with each global allocator.
fn candle(shell: &Shell) -> Result<Outcome> {
    shell.run("integrations-candle-test", cargo(shell, "test").args(["--release", "-p", "orlop-candle"]))?;
    let example = |name: &str, arguments: &[&str]| {
        let mut run = cargo(shell, "run");
        run.args(["--release", "--quiet", "-p", "orlop-candle", "--example", name, "--"]).args(arguments);
        shell.run(&format!("integrations-candle-{name}"), run.env("RAYON_NUM_THREADS", "1"))
    };
    let recording = shell.target().join("integrations").join("candle.orlop");
    fs::create_dir_all(shell.target().join("integrations")).map_err(Error::io(&recording))?;
    example("accounted", &[&recording.to_string_lossy()])?;
    for allocator in GLOBAL_ALLOCATORS {
        example(&format!("on_{allocator}"), &[])?;
    }
    Ok(Outcome::passed())
}

/// Tests `orlop-kv-opendal`, also over a Redis server, if there is one.
fn kv_opendal(shell: &Shell) -> Result<Outcome> {
    let mut test = cargo(shell, "test");
    shell
        .run("integrations-kv-opendal-test", test.args(["-p", "orlop-kv-opendal", "--features", "redis"]))?;
    Ok(with_redis())
}

/// Tests `orlop-kv-redis` over a Redis server, if there is one.
fn kv_redis(shell: &Shell) -> Result<Outcome> {
    shell.run("integrations-kv-redis-test", cargo(shell, "test").args(["-p", "orlop-kv-redis"]))?;
    Ok(with_redis())
}

/// Returns that tests have passed, or that those over a Redis server were skipped.
fn with_redis() -> Outcome {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return Outcome::Skipped("the part over Redis: no redis-server".to_owned());
    }
    Outcome::passed()
}

/// Checks and tests `orlop-kvbm`, a workspace of its own.
fn kvbm(shell: &Shell) -> Result<Outcome> {
    let cargo = |command: &str| {
        let manifest = "integrations/kvbm/Cargo.toml";
        let mut cargo = shell.cargo(&[command, "--manifest-path", manifest, "--locked", "--quiet"]);
        cargo.env("CARGO_TARGET_DIR", shell.target());
        cargo
    };
    let mut clippy = cargo("clippy");
    shell.run("integrations-kvbm-clippy", clippy.args(["--all-targets", "--", "-D", "warnings"]))?;
    shell.run("integrations-kvbm-test", &mut cargo("test"))?;
    Ok(Outcome::passed())
}

/// Tests `orlop-ort` with ONNX Runtime out of its Python package, and runs its example.
fn ort(shell: &Shell) -> Result<Outcome> {
    let library = match onnx_runtime(shell)? {
        Ok(library) => library,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut test = cargo(shell, "test");
    test.args(["-p", "orlop-ort"]).env("ORT_DYLIB_PATH", &library);
    shell.run("integrations-ort-test", &mut test)?;
    let mut example = cargo(shell, "run");
    example.args(["-p", "orlop-ort", "--example", "budget", "--"]).arg(shell.root().join(CLASSIFIER));
    shell.run("integrations-ort-budget", example.arg("x=4,3,48,192").env("ORT_DYLIB_PATH", &library))?;
    Ok(Outcome::Passed(ONNX_RUNTIME.to_owned()))
}

/// Runs the conformance suite over the allocators of `orlop-peers`.
fn peers(shell: &Shell) -> Result<Outcome> {
    shell.run("integrations-peers-test", cargo(shell, "test").args(["-p", "orlop-peers"]))?;
    Ok(Outcome::passed())
}

/// Installs ONNX Runtime below the target folder and returns the path of its library, or the reason why that
/// is impossible here.
fn onnx_runtime(shell: &Shell) -> Result<std::result::Result<PathBuf, String>> {
    if let Some(library) = std::env::var_os("ORT_DYLIB_PATH") {
        return Ok(Ok(library.into()));
    }
    let packages = shell.target().join("integrations").join("onnxruntime");
    let folder = packages.join("onnxruntime").join("capi");
    if !folder.is_dir() {
        let mut pip = shell.program("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", ONNX_RUNTIME, "--target"]).arg(&packages);
        if let Err(why) = shell.attempt("integrations-onnxruntime", &mut pip, DOWNLOAD_LIMIT)? {
            return Ok(Err(why));
        }
    }
    for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
        let path = entry.map_err(Error::io(&folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libonnxruntime.") {
            return Ok(Ok(path));
        }
    }
    Err(Error::empty("libonnxruntime", None))
}

/// Returns a command of cargo in the workspace, with the builds of the repository's own.
fn cargo(shell: &Shell, command: &str) -> Command {
    let mut cargo = shell.cargo(&[command, "--manifest-path", MANIFEST, "--locked"]);
    cargo.env("CARGO_TARGET_DIR", shell.target());
    cargo
}
