//! What every answer begins with, and how wide it is.

use super::{Folder, testdata};
use std::process::Command;

/// A request that fails with much free memory, on device 1 of two, beside a private pool.
const FAILED: &str = r#"{"segments": [], "allocator_settings": {}, "device_traces": [[
  {"action": "segment_alloc", "addr": 4294967296, "size": 20971520, "stream": 0},
  {"action": "alloc", "addr": 4294967296, "size": 1048600, "stream": 7, "frames": [
    {"name": "a_function_with_a_rather_long_name_that_wraps",
     "filename": "/srv/run/a_long_file_name.py", "line": 1}]}
 ], [
  {"action": "segment_alloc", "addr": 8589934592, "size": 1048576000, "stream": 0},
  {"action": "alloc", "addr": 8589934592, "size": 1044576000, "stream": 0, "frames": [
    {"name": "forward", "filename": "/srv/run/train.py", "line": 12}]},
  {"action": "free_completed", "addr": 8589934592, "size": 1044576000, "stream": 0},
  {"action": "alloc", "addr": 9110028288, "size": 1048576, "stream": 0, "frames": []},
  {"action": "oom", "device_free": 1048576, "size": 943718400, "stream": 0, "frames": []}
 ]]}"#;

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.61 GiB. GPU 0 has a \
     total capacity of 79.25 GiB of which 26.18 GiB is free. Process 1 has 53.06 GiB memory in use. Of the \
     allocated memory 11.98 GiB is allocated by PyTorch, and 40.67 GiB is \
     reserved by PyTorch but unallocated.";

/// Every command that prints an answer, with several inputs. The lines of a verdict may be wrapped.
#[test]
fn answers_begin_with_three_sentences_and_fit_80_columns() {
    let plan = "lower,upper,size\n0,2,60\n1,3,60\n2,4,60\n";
    let folder = Folder::with(&[("f.json", FAILED), ("message.txt", MESSAGE), ("plan.csv", plan)]);
    let at = |name: &str| folder.path(name);
    // Paths are not wrapped, and those of folders for tests are long.
    for (name, source) in [
        ("oom.gz", "torch-runs/resnet-train.gc1.pickle.gz"),
        ("streams.gz", "torch-runs/streams.limit3.pickle.gz"),
        ("resnet.gz", "torch-runs/resnet-train.limit1.pickle.gz"),
        ("mosaic.gz", "torch-snapshots/mosaic-sample.pickle.gz"),
        ("rmm.csv", "traces/rmm.csv"),
        ("trace.gz", "bert_infer_dyn20.csv.gz"),
        ("kv.gz", "kv-traces/azure_conv_2023.csv.gz"),
        ("b8.gz", "fit/transformer-batch8.pickle.gz"),
        ("b16.gz", "fit/transformer-batch16.pickle.gz"),
    ] {
        std::fs::copy(testdata().join(source), at(name)).expect("a file");
    }
    let recordings = ["f.json", "oom.gz", "streams.gz", "mosaic.gz", "rmm.csv", "trace.gz"];
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for file in recordings {
        commands.push(vec!["info", file]);
        commands.push(vec!["what-if", "--quick", file]);
    }
    for (before, after) in [("oom.gz", "resnet.gz"), ("resnet.gz", "oom.gz"), ("f.json", "f.json")] {
        commands.push(vec!["diff", before, after]);
        commands.push(vec!["gate", after, "--baseline", before]);
    }
    commands.extend([
        vec!["gate", "resnet.gz", "--write-baseline", "b.json"],
        vec!["gate", "resnet.gz", "--baseline", "b.json"],
        vec!["diff", "f.json", "b.json"],
        vec!["report", "f.json", "-o", "p.html"],
        vec!["report", "rmm.csv", "-o", "p.html"],
        vec!["why-oom", "message.txt"],
        vec!["ranks", "oom.gz", "resnet.gz", "streams.gz"],
        vec!["ranks", "f.json"],
        vec!["fit", "b8.gz", "b16.gz", "--at", "b=64", "--memory", "2GiB"],
        vec!["kv", "kv.gz", "--model", "llama-3-8b"],
        vec!["replay", "--policy", "torch", "streams.gz", "oom.gz"],
        vec!["replay", "--repeat", "1", "-a", "bfc,caching", "trace.gz"],
        vec!["trace", "info", "trace.gz"],
        vec!["plan", "trace.gz"],
        vec!["plan", "plan.csv", "--space", "sram=100", "--space", "dram=1MiB@10"],
    ]);
    for arguments in &commands {
        let text = answer(&folder, arguments);
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{arguments:?}: {wide:#?}");
        let head = text.lines().take_while(|line| !line.is_empty());
        let sentences = head.filter(|line| !line.starts_with(' ')).count();
        assert!(sentences == 3, "{arguments:?}:\n{text}");
    }
}

/// Runs the program in the folder. A gate may fail.
fn answer(folder: &Folder, arguments: &[&str]) -> String {
    let program =
        Command::new(env!("CARGO_BIN_EXE_orlop")).args(arguments).current_dir(folder.all()).output();
    let output = program.expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("output is UTF-8");
    let is_gate = arguments.first() == Some(&"gate");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || is_gate, "{arguments:?}: {errors}");
    text
}
