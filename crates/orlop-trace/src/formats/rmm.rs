//! Logs of RAPIDS' memory manager (RMM): `rmm::mr::logging_resource_adaptor`, `rmm.enable_logging`, or
//! `spark.rapids.memory.gpu.debug`.
//!
//! A line for each event, `Thread,Time,Action,Pointer,Size,Stream`. RMM's versions differ, and all of these
//! are read:
//!
//! | column | forms |
//! |---|---|
//! | `Time` | `h:m:s:us`, `h:m:s.us` (of the day: after midnight it goes on), seconds with a fraction |
//! | `Action` | `allocate`, `free` (also `deallocate`), `allocate failure` |
//! | `Pointer`, `Stream` | hexadecimal with or without `0x`; `(nil)` |
//!
//! The first line may name the columns, in any order and with others among them; without it they are in this
//! order. Logs that Spark writes have none. A log is of one device, which only its file's name tells: the
//! history has device 0.
//!
//! What an adaptor logs is what its upstream was asked for; `free` is logged before the upstream is told.

use super::event_collector::{Warnings, by_device, check};
use super::table_rows::{Rows, TableRow, number};
use super::{EventColumn, Format, FormatError};
use crate::Result;
use crate::history::{EventAction, History, HistoryEvent, HistoryWarning, SiteId, TextId};
use crate::input;
use orlop_core::{MemoryKind, StreamId};
use std::collections::HashMap;
use std::io::Read;

/// The columns, by their names in the first line, and in the order that they have without one.
const COLUMNS: [(&str, EventColumn); 6] = [
    ("Thread", EventColumn::Thread),
    ("Time", EventColumn::Time),
    ("Action", EventColumn::Action),
    ("Pointer", EventColumn::Address),
    ("Size", EventColumn::Bytes),
    ("Stream", EventColumn::Stream),
];

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

/// Whether a file that begins with these bytes (not compressed) is such a log.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let cells: Vec<&[u8]> = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
    let named = |name: &str| cells.contains(&name.as_bytes());
    if ["Action", "Pointer", "Size"].into_iter().all(named) {
        return true;
    }
    // Without names: the action and the time can hardly be anything else.
    matches!(&cells[..], [_, time, action, _, _, _] if self::action(action).is_some() && parse_time(time).is_some())
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
/// Frees of blocks that were not allocated in the log, frees with another size, and blocks that overlap are
/// warnings.
///
/// # Errors
///
/// [`FormatError`], for the first line that makes no sense.
pub fn read_rmm(reader: impl Read) -> Result<History> {
    let input = input::open(reader).map_err(FormatError::read(Format::Rmm))?;
    let mut rows = Rows::new(Format::Rmm, input);
    let mut log = RmmLog::default();
    let mut first = true;
    while let Some(row) = rows.next()? {
        if std::mem::take(&mut first) && log.header(row)? {
            continue;
        }
        log.event(row)?;
    }
    let mut history = History { devices: by_device(log.events)?, ..History::default() };
    let mut warnings = Warnings::default();
    for device in &history.devices {
        for unknown in check(device, &mut warnings) {
            let (event, address) = (unknown.event, unknown.address);
            warnings.push(HistoryWarning::FreedUnknown { device: device.device, event, address });
        }
    }
    history.warnings = warnings.finish();
    Ok(history)
}

/// The state of reading a log.
struct RmmLog {
    /// Where each of [`COLUMNS`] is.
    places: [usize; 6],
    threads: HashMap<Box<[u8]>, u32>,
    /// Days that have passed, in nanoseconds.
    days: u64,
    latest: u64,
    events: Vec<(u32, HistoryEvent)>,
}

impl Default for RmmLog {
    fn default() -> Self {
        let places = [0, 1, 2, 3, 4, 5];
        Self { places, threads: HashMap::new(), days: 0, latest: 0, events: Vec::new() }
    }
}

impl RmmLog {
    /// Takes the places of the columns from this row, if it is one of names.
    fn header(&mut self, row: TableRow<'_>) -> Result<bool, FormatError> {
        let cells: Vec<&[u8]> = (0..).map_while(|place| row.cell(place)).collect();
        let find = |name: &str| cells.iter().position(|cell| *cell == name.as_bytes());
        if find("Action").is_none() {
            return Ok(false);
        }
        for (place, (name, column)) in self.places.iter_mut().zip(COLUMNS) {
            *place = find(name).ok_or(FormatError::Missing { line: row.line, column })?;
        }
        Ok(true)
    }

    fn event(&mut self, row: TableRow<'_>) -> Result<(), FormatError> {
        let [thread, time, action, address, bytes, stream] = self.places;
        let thread = self.thread(row.need(thread, EventColumn::Thread)?);
        let text = row.need(time, EventColumn::Time)?;
        let time = parse_time(text).ok_or_else(|| row.unexpected(EventColumn::Time, text))?;
        let text = row.need(action, EventColumn::Action)?;
        let action = self::action(text).ok_or_else(|| row.unexpected(EventColumn::Action, text))?;
        let event = HistoryEvent {
            time: self.going_on(time),
            // A failure's pointer is null, and nothing is known of the bytes that were free.
            address: pointer(row, address, EventColumn::Address)?,
            bytes: row.number(bytes, EventColumn::Bytes, 10)?,
            stream: StreamId::new(pointer(row, stream, EventColumn::Stream)?),
            site: SiteId::UNKNOWN,
            text: TextId::NONE,
            thread,
            action,
            kind: MemoryKind::Default,
        };
        if self.events.len() as u64 >= u64::from(u32::MAX) {
            return Err(FormatError::TooManyEvents { limit: u32::MAX.into() });
        }
        self.events.push((0, event));
        Ok(())
    }

    /// Threads are numbered as they come: their own numbers may have 64 bits.
    fn thread(&mut self, name: &[u8]) -> u32 {
        if let Some(&number) = self.threads.get(name) {
            return number;
        }
        let number = u32::try_from(self.threads.len() + 1).unwrap_or(0);
        self.threads.insert(name.into(), number);
        number
    }

    /// A time of day as one that goes on after midnight: on the day that brings it nearest to what was read
    /// before, as threads write a little out of order and nobody waits for half a day.
    fn going_on(&mut self, time: u64) -> u64 {
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

fn action(name: &[u8]) -> Option<EventAction> {
    match name {
        b"allocate" => Some(EventAction::Allocate),
        b"free" | b"deallocate" => Some(EventAction::FreeRequested),
        b"allocate failure" => Some(EventAction::OutOfMemory),
        _ => None,
    }
}

fn pointer(row: TableRow<'_>, place: usize, column: EventColumn) -> Result<u64, FormatError> {
    let cell = row.need(place, column)?;
    if cell == b"(nil)" {
        return Ok(0);
    }
    number(cell, 16).ok_or_else(|| row.unexpected(column, cell))
}

/// In nanoseconds.
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

/// Seconds with a fraction of any length; what is below a nanosecond is left out.
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
    fn midnight_goes_on_and_small_steps_back_do_not() {
        let line = |time| format!("1,{time},allocate,0x1,0,0\n");
        let text: String = ["23:59:59:0", "0:0:1:0", "23:59:58:0", "0:0:2:0"].map(line).concat();
        let history = read_rmm(text.as_bytes()).unwrap();
        let events = &history.devices[0].events;
        assert_eq!(events[1].time - events[0].time, 2 * SECOND);
        // Written late: it is still of the day before.
        assert_eq!(events[1].time - events[2].time, 3 * SECOND);
        assert_eq!(events[3].time - events[1].time, SECOND);
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "Size,Action,Other,Pointer,Thread,Stream,Time\n8,free,x,(nil),7,default,1\n";
        let error = read_rmm(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: the stream cannot be \"default\", expected a number, mostly hexadecimal"
        );
        let history = read_rmm(text.replace("default", "2a").as_bytes()).unwrap();
        assert_eq!(history.devices[0].events[0].stream, StreamId::new(0x2a));
        assert_eq!(history.warnings, [HistoryWarning::FreedUnknown { device: 0, event: 0, address: 0 }]);
        let error = read_rmm("Action,Size\n".as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("line 1: the thread is missing"), "{error}");
    }

    #[test]
    fn what_is_no_event_is_an_error() {
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
    fn logs_are_known_by_their_beginning() {
        assert!(sniff(HEADER.as_bytes()) && sniff(b"1979932,14:21:19.998533,allocate,0x30a000000,256,0x2\n"));
        for other in ["", "a,0,64\n", "device,time_ns,action\n", "{\"traceEvents\": ["] {
            assert!(!sniff(other.as_bytes()), "{other}");
        }
    }
}
