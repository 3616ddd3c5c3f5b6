//! The advice of `what-if`, and the output of other commands for the same recordings.

use super::{Folder, complaint, json, orlop, stdout, testdata};
use serde_json::Value;

fn snapshot(name: &str) -> String {
    testdata().join("torch-snapshots").join(format!("{name}.pickle.gz")).display().to_string()
}

fn run(name: &str) -> String {
    testdata().join("torch-runs").join(format!("{name}.pickle.gz")).display().to_string()
}

/// A recording in the form of `torch.cuda.memory`: thirty blocks, `empty_cache()`, thirty larger blocks.
fn with_a_call() -> String {
    const MIB: u64 = 1 << 20;
    let mut events = Vec::new();
    let mut event = |action: &str, address: u64, bytes: u64| {
        events.push(serde_json::json!({ "action": action, "addr": address, "size": bytes, "stream": 0 }));
    };
    let blocks = |phase: u64| (0..30).map(move |block| (phase * 30 + block + 1) << 32);
    for (phase, bytes) in [(0, 30 * MIB), (1, 40 * MIB)] {
        for address in blocks(phase) {
            event("segment_alloc", address, bytes);
            event("alloc", address, bytes);
        }
        for address in blocks(phase) {
            event("free_requested", address, bytes);
            event("free_completed", address, bytes);
        }
        for address in blocks(phase) {
            event("segment_free", address, bytes);
        }
    }
    serde_json::json!({
        "segments": [], "device_traces": [events], "allocator_settings": { "PYTORCH_CUDA_ALLOC_CONF": "" },
    })
    .to_string()
}

#[test]
fn advice_comes_with_its_reason() {
    let folder = Folder::with(&[
        ("call.json", &with_a_call()),
        (
            "segments.json",
            r#"{"segments": [], "device_traces": [[{"action": "snapshot", "addr": 0, "size": 0}]]}"#,
        ),
    ]);
    let answer = |file: &str| -> Value {
        let output = orlop(&["what-if", "--quick", "--json", file]);
        let entries: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
        entries.into_iter().next().expect("a device")
    };
    let good = answer(&run("resnet-train.limit3"));
    let row = |answer: &Value, wanted: &dyn Fn(&Value) -> bool| {
        answer["rows"]
            .as_array()
            .and_then(|rows| rows.iter().find(|row| wanted(row)))
            .cloned()
            .expect("a row")
    };
    let best = row(&good, &|row| row["conf"] == good["advice"]["conf"]);
    for field in ["peak_reserved", "saves", "retries"] {
        assert!(best[field].is_number() && good["advice"][field] == best[field], "{field}");
    }
    assert_eq!(good["advice"]["conf"], "expandable_segments:True");
    assert!(
        good["reason"].as_str().is_some_and(|reason| reason.contains("696 MiB less")),
        "{}",
        good["reason"]
    );
    assert_eq!(good["conditions"]["limit"]["of_process"], Value::Bool(false));
    assert_eq!(row(&good, &|row| row["is_baseline"] == true)["retries"], 2);
    for (file, reason) in [
        (run("resnet-train.expandable"), "nothing to gain"),
        (folder.path("call.json"), "nothing to gain"),
        (folder.path("segments.json"), "_record_memory_history()"),
        (snapshot("mosaic-sample"), "none of the 520 recorded addresses"),
    ] {
        let answer = answer(&file);
        assert_eq!(answer["advice"], Value::Null, "{file}");
        assert!(answer["reason"].as_str().is_some_and(|told| told.contains(reason)), "{}", answer["reason"]);
    }
    let call = answer(&folder.path("call.json"));
    assert_eq!(call["conditions"]["cache_releases"].as_array().map(Vec::len), Some(2));
    assert_eq!(call["recorded_peak_reserved"], call["replayed_peak_reserved"]);
    let text = stdout(&orlop(&["what-if", "--quick", &folder.path("call.json")]));
    for words in ["1.17 GiB; in the replay 1.17 GiB", "calls of empty_cache()       2,", "Nothing to gain"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let output = orlop(&["what-if", "--quick", &folder.path("segments.json")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(complaint(&output, 1).contains("no allocations were recorded"));
    assert!(text.contains("torch.cuda.memory._record_memory_history()") && !text.contains("ratio"), "{text}");
}

/// Text and page number events from 1; JSON has their indices.
#[test]
fn commands_agree_about_events_and_warnings() {
    let failed = run("llama-decode.limit1");
    let place =
        json(&orlop(&["snapshot", "info", "--json", &failed]))[0]["devices"][0]["out_of_memory"][0]["event"]
            .as_u64()
            .expect("it failed");
    let replay = ["replay", "--policy", "torch", "--memory", "856 MiB", &failed];
    let output = orlop(&[&replay[..], &["--json"]].concat());
    let outcomes: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcomes[0]["out_of_memory"]["event"].as_u64(), Some(place));
    assert!(complaint(&orlop(&replay), 1).contains(&format!("out of memory at event {}:", place + 1)));
    let text = stdout(&orlop(&["snapshot", "info", &failed]));
    assert!(text.contains(&format!("(event {}, ", place + 1)), "{text}");

    let mosaic = snapshot("mosaic-sample");
    let described = &json(&orlop(&["snapshot", "info", "--json", &mosaic]))[0]["warning_count"];
    let count = described.as_u64().expect("a number");
    assert!(count > 100, "more than are kept");
    assert_eq!(json(&orlop(&["what-if", "--quick", "--json", &mosaic]))[0]["warnings"].as_u64(), Some(count));
    let more = format!("and {} more", count - 3);
    assert!(complaint(&orlop(&["what-if", "--quick", &mosaic]), 0).contains(&more));
    assert!(stdout(&orlop(&["snapshot", "info", &mosaic])).contains(&more));
}

/// A recording with segments only would pass every gate.
#[test]
fn a_gate_needs_a_run() {
    let folder = Folder::with(&[
        ("call.json", &with_a_call()),
        (
            "none.json",
            r#"{"segments": [], "device_traces": [[{"action": "snapshot", "addr": 0, "size": 0}]]}"#,
        ),
        ("profile.json", r#"{"orlop_profile": 1, "depth": 1, "devices": []}"#),
    ]);
    let [call, none, profile, out] =
        ["call.json", "none.json", "profile.json", "out.json"].map(|name| folder.path(name));
    stdout(&orlop(&["gate", &call, "--baseline", &call]));
    for arguments in [
        &["gate", &none, "--baseline", &call][..],
        &["gate", &call, "--baseline", &none],
        &["gate", &call, "--baseline", &profile],
        &["gate", &none, "--write-baseline", &out],
    ] {
        let told = complaint(&orlop(arguments), 1);
        assert!(told.contains("torch.cuda.memory._record_memory_history()"), "{arguments:?}: {told}");
    }
    assert!(!std::path::Path::new(&out).exists());
}
