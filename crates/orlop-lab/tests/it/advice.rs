//! When advice is given, and which.

use crate::torch_runs::{device, recording, recordings};
use orlop_core::torch::TorchConf;
use orlop_lab::report::{ReportRow as PageRow, WhatIfVerdict};
use orlop_lab::simulate::{AllocatorRules, RunConditions};
use orlop_lab::what_if::{
    AdviceReason, RECORD_HISTORY, UnreliableReplay, WhatIf, WhatIfReport, check_recording, settings,
};
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, Sites, Workload};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// The sweep over PyTorch's settings; other allocators are not advised.
fn sweep(history: &History) -> WhatIfReport {
    let device = device(history);
    let rules = settings(false).into_iter().filter(|rules| matches!(rules, AllocatorRules::Torch(_)));
    WhatIf::recorded(&Workload::of(device), history, device).rules(rules.collect()).run()
}

/// Settings with a high peak are not advised, however small the memory in which they succeed.
#[test]
fn advice_minimizes_reserved_memory_in_normal_running() {
    let advised = [
        ("gpt2-train.default", Some("expandable_segments:True")),
        ("resnet-train.default", Some("expandable_segments:True")),
        ("resnet-train.expandable", None),
        ("resnet-train.limit1", Some("expandable_segments:True")),
        ("resnet-train.limit3", Some("expandable_segments:True")),
        ("resnet-train.split64", Some("expandable_segments:True")),
        ("streams.expandable", None),
    ];
    let recordings = recordings();
    for (name, conf) in advised {
        let report = sweep(&recordings[name]);
        assert_eq!(
            report.advice.as_ref().map(|advice| advice.conf.as_str()),
            conf,
            "{name}: {}",
            report.reason
        );
        let baseline = report.rows.iter().find(|row| row.is_baseline).expect("it is among them");
        let Some(advice) = &report.advice else {
            assert_eq!(report.reason, AdviceReason::NothingToGain, "{name}");
            continue;
        };
        let saves = i64::try_from(baseline.outcome.peak_reserved).unwrap()
            - i64::try_from(advice.peak_reserved).unwrap();
        assert_eq!(advice.saves, baseline.outcome.out_of_memory.is_none().then_some(saves));
        let runs = report.rows.iter().filter(|row| row.outcome.out_of_memory.is_none());
        let least = runs.map(|row| row.outcome.peak_reserved).min().expect("it runs");
        assert!(advice.peak_reserved < least / 99 * 100, "{name}");
        // The page has the same advice.
        let rows = PageRow::of(&report);
        assert!(
            rows[0].verdict == WhatIfVerdict::Better && rows[0].note.contains("the best"),
            "{:?}",
            rows[0]
        );
    }
}

/// All memory is cached when the recording begins; a replay begins without any.
fn cached_at_start() -> History {
    let start = 1 << 40;
    let block = |address: u64, mib: u64, state: &str| {
        format!(
            r#"{{"address": {address}, "size": {0}, "requested_size": {0}, "state": "{state}"}}"#,
            mib * MIB
        )
    };
    let segment = |address: u64, mib: u64, blocks: &[String]| {
        format!(
            r#"{{"device": 0, "address": {address}, "total_size": {}, "stream": 0, "segment_type": "large",
                             "blocks": [{}]}}"#,
            mib * MIB,
            blocks.join(", ")
        )
    };
    let event = |action: &str, mib: u64| {
        format!(r#"{{"action": "{action}", "addr": {start}, "size": {}, "stream": 0}}"#, mib * MIB)
    };
    let json = format!(
        r#"{{"segments": [{}, {}], "device_traces": [[{}]],
                    "allocator_settings": {{"PYTORCH_CUDA_ALLOC_CONF": ""}}}}"#,
        segment(start, 40, &[block(start, 40, "inactive")]),
        segment(start + (1 << 30), 60, &[block(start + (1 << 30), 60, "inactive")]),
        ["alloc", "free_requested", "free_completed"].map(|action| event(action, 40)).join(", ")
    );
    History::parse(json.as_bytes()).expect("it is a snapshot")
}

#[test]
fn a_replay_that_is_not_the_run_gives_no_advice() {
    let history = cached_at_start();
    let report = sweep(&history);
    let doubt = UnreliableReplay::PeakDiffers { recorded: 100 * MIB, replayed: 40 * MIB };
    assert_eq!((&report.advice, report.reason), (&None, AdviceReason::Withheld(doubt)));
    assert_eq!(report.fidelity.map(|fidelity| (fidelity.same, fidelity.allocations)), Some((1, 1)));
    let said = report.reason.to_string();
    assert!(said.contains("100 MiB") && said.contains("40.0 MiB"), "{said}");
    let rows = PageRow::of(&report);
    let judged = rows.iter().filter(|row| row.verdict != WhatIfVerdict::Unknown);
    assert_eq!(judged.map(|row| row.verdict).collect::<Vec<_>>(), [WhatIfVerdict::Recorded]);
    assert!(rows.iter().any(|row| row.note == said), "the page says why");
}

#[test]
fn without_a_history_there_is_no_advice_but_how_to_record_one() {
    let mut history = History::default();
    let mut device = DeviceHistory::default();
    device.events = vec![HistoryEvent::new(EventAction::Snapshot, 0, 0)];
    history.devices.push(device);
    let report = sweep(&history);
    assert_eq!((&report.advice, report.reason), (&None, AdviceReason::Withheld(UnreliableReplay::NoHistory)));
    assert!(report.reason.to_string().contains(RECORD_HISTORY));
    assert_eq!(check_recording(&history), Some(UnreliableReplay::NoHistory));
}

#[test]
fn without_a_recorded_address_there_is_no_advice() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-snapshots/mosaic-sample.pickle.gz");
    let mut history = History::read(path).expect("it is shipped");
    let doubt = UnreliableReplay::NoAddress { allocations: 520 };
    let device = &history.devices[0];
    let report = WhatIf::recorded(&Workload::of(device), &history, device).rules(Vec::new()).run();
    assert_eq!((&report.advice, report.reason), (&None, AdviceReason::Withheld(doubt)));
    assert!(report.reason.to_string().contains(RECORD_HISTORY));
    // It has no settings: it may be of another allocator, which can be compared with itself.
    assert_eq!(check_recording(&history), None);
    history.settings = Some(String::new());
    assert_eq!(check_recording(&history), Some(doubt));
}

/// Another process used the memory, which the recording does not show: the replay succeeds.
#[test]
fn a_replay_that_comes_through_where_the_run_did_not_gives_no_advice() {
    let mut history = cached_at_start();
    let device = &mut history.devices[0];
    let (request, held) = (20 * MIB, 100 * MIB);
    device.start.clear();
    device.end.clear();
    device.events = vec![
        HistoryEvent::new(EventAction::RegionReserved, 1 << 40, held),
        HistoryEvent::new(EventAction::Allocate, 1 << 40, held),
        HistoryEvent::new(EventAction::FreeRequested, 1 << 40, held),
        HistoryEvent::new(EventAction::FreeCompleted, 1 << 40, held),
        HistoryEvent::new(EventAction::RegionReleased, 1 << 40, held),
        HistoryEvent::new(EventAction::OutOfMemory, 0, request),
    ];
    let report = sweep(&history);
    let doubt = UnreliableReplay::OutcomeDiffers { recorded: Some(5), replayed: None };
    assert_eq!((&report.advice, report.reason), (&None, AdviceReason::Withheld(doubt)));
    assert!(report.reason.to_string().contains("out of memory at event 6, and its replay does not"));
}

/// With a given memory, the run is still replayed in its own memory and compared with the recording.
#[test]
fn in_other_memory_the_recorded_run_is_replayed_in_its_own() {
    let recordings = recordings();
    let history = &recordings["resnet-train.limit3"];
    let device = device(history);
    let work = Workload::of(device);
    let sweep = WhatIf::recorded(&work, history, device).rules(Vec::new());
    let report = sweep.memory(Some(80 << 30)).run();
    assert_eq!(report.replayed_peak_reserved, report.recorded_peak_reserved);
    assert_eq!((report.memory, report.rows[0].outcome.peak_reserved), (Some(80 << 30), 6252 * MIB));
}

/// A list of requests: there is nothing to compare a replay with.
#[test]
fn without_segments_there_is_no_advice() {
    let mut history = recordings().remove("resnet-train.default").expect("it is shipped");
    let is_of_segments = |event: &HistoryEvent| {
        let actions = [
            EventAction::RegionReserved,
            EventAction::RegionReleased,
            EventAction::Mapped,
            EventAction::Unmapped,
            EventAction::Snapshot,
        ];
        actions.contains(&event.action)
    };
    let device = &mut history.devices[0];
    device.start.clear();
    device.end.clear();
    device.details.clear();
    device.events.retain(|event| !is_of_segments(event));
    let report = sweep(&history);
    assert!(report.fidelity.is_none() && report.recorded_peak_reserved.is_none());
    assert_eq!(
        (&report.advice, report.reason),
        (&None, AdviceReason::Withheld(UnreliableReplay::NoReserved))
    );
    assert!(report.reason.to_string().contains("cannot be checked"));
    // A replay can be compared with counters of the source.
    history.devices[0].counted_reserved = report.replayed_peak_reserved;
    let report = sweep(&history);
    assert!(report.fidelity.is_none() && report.advice.is_some(), "{}", report.reason);
}

/// As documented: only call sites would distinguish them.
#[test]
fn a_call_before_a_request_that_raises_the_peak_looks_like_a_limit() {
    let (first, second) = (20 * MIB, 40 * MIB);
    let mut device = DeviceHistory::default();
    device.events = vec![
        HistoryEvent::new(EventAction::RegionReserved, 1 << 40, first),
        HistoryEvent::new(EventAction::Allocate, 1 << 40, first),
        HistoryEvent::new(EventAction::FreeRequested, 1 << 40, first),
        HistoryEvent::new(EventAction::FreeCompleted, 1 << 40, first),
        HistoryEvent::new(EventAction::RegionReleased, 1 << 40, first),
        HistoryEvent::new(EventAction::RegionReserved, 1 << 41, second),
        HistoryEvent::new(EventAction::Allocate, 1 << 41, second),
    ];
    let limit = |device: &DeviceHistory| RunConditions::of(device, &TorchConf::default()).limit;
    assert_eq!(limit(&device).map(|limit| limit.bytes), Some(second));
    device.events[4].site = Sites::default().stack(&[1]);
    assert_eq!(limit(&device), None, "the call sites differ");
}

/// A sweep without a search for the smallest memory gives the same advice as one with it.
#[test]
fn the_quick_sweep_agrees_with_the_full_one() {
    for name in ["llama-decode.limit1", "resnet-train.gc1", "streams.roundup4"] {
        let history = recording(name);
        let (device, work) = (device(&history), Workload::of(device(&history)));
        let sweep = WhatIf::recorded(&work, &history, device).rules(settings(true));
        let (quick, full) = (sweep.run(), sweep.clone().smallest(true).run());
        assert_eq!((&quick.advice, quick.reason), (&full.advice, full.reason), "{name}");
    }
}
