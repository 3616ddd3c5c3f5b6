//! Logs of the RAPIDS memory manager (RMM): `rmm::mr::logging_resource_adaptor`, `rmm.enable_logging`, or
//! `spark.rapids.memory.gpu.debug`.
//!
//! There is one line for each event: `Thread,Time,Action,Pointer,Size,Stream`. The forms of all RMM versions
//! are accepted:
//!
//! | column | forms |
//! |---|---|
//! | `Time` | `h:m:s:us`, `h:m:s.us` (time of day; continues past midnight), seconds with a fraction |
//! | `Action` | `allocate`, `free` (also `deallocate`), `allocate failure` |
//! | `Pointer`, `Stream` | hexadecimal with or without `0x`; `(nil)` |
//!
//! The first line may name the columns, in any order and with unknown ones between them. Without it, as in
//! logs of Spark, the columns are in this order. A log is of one device, named only by its file name: the
//! history has device 0.
//!
//! The tables of events that versions before 0.13 wrote have other columns (`Event Type`, `Device ID`,
//! `Address`, …, `Location`). They are read, too, with their devices and call sites.
//!
//! The log has the requests to the adaptor's upstream; `free` is logged before the upstream is called.

mod event_table;

use self::event_table::EventTable;
use super::event_collector::{EventCollector, check};
use super::table_rows::{Rows, TableRow, first_cells, number};
use super::{EventField, Format};
use crate::history::{EventAction, History, HistoryEvent, HistoryWarning, SiteId, TextId};
use crate::{Result, TraceError};
use orlop_core::{MemoryKind, StreamId};
use std::collections::HashMap;
use std::io::Read;

/// The columns with their names in the first line, in the default order.
const COLUMNS: [(&str, EventField); 6] = [
    ("Thread", EventField::Thread),
    ("Time", EventField::Time),
    ("Action", EventField::Action),
    ("Pointer", EventField::Address),
    ("Size", EventField::Bytes),
    ("Stream", EventField::Stream),
];

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

/// Returns `true` if a file that begins with these (uncompressed) bytes is such a log.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    let cells = first_cells(head);
    let named = |name: &str| cells.contains(&name.as_bytes());
    if ["Action", "Pointer", "Size"].into_iter().all(named) || event_table::is_header(&cells) {
        return true;
    }
    // Without names, the action and the time identify the format.
    match cells[..] {
        [_, time, action, ..] if cells.len() == 6 => {
            parse_action(action).is_some() && parse_time(time).is_some()
        }
        _ => false,
    }
}

/// Reads a log, plain or gzip.
///
/// ```
/// use orlop_trace::formats::rmm;
/// use orlop_trace::history::EventAction;
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            1979932,14:21:19:998533,allocate,0x30a000000,256,0x2\n\
///            1979932,14:21:32:661875,free,0x30a000000,256,0x2\n";
/// let history = rmm::read_rmm(log.as_bytes())?;
/// let events = &history.devices[0].events;
/// assert_eq!((events[0].action, events[0].bytes), (EventAction::Allocate, 256));
/// assert_eq!(events[1].time - events[0].time, 12_663_342_000);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// Frees of blocks that were not allocated in the log, frees with another size, and overlapping blocks are
/// warnings.
///
/// # Errors
///
/// [`TraceError`], for the first invalid line.
pub fn read_rmm(reader: impl Read) -> Result<History> {
    let mut rows = Rows::open(reader, Format::Rmm)?;
    let mut log = RmmLog::default();
    let mut table = None;
    let mut first = true;
    while let Some(row) = rows.next()? {
        if std::mem::take(&mut first) {
            let cells: Vec<&[u8]> = row.cells().collect();
            if event_table::is_header(&cells) {
                table = Some(EventTable::new(row)?);
                continue;
            }
            if log.header(row)? {
                continue;
            }
        }
        match &mut table {
            Some(table) => table.event(row)?,
            None => log.event(row)?,
        }
    }
    let mut history = match table {
        Some(table) => table.finish(),
        None => History { devices: log.collector.finish(), ..History::default() },
    };
    for device in &history.devices {
        for unknown in check(device, &mut history.warnings) {
            let (event, address) = (unknown.event, unknown.address);
            let warning = HistoryWarning::FreedUnknown { device: device.device, event, address };
            warning.add_to(&mut history.warnings);
        }
    }
    Ok(history)
}

/// The state of reading a log.
struct RmmLog {
    /// The index of each of [`COLUMNS`] in a row.
    columns: [usize; 6],
    threads: HashMap<Box<[u8]>, u32>,
    /// The full days since the first event, in nanoseconds.
    days: u64,
    latest: u64,
    collector: EventCollector,
}

impl Default for RmmLog {
    fn default() -> Self {
        Self {
            columns: [0, 1, 2, 3, 4, 5],
            threads: HashMap::new(),
            days: 0,
            latest: 0,
            collector: EventCollector::default(),
        }
    }
}

impl RmmLog {
    /// Takes the order of the columns from this row, if it names them.
    fn header(&mut self, row: TableRow<'_>) -> Result<bool> {
        let cells: Vec<&[u8]> = row.cells().collect();
        let find = |name: &str| cells.iter().position(|cell| *cell == name.as_bytes());
        if find("Action").is_none() {
            return Ok(false);
        }
        for (index, (name, field)) in self.columns.iter_mut().zip(COLUMNS) {
            *index = find(name).ok_or(TraceError::Missing { line: row.line, field })?;
        }
        Ok(true)
    }

    fn event(&mut self, row: TableRow<'_>) -> Result<()> {
        let [thread, time, action, address, bytes, stream] = self.columns;
        let thread = self.thread(row.need(thread, EventField::Thread)?);
        let text = row.need(time, EventField::Time)?;
        let time = parse_time(text).ok_or_else(|| row.unexpected(EventField::Time, text))?;
        let text = row.need(action, EventField::Action)?;
        let action = parse_action(text).ok_or_else(|| row.unexpected(EventField::Action, text))?;
        let event = HistoryEvent {
            time: self.continuous_time(time),
            // The pointer of a failure is null; the free bytes are unknown.
            address: pointer(row, address, EventField::Address)?,
            bytes: row.number(bytes, EventField::Bytes, 10)?,
            stream: StreamId::from_raw(pointer(row, stream, EventField::Stream)?),
            site: SiteId::UNKNOWN,
            text: TextId::NONE,
            thread,
            action,
            kind: MemoryKind::Default,
        };
        self.collector.push(0, event)
    }

    /// Returns a number for a thread, in order of appearance: the log's own numbers may have 64 bits.
    fn thread(&mut self, name: &[u8]) -> u32 {
        if let Some(&number) = self.threads.get(name) {
            return number;
        }
        let number = u32::try_from(self.threads.len() + 1).unwrap_or(0);
        self.threads.insert(name.into(), number);
        number
    }

    /// Converts a time of day to a time that continues past midnight. The day is the one that is closest to
    /// the latest time: threads log slightly out of order, and gaps of half a day are not expected.
    fn continuous_time(&mut self, time: u64) -> u64 {
        if time >= DAY {
            return time;
        }
        let mut now = time.saturating_add(self.days);
        if now.saturating_add(DAY / 2) < self.latest {
            self.days = self.days.saturating_add(DAY);
            now = now.saturating_add(DAY);
        } else if now > self.latest.saturating_add(DAY / 2) {
            now = now.saturating_sub(if self.days == 0 { 0 } else { DAY });
        }
        self.latest = self.latest.max(now);
        now
    }
}

fn parse_action(name: &[u8]) -> Option<EventAction> {
    match name {
        b"allocate" => Some(EventAction::Allocate),
        b"free" | b"deallocate" => Some(EventAction::FreeRequested),
        b"allocate failure" => Some(EventAction::OutOfMemory),
        _ => None,
    }
}

fn pointer(row: TableRow<'_>, index: usize, field: EventField) -> Result<u64> {
    let cell = row.need(index, field)?;
    if cell == b"(nil)" {
        return Ok(0);
    }
    number(cell, 16).ok_or_else(|| row.unexpected(field, cell))
}

/// Parses a time in nanoseconds.
fn parse_time(text: &[u8]) -> Option<u64> {
    let parts: Vec<&[u8]> = text.splitn(5, |&byte| byte == b':').collect();
    match parts[..] {
        [seconds] => parse_seconds(seconds),
        [hours, minutes, seconds] => clock(hours, minutes)?.checked_add(parse_seconds(seconds)?),
        [hours, minutes, seconds, micros] => {
            let seconds = number(seconds, 10)?.checked_mul(SECOND)?;
            let micros = number(micros, 10)?.checked_mul(1000)?;
            clock(hours, minutes)?.checked_add(seconds)?.checked_add(micros)
        }
        _ => None,
    }
}

fn clock(hours: &[u8], minutes: &[u8]) -> Option<u64> {
    let minutes = number(hours, 10)?.checked_mul(60)?.checked_add(number(minutes, 10)?)?;
    minutes.checked_mul(60)?.checked_mul(SECOND)
}

/// Parses seconds with a fraction of any length, truncated to nanoseconds.
fn parse_seconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = number(parts.next()?, 10)?.checked_mul(SECOND)?;
    let Some(fraction) = parts.next() else { return Some(whole) };
    let mut nanos = 0;
    let mut unit = SECOND;
    for &byte in fraction {
        unit /= 10;
        nanos += u64::from(char::from(byte).to_digit(10)?) * unit;
    }
    whole.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

    #[test]
    fn times_have_three_forms() {
        for (text, time) in [
            ("1:2:3:4", Some((3723 * SECOND) + 4000)),
            ("14:21:19.998533", Some(51_679 * SECOND + 998_533_000)),
            ("1634567890.123456", Some(1_634_567_890 * SECOND + 123_456_000)),
            ("7", Some(7 * SECOND)),
            ("0.1234567891", Some(123_456_789)),
            ("1:2", None),
            ("1:2:3:4:5", None),
            ("-1", None),
            ("1.x", None),
            ("99999999999999999999", None),
            ("18446744073709551615:0:0:0", None),
        ] {
            assert_eq!(parse_time(text.as_bytes()), time, "{text}");
        }
    }

    #[test]
    fn midnight_advances_the_date_and_small_steps_back_do_not() {
        let line = |time| format!("1,{time},allocate,0x1,0,0\n");
        let text: String = ["23:59:59:0", "0:0:1:0", "23:59:58:0", "0:0:2:0"].map(line).concat();
        let history = read_rmm(text.as_bytes()).unwrap();
        let events = &history.devices[0].events;
        assert_eq!(events[1].time - events[0].time, 2 * SECOND);
        // Logged late: still on the day before.
        assert_eq!(events[1].time - events[2].time, 3 * SECOND);
        assert_eq!(events[3].time - events[1].time, SECOND);
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "Size,Action,Other,Pointer,Thread,Stream,Time\n8,free,x,(nil),7,default,1\n";
        let error = read_rmm(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: the stream cannot be \"default\", expected a whole number below 2^64"
        );
        let history = read_rmm(text.replace("default", "2a").as_bytes()).unwrap();
        assert_eq!(history.devices[0].events[0].stream, StreamId::from_raw(0x2a));
        assert_eq!(history.warnings, [HistoryWarning::FreedUnknown { device: 0, event: 0, address: 0 }]);
        let error = read_rmm("Action,Size\n".as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 1: the thread is missing"), "{error}");
    }

    #[test]
    fn invalid_rows_are_errors() {
        for (line, place) in [
            ("1,2,realloc,0,0,0", "the action"),
            ("1,2,free,0x,0,0", "the address"),
            ("1,2,free,0,-1,0", "the size"),
        ] {
            let error = read_rmm(format!("{HEADER}{line}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line 2: {place} cannot be ")), "{error}");
        }
        assert!(read_rmm(&b""[..]).unwrap().devices.is_empty());
    }

    #[test]
    fn tables_of_events_have_devices_sizes_and_sites() {
        let text = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,\
                    Start,End,Elapsed,Location\n\
                    Alloc,0,0x7f613be00000,0,720984,0,0,1,41.7014,41.7016,0.000156924,rmm_alloc.cu:85\n\
                    Alloc,1,0x7f613be00000,0x2,5056,9,16000,2,41.7185,41.7187,0.000202607,column.cpp:7\n\
                    Realloc,0,0x7f613be00000,0,1000,0,0,1,42,42,0,rmm_alloc.cu:90\n\
                    Free,0,0x7f613be00000,0,0,0,0,0,42.5,42.5,0,\n";
        assert!(sniff(text.as_bytes()));
        let history = History::parse(text.as_bytes()).unwrap();
        assert_eq!(history.warnings, []);
        let [first, second] = &history.devices[..] else { panic!("two devices") };
        let events: Vec<_> = first.events.iter().map(|event| (event.action, event.bytes)).collect();
        let (allocate, free) = (EventAction::Allocate, EventAction::FreeRequested);
        assert_eq!(events, [(allocate, 720_984), (free, 720_984), (allocate, 1000), (free, 1000)]);
        assert_eq!(first.events[1].time - first.events[0].time, 298_600_000);
        assert_eq!((second.memory, second.events[0].stream), (Some(16_000), StreamId::from_raw(2)));
        let frame = history.sites.frames(second.events[0].site).next().unwrap();
        assert_eq!((history.sites.name(frame.file), frame.line), ("column.cpp", 7));
        assert_eq!(first.events[3].site, SiteId::UNKNOWN);
        let error = read_rmm(text.replace("Realloc", "Copy").as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 4: the action cannot be \"Copy\""), "{error}");
    }

    #[test]
    fn logs_are_known_by_their_beginning() {
        assert!(sniff(HEADER.as_bytes()) && sniff(b"1979932,14:21:19.998533,allocate,0x30a000000,256,0x2\n"));
        for other in ["", "a,0,64\n", "device,time_ns,action\n", "{\"traceEvents\": ["] {
            assert!(!sniff(other.as_bytes()), "{other}");
        }
    }
}
