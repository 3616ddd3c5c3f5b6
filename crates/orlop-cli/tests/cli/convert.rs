//! `convert`.

#[cfg(feature = "sqlite")]
use super::Folder;
#[cfg(feature = "parquet")]
use super::schemas::check_answer;
use super::{complaint, json, orlop, stdout, testdata};
use std::fs;

fn snapshot() -> String {
    testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string()
}

/// The analysis of a recording is the same in every format.
#[test]
fn converted_files_have_the_same_contents() {
    let folder = tempfile::tempdir().expect("a folder");
    let peak = |file: &str| {
        let info = json(&orlop(&["snapshot", "info", "--json", file]));
        info[0]["devices"][0]["peak"]["held"]["bytes"].clone()
    };
    let original = peak(&snapshot());
    assert!(original.is_u64(), "{original}");
    for name in ["a.pickle", "a.json", "a.orlop"] {
        let file = folder.path().join(name).display().to_string();
        let told = stdout(&orlop(&["convert", &snapshot(), &file]));
        assert!(told.contains("events as"), "{told}");
        assert_eq!(peak(&file), original, "{name}");
    }
    // An orlop file is replayed while it is read, with the same result.
    let replayed = |file: &str| {
        let outcomes = json(&orlop(&["replay", "--policy", "orlop", "--json", file]));
        ["peak_live", "peak_reserved", "operations", "remapped"].map(|field| outcomes[0][field].clone())
    };
    assert_eq!(replayed(&folder.path().join("a.orlop").display().to_string()), replayed(&snapshot()));
    let timeline = folder.path().join("a.trace.json");
    let written = stdout(&orlop(&["convert", "--json", &snapshot(), &timeline.display().to_string()]));
    let written: serde_json::Value = serde_json::from_str(&written).expect("it is JSON");
    assert_eq!((&written["form"], &written["events"]), (&"perfetto".into(), &3840.into()));
    let timeline: serde_json::Value =
        serde_json::from_slice(&fs::read(timeline).expect("it was written")).expect("it is JSON");
    assert!(timeline["traceEvents"].as_array().is_some_and(|events| events.len() > 2560));
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 4, "nothing else is left there");
}

/// Two ranks in an archive, and a file beside it.
#[cfg(feature = "parquet")]
#[test]
fn several_recordings_are_a_table_with_a_partition_for_each_rank() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks = testdata().join("../crates/orlop-trace/tests/data/packed/ranks.zip").display().to_string();
    let third = folder.path().join("rank77.pickle.gz").display().to_string();
    fs::copy(snapshot(), &third).expect("a copy");
    let table = folder.path().join("table").display().to_string();
    let convert = ["convert", &ranks, &third, &table, "--to", "parquet"];
    let done = orlop(&[&convert[..], &["--json"]].concat());
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(told.contains("rank77.pickle.gz -> rank=77"), "{told}");
    let written = stdout(&done);
    let written: serde_json::Value = serde_json::from_str(&written).expect("it is JSON");
    assert_eq!(written["partitions"], 3, "{written}");
    let last = serde_json::json!({ "file": third, "rank": 77 });
    assert_eq!(written["ranks"][2], last, "{written}");
    check_answer("convert", &written);
    let sizes = ["rank=2", "rank=10", "rank=77"].map(|rank| {
        let file = folder.path().join("table").join(rank).join("recording.parquet");
        let bytes = fs::read(file).expect("it was written");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        bytes.len() as u64
    });
    assert_eq!(written["bytes"], sizes.iter().sum::<u64>());
    let told = complaint(&orlop(&convert), 1);
    assert!(told.contains("the folder is not empty"), "{told}");
    let told = complaint(&orlop(&["convert", &ranks, &third, &table, "--to", "csv"]), 2);
    assert!(told.contains("see --to parquet"), "{told}");
}

#[test]
fn an_unknown_extension_needs_a_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.dat").display().to_string();
    let told = complaint(&orlop(&["convert", &snapshot(), &file]), 2);
    assert!(told.contains("see --to"), "{told}");
    let packed = format!("{file}.pickle.gz");
    let told = complaint(&orlop(&["convert", &snapshot(), &packed]), 2);
    assert!(told.contains("omit .gz"), "{told}");
    stdout(&orlop(&["convert", &snapshot(), &file, "--to", "csv"]));
    assert!(fs::read_to_string(&file).is_ok_and(|table| table.lines().count() > 2560));
    let nowhere = folder.path().join("no/such/folder.csv").display().to_string();
    let told = complaint(&orlop(&["convert", &snapshot(), &nowhere]), 1);
    assert!(told.contains("cannot be written"), "{told}");
}

/// The input is unchanged, whatever its name.
#[test]
fn a_file_named_like_a_temporary_file_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let [part, pickle] =
        ["run.part", "run.pickle"].map(|name| folder.path().join(name).display().to_string());
    fs::copy(snapshot(), &part).expect("a copy");
    stdout(&orlop(&["convert", &part, &pickle]));
    assert_eq!(fs::read(&part).expect("it is there"), fs::read(snapshot()).expect("it is shipped"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left there");
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_are_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|made| made.success()) {
        println!("skipped: no mkfifo");
        return;
    }
    // Last, because it would wait for ever if nothing writes to the pipe.
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe)
    });
    let told = orlop(&["convert", &snapshot(), &pipe.display().to_string(), "--to", "csv"]);
    assert_eq!(stdout(&told), "");
    assert!(fs::metadata(&pipe).is_ok_and(|data| data.file_type().is_fifo()));
    let table = reader.join().expect("it reads").expect("it is a table");
    assert!(table.lines().count() > 2560);
}

/// An existing baseline or page stays readable until the new one is complete.
#[cfg(unix)]
#[test]
fn baselines_and_pages_are_replaced_atomically() {
    use std::io::Read;
    let folder = tempfile::tempdir().expect("a folder");
    let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("file", &link).expect("a link");
    let target = link.display().to_string();
    for arguments in [["gate", &snapshot(), "--write-baseline"], ["report", &snapshot(), "-o"]] {
        fs::write(&file, "before").expect("room");
        let mut reader = fs::File::open(&file).expect("it is there");
        stdout(&orlop(&[&arguments[..], &[&target]].concat()));
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("it is text");
        assert_eq!(read, "before", "{arguments:?}");
        assert!(link.is_symlink() && fs::metadata(&file).is_ok_and(|data| data.len() > 1000));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left there");
}

/// Nothing else is written to the pipe.
#[cfg(unix)]
#[test]
fn a_baseline_and_a_page_go_through_pipes() {
    let through = |arguments: &[&str]| stdout(&orlop(&[arguments, &["/dev/stdout"]].concat()));
    let baseline = through(&["gate", &snapshot(), "--write-baseline"]);
    assert!(serde_json::from_str::<serde_json::Value>(&baseline).is_ok(), "{baseline}");
    assert!(through(&["report", &snapshot(), "-o"]).ends_with("</html>\n"));
}

/// Under any name of the input.
#[cfg(unix)]
#[test]
fn no_command_overwrites_its_input() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bytes = fs::read(snapshot()).expect("it is shipped");
    let [input, link, hard, nested] = ["in.json", "link.json", "hard.json", "other/../in.json"].map(path);
    fs::write(&input, &bytes).expect("room");
    fs::create_dir(path("other")).expect("room");
    symlink("in.json", &link).expect("room");
    fs::hard_link(&input, &hard).expect("room");
    for output in [&input, &link, &hard, &nested] {
        for arguments in [
            &["convert", &input, output][..],
            &["convert", output, &input],
            &["report", &input, "-o", output],
            &["gate", &input, "--write-baseline", output],
        ] {
            let told = complaint(&orlop(arguments), 1);
            assert!(told.contains("the same file as the input"), "{arguments:?}: {told}");
            assert!(fs::read(&input).is_ok_and(|now| now == bytes), "{arguments:?}");
        }
    }
    assert!(fs::symlink_metadata(&link).is_ok_and(|link| link.is_symlink()));
    // Devices are written to directly, and do not change.
    stdout(&orlop(&["convert", &input, "/dev/null", "--to", "csv"]));
    assert!(fs::metadata("/dev/null").is_ok_and(|data| !data.is_file()));
}

/// The output of others in the file of the standard output is kept, and their later output is appended.
#[cfg(unix)]
#[test]
fn the_standard_output_is_appended_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all.txt");
    let shell = std::process::Command::new("sh")
        .args(["-c", "(echo first; \"$1\" convert \"$2\" /dev/stdout --to csv; echo last) > \"$3\"", "sh"])
        .args([env!("CARGO_BIN_EXE_orlop"), &snapshot()])
        .arg(&path)
        .status();
    assert!(shell.is_ok_and(|status| status.success()));
    let all = fs::read_to_string(&path).expect("it was written");
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!((lines.first(), lines.last(), lines.len()), (Some(&"first"), Some(&"last"), 3843));
    assert!(lines[1].starts_with("device,"), "{}", lines[1]);
}

/// A spreadsheet interprets some cells as formulas, and texts of a recording are untrusted.
#[test]
fn no_cell_of_a_table_is_a_formula() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let frames = |name: &str| format!(r#"[{{"name": "{name}", "filename": "@a.py", "line": 1}}]"#);
    let names = ["=HYPERLINK(1)", "+1", "-1", "@SUM", "\\t=1", "plain"];
    let events: Vec<String> = (1..)
        .zip(names)
        .map(|(place, name)| {
            let address = place * 4096;
            let frames = frames(name);
            format!(
                r#"{{"action": "alloc", "addr": {address}, "size": 512, "stream": 0, "frames": {frames}}}"#
            )
        })
        .collect();
    fs::write(path("run.json"), format!(r#"{{"device_traces": [[{}]]}}"#, events.join(", "))).expect("room");
    stdout(&orlop(&["convert", &path("run.json"), &path("run.csv")]));
    let table = fs::read_to_string(path("run.csv")).expect("it was written");
    assert_eq!(table.lines().count(), 1 + names.len());
    for cell in table.lines().flat_map(|line| line.split(',')) {
        assert!(!cell.trim_start_matches('"').starts_with(['=', '+', '-', '@', '\t', '\r']), "{cell:?}");
    }
    // The texts are read unchanged.
    stdout(&orlop(&["convert", &path("run.csv"), &path("again.json")]));
    let again = fs::read_to_string(path("again.json")).expect("it was written");
    for name in names {
        assert!(again.contains(&format!("\"{name}\"")), "{name:?} in {again}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn a_recording_becomes_a_database() {
    let folder = Folder::with(&[("run.csv", "a,0,1000\na,1,500\nf,0\n")]);
    let (run, named, other) = (folder.path("run.csv"), folder.path("run.sqlite"), folder.path("run.out"));
    for (file, arguments) in
        [(&named, vec!["convert", &*run, &*named]), (&other, vec!["convert", &run, &other, "--to", "sqlite"])]
    {
        let told = stdout(&orlop(&arguments));
        assert!(told.contains("4 events as an SQLite database"), "{told}");
        assert!(fs::read(file).expect("a file").starts_with(b"SQLite format 3\0"));
    }
}
