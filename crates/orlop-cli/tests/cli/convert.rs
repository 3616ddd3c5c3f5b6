//! `convert`.

use super::{complaint, json, orlop, stdout, testdata};
use std::fs;

fn snapshot() -> String {
    testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string()
}

/// Whatever form it goes through, what the lab says of it is the same.
#[test]
fn what_is_converted_says_the_same() {
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
    // One of ours is replayed as it is read, and comes to the same.
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

#[test]
fn a_name_that_says_nothing_needs_a_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.dat").display().to_string();
    let told = complaint(&orlop(&["convert", &snapshot(), &file]), 1);
    assert!(told.contains("see --to"), "{told}");
    stdout(&orlop(&["convert", &snapshot(), &file, "--to", "csv"]));
    assert!(fs::read_to_string(&file).is_ok_and(|table| table.lines().count() > 2560));
    let nowhere = folder.path().join("no/such/folder.csv").display().to_string();
    let told = complaint(&orlop(&["convert", &snapshot(), &nowhere]), 1);
    assert!(told.contains("cannot be written"), "{told}");
}
