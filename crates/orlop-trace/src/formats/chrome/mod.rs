//! Traces of `torch.profiler` with `profile_memory=True`, as `export_chrome_trace` writes them.
//!
//! Among the trace's events are instants named `[memory]`, one for each allocation and free of every device,
//! with these arguments:
//!
//! | argument | what |
//! |---|---|
//! | `Addr` | the block |
//! | `Bytes` | its size after rounding; negative when it is freed |
//! | `Device Type`, `Device Id` | PyTorch's number of the family (0 host memory, 1 CUDA, 20 private use) or its name; -1 for the host |
//! | `Total Allocated` | live bytes of the device afterwards |
//! | `Total Reserved` | bytes that the allocator holds; 0 where it does not count |
//! | `Ev Idx` | the event's place, for those of one microsecond |
//!
//! `[OutOfMemory]` instants are failed requests. The host's memory is a device of its own, as every other.
//! Operators, functions of Python and what the program names (`cpu_op`, `python_function`, `user_annotation`)
//! become call sites: those in the midst of which a thread asked for memory, the innermost first. All else is
//! left out. The trace is read as a stream: of it only the memory events are held, and of the operations
//! times and names.
//!
//! # What was there before
//!
//! A profile begins in the midst of a run. Blocks that are freed without having been allocated lived at its
//! start, and are [`unplaced`](crate::history::DeviceHistory::unplaced). Blocks that lived through all of it
//! have no event, but they are in `Total Allocated`: what the first total has beyond what is known is one
//! more block, at an address behind all others. So as many bytes live after each event as the profiler
//! counted. Where it did not count, they are missing.
//!
//! Nothing tells of segments. The most that was held is the largest `Total Reserved`:
//! [`counted_reserved`](crate::history::DeviceHistory::counted_reserved). Totals that contradict the events
//! are a [warning](crate::history::HistoryWarning::TotalMisfit).

mod bounded_json;
mod events;
mod lenient_json;
mod live_at_start;
mod operations;

use self::bounded_json::BoundedJson;
use self::events::{ChromeEvent, ChromeEventKind, EventArguments};
use self::live_at_start::CountedBytes;
use self::operations::OperationList;
use super::event_collector::{EventCollector, Warnings, check};
use super::{Format, FormatError, device_number};
use crate::Result;
use crate::history::{EventAction, History, HistoryEvent, Sites};
use crate::input;
use orlop_core::Device;
use std::collections::HashMap;
use std::io::{BufReader, Read};

/// Whether a file that begins with these bytes (not compressed) is such a trace.
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
/// [`FormatError::Json`] if the file is no JSON or no trace, [`FormatError::Read`].
pub fn read_chrome(reader: impl Read) -> Result<History> {
    let failed = FormatError::read(Format::Chrome);
    let input = input::open(reader).map_err(&failed)?;
    let mut found = MemoryEvents::default();
    let read = events::read(BufReader::new(BoundedJson::new(input)), |what, entry| found.take(what, entry));
    read.map_err(|error| match error.is_io() {
        true => failed(error.into()),
        false => FormatError::Json { error },
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

    /// An event of memory, if it makes sense.
    fn memory(&mut self, entry: &ChromeEvent, thread: u32, failed: bool) {
        let arguments = &entry.arguments;
        let Some(device) = device(arguments) else { return };
        let bytes = arguments.bytes.unwrap_or(0);
        let action = match failed {
            true => EventAction::OutOfMemory,
            false if bytes < 0 => EventAction::FreeRequested,
            false => EventAction::Allocate,
        };
        if self.rows.len() as u64 >= u64::from(u32::MAX) || (bytes == 0 && !failed) {
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
        rows.sort_by_key(|row| (row.event.time, row.index));
        let mut operations = operations.nested();
        let mut gather = EventCollector::default();
        let mut counted: HashMap<u32, Vec<CountedBytes>> = HashMap::new();
        for MemoryRow { device, event, counted: told, .. } in rows {
            let site = operations.site(event.thread, event.time, &mut sites);
            gather.told(device)?.events.push(HistoryEvent { site, ..event });
            counted.entry(device).or_default().push(told);
        }
        let mut history = History { devices: gather.finish(), sites, ..History::default() };
        let mut warnings = Warnings::default();
        for device in &mut history.devices {
            let unknown = check(device, &mut warnings);
            let counted = counted.remove(&device.device).unwrap_or_default();
            live_at_start::find(device, &unknown, &counted, &mut warnings);
        }
        history.warnings = warnings.finish();
        Ok(history)
    }
}

/// The number of an instant's device; `None` for a family that nobody knows.
fn device(arguments: &EventArguments) -> Option<u32> {
    /// PyTorch's number of backends made elsewhere.
    const PRIVATE_USE: i64 = 20;
    let index = u16::try_from(arguments.device.unwrap_or(0)).unwrap_or(0);
    // Without a family, as some tools write: the host has no index.
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
    use crate::history::HistoryWarning;

    fn memory(time: &str, address: u64, bytes: i64, more: &str) -> String {
        format!(
            r#"{{"ph":"i","name":"[memory]","ts":{time},"tid":7,"args":{{"Addr":{address},"Bytes":{bytes},"Device Type":1,"Device Id":0{more}}}}}"#
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
    fn what_is_freed_only_lived_at_the_start() {
        let history = read(&[
            memory("1", 100, -50, ""),
            memory("2", 149, -1, ""),
            memory("3", 100, -50, ""),
            memory("4", 7, -9223372036854775808, ""),
            memory("5", 200, 8, ""),
            memory("6", 200, -9, ""),
        ]);
        let held: Vec<_> =
            history.devices[0].unplaced.iter().map(|block| (block.address, block.bytes)).collect();
        assert_eq!(held, [(100, 50)]);
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
    fn devices_are_told_apart() {
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

    #[test]
    fn traces_are_known_by_their_beginning() {
        assert!(sniff(b"\n{\n  \"schemaVersion\": 1,") && sniff(b"[{\"ph\": \"X\""));
        for other in ["", "{\"segments\": [", "[1, 2]", "Thread,Time"] {
            assert!(!sniff(other.as_bytes()), "{other}");
        }
    }
}
