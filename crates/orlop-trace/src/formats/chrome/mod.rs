//! Traces of `torch.profiler` with `profile_memory=True`, in the format of `export_chrome_trace`.
//!
//! The trace has an instant event named `[memory]` for each allocation and free on every device, with these
//! arguments:
//!
//! | argument | what |
//! |---|---|
//! | `Addr` | the block |
//! | `Bytes` | its size after rounding; negative for a free |
//! | `Device Type` | PyTorch's number of the device family (0 host, 1 CUDA, 20 private use) or its name |
//! | `Device Id` | the index of the device; -1 for the host |
//! | `Total Allocated` | live bytes of the device after the event |
//! | `Total Reserved` | reserved bytes of the allocator; 0 if it does not count them |
//! | `Ev Idx` | the order of events within a microsecond |
//!
//! `[OutOfMemory]` events are failed requests. The host's memory is a device like the others. Operators,
//! Python functions and annotations (`cpu_op`, `python_function`, `user_annotation`) become call sites: the
//! frames of an event are the operations that were open on its thread, the innermost first. All other events
//! are ignored. The trace is read as a stream: only the memory events, and times and names of operations, are
//! kept in memory.
//!
//! # The state at the start
//!
//! A profile begins in the middle of a run. Blocks that are freed without having been allocated were live at
//! its start and are [`unplaced`](crate::history::DeviceHistory::unplaced). Blocks that stayed live
//! throughout have no event, but they are included in `Total Allocated`: the first total minus the known
//! bytes becomes one more block, at an address behind all others. So the live bytes after each event are
//! those that the profiler counted. If it did not count, these blocks are missing.
//!
//! Profilers of 2021 recorded no addresses: `without_addresses` has how frees then find their blocks.
//!
//! Segments are not recorded. The peak of reserved bytes is the largest `Total Reserved`:
//! [`counted_reserved`](crate::history::DeviceHistory::counted_reserved). Totals that contradict the events
//! cause a [warning](crate::history::HistoryWarning::TotalMisfit).

mod bounded_json;
mod events;
mod lenient_json;
mod live_at_start;
mod operations;
mod without_addresses;

use self::bounded_json::BoundedJson;
use self::events::{ChromeEvent, ChromeEventKind, EventArguments};
use self::live_at_start::CountedBytes;
use self::operations::OperationList;
use super::event_collector::{EventCollector, check};
use super::{Format, device_number};
use crate::history::{EventAction, History, HistoryEvent, HistoryWarning, Sites};
use crate::input;
use crate::{Result, TraceError};
use orlop_core::Device;
use std::collections::HashMap;
use std::io::{BufReader, Read};

/// Returns `true` if a file that begins with these (uncompressed) bytes is such a trace.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let has = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
    match head.first() {
        Some(b'{') => ["\"traceEvents\"", "\"schemaVersion\"", "\"deviceProperties\""]
            .iter()
            .any(|word| has(word.as_bytes())),
        Some(b'[') => has(b"\"ph\""),
        _ => false,
    }
}

/// Reads a trace, plain or gzip.
///
/// ```
/// use orlop_trace::formats::chrome;
/// use orlop_trace::history::EventAction;
///
/// let trace = r#"{"traceEvents": [
///     {"ph": "X", "name": "aten::empty", "ts": 10, "dur": 4, "pid": 1, "tid": 1},
///     {"ph": "i", "name": "[memory]", "s": "t", "pid": 1, "tid": 1, "ts": 12.345, "args": {
///         "Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512,
///         "Total Allocated": 512, "Total Reserved": 2097152, "Ev Idx": 1}}
/// ]}"#;
/// let history = chrome::read_chrome(trace.as_bytes())?;
/// let event = history.devices[0].events[0];
/// assert_eq!((event.action, event.bytes, event.time), (EventAction::Allocate, 512, 12_345));
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Json`] if the file is not JSON or not a trace; [`TraceError::NoMemoryEvents`];
/// [`TraceError::Read`].
pub fn read_chrome(reader: impl Read) -> Result<History> {
    let failed = TraceError::read(Format::Chrome);
    let input = input::open(reader).map_err(&failed)?;
    let mut found = MemoryEvents::default();
    let read = events::read(BufReader::new(BoundedJson::new(input)), |what, entry| found.take(what, entry));
    read.map_err(|error| match error.is_io() {
        true => failed(error.into()),
        false => TraceError::Json { error },
    })?;
    found.finish()
}

/// The events of a file that concern memory.
#[derive(Default)]
struct MemoryEvents {
    rows: Vec<MemoryRow>,
    operations: OperationList,
    threads: HashMap<(u64, u64), u32>,
    sites: Sites,
}

/// A memory event.
struct MemoryRow {
    index: u64,
    device: u32,
    event: HistoryEvent,
    counted: CountedBytes,
}

impl MemoryEvents {
    fn take(&mut self, what: ChromeEventKind, entry: &ChromeEvent) {
        let known = u32::try_from(self.threads.len() + 1).unwrap_or(0);
        let thread =
            entry.thread.map_or(0, |thread| *self.threads.entry((entry.process, thread)).or_insert(known));
        match what {
            ChromeEventKind::Operation if thread > 0 => self.operations.take(entry, thread, &mut self.sites),
            ChromeEventKind::Operation => {}
            ChromeEventKind::Memory => self.memory(entry, thread, false),
            ChromeEventKind::Failure => self.memory(entry, thread, true),
        }
    }

    /// Adds a memory event, if it is valid.
    fn memory(&mut self, entry: &ChromeEvent, thread: u32, failed: bool) {
        let arguments = &entry.arguments;
        let Some(device) = device(arguments) else { return };
        let bytes = arguments.bytes.unwrap_or(0);
        let action = match failed {
            true => EventAction::OutOfMemory,
            false if bytes < 0 => EventAction::FreeRequested,
            false => EventAction::Allocate,
        };
        if bytes == 0 && !failed {
            return;
        }
        let address = arguments.address.unwrap_or(0);
        let event = HistoryEvent {
            time: entry.time,
            thread,
            ..HistoryEvent::new(action, address, bytes.unsigned_abs())
        };
        let counted = CountedBytes { allocated: arguments.allocated, reserved: arguments.reserved };
        self.rows.push(MemoryRow { index: arguments.index.unwrap_or(u64::MAX), device, event, counted });
    }

    fn finish(self) -> Result<History> {
        let Self { mut rows, operations, mut sites, .. } = self;
        if rows.is_empty() {
            return Err(TraceError::NoMemoryEvents);
        }
        rows.sort_by_key(|row| (row.event.time, row.index));
        let paired = without_addresses::pair(&mut rows);
        let mut operations = operations.nested();
        let mut collector = EventCollector::default();
        let mut counted: HashMap<u32, Vec<CountedBytes>> = HashMap::new();
        for MemoryRow { device, event, counted: row_counts, .. } in rows {
            let site = operations.site(event.thread, event.time, &mut sites);
            collector.push(device, HistoryEvent { site, ..event })?;
            counted.entry(device).or_default().push(row_counts);
        }
        let mut history = History { devices: collector.finish(), sites, ..History::default() };
        for device in paired {
            HistoryWarning::NoAddresses { device }.add_to(&mut history.warnings);
        }
        for device in &mut history.devices {
            let unknown = check(device, &mut history.warnings);
            let counted = counted.remove(&device.device).unwrap_or_default();
            live_at_start::find(device, &unknown, &counted, &mut history.warnings);
        }
        Ok(history)
    }
}

/// Returns the number of an event's device; `None` for an unknown family.
fn device(arguments: &EventArguments) -> Option<u32> {
    /// PyTorch's number of out-of-tree backends.
    const PRIVATE_USE: i64 = 20;
    let index = u16::try_from(arguments.device.unwrap_or(0)).unwrap_or(0);
    // Some tools omit the family. The host has no index.
    let family =
        arguments.family.unwrap_or_else(|| i64::from(arguments.device.is_some_and(|index| index >= 0)));
    let device = match family {
        0 => Device::CPU,
        1 => Device::cuda(index),
        PRIVATE_USE => Device::custom(0, index),
        other => Device::custom(u8::try_from(other).ok()?, index),
    };
    Some(device_number(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(time: &str, address: u64, bytes: i64, more: &str) -> String {
        format!(
            r#"{{"ph":"i","name":"[memory]","ts":{time},"tid":7,"args":
                {{"Addr":{address},"Bytes":{bytes},"Device Type":1,"Device Id":0{more}}}}}"#
        )
    }

    fn read(events: &[String]) -> History {
        read_chrome(format!("[{}]", events.join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn events_are_sorted_by_time_and_index() {
        let history = read(&[
            memory("\"5\"", 8, -4, r#","Ev Idx":9"#),
            memory("5.0", 8, 4, r#","Ev Idx":3"#),
            memory("1.5", 16, 4, ""),
        ]);
        let events = &history.devices[0].events;
        assert_eq!(events.iter().map(|event| event.time).collect::<Vec<_>>(), [1500, 5000, 5000]);
        assert_eq!(events[1].action, EventAction::Allocate);
        assert!(history.warnings.is_empty() && history.devices[0].unplaced.is_empty());
    }

    #[test]
    fn blocks_that_are_only_freed_were_live_at_the_start() {
        let history = read(&[
            memory("1", 100, -50, ""),
            memory("2", 149, -1, ""),
            memory("3", 100, -50, ""),
            memory("4", 7, -9223372036854775808, ""),
            memory("5", 200, 8, ""),
            memory("6", 200, -9, ""),
        ]);
        let unplaced: Vec<_> =
            history.devices[0].unplaced.iter().map(|block| (block.address, block.bytes)).collect();
        assert_eq!(unplaced, [(100, 50)]);
        let freed = |event, address| HistoryWarning::FreedUnknown { device: 0, event, address };
        assert_eq!(
            history.warnings,
            [
                HistoryWarning::SizeDiffers { device: 0, event: 5, address: 200 },
                freed(1, 149),
                freed(2, 100),
                freed(3, 7)
            ]
        );
    }

    #[test]
    fn devices_are_separated() {
        let event = |arguments: &str| {
            format!(r#"{{"name":"[memory]","ts":1,"args":{{"Addr":1,"Bytes":1,{arguments}}}}}"#)
        };
        let history = read(&[
            event(r#""Device Type":0,"Device Id":-1"#),
            event(r#""Device Type":1,"Device Id":3"#),
            event(r#""Device Type":20,"Device Id":1"#),
            event(r#""Device Type":"CPU""#),
            event(r#""Device Id":2"#),
            event(r#""Device Type":-4"#),
        ]);
        let devices: Vec<_> =
            history.devices.iter().map(|device| (device.device, device.events.len())).collect();
        let custom = device_number(Device::custom(0, 1));
        assert_eq!(devices, [(2, 1), (3, 1), (device_number(Device::CPU), 2), (custom, 1)]);
    }

    /// Three blocks of 100 bytes are live at once, and one that the trace only frees.
    #[test]
    fn without_addresses_blocks_pair_by_size() {
        let event = |time: u32, bytes: i64| {
            format!(
                r#"{{"ph":"i","name":"[memory]","ts":{time},"tid":7,
                    "args":{{"Device Type":1,"Device Id":0,"Bytes":{bytes}}}}}"#
            )
        };
        let bytes = [100, 100, -100, 100, 100, -100, -100, -700, -100];
        let history = read(&(1..).zip(bytes).map(|(time, bytes)| event(time, bytes)).collect::<Vec<_>>());
        let device = &history.devices[0];
        assert_eq!(history.warnings, [HistoryWarning::NoAddresses { device: 0 }]);
        let unplaced: Vec<_> = device.unplaced.iter().map(|block| block.bytes).collect();
        assert_eq!(unplaced, [700]);
        assert_eq!(crate::history::Workload::of(device).peak().0, 700 + 300);
        // With an address anywhere, zero is one.
        let mixed = read(&[memory("1", 0, 8, ""), memory("2", 4096, 8, ""), memory("3", 0, -8, "")]);
        assert!(mixed.warnings.is_empty() && mixed.devices[0].events[2].address == 0);
    }

    #[test]
    fn traces_are_known_by_their_beginning() {
        assert!(sniff(b"\n{\n  \"schemaVersion\": 1,") && sniff(b"[{\"ph\": \"X\""));
        for other in ["", "{\"segments\": [", "[1, 2]", "Thread,Time"] {
            assert!(!sniff(other.as_bytes()), "{other}");
        }
    }
}
