//! A process under the injection, without PyTorch: the test's own program is started again with the stand-ins
//! in front, finds the functions as any library would, and calls them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod concurrency;
mod driver;
mod libraries;
mod process;
mod sizes;

use orlop_dryrun::elf::StandIn;
use orlop_dryrun::gpu::GpuModel;
use orlop_dryrun::injection::{Injection, LIBRARY};
use orlop_dryrun::settings::{Completion, DryRunSettings, MARKER, OUTPUT};
use process::Process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions that no library has: one that a dry run refuses, one of cuBLAS.
const UNKNOWN: [&str; 2] = ["cudaFunctionOfTomorrow", "cublasFunctionOfTomorrow"];

/// Returns the built library, which is beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join(LIBRARY));
    places.find(|path| path.is_file()).expect("cargo built the library")
}

/// Runs the test `name` of this program as a dry run; returns the folder of what it wrote.
fn run_dry(name: &str, settings: &DryRunSettings) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folders can be made");
    let packages = folder.path().join("packages");
    fs::create_dir_all(&packages).expect("folders can be made");
    for (index, import) in UNKNOWN.into_iter().enumerate() {
        let extension = StandIn::new("extension.so").needs("libcudart.so.13").needs("libcublas.so.13");
        let bytes = extension.functions(import, ["function".to_owned()]).to_bytes();
        fs::write(packages.join(format!("{index}.so")), bytes).expect("files can be written");
    }
    let injection = Injection::prepare(&packages, &library(), folder.path()).expect("the folder needs CUDA");
    assert_eq!(injection.others(), UNKNOWN.len());
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]).envs(injection.variables(settings));
    let done = command.output().expect("this program starts");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("1 passed"), "{text}");
    folder
}

fn settings() -> DryRunSettings {
    DryRunSettings::new(GpuModel::named("h100").expect("a known GPU")).memory(2 << 30)
}

fn is_dry() -> bool {
    std::env::var_os(MARKER).is_some()
}

#[test]
fn memory_has_the_limit_of_the_gpu() {
    if !is_dry() {
        run_dry("memory_has_the_limit_of_the_gpu", &settings());
        return;
    }
    let process = Process::new();
    let (free, total) = process.memory();
    assert_eq!(total, 2 << 30);
    assert!(free > 1 << 30 && free < total);
    let first = process.allocate(1 << 30).expect("it fits");
    // Another does not, and the error is the last one until it is read.
    assert_eq!(process.allocate(1 << 30), Err(2));
    assert_eq!([process.call0("cudaGetLastError"), process.call0("cudaGetLastError")], [2, 0]);
    assert_eq!(process.memory().0, free - (1 << 30));
    assert_eq!(process.call1("cudaFree", first), 0);
    assert_eq!(process.call1("cudaFree", first), 1);
    assert_eq!(process.memory().0, free);
}

#[test]
fn buffers_come_back_and_everything_else_is_zero() {
    if !is_dry() {
        let folder = run_dry("buffers_come_back_and_everything_else_is_zero", &settings());
        let report = fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        assert!(report.contains("\"reads_answered_as_copied\": 1"), "{report}");
        assert!(report.contains("\"reads_answered_true\": 1"), "{report}");
        assert!(report.contains("\"reads_answered_zero\": {\"_Z3addv\": 1}"), "{report}");
        return;
    }
    let process = Process::new();
    let address = process.allocate(4096).expect("it fits");
    process.copy(address, &mut [1, 2, 3, 4]);
    let mut read = [9; 4];
    process.read(&mut read, address);
    assert_eq!(read, [1, 2, 3, 4]);
    for (stub, name) in [(0x100, "_Z3addv\0"), (0x200, "_Zvec15and_kernel_cudaE\0")] {
        let mut name = name.as_bytes().to_owned();
        process.call4("__cudaRegisterFunction", 0, stub, stub, name.as_mut_ptr().expose_provenance());
        // The library that registered it is unloaded.
        name.fill(b'?');
    }
    process.launch(0x100);
    process.read(&mut read[..3], address);
    assert_eq!(read, [0, 0, 0, 4]);
    process.launch(0x200);
    process.read(&mut read[3..], address);
    assert_eq!(read[3], 1);
    process.report(&Path::new(&std::env::var_os(OUTPUT).expect("the folder")).join("answers.json"));
}

#[test]
fn functions_that_nobody_has_are_answered_and_named() {
    if !is_dry() {
        let folder = run_dry("functions_that_nobody_has_are_answered_and_named", &settings());
        let report = fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        assert!(report.contains("cudaFunctionOfTomorrow by "), "{report}");
        assert!(!report.contains("cublasFunctionOfTomorrow"), "{report}");
        return;
    }
    let process = Process::new();
    assert_eq!(UNKNOWN.map(|name| process.call0(name)), [801, 0]);
    process.report(&Path::new(&std::env::var_os(OUTPUT).expect("the folder")).join("answers.json"));
}

#[test]
fn libraries_are_found_by_name_and_have_the_functions() {
    if !is_dry() {
        run_dry("libraries_are_found_by_name_and_have_the_functions", &settings());
        return;
    }
    let process = Process::new();
    for (library, function) in [
        (c"libcudart.so.13", c"cudaMalloc"),
        (c"libcublas.so.13", c"cublasFunctionOfTomorrow"),
        (c"libcuda.so.1", c"cuMemCreate"),
        (c"libnvidia-ml.so.1", c"nvmlInit_v2"),
    ] {
        assert!(process.has(library, function), "{library:?} {function:?}");
    }
}

#[test]
fn late_work_waits_for_the_host() {
    if !is_dry() {
        let mut late = settings();
        late.completion = Completion::Latest;
        run_dry("late_work_waits_for_the_host", &late);
        return;
    }
    let process = Process::new();
    let (stream, event) = (process.created("cudaStreamCreate"), process.created("cudaEventCreate"));
    assert_eq!(process.call2("cudaEventRecord", event, stream), 0);
    assert_eq!(process.call1("cudaEventQuery", event), 600);
    assert_eq!(process.call1("cudaStreamSynchronize", stream), 0);
    assert_eq!(process.call1("cudaEventQuery", event), 0);
    assert_eq!(process.call1("cudaEventQuery", 0x77), 400);
}
