//! The command line interface: arguments in; text, JSON and exit codes out.

#[path = "cli/advice.rs"]
mod advice;
#[path = "cli/answers.rs"]
mod answers;
#[path = "cli/convert.rs"]
mod convert;
#[path = "cli/dry_run.rs"]
mod dry_run;
#[path = "cli/failures.rs"]
mod failures;
#[path = "cli/histories.rs"]
mod histories;
#[path = "cli/kv.rs"]
mod kv;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/plan_models.rs"]
mod plan_models;
#[path = "cli/schemas.rs"]
mod schemas;
#[path = "cli/sources.rs"]
mod sources;
#[path = "cli/verdicts.rs"]
mod verdicts;
#[path = "cli/what_if.rs"]
mod what_if;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TRACES: [&str; 6] = [
    "bert_infer_dyn20",
    "gpt2s_train_b2_s256",
    "llama8x512_decode_p128_d64",
    "resnet50_infer_b8",
    "resnet50_train_b4",
    "vit_b16_infer_b4",
];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn shipped(name: &str) -> String {
    testdata().join(format!("{name}.csv.gz")).display().to_string()
}

fn orlop(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(arguments)
        .env_remove("ORLOP_CPU_BACKING")
        .output()
        .expect("the program starts")
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

/// Returns the output with the lines that were wrapped to 80 columns.
fn unwrapped(output: &Output) -> String {
    stdout(output).replace("\n    ", " ").replace("\n  ", " ")
}

fn json(output: &Output) -> Vec<Value> {
    serde_json::from_str(&stdout(output)).expect("an array")
}

/// Asserts that the run failed with this exit code and one sentence, and returns that.
fn complaint(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8(output.stderr.clone()).expect("complaints are UTF-8")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn all(&self) -> String {
        self.0.path().display().to_string()
    }
}

#[test]
fn a_shipped_trace_is_replayed_under_all_allocators() {
    let text = stdout(&orlop(&["replay", "--repeat", "2", &shipped("bert_infer_dyn20")]));
    for word in ["bert_infer_dyn20\n", "ns/op", "live", "reserved", "ratio", "faults", "RSS"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    for allocator in ["bfc", "bfc-fixed", "pool", "pow2"] {
        // Not the sentences above the table.
        let rows = text.lines().skip_while(|line| !line.starts_with("allocator"));
        let row = rows.into_iter().find(|line| line.split_whitespace().next() == Some(allocator));
        let row = row.unwrap_or_else(|| panic!("{allocator} in\n{text}"));
        assert!(row.contains("9,280") && row.contains("11.6 MiB"), "{row}");
    }
    assert!(!text.contains("geometric mean"));
}

#[test]
fn json_has_the_promised_fields_and_each_run_is_one_object() {
    let folder =
        Folder::with(&[("one.csv", "a,0,4096\nf,0\n"), ("two.csv", "a,5,100,3\n"), ("notes.txt", "x")]);
    let output = orlop(&[
        "replay",
        "--json",
        "--repeat",
        "3",
        "--allocator",
        "bfc,direct",
        "-a",
        "bfc",
        &folder.all(),
    ]);
    let runs = json(&output);
    let names: Vec<_> = runs.iter().map(|run| (run["trace"].as_str(), run["allocator"].as_str())).collect();
    let expected = [("one", "bfc"), ("one", "direct"), ("two", "bfc"), ("two", "direct")];
    assert_eq!(names, expected.map(|(trace, allocator)| (Some(trace), Some(allocator))));
    for (run, (operations, live)) in runs.iter().zip([(2, 4096), (2, 4096), (1, 100), (1, 100)]) {
        assert_eq!((run["operations"].as_u64(), run["peak_live"].as_u64()), (Some(operations), Some(live)));
        assert_eq!((run["threads"].as_u64(), run["touch"].as_str()), (Some(1), Some("first")));
        let reserved = run["peak_reserved"].as_u64().expect("a number");
        let ratio = run["ratio"].as_f64().expect("a number");
        assert!((ratio - reserved as f64 / live as f64).abs() < 1e-9);
        assert!(run["ns_per_op"].as_f64().expect("a number") > 0.0);
        assert!(run["cold_ns_per_op"].is_number() && run["passes"] == 3);
    }
}

#[test]
fn several_traces_end_with_means_by_allocator() {
    let folder = Folder::with(&[("one.csv", "a,0,256\nf,0\n"), ("two.csv", "a,0,512\n")]);
    let text = stdout(&orlop(&["replay", "--repeat", "2", "-a", "bfc-fixed,pow2", &folder.all()]));
    let means: Vec<&str> = text.lines().skip_while(|line| !line.contains("geometric mean")).collect();
    assert!(means[0].contains("2 traces"), "{text}");
    let means = &means[3..];
    assert!(means[0].contains("bfc-fixed") && means[0].contains("1.00"), "{text}");
    assert!(means[1].contains("pow2"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_of_pages_is_made_large_enough() {
    let trace = shipped("bert_infer_dyn20");
    for threads in ["1", "2"] {
        let run = orlop(&["replay", "--json", "-a", "host-pages", "--repeat", "1", "-t", threads, &trace]);
        assert_eq!(json(&run)[0]["allocator"], "host-pages");
    }
}

#[test]
fn threads_share_an_allocator_with_every_touch_pattern() {
    let folder = Folder::with(&[("small.csv", "a,0,102400\na,1,30720\nf,0\na,2,51200\nf,1\nf,2\n")]);
    let (large, small) = ((shipped("vit_b16_infer_b4"), 33_878_016), (folder.path("small.csv"), 133_120));
    for (touch, (file, peak)) in [("none", &small), ("first", &large), ("pages", &small), ("all", &small)] {
        let runs = json(&orlop(&[
            "replay",
            "--json",
            "-a",
            "bfc,bfc-fixed,pool,pow2,direct",
            "--threads",
            "2",
            "--touch",
            touch,
            "--repeat",
            "2",
            file,
        ]));
        assert_eq!(runs.len(), 5);
        for run in runs {
            assert_eq!((run["threads"].as_u64(), run["touch"].as_str()), (Some(2), Some(touch)));
            assert_eq!(run["peak_live"].as_u64(), Some(2 * peak), "{run}");
        }
    }
}

#[test]
fn the_null_backing_replays_oversized_traces() {
    let folder = Folder::with(&[("big.csv", "a,0,80000000000\nf,0\n")]);
    let run =
        &json(&orlop(&["replay", "--json", "--backing", "null", "-a", "bfc", &folder.path("big.csv")]))[0];
    assert_eq!((run["peak_live"].as_u64(), run["touch"].as_str()), (Some(80_000_000_000), Some("none")));
    let touched =
        orlop(&["replay", "--backing", "null", "--touch", "first", "-a", "bfc", &folder.path("big.csv")]);
    let told = complaint(&touched, 1);
    assert_eq!(told, "orlop: big: bfc: the host cannot access its memory: replay without touching it\n");
}

#[test]
fn a_run_that_fails_does_not_stop_the_others() {
    let folder = Folder::with(&[("a.csv", "a,0,18000000000000000000\n"), ("b.csv", "a,0,64\n")]);
    let output = orlop(&["replay", "--json", "-a", "direct", "--repeat", "1", &folder.all()]);
    let told = complaint(&output, 1);
    assert!(
        told.starts_with("orlop: a: ") && told.contains("operation 1 of 1: ") && told.lines().count() == 1,
        "{told}"
    );
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
    assert_eq!((runs.len(), runs[0]["trace"].as_str()), (1, Some("b")));
}

#[test]
fn a_bad_line_is_reported_with_file_and_number() {
    let folder = Folder::with(&[
        ("bad.csv", "# made by hand\na,0,64\na,1,many\n"),
        ("twice.csv", "a,0,1\nf,0\nf,0\n"),
    ]);
    for command in [&["replay"][..], &["trace", "info"], &["replay", "--json"]] {
        let told = complaint(&orlop(&[command, &[folder.path("bad.csv").as_str()]].concat()), 1);
        let expected = format!(
            "orlop: {}: line 3: the size cannot be \"many\", expected a whole number below 2^64\n",
            folder.path("bad.csv")
        );
        assert_eq!(told, expected);
    }
    let told = complaint(&orlop(&["trace", "info", &folder.all()]), 1);
    assert_eq!(told.lines().count(), 2, "both are reported: {told}");
    assert!(told.contains("line 3: 0 is freed again, and was freed on line 2"), "{told}");
}

#[test]
fn damaged_and_missing_files_are_reported() {
    let folder = Folder::with(&[("empty.csv", "# nothing yet\n")]);
    let whole = fs::read(shipped("vit_b16_infer_b4")).expect("it is shipped");
    fs::write(folder.path("cut.csv.gz"), &whole[..whole.len() / 2]).expect("a file");
    let told = complaint(&orlop(&["trace", "info", &folder.path("cut.csv.gz")]), 1);
    assert!(told.contains("cut.csv.gz: line ") && told.contains("cannot be read"), "{told}");
    let told = complaint(&orlop(&["replay", &folder.path("none.csv")]), 1);
    assert!(told.contains("none.csv: cannot be opened: "), "{told}");
    let nothing = tempfile::tempdir().expect("a directory");
    let told = complaint(&orlop(&["replay", &nothing.path().display().to_string()]), 1);
    assert!(told.contains("no *.csv in this directory"), "{told}");
    let told = complaint(&orlop(&["replay", "--repeat", "2", &folder.path("empty.csv")]), 1);
    assert!(told.contains("empty.csv: this trace has no operations"), "{told}");
}

#[test]
fn an_invalid_command_line_lists_valid_values() {
    let trace = shipped("vit_b16_infer_b4");
    for (arguments, words) in [
        (
            &["replay", "-a", "malloc", &trace][..],
            &["malloc", "direct", "bfc", "bfc-fixed", "pool", "pow2"][..],
        ),
        (&["replay", "--backing", "tape", &trace], &["tape", "system", "mmap", "null"]),
        (&["replay", "--touch", "some", &trace], &["some", "none", "first", "pages", "all"]),
        (&["replay", "--threads", "0", &trace], &["0", "--threads"]),
        (&["replay", "--policy", "orlop", "--conf", "", &trace], &["--conf", "--policy torch"]),
        (&["replay", "--policy", "torch", "--threads", "2", &trace], &["--threads", "--policy"]),
        (&["replay"], &["TRACE"]),
        (&["sail"], &["sail"]),
    ] {
        let told = complaint(&orlop(arguments), 2);
        for word in words {
            assert!(told.contains(word), "{word} in {told}");
        }
    }
    assert!(stdout(&orlop(&["--help"])).contains("replay"));
    assert!(stdout(&orlop(&["--version"])).starts_with("orlop "));
}

#[test]
fn trace_info_describes_the_shipped_traces() {
    let entries = json(&orlop(&["trace", "info", "--json", &testdata().display().to_string()]));
    let names: Vec<_> = entries.iter().filter_map(|entry| entry["trace"].as_str()).collect();
    assert_eq!(names, TRACES);
    let operations: Vec<_> = entries.iter().filter_map(|entry| entry["operations"].as_u64()).collect();
    assert_eq!(operations, [9_280, 20_306, 51_354, 2_285, 10_450, 1_212]);
    let text = stdout(&orlop(&["trace", "info", &shipped("gpt2s_train_b2_s256")]));
    for word in ["10,449 allocations", "2.05 GiB", "median 8 B", "lifetimes", "128 MiB"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["trace", "info", &testdata().display().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn plain_text_and_gzip_give_the_same_result() {
    let folder = Folder::with(&[("plain.csv", "a,0,64\nf,0\n")]);
    let packed = fs::File::create(folder.path("packed.csv.gz")).expect("a file");
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
    packed.write_all(b"a,0,64\nf,0\n").expect("written");
    packed.finish().expect("written");
    let entries =
        json(&orlop(&["trace", "info", "--json", &folder.path("plain.csv"), &folder.path("packed.csv.gz")]));
    assert_eq!((entries[0]["trace"].as_str(), entries[1]["trace"].as_str()), (Some("plain"), Some("packed")));
    assert_eq!(entries[0]["operations"], entries[1]["operations"]);
    assert_eq!(entries[0]["sizes"], entries[1]["sizes"]);
}

#[test]
fn a_report_is_one_page() {
    let folder = Folder::with(&[]);
    let page = folder.path("page.html");
    let snapshot =
        testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string();
    let said = stdout(&orlop(&["report", &snapshot, "-o", &page, "--title", "One <run>", "--device", "0"]));
    assert!(said.starts_with("device 0 loses ") && said.contains(&format!("\n\n{page}: ")), "{said}");
    let text = fs::read_to_string(&page).expect("a page");
    assert!(text.starts_with("<!doctype html>") && text.contains("<title>One &lt;run&gt;</title>"));

    stdout(&orlop(&["report", &shipped("vit_b16_infer_b4"), "--output", &page]));
    assert!(fs::read_to_string(&page).expect("a page").contains("<title>vit_b16_infer_b4.csv.gz</title>"));
}

#[test]
fn a_failed_report_leaves_no_file() {
    let folder = Folder::with(&[("bad.pickle", "neither")]);
    let page = folder.path("page.html");
    let snapshot = shipped("vit_b16_infer_b4");
    let message = complaint(&orlop(&["report", &snapshot, "-o", &page, "--device", "7"]), 1);
    assert!(message.contains("device 7"), "{message}");
    complaint(&orlop(&["report", &folder.path("bad.pickle"), "-o", &page]), 1);
    assert!(!Path::new(&page).exists());
    let nowhere = folder.path("no/such/folder/page.html");
    assert!(complaint(&orlop(&["report", &snapshot, "-o", &nowhere]), 1).contains(&nowhere));
}
