//! Traces of `torch.profiler`: totals, the state at the start, call sites.

use flate2::read::GzDecoder;
use orlop_core::Device;
use orlop_lab::analyze::{NO_SITE, SiteName, SiteNaming, SnapshotInfo, stack_lines};
use orlop_lab::simulate::{AllocatorRules, Simulation, StreamedReplay};
use orlop_trace::formats::{binary, chrome, device_number};
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, HistoryWarning, Workload};
use serde_json::{Value, json};
use std::io::Read as _;

fn example(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../testdata/traces/{name}", env!("CARGO_MANIFEST_DIR")))
        .expect("testdata is there")
}

#[test]
fn operators_name_the_call_sites() {
    let history = chrome::read_chrome(&example("profiler.json")[..]).unwrap();
    let [gpu, host] = &history.devices[..] else { panic!("two devices") };
    let site =
        |event: &HistoryEvent| SiteName::of(&history.sites, event.site).display(&history.sites).to_string();
    assert_eq!(site(&gpu.events[1]), "model.py:41 forward < aten::linear");
    assert_eq!(site(&gpu.events[0]), NO_SITE, "another thread frees it");
    assert_eq!(site(&host.events[0]), "model.py:41 forward < aten::empty");
}

/// A recorded training step.
fn recorded() -> Value {
    let mut text = String::new();
    GzDecoder::new(&example("profiler-gpt2.json.gz")[..]).read_to_string(&mut text).expect("it is packed");
    serde_json::from_str(&text).expect("it is JSON")
}

fn read(trace: &Value) -> History {
    chrome::read_chrome(trace.to_string().as_bytes()).expect("it is a trace")
}

/// The arguments of the GPU's memory events, in order of time.
fn counted(trace: &Value) -> Vec<Value> {
    let events = trace["traceEvents"].as_array().expect("events").iter();
    let of_gpu = |event: &&Value| event["name"] == "[memory]" && event["args"]["Device Type"] == 1;
    let mut events: Vec<_> = events.filter(of_gpu).collect();
    events.sort_by(|a, b| a["ts"].as_f64().partial_cmp(&b["ts"].as_f64()).expect("times"));
    events.into_iter().map(|event| event["args"].clone()).collect()
}

fn number(arguments: &Value, name: &str) -> u64 {
    arguments[name].as_u64().expect("a number")
}

/// Live bytes after each event.
fn live(device: &DeviceHistory) -> Vec<u64> {
    let work = Workload::of(device);
    assert_eq!(work.steps.len(), device.events.len());
    (1..=work.steps.len()).map(|step| work.live_before(step)).collect()
}

#[test]
fn live_bytes_match_the_profilers_totals() {
    let trace = recorded();
    let history = chrome::read_chrome(&example("profiler-gpt2.json.gz")[..]).unwrap();
    assert_eq!(history.warnings, []);
    let [gpu, host] = &history.devices[..] else { panic!("two devices") };
    assert_eq!((host.device, host.events.len()), (device_number(Device::CPU), 88));
    let counted = counted(&trace);
    let allocated: Vec<u64> = counted.iter().map(|event| number(event, "Total Allocated")).collect();
    assert_eq!(live(gpu), allocated);
    assert_eq!(Some(Workload::of(gpu).peak().0), allocated.iter().copied().max());
    assert_eq!(Workload::of(gpu).peak().0, 3_098_553_856);
    let reserved = counted.iter().map(|event| number(event, "Total Reserved")).max();
    assert_eq!((gpu.counted_reserved, reserved), (Some(4_867_489_792), Some(4_867_489_792)));
    // Two blocks are freed later; the remainder of the sum is one more block, with its own addresses.
    let held: Vec<u64> = gpu.unplaced.iter().map(|block| block.bytes).collect();
    assert_eq!(held, [512, 16_384, 890_609_664]);
    let rest = gpu.unplaced.last().expect("three blocks");
    let end = |address: u64, bytes: u64| address + bytes <= rest.address;
    assert!(gpu.events.iter().all(|event| end(event.address, event.bytes)));
}

#[test]
fn no_segments_are_invented() {
    let history = read(&recorded());
    let info = SnapshotInfo::of(&history, SiteNaming::default());
    for device in &info.devices {
        assert!(!device.has_segments && device.ignored_events == 0);
        assert!(device.peak.segments.is_none() && device.end.segments.is_none());
    }
    assert_eq!(info.devices[0].peak_reserved, Some(4_867_489_792));
    assert_eq!((info.devices[0].start_bytes, info.devices[1].peak_reserved), (890_626_560, None));
}

#[test]
fn blocks_from_before_survive_the_binary_format_and_are_replayed() {
    let history = read(&recorded());
    let mut file = Vec::new();
    binary::write_binary(&history, &mut file).unwrap();
    assert_eq!(binary::read_binary(&file[..]).unwrap(), history);
    let streamed = StreamedReplay::run(&file[..], &AllocatorRules::Orlop, None).unwrap();
    for (device, (number, outcome)) in history.devices.iter().zip(&streamed.devices) {
        let whole = Simulation::new(&Workload::of(device)).run(&AllocatorRules::Orlop);
        assert_eq!(device.device, *number);
        assert_eq!(
            (outcome.peak_live, outcome.peak_reserved, outcome.operations),
            (whole.peak_live, whole.peak_reserved, whole.operations)
        );
    }
}

#[test]
fn call_sites_are_the_operators_around() {
    let history = read(&recorded());
    let gpu = &history.devices[0];
    let names: Vec<String> = gpu
        .events
        .iter()
        .filter(|event| event.action == EventAction::Allocate)
        .map(|event| SiteName::of(&history.sites, event.site).display(&history.sites).to_string())
        .collect();
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(count(NO_SITE), 0);
    for (name, expected) in [
        ("aten::layer_norm < aten::native_layer_norm", 39),
        ("aten::linear < aten::mm", 1),
        ("aten::dropout < aten::native_dropout", 38),
        // On another thread.
        ("AddmmBackward0 < aten::mm", 48),
        ("AddmmBackward0 < aten::sum", 72),
        ("Optimizer.step#AdamW.step < aten::_foreach_sqrt", 76),
    ] {
        assert_eq!(count(name), expected, "{name}");
    }
    let deepest = gpu.events.iter().max_by_key(|event| history.sites.frames(event.site).len());
    assert_eq!(
        stack_lines(&history.sites, deepest.expect("an event").site),
        [
            "aten::empty",
            "aten::zeros",
            "aten::embedding_dense_backward",
            "aten::embedding_backward",
            "EmbeddingBackward0",
            "autograd::engine::evaluate_function: EmbeddingBackward0"
        ]
    );
}

#[test]
fn the_order_of_a_file_is_irrelevant() {
    let mut trace = recorded();
    let history = read(&trace);
    trace["traceEvents"].as_array_mut().expect("events").reverse();
    let mut reversed = read(&trace);
    // Threads are numbered in order of appearance.
    for device in &mut reversed.devices {
        device.events.iter_mut().for_each(|event| event.thread = 3 - event.thread);
    }
    assert_eq!(reversed, history);
}

/// Older files have no totals.
#[test]
fn without_totals_only_freed_blocks_are_from_before() {
    let mut trace = recorded();
    for event in trace["traceEvents"].as_array_mut().expect("events") {
        if let Some(arguments) = event["args"].as_object_mut() {
            arguments.retain(|name, _| !name.starts_with("Total"));
        }
    }
    let history = read(&trace);
    assert_eq!(history.warnings, []);
    let gpu = &history.devices[0];
    assert_eq!((gpu.unplaced.len(), gpu.counted_reserved), (2, None));
    assert_eq!(Workload::of(gpu).peak().0, 2_207_944_192);
}

/// Arbitrary numbers yield a history, and its analyses work.
#[test]
fn absurd_totals_are_warnings() {
    let odd = [
        json!(-1),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!("512"),
        json!("much"),
        json!("NaN"),
        json!([1]),
        json!({ "a": 1 }),
        json!(null),
        json!(true),
    ];
    for (first, second) in odd.iter().flat_map(|first| odd.iter().map(move |second| (first, second))) {
        let memory = |time: u64, address: u64, bytes: i64, total: &Value| {
            let arguments = json!({ "Addr": address, "Bytes": bytes, "Device Type": 1, "Device Id": 0,
                "Total Allocated": total, "Total Reserved": total });
            json!({ "ph": "i", "name": "[memory]", "ts": time, "tid": 1, "args": arguments })
        };
        let events = [
            memory(1, 4096, 512, first),
            memory(2, 512, -512, second),
            memory(3, u64::MAX, i64::MAX, first),
            memory(4, u64::MAX - 5, i64::MIN, second),
        ];
        let history = read(&json!(events));
        let device = &history.devices[0];
        let _ = Workload::of(device).peak();
        let _ = SnapshotInfo::of(&history, SiteNaming::default());
        let wrong = |warning: &HistoryWarning| matches!(warning, HistoryWarning::TotalMisfit { .. });
        if [first, second].contains(&&json!(i64::MAX)) {
            assert!(history.warnings.iter().any(wrong), "{first} {second}: {:?}", history.warnings);
        }
        binary::write_binary(&history, std::io::sink()).unwrap();
    }
}

/// Tokens that are no numbers are no JSON.
#[test]
fn non_json_numbers_are_an_error() {
    for number in ["NaN", "-Infinity", "0x10", "1e"] {
        let trace =
            format!(r#"[{{"name":"[memory]","args":{{"Addr":1,"Bytes":1,"Total Allocated":{number}}}}}]"#);
        assert!(chrome::read_chrome(trace.as_bytes()).is_err(), "{number}");
    }
}
