//! `orlop dry-run` with a small package in the place of PyTorch: the injection and the results are real.

use super::schemas::check_answer;
use super::{Folder, complaint, orlop, stdout};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// A package that allocates by CUDA's runtime and records it as PyTorch does.
const TORCH: &str = r#"
import ctypes, pickle

__version__ = "0"
runtime = ctypes.CDLL("libcudart.so.13")
events = []

class OutOfMemoryError(RuntimeError):
    pass

def allocate(size):
    address = ctypes.c_void_p()
    code = runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
    if code:
        free = cuda.mem_get_info(0)[0]
        events.append({"action": "oom", "addr": 0, "size": size, "stream": 0, "device_free": free})
        raise OutOfMemoryError(code)
    for action in ("segment_alloc", "alloc"):
        events.append({"action": action, "addr": address.value, "size": size, "stream": 0})

class memory:
    def _record_memory_history(context, stacks):
        assert (context, stacks) == ("alloc", "python")
    def _dump_snapshot(path):
        with open(path, "wb") as file:
            pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": {}}, file)

class cuda:
    memory = memory
    def is_initialized():
        return True
    def device_count():
        return 1
    def mem_get_info(device):
        sizes = (ctypes.c_size_t * 2)()
        runtime.cudaMemGetInfo(ctypes.byref(sizes), ctypes.byref(sizes, 8))
        return tuple(sizes)
    def memory_stats(device):
        count = lambda action: sum(event["action"] == action for event in events)
        return {"allocation.all.allocated": count("alloc"), "num_ooms": count("oom")}
"#;

const PROGRAM: &str = "import os, sys, torch\nassert os.environ['ORLOP_DRY_RUN'] == '1'\n\
                       torch.allocate(int(sys.argv[1]) << 20)\n";

/// Creates the package, or says why not.
fn package() -> Option<Folder> {
    let python =
        Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !python.is_ok_and(|status| status.success())
    {
        println!("skipped: no python3 on Linux on x86-64");
        return None;
    }
    let folder = Folder::with(&[("train.py", PROGRAM)]);
    fs::create_dir(folder.path("torch")).expect("a folder");
    fs::write(folder.path("torch/__init__.py"), TORCH).expect("a file");
    let extension = orlop_dryrun::elf::StandIn::new("extension.so").needs("libcudart.so.13");
    let extension = extension.functions("cudaMalloc", ["function".to_owned()]);
    fs::write(folder.path("torch/extension.so"), extension.to_bytes()).expect("a file");
    Some(folder)
}

fn dry_run(folder: &Folder, arguments: &[&str], mebibytes: &str) -> std::process::Output {
    orlop_in(folder, &[arguments, &["--", "python3", "train.py", mebibytes]].concat())
}

fn orlop_in(folder: &Folder, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.current_dir(folder.0.path()).env("PYTHONPATH", folder.0.path()).arg("dry-run").args(arguments);
    command.output().expect("the program starts")
}

fn parsed(output: &std::process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_file_of_python_is_run_and_what_it_prints_is_no_json() {
    let Some(folder) = package() else { return };
    fs::write(folder.path("train.py"), format!("print('step', '--json')\n{PROGRAM}")).expect("a file");
    let output = orlop_in(&folder, &["--quick", "--json", "--memory", "2GiB", "train.py", "512", "--json"]);
    assert_eq!(parsed(&output)["outcome"], "fits");
    assert!(String::from_utf8_lossy(&output.stderr).contains("step --json"));
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let Some(folder) = package() else { return };
    let before = dry_run(&folder, &["--quick", "--json"], "512").stdout;
    fs::write(folder.path("before.json"), before).expect("a file");
    let compare = ["--quick", "--baseline", "before.json"];
    let text = stdout(&dry_run(&folder, &compare, "1536"));
    let line = "needs 1.00 GiB more than before.json, which has 512 MiB reserved at the peak";
    assert_eq!(text.lines().nth(1), Some(line), "{text}");
    let less = parsed(&dry_run(&folder, &[&compare[..], &["--json"]].concat(), "256"));
    assert_eq!(less["growth"], -(256 << 20));
    fs::write(folder.path("before.json"), "{}").expect("a file");
    assert!(complaint(&dry_run(&folder, &compare, "256"), 1).contains("not the JSON of a dry run that fits"));
}

#[test]
fn answers_follow_their_schemas() {
    let Some(folder) = package() else { return };
    let before = dry_run(&folder, &["--quick", "--json"], "512");
    fs::write(folder.path("before.json"), &before.stdout).expect("a file");
    let memory = ["--quick", "--json", "--memory", "2GiB"];
    let failed = dry_run(&folder, &memory, "1700");
    let compared = dry_run(&folder, &["--json", "--baseline", "before.json"], "512");
    for output in [before, failed, compared] {
        check_answer("dry-run", &parsed(&output));
    }
    for arguments in [["--sweep", "size=512,1700"], ["--find", "size=1270..1290"]] {
        check_answer("dry-run-sweep", &parsed(&sweep(&folder, &arguments)));
    }
    fs::write(folder.path("train.py"), "import os\nos._exit(3)\n").expect("a file");
    check_answer("dry-run-sweep", &parsed(&sweep(&folder, &["--sweep", "size=1"])));
}

#[test]
fn files_of_others_in_the_output_folder_are_kept() {
    let Some(folder) = package() else { return };
    fs::write(folder.path("snapshot.pickle"), "mine").expect("a file");
    let refused = complaint(&dry_run(&folder, &["--output", "."], "512"), 1);
    assert!(
        refused.contains(".: this folder is not from a dry run, and would lose ./snapshot.pickle"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(folder.path("snapshot.pickle")).expect("a file"), "mine");
    assert!(!fs::exists(folder.path("libraries")).expect("a folder"));
}

#[test]
fn results_of_an_earlier_run_are_replaced() {
    let Some(folder) = package() else { return };
    stdout(&dry_run(&folder, &["--memory", "2GiB"], "512"));
    for name in ["snapshot.77.pickle", "snapshot.best.pickle"] {
        fs::write(folder.path(&format!("orlop-dry-run/{name}")), "no recording").expect("a file");
    }
    stdout(&dry_run(&folder, &["--memory", "2GiB"], "512"));
    let exists = |name| fs::exists(folder.path(&format!("orlop-dry-run/{name}"))).expect("a folder");
    assert_eq!(["snapshot.77.pickle", "snapshot.best.pickle"].map(exists), [false, true]);
}

#[test]
fn a_program_that_handles_a_failed_request_fits() {
    let Some(folder) = package() else { return };
    let program = PROGRAM.replace(
        "torch.allocate(",
        "try: torch.allocate(4 << 30)\nexcept torch.OutOfMemoryError: torch.allocate(",
    );
    fs::write(folder.path("train.py"), program).expect("a file");
    let text = stdout(&dry_run(&folder, &["--memory", "2GiB", "--quick"], "512"));
    let first = text.lines().next().expect("a verdict");
    assert!(
        first.starts_with("fits ") && first.ends_with(", after 1 failed request that the program handled"),
        "{text}"
    );
}

#[test]
fn a_table_of_convolutions_is_found_from_another_folder() {
    let Some(folder) = package() else { return };
    let program = "import os\nassert os.path.isabs(os.environ['ORLOP_DRY_RUN_CONVOLUTIONS'])\n";
    fs::write(folder.path("train.py"), format!("{program}{PROGRAM}")).expect("a file");
    fs::write(folder.path("table.txt"), "").expect("a file");
    stdout(&dry_run(&folder, &["--memory", "2GiB", "--quick", "--convolutions", "table.txt"], "512"));
}

#[test]
fn a_program_that_fits_is_told_what_is_to_spare() {
    let Some(folder) = package() else { return };
    let text = stdout(&dry_run(&folder, &["--memory", "2GiB"], "1024"));
    let first = text.lines().next().expect("a verdict");
    assert!(
        first.starts_with("fits NVIDIA H100 80GB HBM3 (2.00 GiB): 1.00 GiB reserved at the peak, "),
        "{text}"
    );
    // 2 GiB less 1 GiB and the overhead, 768 MiB.
    assert!(first.ends_with("256 MiB to spare"), "{text}");
    let json = stdout(&dry_run(&folder, &["--memory", "2GiB", "--json", "-o", "elsewhere"], "512"));
    let result: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(result["runs"][0]["peak_reserved"], 512 << 20);
    assert!(fs::exists(folder.path("elsewhere/snapshot.pickle")).expect("a folder"));
}

#[test]
fn a_program_that_does_not_fit_is_told_what_it_needs() {
    let Some(folder) = package() else { return };
    let output = dry_run(&folder, &["--memory", "2GiB", "--quick"], "1700");
    assert!(complaint(&output, 1).contains("the program does not fit"));
    let text = String::from_utf8(output.stdout).expect("text");
    // The request and the overhead.
    assert!(text.starts_with("does not fit NVIDIA H100 80GB HBM3 (2.00 GiB): "), "{text}");
    assert!(
        text.lines().next().is_some_and(|line| line.ends_with("needs a GPU of 2.41 GiB or more")),
        "{text}"
    );
}

/// Runs the program, whose one request is of `size` MiB, several times on a GPU of 2 GiB.
fn sweep(folder: &Folder, arguments: &[&str]) -> std::process::Output {
    let arguments = [&["--memory", "2GiB", "--quick", "--json"], arguments].concat();
    dry_run(folder, &arguments, "{size}")
}

#[test]
fn a_search_goes_on_after_a_first_request_that_fails() {
    let Some(folder) = package() else { return };
    let text = stdout(&sweep(&folder, &["--find", "size=1270..1290"]));
    let found: Value = serde_json::from_str(&text).expect("an object");
    // 2 GiB less the overhead, 768 MiB.
    assert_eq!(found["largest_that_fits"], 1280, "{text}");
    assert_eq!((&found["runs"][0]["value"], &found["runs"][0]["has_failed"]), (&1290.into(), &false.into()));
}

#[test]
fn a_run_without_results_leaves_those_of_the_others() {
    let Some(folder) = package() else { return };
    let program = format!("{PROGRAM}if sys.argv[1] == '64': os._exit(3)\n");
    fs::write(folder.path("train.py"), program).expect("a file");
    let text = stdout(&sweep(&folder, &["--sweep", "size=512,64,1700"]));
    let found: Value = serde_json::from_str(&text).expect("an object");
    assert_eq!(found["largest_that_fits"], 512, "{text}");
    let fields = ["fits", "has_failed"].map(|field| [0, 1, 2].map(|run| found["runs"][run][field] == true));
    assert_eq!(fields, [[true, false, false], [false, true, false]], "{text}");
    let problem = found["runs"][1]["problem"].as_str().expect("a reason");
    assert!(problem.contains("ended without using a CUDA device"), "{problem}");
    assert!(found["runs"][1]["peak_reserved"].is_null(), "{text}");
    assert!(
        complaint(&sweep(&folder, &["--find", "size=64..1700"]), 1).contains("size 64: the program ended")
    );
}

#[test]
fn what_is_missing_is_named() {
    let unknown = complaint(&orlop(&["dry-run", "--device", "h101", "--", "python3"]), 2);
    assert!(unknown.contains("choose one of h100, "), "{unknown}");
    let library = complaint(&orlop(&["dry-run", "--library", "/nowhere", "--python", "true", "--", "x"]), 1);
    assert!(library.contains("true has no PyTorch"), "{library}");
}
