//! Writing histories and reading them again, and reading files of other tools.

use crate::histories::{events, history, segments};
use flate2::Compression;
use flate2::write::GzEncoder;
use orlop_core::{Device, StreamId};
use orlop_trace::TraceError;
use orlop_trace::formats::binary::{BinaryReader, BinaryWriter, EventOrder};
use orlop_trace::formats::{binary, chrome, csv, device_number, perfetto, rmm};
use orlop_trace::history::{EventAction, History, HistoryEvent, HistoryWarning, Workload};
use proptest::prelude::*;
use std::io::Write;

pub(crate) fn example(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../testdata/traces/{name}", env!("CARGO_MANIFEST_DIR")))
        .expect("testdata is there")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn written(history: &History) -> Vec<u8> {
    let mut bytes = Vec::new();
    binary::write_binary(history, &mut bytes).expect("memory takes all");
    bytes
}

#[test]
fn a_log_of_rmm_is_read() {
    let log = example("rmm.csv");
    assert!(rmm::sniff(&log));
    let history = rmm::read_rmm(&log[..]).unwrap();
    let [device] = &history.devices[..] else { panic!("one device") };
    let actions: Vec<_> = device.events.iter().map(|event| event.action).collect();
    use EventAction::{Allocate, FreeRequested, OutOfMemory};
    assert_eq!(
        actions,
        [Allocate, Allocate, Allocate, FreeRequested, OutOfMemory, FreeRequested, FreeRequested, Allocate]
    );
    let second = device.events[1];
    assert_eq!((second.address, second.bytes, second.stream), (0x7f00_0010_0000, 256, StreamId::from_raw(2)));
    assert_eq!(second.time - device.events[0].time, 150_000);
    assert_eq!(device.events.iter().map(|event| event.thread).collect::<Vec<_>>(), [1, 1, 2, 1, 2, 2, 1, 1]);
    assert_eq!(
        history.warnings,
        [
            HistoryWarning::SizeDiffers { device: 0, event: 5, address: 0x7f00_0020_0000 },
            HistoryWarning::FreedUnknown { device: 0, event: 6, address: 0x7f00_0090_0000 },
        ]
    );
    assert_eq!(events(&rmm::read_rmm(&packed(&log)[..]).unwrap()), events(&history));
    let work = Workload::of(device);
    assert_eq!((work.blocks.len(), work.peak().0), (4, 1_052_928));
}

#[test]
fn a_trace_of_torchs_profiler_is_read() {
    let trace = example("profiler.json");
    assert!(chrome::sniff(&trace));
    let history = chrome::read_chrome(&trace[..]).unwrap();
    let [gpu, host] = &history.devices[..] else { panic!("two devices") };
    assert_eq!((gpu.device, host.device), (0, device_number(Device::CPU)));
    let of_gpu: Vec<_> = gpu.events.iter().map(|event| (event.action, event.bytes, event.time)).collect();
    assert_eq!(
        of_gpu,
        [
            (EventAction::FreeRequested, 512, 5_140_125),
            (EventAction::Allocate, 2_097_152, 5_140_125),
            (EventAction::OutOfMemory, 34_359_738_368, 5_200_000),
            (EventAction::FreeRequested, 2_097_152, 5_300_000),
        ]
    );
    assert_eq!(host.events.len(), 1);
    // The block of 512 bytes was live at the start.
    let work = Workload::of(gpu);
    assert_eq!((work.at_start, work.blocks[0].bytes, work.blocks[0].died), (1, 512, Some(0)));
    // So was memory of the host, of which only the sum is recorded.
    assert_eq!((host.unplaced.len(), host.unplaced[0].bytes), (1, 6_291_456 - 24));
    assert_eq!((gpu.counted_reserved, host.counted_reserved), (Some(23_068_672), None));
    assert!(history.warnings.is_empty());
    let functions = |event: &HistoryEvent| -> Vec<&str> {
        history.sites.frames(event.site).map(|frame| history.sites.name(frame.function)).collect()
    };
    assert_eq!(functions(&gpu.events[1]), ["aten::addmm", "aten::linear", "forward"]);
    assert!(functions(&gpu.events[0]).is_empty(), "another thread frees it");
    assert_eq!(events(&chrome::read_chrome(&packed(&trace)[..]).unwrap()), events(&history));
}

#[test]
fn perfetto_output_is_no_profiler_trace() {
    let history = chrome::read_chrome(&example("profiler.json")[..]).unwrap();
    let mut json = Vec::new();
    perfetto::PerfettoWriter::new().blocks(true).write(&history, &mut json).unwrap();
    assert!(matches!(chrome::read_chrome(&json[..]), Err(TraceError::NoMemoryEvents)));
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let entries = json["traceEvents"].as_array().unwrap();
    let live = entries.iter().rfind(|entry| entry["name"] == "live bytes" && entry["pid"] == 0).unwrap();
    assert_eq!(live["args"]["default"], 0);
}

#[test]
fn formats_are_detected() {
    let history = rmm::read_rmm(&example("rmm.csv")[..]).unwrap();
    let mut text = Vec::new();
    csv::write_csv(&history, &mut text).unwrap();
    let files = [written(&history), text, example("rmm.csv"), example("profiler.json")];
    let sniffs = [binary::sniff, csv::sniff, rmm::sniff, chrome::sniff];
    for (file, bytes) in files.iter().enumerate() {
        let found: Vec<_> = sniffs.iter().map(|sniff| sniff(&bytes[..bytes.len().min(256)])).collect();
        let expected: Vec<_> = (0..sniffs.len()).map(|format| format == file).collect();
        assert_eq!(found, expected, "file {file}");
    }
}

/// Enough events for several blocks.
fn long(order: EventOrder) -> (History, Vec<u8>) {
    let mut text = Vec::new();
    for step in 0..20_000_u64 {
        let (thread, time) = (step % 3, step.wrapping_mul(7) % 500 + step * 100);
        writeln!(
            text,
            "{thread},{}.{:09},allocate,{:x},{},0",
            time / 1_000_000_000,
            time % 1_000_000_000,
            step << 12,
            step
        )
        .expect("memory takes all");
    }
    let history = rmm::read_rmm(&text[..]).expect("a log");
    let mut writer = BinaryWriter::new(Vec::new(), order).expect("memory takes all");
    for event in &history.devices[0].events {
        writer.event(0, event, &history.sites).expect("memory takes all");
    }
    (history, writer.finish().expect("memory takes all"))
}

#[test]
fn a_file_that_is_cut_off_has_all_its_whole_blocks() {
    let (history, bytes) = long(EventOrder::Exact);
    let all = &history.devices[0].events;
    let mut lengths = std::collections::BTreeSet::new();
    for cut in (12..bytes.len()).step_by(7919) {
        let read = binary::read_binary(&bytes[..cut]).unwrap();
        let events = read.devices.first().map_or(&[][..], |device| &device.events);
        assert_eq!(events, &all[..events.len()]);
        let [HistoryWarning::CutOff { at }] = read.warnings[..] else { panic!("{:?}", read.warnings) };
        assert!(at <= cut as u64);
        lengths.insert((at, events.len()));
    }
    // One length for each complete block.
    assert!(lengths.len() >= 3, "{lengths:?}");
    assert!(matches!(binary::read_binary(&bytes[..11]), Err(TraceError::WrongFormat { .. })));
}

#[test]
fn events_before_a_damaged_block_are_kept() {
    let (history, bytes) = long(EventOrder::Exact);
    let whole = history.devices[0].events.len();
    for place in (12..bytes.len()).step_by(7927) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let read = binary::read_binary(&damaged[..]).unwrap();
        let events = read.devices.first().map_or(&[][..], |device| &device.events);
        assert_eq!(events, &history.devices[0].events[..events.len()]);
        assert!(events.len() < whole || place > bytes.len() - 16);
        assert_eq!(read.warnings.len(), 1);
    }
}

#[test]
fn events_that_come_nearly_in_order_are_sorted() {
    let (history, bytes) = long(EventOrder::Nearly);
    let sorted = binary::read_binary(&bytes[..]).unwrap();
    let events = &sorted.devices[0].events;
    assert!(events.is_sorted_by_key(|event| event.time) && events.len() == 20_000);
    assert!(!history.devices[0].events.is_sorted_by_key(|event| event.time));
    let mut reader = BinaryReader::new(&bytes[..]).unwrap();
    let as_written: Vec<HistoryEvent> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!((as_written, reader.order()), (history.devices[0].events.clone(), EventOrder::Nearly));
    // Thread, time, address and size of each event differ from those of the previous one.
    assert!(bytes.len() < 20_000 * 13, "{} bytes", bytes.len());
}

#[test]
fn later_versions_are_refused() {
    let mut bytes = written(&History::default());
    bytes[8] = 3;
    let error = binary::read_binary(&bytes[..]).unwrap_err();
    assert!(matches!(error, TraceError::Version { found: 3, known: 2 }), "{error}");
    // Of the first version, which has no refusals.
    bytes[8] = 1;
    assert!(binary::read_binary(&bytes[..]).unwrap() == History::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_comes_back_from_a_binary_file(history in history()) {
        let bytes = written(&history);
        for bytes in [&bytes, &packed(&bytes)] {
            let read = binary::read_binary(&bytes[..]).unwrap();
            prop_assert_eq!(&read.settings, &history.settings);
            prop_assert_eq!(&read.warnings, &history.warnings);
            let memory = |history: &History| -> Vec<_> {
                            history.devices.iter().map(|one| (one.memory, one.start.len())).collect()
                        };
            prop_assert_eq!(memory(&read), memory(&history));
            prop_assert_eq!(events(&read), events(&history));
            prop_assert_eq!(segments(&read), segments(&history));
            prop_assert_eq!(read, history.clone());
        }
    }

    #[test]
    fn any_events_come_back_from_csv(mut history in history()) {
        let mut text = Vec::new();
        csv::write_csv(&history, &mut text).unwrap();
        let read = csv::read_csv(&packed(&text)[..]).unwrap();
        history.devices.retain(|device| !device.events.is_empty());
        prop_assert_eq!(events(&read), events(&history));
        let mut again = Vec::new();
        csv::write_csv(&read, &mut again).unwrap();
        prop_assert_eq!(again, text);
    }

    #[test]
    fn any_history_is_a_trace_for_perfetto(history in history()) {
        let all = perfetto::PerfettoWriter::new().blocks(true).resolution(1 << 20);
                for writer in [perfetto::PerfettoWriter::new(), all] {
            let mut json = Vec::new();
            writer.write(&history, &mut json).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            prop_assert!(json["traceEvents"].is_array());
        }
    }
}
