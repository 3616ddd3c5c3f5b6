//! Runs the programs of `examples/` and checks what it prints.
//!
//! Each is a module of this binary, so that what runs here is what was compiled just now. Its test starts
//! this binary again, for that one test, and there calls `main`: an example has a process, and an output, of
//! its own. (`decode` has a binary of its own, `tests/decode.rs`.)
#![cfg(not(any(miri, loom)))]

#[path = "../examples/arena.rs"]
mod arena;
#[path = "../examples/budgets.rs"]
mod budgets;
#[cfg(feature = "kv")]
#[path = "../examples/kv_flashinfer.rs"]
mod kv_flashinfer;
#[cfg(feature = "kv")]
#[path = "../examples/kv_own_arenas.rs"]
mod kv_own_arenas;
#[cfg(feature = "cuda")]
#[path = "../examples/matmul.rs"]
mod matmul;
#[path = "../examples/mlp.rs"]
mod mlp;
#[path = "../examples/out_of_memory.rs"]
mod out_of_memory;
#[path = "../examples/own_backing.rs"]
mod own_backing;
#[path = "../examples/record.rs"]
mod record;
#[cfg(feature = "cuda")]
#[path = "../examples/streams.rs"]
mod streams;
#[path = "../examples/weights.rs"]
mod weights;

use std::fmt::Debug;
use std::path::Path;
use std::process::Command;

/// In the environment of the process that runs the example.
const CHILD: &str = "ORLOP_EXAMPLE_RUNS_HERE";

/// Runs `main` in a process of its own, with `folder` for temporary files, and checks that all of `expected`
/// is printed. `name` is the calling test's.
fn check<E: Debug>(name: &str, folder: &Path, main: fn() -> Result<(), E>, expected: &[&str]) {
    if std::env::var_os(CHILD).is_some() {
        main().expect("the example runs");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    for variable in ["TMPDIR", "TMP", "TEMP"] {
        command.env(variable, folder);
    }
    let output = command.output().expect("this binary can be started again");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed:\n{printed}\n{errors}");
    for line in expected {
        assert!(printed.contains(line), "{name} does not print {line:?}, but:\n{printed}");
    }
}

/// Of an example that writes nothing, or removes it again.
fn check_output<E: Debug>(name: &str, main: fn() -> Result<(), E>, expected: &[&str]) {
    check(name, &std::env::temp_dir(), main, expected);
}

#[test]
fn arena() {
    let expected = [
        "step 3: 128 KiB in temporary tensors, 128 KiB reserved (regions: 1); the result is 6",
        "renew: 1 block keeps its old memory",
    ];
    check_output("arena", arena::main, &expected);
}

#[test]
fn budgets() {
    let expected = [
        "sequence 6: the KV cache holds 1.00 MiB",
        "callback: 256 KiB needed, 256 KiB evicted",
        "which would exceed the budget of this kind",
    ];
    check_output("budgets", budgets::main, &expected);
}

#[test]
#[cfg(feature = "kv")]
fn kv_flashinfer() {
    let expected = [
        "step 0: 135 new tokens, 10 pages, lengths [40, 25, 70]",
        "step 3: 3 new tokens, 10 pages, lengths [43, 28, 73]",
    ];
    check_output("kv_flashinfer", kv_flashinfer::main, &expected);
}

#[test]
#[cfg(feature = "kv")]
fn kv_own_arenas() {
    let expected = [
        "128 pages: 65536 B in arrays, 65536 B in the pool's books",
        "first: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0], the same in every layer: true",
        "second: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0], the same in every layer: true",
    ];
    check_output("kv_own_arenas", kv_own_arenas::main, &expected);
}

#[test]
fn mlp() {
    let mut expected = vec![
        "planned: 384 KiB in one arena, optimal",
        "planned, the peak is 33 % smaller",
        "the results are identical: true",
    ];
    if cfg!(debug_assertions) {
        expected.push("built without optimisation");
    }
    check_output("mlp", mlp::main, &expected);
}

#[test]
fn out_of_memory() {
    let expected = [
        "live under tag decoder weights: 24.0 MiB",
        "hint: a limit of 80.0 MiB instead of 64.0 MiB would have fitted",
    ];
    check_output("out_of_memory", out_of_memory::main, &expected);
}

#[test]
fn own_backing() {
    let expected = [
        "1.00 MiB live, 7.00 MiB of the quota left",
        "the conformance suite passed; 0 bytes of the quota are still in use",
    ];
    check_output("own_backing", own_backing::main, &expected);
}

#[test]
fn record() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    check("record", folder.path(), record::main, &["82 events recorded, 0 lost", "orlop-record.html"]);
    if std::env::var_os(CHILD).is_none() {
        let page = folder.path().join("orlop-record.html");
        let page = std::fs::read_to_string(page).expect("the example wrote a page");
        assert!(page.starts_with("<!doctype html>") && page.contains("<title>Three steps</title>"));
    }
}

/// On the simulated driver, unless the machine has a device.
#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn streams() {
    let expected = [
        "the first four elements of each step, summed: [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0]",
        "16 allocations from",
    ];
    check_output("streams", streams::main, &expected);
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn matmul() {
    let expected = ["(a * b) * (a * b), 64 by 64: its first element is", "3 allocations from"];
    check_output("matmul", matmul::main, &expected);
}

#[test]
fn weights() {
    let expected = ["mapped: 193 KiB", "in the same memory: true", "after the last tensor: 0 B mapped"];
    check_output("weights", weights::main, &expected);
}
