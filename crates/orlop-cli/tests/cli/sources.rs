//! Where recordings come from: the standard input, compressed files, archives and folders.

use super::{complaint, json, orlop, stdout, testdata};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../orlop-trace/tests/data/packed").join(name)
}

/// Runs the program with a file as its standard input.
fn piped(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(arguments).stdin(File::open(file).expect("it is shipped")).output().expect("it starts")
}

fn peak(info: &Output) -> Vec<u64> {
    let peak = |entry: &serde_json::Value| entry["devices"][0]["peak"]["held"]["bytes"].as_u64();
    json(info).iter().map(|entry| peak(entry).expect("a peak")).collect()
}

#[test]
fn the_standard_input_may_be_compressed_or_an_archive() {
    let plain = peak(&orlop(&["info", "--json", &packed("../snapshot/small.json").display().to_string()]));
    for name in ["../snapshot/small.json", "small.json.zst", "small.json.xz", "one.zip"] {
        assert_eq!(peak(&piped(&["info", "--json", "-"], &packed(name))), plain, "{name}");
        let file = packed(name).display().to_string();
        assert!(
            stdout(&piped(&["diff", &file, "-"], &packed(name))).contains("no call site differs"),
            "{name}"
        );
        stdout(&piped(&["what-if", "--quick", "--json", "-"], &packed(name)));
    }
    let trace = testdata().join("vit_b16_infer_b4.csv.gz");
    let traced = json(&piped(&["trace", "info", "--json", "-"], &trace));
    assert_eq!(traced[0]["trace"], "-");
}

#[test]
fn archives_and_folders_have_several_recordings() {
    let ranks = packed("ranks.zip").display().to_string();
    let found = orlop(&["info", "--json", &ranks]);
    assert_eq!(peak(&found).len(), 2);
    let member = json(&found)[0]["file"].as_str().expect("a name").to_owned();
    assert!(member.ends_with("ranks.zip/ranks/rank2.json.gz"), "{member}");
    let told = complaint(&orlop(&["what-if", "--quick", &ranks]), 1);
    assert!(told.contains("2 recordings are in it: name one of them, like "), "{told}");
    stdout(&orlop(&["what-if", "--quick", &member]));
    stdout(&orlop(&["diff", &member, &member]));
    let folder = testdata().join("torch-snapshots").display().to_string();
    let output = orlop(&["snapshot", "info", "--json", &folder]);
    assert_eq!(json(&output).len(), 5);
}

#[test]
fn profiles_of_pprof_are_written_and_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot =
        testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string();
    let profile = folder.path().join("a.pb.gz").display().to_string();
    stdout(&orlop(&["convert", &snapshot, &profile]));
    // Sites of equal sizes are in no order.
    let sites = |file: &str| {
        let info = json(&orlop(&["info", "--json", "--top", "100", file]));
        let peak = &info[0]["devices"][0]["peak"]["held"];
        let mut sites: Vec<String> =
            peak["by_site"]["top"].as_array().expect("a list").iter().map(ToString::to_string).collect();
        sites.sort();
        (peak["bytes"].clone(), sites)
    };
    let (before, after) = (sites(&snapshot), sites(&profile));
    assert!(before.1.len() > 10);
    assert_eq!(before, after);
}

#[test]
fn other_files_have_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pointer.pickle").display().to_string();
    fs::write(&file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n").expect("room");
    let told = complaint(&orlop(&["info", &file]), 1);
    assert!(told.contains("git lfs pull fetches it"), "{told}");
    let told = complaint(&orlop(&["info", &folder.path().display().to_string()]), 1);
    assert!(told.contains("no recording is in it") && told.contains("git lfs pull"), "{told}");
}

#[test]
fn shells_and_man_know_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh", "man"] {
        let text = stdout(&orlop(&["completions", shell]));
        for command in ["what-if", "why-oom", "convert", "completions"] {
            assert!(text.replace("\\-", "-").contains(command), "{shell}: {command}");
        }
    }
    let pages = stdout(&orlop(&["completions", "man"])).replace("\\-", "-");
    assert!(pages.contains("--quick") && pages.contains(".TH orlop-snapshot-info"), "{pages}");
}
