//! Verdicts on small recordings of every outcome.

use super::*;
use crate::analyze::{SiteNaming, SnapshotInfo};
use crate::what_if::WhatIf;
use orlop_core::torch::{TorchReleases, TorchVersion};
use orlop_trace::history::{History, Workload};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A snapshot with these events, all of one call site.
fn history(events: &[(&str, u64, u64)]) -> History {
    let events: Vec<_> = events.iter().map(|&(action, address, mib)| (action, address, mib, 7)).collect();
    history_of_sites(&events)
}

/// A snapshot with these events, each with the line of its call site.
fn history_of_sites(events: &[(&str, u64, u64, u32)]) -> History {
    let events: Vec<Value> = events
        .iter()
        .map(|&(action, address, mib, line)| {
            let site = json!([{ "name": "step", "filename": "/srv/run/train.py", "line": line }]);
            let free = if action == "oom" { "device_free" } else { "addr" };
            json!({ "action": action, free: address, "size": mib * MIB, "stream": 0, "frames": site })
        })
        .collect();
    let settings = json!({ "PYTORCH_CUDA_ALLOC_CONF": "" });
    let snapshot =
        json!({ "segments": [], "device_traces": [events], "allocator_settings": settings }).to_string();
    History::parse(snapshot.as_bytes()).unwrap()
}

fn verdict(history: &History) -> RunVerdict {
    let info = SnapshotInfo::of(history, SiteNaming::default());
    let device = &history.devices[0];
    let sweep = WhatIf::recorded(&Workload::of(device), history, device).run();
    RunVerdict::of(&info.devices[0], Some(&sweep), "run.pickle")
}

const A: u64 = 0x7f00_0000_0000;

#[test]
fn a_run_without_loss_has_nothing_to_gain() {
    let told = verdict(&history(&[("segment_alloc", A, 100), ("alloc", A, 100)]));
    assert_eq!(
        told.to_string(),
        "device 0 reserves 100 MiB for 100 MiB of live memory: almost nothing is lost.\n\
         Nothing to gain: no setting of PyTorch is 1 % better than the recorded ones.\n\
         At the peak, train.py:7 step holds 100 MiB of 100 MiB; orlop report run.pickle shows every block.\n"
    );
}

#[test]
fn a_page_does_not_send_to_itself() {
    let history = history(&[("segment_alloc", A, 100), ("alloc", A, 100)]);
    let info = SnapshotInfo::of(&history, SiteNaming::default());
    let told = RunVerdict::on_page(&info.devices[0], None, "run.pickle");
    assert_eq!(
        told.next,
        "At the peak, train.py:7 step holds 100 MiB of 100 MiB; the page shows every block."
    );
}

/// No allocator serves 300 MiB beside 100 MiB of live memory on a device of 350 MiB.
#[test]
fn what_no_allocator_could_serve_has_to_go() {
    let told = verdict(&history(&[("segment_alloc", A, 100), ("alloc", A, 100), ("oom", 250 * MIB, 300)]));
    assert_eq!(told.finding, "device 0 ran out of memory: 300 MiB requested, 250 MiB of 350 MiB free.");
    assert_eq!(
        told.remedy,
        "No allocator could have served it: at least 50.0 MiB must go, for example 100 MiB by train.py:7 \
         step."
    );
    assert!(
        told.next.starts_with("train.py:7 step requested it and holds 100 MiB of 100 MiB; orlop"),
        "{}",
        told.next
    );
}

/// What has to go is more than one call site holds.
#[test]
fn what_has_to_go_is_named_as_a_whole() {
    let segment = |address, mib, line| [("segment_alloc", address, mib, line), ("alloc", address, mib, line)];
    let oom = [("oom", 210 * MIB, 300, 7)];
    let events = [&segment(A, 60, 7)[..], &segment(A * 2, 40, 9), &oom].concat();
    assert_eq!(
        verdict(&history_of_sites(&events)).remedy,
        "No allocator could have served it: at least 90.0 MiB must go, for example 100 MiB, 60.0 MiB of it \
         by train.py:7 step."
    );
}

/// Eight segments of 40 MiB, every other one with a block of 20 MiB: 240 MiB are free, and none in one piece.
#[test]
fn fragmentation_names_the_setting() {
    let mut events = vec![];
    for segment in 0..8 {
        let address = A + segment * 40 * MIB;
        events.extend([("segment_alloc", address, 40), ("alloc", address, 20)]);
        events.push(("alloc", address + 20 * MIB, 20));
    }
    for segment in 0..8 {
        let address = A + segment * 40 * MIB;
        events.extend([("free_requested", address, 20), ("free_completed", address, 20)]);
    }
    events.push(("oom", 0, 120));
    let told = verdict(&history(&events));
    assert_eq!(
        told.finding,
        "device 0 ran out of memory: 120 MiB requested, 160 MiB free in smaller pieces."
    );
    assert!(told.remedy.contains("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{}", told.remedy);
}

/// Before PyTorch 2.13 only the segments have their pools.
#[test]
fn private_pools_are_replayed_and_named() {
    let events: Vec<Value> = [
        ("segment_alloc", A),
        ("alloc", A),
        ("free_requested", A),
        ("free_completed", A),
    ]
    .into_iter()
    .chain([("segment_alloc", A * 2), ("alloc", A * 2), ("free_requested", A * 2), ("free_completed", A * 2)])
    .map(|(action, address)| json!({ "action": action, "addr": address, "size": 200 * MIB, "stream": 0 }))
    .collect();
    let segment = |address: u64, pool: u64| {
        json!({
            "device": 0, "address": address, "total_size": 200 * MIB, "stream": 0, "segment_type": "large",
            "segment_pool_id": [pool, 0],
            "blocks": [{ "address": address, "size": 200 * MIB, "state": "inactive" }],
        })
    };
    let snapshot = |events: &[Value]| {
        let segments = [segment(A, 0), segment(A * 2, 1)];
        let whole = json!({ "segments": segments, "device_traces": [events], "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "" } });
        History::parse(whole.to_string().as_bytes()).unwrap()
    };
    let told = verdict(&snapshot(&events));
    assert!(told.finding.contains("loses 200 MiB (50 %) of 400 MiB reserved, mostly"), "{}", told.finding);
    assert!(told.remedy.starts_with("Nothing to gain"), "{}", told.remedy);
    let oom = json!({ "action": "oom", "device_free": 50 * MIB, "size": 300 * MIB, "stream": 0 });
    let told = verdict(&snapshot(&[&events[..], &[oom]].concat()));
    let free = "250 MiB of 450 MiB free; 200 MiB in private pools (CUDA graphs).";
    assert!(told.finding.ends_with(free), "{}", told.finding);
    assert_eq!(
        told.remedy,
        "No allocator could have served it: at least 50.0 MiB must go, for example of the 200 MiB that \
         private pools (CUDA graphs) hold free."
    );
}

#[test]
fn a_recording_without_allocations_asks_for_a_run() {
    let told = verdict(&history(&[("snapshot", 0, 0)]));
    assert_eq!(told.remedy, "No setting can be recommended: no allocations were recorded.");
    assert!(told.next.contains(crate::what_if::RECORD_HISTORY), "{}", told.next);
}

#[test]
fn a_name_with_spaces_is_quoted() {
    let history = History::parse("a,0,1000\n".as_bytes()).unwrap();
    let info = SnapshotInfo::of(&history, SiteNaming::default());
    let told = RunVerdict::of(&info.devices[0], None, "my run.csv");
    assert_eq!(told.remedy, "Settings were not tried here: orlop what-if 'my run.csv'");
    assert!(told.next.contains("'my run.csv'"));
}

#[test]
fn what_a_shell_reads_is_quoted() {
    let names = ["a=1,2", "=a", "", "a;b", "$x", "it's", "a\nb", "模型.pkl"];
    let quoted_names = ["a=1,2", "'=a'", "''", "'a;b'", "'$x'", "'it'\\''s'", "'a?b'", "模型.pkl"];
    assert_eq!(names.map(quoted), quoted_names);
}

#[test]
fn the_device_that_failed_comes_first_and_the_host_last() {
    let history = History::parse(
        "device,time_ns,action,address,bytes\n65536,1,allocate,200,9999\n0,1,allocate,200,512\n\
         1,1,allocate,200,1024\n2,1,allocate,200,512\n2,2,out_of_memory,0,4096\n"
            .as_bytes(),
    )
    .unwrap();
    let mut devices = SnapshotInfo::of(&history, SiteNaming::default()).devices;
    most_urgent_first(&mut devices);
    assert_eq!(devices.iter().map(|info| info.device).collect::<Vec<_>>(), [2, 1, 0, 65536]);
    let host = RunVerdict::of(&devices[3], None, "run.csv");
    assert_eq!(host.remedy, "Settings of PyTorch do not apply to the host's memory.");
}

/// Three blocks of 8 MiB take two segments of 20 MiB, or less in segments of another size.
#[test]
fn advice_names_the_release_that_it_needs_unless_the_run_has_it() {
    let mut history = history(&[
        ("segment_alloc", A, 20),
        ("alloc", A, 8),
        ("alloc", A + 8 * MIB, 8),
        ("segment_alloc", 2 * A, 20),
        ("alloc", 2 * A, 8),
    ]);
    let mut told = |since: u16, before: Option<u16>| {
        let before = before.map(|minor| TorchVersion::new(2, minor));
        history.releases = TorchReleases { since: TorchVersion::new(2, since), before };
        verdict(&history).remedy
    };
    let advice = told(1, None);
    assert!(
        advice.contains("large_segment_size_mb:") && advice.contains("; needs PyTorch 2.11, before that"),
        "{advice}"
    );
    let old = told(5, Some(9));
    assert!(old.contains("; needs PyTorch 2.11 (recorded: 2.5 to 2.8), before that"), "{old}");
    let new = told(13, None);
    assert!(new.contains("large_segment_size_mb:") && !new.contains("needs PyTorch"), "{new}");
}
