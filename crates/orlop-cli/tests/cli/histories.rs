//! `snapshot info`, `diff` and `gate` for PyTorch's snapshots and small ones created here.

use super::{Folder, complaint, json, orlop, stdout, testdata, unwrapped};
use serde_json::{Value, json};
use std::fs;

const MIB: u64 = 1 << 20;

fn snapshot(name: &str) -> String {
    testdata().join("torch-snapshots").join(format!("{name}.pickle.gz")).display().to_string()
}

fn object(output: &std::process::Output) -> Value {
    serde_json::from_str(&stdout(output)).expect("an object")
}

/// An event of PyTorch at a line of `train.py`.
fn event(action: &str, address: u64, bytes: u64, line: u32) -> Value {
    let frames = json!([
        { "name": "c10::cuda::CUDACachingAllocator::malloc()", "filename": "??", "line": 0 },
        { "name": "step", "filename": "/srv/proj/train.py", "line": line },
    ]);
    json!({ "action": action, "addr": address, "size": bytes, "stream": 0, "time_us": 1000,
            "frames": frames })
}

/// A run in which line 41 has one live block of `mib` MiB, followed by a failed request of 30 MiB.
fn run(mib: u64) -> String {
    let address: u64 = 1 << 40;
    let segment = |address: u64, total: u64, blocks: Value| {
        json!({
            "device": 0, "address": address, "total_size": total, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
            "is_expandable": false, "frames": [], "blocks": blocks,
        })
    };
    let block = |address: u64, bytes: u64, state: &str| {
        let mut block = json!({ "address": address, "size": bytes, "state": state, "frames": [] });
        block["requested_size"] = json!(bytes);
        block
    };
    let (live, free) = (mib * MIB, (40 - mib) * MIB);
    let mut failed = event("oom", 0, 30 * MIB, 41);
    failed["device_free"] = json!(5 * MIB);
    json!({
        "segments": [segment(address, 40 * MIB, json!([
            block(address, live, "active_allocated"),
            block(address + live, free, "inactive"),
        ]))],
        "device_traces": [[
            event("segment_alloc", address, 40 * MIB, 41),
            event("alloc", address, live, 41),
            failed,
        ]],
    })
    .to_string()
}

#[test]
fn a_snapshot_of_pytorch_is_described() {
    let text =
        stdout(&orlop(&["snapshot", "info", "--wide", "--top", "5", &snapshot("gpt-medium_512_training")]));
    for words in [
        "7,591 allocations, 7,370 frees",
        "peak live      11.6 GiB",
        "peak reserved  11.8 GiB",
        "model.py:39 forward < _backends.py:291 einsum",
        "nn_utils.py:6 softmax < aten::exp",
        "AccumulateGrad < aten::new_empty_strided",
        "optimizer.py:76 step < aten::add_Tensor",
        "(held before the recording)",
        "live at the end: 6.36 GiB in 885 blocks",
        "16.3 MiB", // Asked for in small segments at the peak.
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(!text.contains("PyEval") && !text.contains("unplaced"));

    let deeper = stdout(&orlop(&[
        "snapshot",
        "info",
        "--depth",
        "2",
        "--full-frames",
        "--wide",
        &snapshot("gpt-medium_512_training"),
    ]));
    assert!(deeper.contains("scaled_dot_product_attention < nn_utils.py:6 softmax < aten::exp"), "{deeper}");
    assert!(deeper.contains("_PyEval_EvalFrameDefault"));
}

#[test]
fn the_figures_of_the_shipped_snapshots_are_known() {
    let names = [
        "gpt-medium_128_training",
        "gpt-medium_512_training",
        "gpt-medium_256_inference",
        "gpt-medium_512_inference",
    ];
    let files = names.map(snapshot);
    let mut arguments = vec!["snapshot", "info", "--json", "--top", "3"];
    arguments.extend(files.iter().map(String::as_str));
    // At the peak of live bytes: requested, rounding, reserved.
    let expected = [
        (7_013_335_044_u64, 13_271_548_u64, 7_235_174_400_u64),
        (12_426_629_128, 7_865_336, 12_660_506_624),
        (1_793_775_616, 1_966_080, 1_864_368_128),
        (1_949_343_744, 1_966_080, 1_981_808_640),
    ];
    let entries = json(&orlop(&arguments));
    assert_eq!(entries.len(), 4);
    for ((entry, file), expected) in entries.iter().zip(&files).zip(expected) {
        assert_eq!(entry["file"].as_str(), Some(&**file));
        let device = &entry["devices"][0];
        let peak = &device["peak"];
        let figures = (&peak["held"]["bytes"], &peak["segments"]["rounding"], &device["peak_reserved"]);
        assert_eq!(figures, (&json!(expected.0), &json!(expected.1), &json!(expected.2)), "{file}");
        assert_eq!((&device["strays"], entry["warnings"].as_array().map(Vec::len)), (&json!(0), Some(0)));
        for moment in [peak, &device["end"]] {
            let segments = &moment["segments"];
            let part = |name: &str| segments[name].as_u64().expect("a number");
            let parts = ["requested", "rounding", "pending", "split", "cached"].map(part);
            assert_eq!(parts.iter().sum::<u64>(), part("reserved"));
            assert_eq!(Some(part("requested")), moment["held"]["bytes"].as_u64());
        }
    }
}

#[test]
fn an_inconsistent_snapshot_is_described_with_warnings() {
    let text = stdout(&orlop(&["snapshot", "info", &snapshot("mosaic-sample")]));
    assert!(text.contains("warning") && text.contains("match no segment"), "{text}");
}

/// Facts that are not recorded are not shown, and counters of the source are labelled.
#[test]
fn recordings_without_segments_are_described_without_them() {
    let folder = Folder::with(&[("run.csv", "device,time_ns,action,address,bytes\n0,1,allocate,200,512\n")]);
    let trace = |name: &str| testdata().join("traces").join(name).display().to_string();
    let profile = trace("profiler-gpt2.json.gz");
    for file in [&profile, &trace("rmm.csv"), &folder.path("run.csv"), &super::shipped("vit_b16_infer_b4")] {
        let text = stdout(&orlop(&["snapshot", "info", file]));
        assert!(text.contains("segments       not recorded"), "{text}");
        assert!(!text.contains("unplaced") && !text.contains(" segments;"), "{text}");
        assert_eq!(text.contains("peak reserved"), *file == profile, "{text}");
        assert!(!text.contains("the device had"), "{text}");
    }
    let text = stdout(&orlop(&["snapshot", "info", "--wide", &profile]));
    for words in [
        "peak live      2.89 GiB (3,098,553,856 B)",
        "peak reserved  4.53 GiB (4,867,489,792 B), 1.571 times the live peak, as counted by the source",
        "live at start  849 MiB",
        "(held before the recording)",
        "LogSoftmaxBackward0 < aten::_log_softmax_backward_data",
        "\ncpu\n",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn a_request_that_failed_is_explained() {
    let folder = Folder::with(&[("run.json", &run(15))]);
    let text = stdout(&orlop(&["snapshot", "info", "--wide", &folder.path("run.json")]));
    for words in [
        "out of memory: 30.0 MiB requested by train.py:41 step",
        "the device had 5.00 MiB left",
        "the free memory would have been enough, but is not contiguous",
        "the least memory to release: 15.0 MiB in 1 block, adjacent at 0x10000000000",
        "releases 40.0 MiB to the device",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let entry = &json(&orlop(&["snapshot", "info", "--json", &folder.path("run.json")]))[0];
    let failed = &entry["devices"][0]["out_of_memory"][0];
    assert_eq!((&failed["requested"], &failed["device_free"]), (&json!(30 * MIB), &json!(5 * MIB)));
    assert_eq!(failed["releases"][0]["way"], "neighbours");
    assert_eq!(failed["releases"][0]["by_site"]["top"][0]["name"], "train.py:41 step");
}

#[test]
fn growth_is_listed_by_call_site() {
    let (before, after) = (snapshot("gpt-medium_128_training"), snapshot("gpt-medium_512_training"));
    let text = stdout(&orlop(&["diff", &before, &after]));
    for words in [
        "peak live      6.53 GiB  11.6 GiB  +5.04 GiB  +77.2%",
        "AccumulateGrad",
        "−1.54 GiB",
        "call sites with smaller differences",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let diff = object(&orlop(&["diff", "--json", "--top", "1", &before, &after]));
    let sites = diff["devices"][0]["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0]["name"], "model.py:39 forward < _backends.py:291 einsum");
    assert_eq!((sites[0]["is_new"].as_bool(), diff["before"].as_str()), (Some(false), Some(&*before)));
    assert!(stdout(&orlop(&["diff", &before, &before])).contains("no call site differs"));
}

#[test]
fn a_gate_passes_fails_and_names_the_line() {
    let folder = Folder::with(&[("small.json", &run(15)), ("large.json", &run(20))]);
    let [small, large, baseline] =
        ["small.json", "large.json", "baseline.json"].map(|name| folder.path(name));
    let said = stdout(&orlop(&["gate", &small, "--write-baseline", &baseline]));
    assert!(
        said.starts_with("device 0 needs 15.0 MiB live, ") && said.contains(&format!("\n\n{baseline}: "))
    );
    let said = object(&orlop(&["gate", &small, "--write-baseline", &baseline, "--json"]));
    let bytes = fs::metadata(&baseline).expect("it is there").len();
    assert_eq!((&said["output"], &said["bytes"]), (&json!(baseline), &json!(bytes)));
    assert_eq!(
        said["verdict"]["next"],
        format!("Compare a later run with it: orlop gate RUN --baseline {baseline}")
    );
    let written: Value =
        serde_json::from_str(&fs::read_to_string(&baseline).expect("it is there")).expect("JSON");
    assert_eq!(written["devices"][0]["peak_live"], json!(15 * MIB));
    for held_against in [&baseline, &small] {
        let text = stdout(&orlop(&["gate", &small, "--baseline", held_against, "--tolerance", "0%"]));
        assert!(text.contains("pass") && !text.contains("FAIL"), "{text}");
        let output = orlop(&["gate", &large, "--baseline", held_against]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("FAIL"));
        let complaint = complaint(&output, 1);
        assert_eq!(
            complaint,
            "orlop: device 0: peak live: 20.0 MiB, +5.00 MiB over the baseline of 15.0 MiB, tolerance 1%: \
             train.py:41 step +5.00 MiB\n"
        );
        assert_eq!(
            orlop(&["gate", &large, "--baseline", held_against, "--tolerance", "34%"]).status.code(),
            Some(0)
        );
    }
    let output = orlop(&["gate", &large, "--baseline", &baseline, "--json"]);
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (output.status.code(), &verdict["passed"], &verdict["tolerance"]),
        (Some(1), &json!(false), &json!("1%"))
    );
    assert_eq!(verdict["checks"][0]["sites"][0]["name"], "train.py:41 step");
}

#[test]
fn unreadable_files_are_reported() {
    let folder = Folder::with(&[
        ("broken.json", "{\"orlop_profile\": 1, \"devices\": 3}"),
        ("later.json", "{\"orlop_profile\": 99, \"depth\": 1, \"devices\": []}"),
        ("noise.json", "hello"),
        ("run.json", &run(15)),
    ]);
    let [broken, later, noise, run, none] =
        ["broken.json", "later.json", "noise.json", "run.json", "none.json"].map(|name| folder.path(name));
    for (arguments, code, words) in [
        (["gate", &run, "--baseline", &broken].as_slice(), 1, "not a baseline"),
        (&["gate", &run, "--baseline", &later], 1, "another version"),
        (&["gate", &run, "--baseline", &none], 1, "none.json"),
        (&["gate", &run], 2, "--baseline"),
        (&["gate", &run, "--baseline", &run, "--tolerance", "1"], 2, "percentage"),
        (&["gate", &run, "--baseline", &run, "--write-baseline", &none], 2, "cannot be used with"),
        (&["diff", &noise, &none], 1, "none.json"),
        (&["diff", &noise], 2, "AFTER"),
        (&["snapshot", "info", &none, &noise], 1, "noise.json"),
        (&["snapshot", "info"], 2, "FILE"),
        (&["snapshot", "info", "--top", "0", &run], 2, "--top"),
    ] {
        let complaint = complaint(&orlop(arguments), code);
        assert!(complaint.contains(words), "{words} in {complaint}");
    }
}

/// What refused a request, and whether it was served in the end.
#[test]
fn refusals_are_printed_by_what_refused() {
    let folder = Folder::with(&[(
        "run.csv",
        "device,time_ns,action,address,bytes,kind,refusal\n\
         0,1,region_gained,0x10000,65536,default,\n0,2,allocate,0x10000,64,default,\n\
         0,3,refused,0x0,1048576,kv_cache,budget|kv_cache|served\n\
         0,4,out_of_memory,0x0,4096,default,limit|bfc|failed\n\
         0,5,out_of_memory,0x0,4096,default,limit|bfc|failed\n\
         0,6,external_adopted,0x70000000,2000000,persistent,\n\
         0,7,external_freed,0x70000000,2000000,persistent,\n\
         0,8,allocate,0x90000000,1000000,persistent,\n",
    )]);
    let text = unwrapped(&orlop(&["snapshot", "info", &folder.path("run.csv")]));
    for words in [
        "1 time by the budget of kv_cache, up to 1.00 MiB: 1 served, 0 retried, 0 failed",
        "the limit of bfc refused it: 64.0 KiB",
        "1024.000 times the live peak",
        "outside        977 KiB of the live peak, in no segment",
        "external       1.91 MiB at the peak, 0 B in 0 blocks at the end: mapped files, foreign memory",
        "out of memory 2 times, the last in event 5: 4.00 KiB requested",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}
