//! What the memory is, what another size needs, and which rank differs.

use super::{Folder, complaint, json, orlop, stdout, testdata, unwrapped};
use serde_json::{Value, json};

fn file(folder: &str, name: &str) -> String {
    testdata().join(folder).join(name).display().to_string()
}

#[test]
fn info_says_what_the_memory_is() {
    let run = file("torch-runs", "gpt2-train.limit1.pickle.gz");
    let text = stdout(&orlop(&["info", &run]));
    assert!(text.lines().all(|line| line.chars().count() <= 300), "{text}");
    for words in ["what it is, by call sites and lifetimes", "optimizer state", "modeling_gpt2.py forward"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let categories = &json(&orlop(&["info", "--json", &run]))[0]["devices"][0]["categories"];
    let of = |category: &str| {
        let all = categories["at_peak"].as_array().expect("a list");
        all.iter().find(|usage| usage["category"] == category).map(|usage| usage["bytes"].clone())
    };
    assert_eq!(of("parameters"), Some(json!(271_564_800)));
    assert_eq!(of("optimizer_state"), Some(json!(543_129_600)));
    assert_eq!(categories["evidence"], "call_sites");
    let without = file("torch-runs", "gpt2-train.default.pickle.gz");
    assert!(stdout(&orlop(&["info", &without])).contains("what it is, estimated from lifetimes"));
}

#[test]
fn a_fit_predicts_another_batch() {
    let [small, middle, large] =
        [8, 16, 24].map(|batch| file("fit", &format!("transformer-batch{batch}.pickle.gz")));
    let files = [&*small, &middle, &large];
    let output =
        orlop(&[&["fit"], &files[..], &["--at", "batch=64", "--memory", "2346MiB", "--json"]].concat());
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("an object");
    assert_eq!(answer["live"]["bytes"], 2_290_912_008_u64);
    assert_eq!(answer["reserved"]["bytes"], 2_459_959_296_u64);
    assert_eq!((&answer["recorded"], &answer["largest"]["size"]), (&json!([8, 16, 24]), &json!(64)));
    let text = stdout(&orlop(&["fit", &small, &large, "--sizes", "8,24", "--at", "n=64"]));
    assert!(text.starts_with("device 0 at n=64: ") && text.contains("add --memory"), "{text}");
    assert!(text.lines().skip(3).all(|line| line.chars().count() <= 80), "{text}");
    let other = file("torch-runs", "resnet-train.default.pickle.gz");
    for (arguments, words) in [
        (&["fit", &*small, &large, "--at", "length=4"][..], "its name has no number after length"),
        (&["fit", &small, &large, "--sizes", "8", "--at", "n=4"], "--sizes has 1 size for 2 recordings"),
        (&["fit", &small, &large, "--sizes", "8,8", "--at", "n=4"], "two or more different numbers"),
        (&["fit", &small, &other, "--sizes", "8,9", "--at", "n=4"], "not of the same sequence of requests"),
    ] {
        let told = complaint(&orlop(arguments), 1);
        assert!(told.contains(words), "{told}");
    }
    assert!(complaint(&orlop(&["fit", &small, &large, "--at", "64"]), 2).contains("batch=32"));
}

/// Three ranks, of which one holds twice as much at one call site.
#[test]
fn ranks_are_compared() {
    let rank = |mib: u64| {
        let event = |action: &str, address: u64, mib: u64, line: u64| {
            let frame = json!({ "name": "step", "filename": "/srv/run/train.py", "line": line });
            json!({ "action": action, "addr": address, "size": mib << 20, "stream": 0, "frames": [frame] })
        };
        let events = [
            event("segment_alloc", 1 << 32, 100 + mib, 1),
            event("alloc", 1 << 32, 100, 1),
            event("alloc", (1 << 32) + (100 << 20), mib, 2),
        ];
        json!({ "segments": [], "device_traces": [events], "allocator_settings": {} }).to_string()
    };
    let (usual, twice) = (rank(40), rank(80));
    let folder = Folder::with(&[
        ("rank0.json", &*usual),
        ("rank1.json", &twice),
        ("rank2.json", &usual),
        ("notes.md", "-"),
    ]);
    let text = stdout(&orlop(&["ranks", &folder.all()])).replace("\n  ", " ");
    for words in [
        "Of 3 ranks, ",
        "rank1.json needs most: a peak of 180 MiB, 140 MiB at the median.",
        "What sets it apart is train.py:2 step: 80.0 MiB, 40.0 MiB at the median.",
        "+40.0 MiB",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let output = orlop(&["ranks", "--json", &folder.path("rank0.json"), &folder.path("rank2.json")]);
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("an object");
    assert_eq!(
        (&answer["ranks"], &answer["outliers"], &answer["sites"]),
        (&json!(2), &json!([]), &json!([]))
    );
    complaint(&orlop(&["ranks", &folder.path("absent")]), 1);
}

/// A file without memory leaves no report behind.
#[test]
fn a_file_without_memory_is_a_failure() {
    let text = r#"{"segments": [], "device_traces": [[{"action": "snapshot", "addr": 0, "size": 0}]]}"#;
    let folder = Folder::with(&[("none.json", text)]);
    let (none, page) = (folder.path("none.json"), folder.path("page.html"));
    for arguments in [&["info", &*none][..], &["what-if", &none], &["report", &none, "-o", &page]] {
        let told = complaint(&orlop(arguments), 1);
        assert!(told.contains("no allocations"), "{arguments:?}: {told}");
    }
    assert!(!std::path::Path::new(&page).exists());
}

/// 100 MiB are reserved and 900 MiB free when a request fails: the allocator could have had 1,000 MiB.
#[test]
fn memory_of_others_is_told_apart_and_subtracted() {
    let event = |action: &str, key: &str, value: u64, mib: u64| {
        let bytes = mib << 20;
        json!({ "action": action, key: value, "size": bytes, "stream": 0 })
    };
    let events = [
        event("segment_alloc", "addr", 1 << 32, 100),
        event("alloc", "addr", 1 << 32, 100),
        event("oom", "device_free", 900 << 20, 1200),
    ];
    let text = json!({ "segments": [], "device_traces": [events], "allocator_settings": {} }).to_string();
    let folder = Folder::with(&[("oom.json", &text)]);
    let run = folder.path("oom.json");
    let told = stdout(&orlop(&["info", &run]));
    assert!(told.contains("all but 1000 MiB of the device when a request failed"), "{told}");
    for (memory, words, used) in [
        ("1050MiB", "1.03 GiB, less 50.0 MiB that others had: 1000 MiB for PyTorch", 1000_u64),
        ("2GiB", "2.00 GiB; nothing is subtracted for the context and libraries", 2048),
    ] {
        let told = unwrapped(&orlop(&["what-if", "--quick", "--memory", memory, &run]));
        assert!(told.contains(words), "{told}");
        let answer = json(&orlop(&["what-if", "--quick", "--memory", memory, "--json", &run]));
        assert_eq!(answer[0]["memory"], used << 20, "{memory}");
    }
}
