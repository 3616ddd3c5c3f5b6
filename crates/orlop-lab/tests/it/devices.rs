//! The limit of the number of devices in a recording, for all readers and writers.

use orlop_lab::LabError;
use orlop_lab::simulate::{AllocatorRules, StreamedReplay};
use orlop_trace::TraceError;
use orlop_trace::formats::binary::{BinaryWriter, EventOrder};
use orlop_trace::formats::{binary, csv};
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, Sites};

/// A file of these devices, with an event each, and records before them: the writers refuse to write more
/// devices than the limit.
fn binary_of(before: &[u8], devices: std::ops::Range<u32>) -> Vec<u8> {
    let events = u64::from(devices.end - devices.start);
    let mut payload = before.to_vec();
    for device in devices {
        // The number of the device takes up to two varint bytes; then an allocation with its time, address
        // and bytes.
        let number =
            [device & 0x7f | 0x80, device >> 7].map(|digits| u8::try_from(digits).expect("seven bits"));
        payload.extend([&[0x3f][..], &number, &[0, 0, 0, 1]].concat());
    }
    let end = events.to_le_bytes();
    let length = u32::try_from(payload.len()).expect("some kilobytes");
    let mut file = b"\x8eORLT\r\n\x1a\x01\0\0\0".to_vec();
    for (length, bytes) in [(length, &payload[..]), (0, &end)] {
        file.extend(length.to_le_bytes());
        file.extend(crc32fast::hash(bytes).to_le_bytes());
        file.extend(bytes);
    }
    file
}

fn streamed_devices(file: &[u8]) -> Result<usize, TraceError> {
    match StreamedReplay::run(file, &AllocatorRules::Orlop, None) {
        Ok(replay) => Ok(replay.devices.len()),
        Err(LabError::Trace(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

fn is_too_many(error: &TraceError) -> bool {
    matches!(error, TraceError::TooManyDevices { limit: 4096 })
}

#[test]
fn too_many_devices_are_refused() {
    for (devices, refused) in [(4097, true), (4096, false)] {
        let ours = binary_of(&[], 0..devices);
        let lines: String = (0..devices).map(|device| format!("{device},0,allocate,0,1\n")).collect();
        let table = format!("device,time_ns,action,address,bytes\n{lines}");
        let streamed = streamed_devices(&ours);
        let read = [&ours[..], table.as_bytes()]
            .map(|file| History::parse(file).map(|history| history.devices.len()));
        for answer in read.into_iter().chain([streamed]) {
            match answer {
                Ok(found) => assert!(!refused && found == devices as usize, "{found}"),
                Err(error) => assert!(refused && is_too_many(&error), "{error}"),
            }
        }
    }
}

/// Memory without a device belongs to device 0, which then exists.
#[test]
fn a_device_without_a_header_counts() {
    let memory = [0x8f, 1];
    for (devices, refused) in [(1..4097, true), (1..4096, false), (0..4096, false)] {
        let file = binary_of(&memory, devices);
        let read = History::parse(&file[..]).map(|history| history.devices.len());
        let streamed = streamed_devices(&file);
        for answer in [read, streamed] {
            match answer {
                Ok(found) => assert!(!refused && found == 4096, "{found}"),
                Err(error) => assert!(refused && is_too_many(&error), "{error}"),
            }
        }
    }
}

#[test]
fn too_many_devices_are_not_written() {
    let mut history = History::default();
    history.devices = (0..4097)
        .map(|number| {
            let mut device = DeviceHistory::default();
            (device.device, device.events) = (number, vec![HistoryEvent::new(EventAction::Allocate, 0, 1)]);
            device
        })
        .collect();
    let (mut ours, mut table) = (Vec::new(), Vec::new());
    assert!(is_too_many(&binary::write_binary(&history, &mut ours).expect_err("one too many")));
    assert!(is_too_many(&csv::write_csv(&history, &mut table).expect_err("one too many")));
    assert!(ours.is_empty() && table.is_empty(), "nothing is written before");
    // A table has only events: devices without events are missing.
    history.devices[7].events.clear();
    csv::write_csv(&history, &mut table).expect("room");
    assert!(binary::write_binary(&history, &mut ours).is_err() && ours.is_empty());
    history.devices.truncate(4096);
    binary::write_binary(&history, &mut ours).expect("room");
    for (file, devices) in [(&ours, 4096), (&table, 4096)] {
        assert_eq!(History::parse(&file[..]).expect("it was written").devices.len(), devices);
    }
}

#[test]
fn an_event_of_a_device_too_many_leaves_a_file_that_can_be_read() {
    let (event, sites) = (HistoryEvent::new(EventAction::Allocate, 0, 1), Sites::default());
    let mut writer = BinaryWriter::new(Vec::new(), EventOrder::Exact).expect("room");
    for device in 0..4096 {
        writer.event(device, &event, &sites).expect("room");
    }
    assert!(is_too_many(&writer.event(4096, &event, &sites).expect_err("one too many")));
    writer.event(17, &event, &sites).expect("it is known");
    assert_eq!(writer.events(), 4097);
    let history = binary::read_binary(&writer.finish().expect("room")[..]).expect("it can be read");
    assert_eq!((history.devices.len(), history.devices[17].events.len()), (4096, 2));
}
