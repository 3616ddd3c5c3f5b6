//! `what-if`, and `replay --policy`.

use super::{Folder, complaint, json, orlop, stdout, testdata};
use serde_json::Value;
use std::fs;
use std::process::Command;

fn snapshot(name: &str) -> String {
    testdata().join("torch-snapshots").join(format!("{name}.pickle.gz")).display().to_string()
}

#[test]
fn all_settings_are_ranked_and_the_best_is_printed() {
    let file = snapshot("gpt-medium_256_inference");
    let text = stdout(&orlop(&["what-if", &file]));
    for words in [
        "1,280 of 1,280 by PyTorch's rules",
        "perfect plan",
        "torch, default settings (as recorded)",
        "tensorflow",
        "peak reserved, as recorded   1.74 GiB; in the replay 1.73 GiB",
        "\nSet PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: 52.0 MiB less reserved.\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(
        text.starts_with("device 0 loses 67.3 MiB (3 %) of 1.74 GiB reserved, mostly as free segments."),
        "{text}"
    );
    let table = text.split("\n\n").find(|part| part.contains("allocator and settings")).expect("a table");
    assert!(table.lines().count() > 24 && table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

/// A run of another allocator did not follow PyTorch's rules, and is not reported as if it did.
#[test]
fn only_settings_from_the_recording_are_called_recorded() {
    let folder = Folder::with(&[]);
    let table = folder.path("run.csv");
    let torchs = snapshot("gpt-medium_256_inference");
    // A table of events has no settings, nor have recordings of orlop's allocators.
    stdout(&orlop(&["convert", &torchs, &table]));
    let lines = super::shipped("vit_b16_infer_b4");
    for (file, recorded) in [(&torchs, true), (&table, false), (&lines, false)] {
        let text = stdout(&orlop(&["what-if", file]));
        // A list of requests does not have the reserved bytes of the run.
        let is_withheld = text.contains("No setting can be recommended: reserved bytes are not recorded.");
        assert_eq!(is_withheld, !recorded, "{text}");
        let advice = |line: &str| {
            line.starts_with("Set PYTORCH_CUDA_ALLOC_CONF") || line.starts_with("Nothing to gain")
        };
        assert_eq!(text.lines().nth(1).is_some_and(advice), !is_withheld, "{text}");
        assert_eq!(text.contains("(as recorded)"), recorded, "{text}");
        assert_eq!(text.contains("torch, default settings (baseline)"), !recorded, "{text}");
        assert_eq!(text.contains("compared with PyTorch's defaults"), !recorded, "{text}");
        let answers = json(&orlop(&["what-if", "--quick", "--json", file]));
        assert_eq!(answers[0]["baseline_is_recorded"], Value::Bool(recorded));
    }
}

#[test]
fn as_json_it_is_an_answer_for_each_device() {
    let answers = json(&orlop(&["what-if", "--json", &snapshot("gpt-medium_512_inference")]));
    let answer = &answers[0];
    assert_eq!(answer["fidelity"]["same"], 1666);
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 24);
    let find = |name: &str| rows.iter().find(|row| row["rules"] == name).expect("a row");
    assert!(find("orlop")["ratio"].as_f64().is_some_and(|ratio| ratio < 1.01));
    assert_eq!(find("torch, default settings")["is_baseline"], Value::Bool(true));
    assert!(rows.iter().all(|row| row["smallest"]["runs"].is_u64()));
}

/// PyTorch's settings do not apply to the host's memory, which is replayed only if it is selected.
#[test]
fn a_profile_is_replayed_with_what_lived_before_and_without_the_host() {
    let file = testdata().join("traces/profiler-gpt2.json.gz").display().to_string();
    let output = orlop(&["what-if", "--quick", &file]);
    let (text, complaints) = (stdout(&output), String::from_utf8_lossy(&output.stderr));
    for words in [
        "peak of live bytes           2.89 GiB",
        "live before the recording    849 MiB, replayed as 3 blocks",
        "peak reserved, as recorded   4.53 GiB, as counted by the source",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(
        !text.contains("65536")
            && complaints.contains("cpu is omitted")
            && complaints.contains("--device cpu shows it"),
        "{text}{complaints}"
    );
    let answers = json(&orlop(&["what-if", "--quick", "--json", &file, "--device", "cpu"]));
    assert_eq!((answers.len(), &answers[0]["peak_live"]), (1, &Value::from(200)));
    // There is no other device, so it is shown.
    let folder =
        Folder::with(&[("host.csv", "device,time_ns,action,address,bytes\n65536,1,allocate,200,512\n")]);
    let output = orlop(&["what-if", "--quick", &folder.path("host.csv")]);
    assert!(stdout(&output).contains(", cpu\n") && output.stderr.is_empty());
}

#[test]
fn without_memory_the_failed_request_is_named() {
    let text = stdout(&orlop(&[
        "what-if",
        "--memory",
        "1.5GiB",
        "--top",
        "2",
        &snapshot("gpt-medium_512_inference"),
    ]));
    assert!(
        text.starts_with("device 0 would run out of memory in 1.50 GiB: ")
            && text.contains("\nNo allocator could run it there: at least "),
        "{text}"
    );
}

#[test]
fn a_replay_runs_under_any_allocator() {
    let file = snapshot("gpt-medium_128_training");
    for policy in ["torch", "orlop", "orlop-segments", "tensorflow"] {
        let outcomes = json(&orlop(&["replay", "--json", "--policy", policy, "--repeat", "2", &file]));
        assert_eq!(outcomes[0]["out_of_memory"], Value::Null);
        // The exit code shows the failure to scripts.
        for json in [&["--json"][..], &[]] {
            let less = [&["replay", "--policy", policy, "--memory", "6 GiB", &file], json].concat();
            let output = orlop(&less);
            let told = complaint(&output, 1);
            assert!(told.contains("device 0: out of memory at event"), "{told}");
            assert!(String::from_utf8_lossy(&output.stdout).contains(policy), "{output:?}");
        }
    }
    let conf =
        ["replay", "--policy", "torch", "--conf", "expandable_segments:True", "--memory", "80GiB", &file];
    assert!(stdout(&orlop(&conf)).contains("torch, expandable_segments:True"));
}

#[test]
fn invalid_settings_are_refused() {
    let file = snapshot("gpt-medium_128_training");
    let told = complaint(&orlop(&["replay", "--policy", "torch", "--conf", "colour:blue", &file]), 1);
    assert!(told.contains("colour is not a setting of PyTorch's CUDA allocator"), "{told}");
    let told = complaint(&orlop(&["what-if", "--device", "7", &file]), 1);
    assert!(told.contains("nothing was recorded on device 7"), "{told}");
}

/// Converts a snapshot to an orlop file.
fn ours(folder: &Folder) -> String {
    let file = folder.path("ours.orlop");
    stdout(&orlop(&["convert", &snapshot("gpt-medium_256_inference"), &file]));
    file
}

#[test]
fn with_repeat_a_file_of_ours_is_read_as_a_whole_and_timed() {
    let folder = Folder::with(&[]);
    let file = ours(&folder);
    let replay = |more: &[&str]| {
        let arguments = [&["replay", "--policy", "orlop", "--json", &file], more].concat();
        json(&orlop(&arguments)).remove(0)
    };
    let (mut streamed, mut whole) = (replay(&[]), replay(&["--repeat", "1"]));
    assert!(streamed["nanoseconds"].is_null() && whole["nanoseconds"].is_u64());
    for outcome in [&mut streamed, &mut whole] {
        outcome["nanoseconds"].take();
    }
    assert_eq!(streamed, whole);
    let text = stdout(&orlop(&["replay", "--policy", "orlop", &file]));
    assert!(text.lines().any(|line| line.trim_end().ends_with(" -")), "{text}");
}

#[cfg(unix)]
#[test]
fn recordings_come_through_pipes_too() {
    let folder = Folder::with(&[]);
    let ours = ours(&folder);
    let through = |file: &str, arguments: &[&str]| {
        let mut bytes = fs::File::open(file).expect("it is there");
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let feed = std::thread::spawn(move || std::io::copy(&mut bytes, &mut writer));
        let child = Command::new(env!("CARGO_BIN_EXE_orlop")).args(arguments).stdin(reader).output();
        feed.join().expect("no panic").expect("all of it is read");
        child.expect("the program starts")
    };
    for file in [&ours, &snapshot("gpt-medium_256_inference")] {
        let outcomes = json(&through(file, &["replay", "--policy", "orlop", "--json", "/dev/stdin"]));
        assert!(outcomes[0]["operations"].as_u64().is_some_and(|count| count > 2000), "{outcomes:?}");
        let text = stdout(&through(file, &["diff", &ours, "/dev/stdin"]));
        assert!(text.contains("no call site differs"), "{text}");
    }
}

#[test]
fn every_command_reports_a_truncated_file() {
    let folder = Folder::with(&[]);
    let (file, cut) = (ours(&folder), folder.path("cut.orlop"));
    let bytes = fs::read(&file).expect("it was written");
    fs::write(&cut, &bytes[..bytes.len() - 9]).expect("room");
    let [table, page, baseline] = ["cut.csv", "page.html", "baseline.json"].map(|name| folder.path(name));
    for arguments in [
        &["convert", &cut, &table][..],
        &["replay", "--policy", "orlop", &cut],
        &["replay", "--policy", "orlop", "--repeat", "1", &cut],
        &["what-if", "--quick", &cut],
        &["report", &cut, "-o", &page],
        &["diff", &file, &cut],
    ] {
        let told = complaint(&orlop(arguments), 0);
        assert!(told.contains("cut.orlop: the file is cut off"), "{arguments:?}: {told}");
    }
    // A gate might pass because of the missing part.
    stdout(&orlop(&["gate", &file, "--write-baseline", &baseline]));
    for arguments in [
        &["gate", &cut, "--write-baseline", &page][..],
        &["gate", &cut, "--baseline", &baseline],
        &["gate", &file, "--baseline", &cut],
    ] {
        let told = complaint(&orlop(arguments), 1);
        assert!(told.contains("cut.orlop: the file is cut off") && told.lines().count() == 1, "{told}");
    }
    let written: Value =
        serde_json::from_str(&stdout(&orlop(&["convert", "--json", &cut, &table]))).expect("JSON");
    assert_eq!(written["warnings"], 1);
    let many = complaint(&orlop(&["what-if", "--quick", &snapshot("mosaic-sample")]), 0);
    assert_eq!(many.lines().count(), 4, "{many}");
    assert!(
        many.lines().last().is_some_and(|line| line.contains("and ") && line.ends_with(" more")),
        "{many}"
    );
}

#[test]
fn other_files_are_named_by_their_kind() {
    let folder = Folder::with(&[]);
    let replay = |file: &str| complaint(&orlop(&["replay", "--policy", "torch", file]), 1);
    let told = replay(&folder.all());
    assert!(told.contains("no recording is in it"), "{told}");
    let damaged = folder.path("damaged.pickle.gz");
    fs::write(&damaged, b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff").expect("room");
    let told = replay(&damaged);
    assert!(told.contains("damaged.pickle.gz") && !told.contains("binary history"), "{told}");
    let none = replay(&folder.path("none.orlop"));
    assert!(none.contains("cannot be opened"), "{none}");
}

#[test]
fn a_recording_of_another_allocator_is_not_compared_with_pytorchs_addresses() {
    let memory = |time: u64, bytes: i64| {
        format!(
            r#"{{"ph": "i", "name": "[memory]", "ts": {time}, "tid": 7,
                             "args": {{"Addr": 4096, "Bytes": {bytes}, "Device Type": 1, "Device Id": 0}}}}"#
        )
    };
    // A block whose first event is a free was live at the start.
    let trace = format!("[{}, {}]", memory(1, -512), memory(2, 1024));
    let folder = Folder::with(&[("trace.json", &trace)]);
    let text = stdout(&orlop(&["what-if", "--quick", &folder.path("trace.json")]));
    assert!(text.contains("peak of live bytes") && !text.contains("addresses as recorded"), "{text}");
}

#[test]
fn a_completion_without_a_request_is_reported() {
    let event = |action: &str| format!(r#"{{"action": "{action}", "addr": 268435456, "size": 512}}"#);
    let block = r#"{"address": 268435456, "size": 2097152, "requested_size": 0, "state": "inactive"}"#;
    let snapshot = |events: &[&str]| {
        let events: Vec<String> = events.iter().copied().map(event).collect();
        format!(
            r#"{{"segments": [{{"device": 0, "address": 268435456, "total_size": 2097152, "stream": 0,
                "segment_type": "small", "blocks": [{block}]}}], "device_traces": [[{}]]}}"#,
            events.join(", ")
        )
    };
    let told = ["alloc", "free_requested", "free_completed"];
    let folder = Folder::with(&[
        ("whole.json", &snapshot(&told)),
        ("partly.json", &snapshot(&[&told[..], &["alloc", "free_completed"]].concat())),
    ]);
    for (file, addresses, unrequested) in [("whole.json", "1 of 1", false), ("partly.json", "2 of 2", true)] {
        let output = orlop(&["what-if", "--quick", &folder.path(file)]);
        let text = stdout(&output);
        assert!(text.contains(addresses), "{text}");
        assert_eq!(text.contains("freed without a request      1 block,"), unrequested, "{text}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn too_many_streams_are_merged_with_a_warning() {
    let table: String =
        (0..1100).map(|stream| format!("0,{stream},allocate,{stream:#x}000,512,{stream}\n")).collect();
    let folder =
        Folder::with(&[("many.csv", &format!("device,time_ns,action,address,bytes,stream\n{table}"))]);
    let file = folder.path("many.csv");
    for arguments in [&["replay", "--policy", "orlop", &file][..], &["what-if", "--quick", &file]] {
        let told = complaint(&orlop(arguments), 0);
        assert!(told.contains("more than 1024 streams"), "{told}");
    }
}

/// What a terminal shows first, of runs of every outcome.
#[test]
fn verdicts_come_first_and_fit_80_columns() {
    for (file, finding, remedy) in [
        ("torch-runs/resnet-train.limit1.pickle.gz", "device 0 ran out of memory: ", "Set PYTORCH_CUDA_"),
        ("torch-snapshots/gpt-medium_512_training.pickle.gz", "device 0 ", ""),
    ] {
        let path = testdata().join(file).display().to_string();
        for command in ["info", "what-if"] {
            let text = stdout(&orlop(&[command, &path]));
            let mut lines: Vec<&str> = text.lines().collect();
            if command == "what-if" {
                // The facts below the verdict have a column of names.
                lines.truncate(lines.iter().position(|line| line.is_empty()).expect("paragraphs"));
            }
            assert!(lines[0].starts_with(finding) && lines[1].starts_with(remedy), "{text}");
            let is_wide = |line: &&str| line.chars().count() > 80 && !line.contains(&path);
            assert_eq!(lines.into_iter().find(is_wide), None, "{command} {file}");
        }
    }
}
