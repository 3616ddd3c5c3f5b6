//! Events as comma-separated values, for scripts, spreadsheets and databases.
//!
//! There is one line for each event, in the history's order, device after device. The first line names the
//! columns:
//!
//! | column | what |
//! |---|---|
//! | `device` | the number of the device |
//! | `time_ns` | nanoseconds; only differences are meaningful |
//! | `action` | `allocate`, `free_requested`, `free_completed`, `use`, `region_gained`, `region_lost`, |
//! | | `mapped`, `unmapped`, `out_of_memory`, `snapshot`, `annotation`, `refused`, `external_adopted`, |
//! | | `external_freed` |
//! | `address` | hexadecimal; for `out_of_memory` and `refused`, the bytes left, in hexadecimal too |
//! | `bytes` | requested bytes, or the length of a region |
//! | `stream` | hexadecimal |
//! | `thread` | 0 if unknown |
//! | `kind` | the memory kind, such as `kv_cache` |
//! | `text` | the tag, or the name of an annotation |
//! | `frames` | the call site, innermost first: `function\|file\|line`, with `;` between the frames |
//! | `refusal` | of a refused request: `cause\|refuser\|outcome`, such as `budget\|kv_cache\|served` |
//!
//! `\`, `|`, `;`, and line ends are written as `\\`, `\p`, `\s`, `\n` and `\r` in texts and names, so that
//! every event is one line and every `|` and `;` is a separator. A text that a spreadsheet would interpret as
//! a formula (`=`, `+`, `-` or `@` first) begins with `\x3d`, `\x2b`, `\x2d` or `\x40` instead. Cells are
//! quoted as in RFC 4180. Segments, blocks of the start, settings and warnings are not written:
//! [`binary`](super::binary) has them.
//!
//! The reader finds the columns by name, in any order, and ignores unknown ones. `device`, `time_ns`,
//! `action`, `address` and `bytes` are required.

mod escape;

use super::event_collector::EventCollector;
use super::table_rows::{Rows, TableRow, first_cells};
use super::{AdmittedDevices, EventField, Format};
use crate::history::{EventAction, History, HistoryEvent, RefusalDetail, SiteId, Sites, TextId};
use crate::{Result, TraceError};
use orlop_core::{MemoryKind, StreamId};
use std::io::{Read, Write};

/// The columns in the order of writing, and whether a file must have them.
const COLUMNS: [(&str, EventField, bool); 11] = [
    ("device", EventField::Device, true),
    ("time_ns", EventField::Time, true),
    ("action", EventField::Action, true),
    ("address", EventField::Address, true),
    ("bytes", EventField::Bytes, true),
    ("stream", EventField::Stream, false),
    ("thread", EventField::Thread, false),
    ("kind", EventField::Kind, false),
    ("text", EventField::Text, false),
    ("frames", EventField::Frames, false),
    ("refusal", EventField::Refusal, false),
];

/// Returns `true` if a file that begins with these (uncompressed) bytes is of this format.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    let cells = first_cells(head);
    COLUMNS.iter().filter(|(.., needed)| *needed).all(|(name, ..)| cells.contains(&name.as_bytes()))
}

/// Writes the events of a history.
///
/// ```
/// use orlop_trace::formats::{csv, rmm};
///
/// let log = "1,0:0:1:0,allocate,0x10,256,0\n";
/// let mut text = Vec::new();
/// csv::write_csv(&rmm::read_rmm(log.as_bytes())?, &mut text)?;
/// let line = "0,1000000000,allocate,0x10,256,0x0,1,default,,,\n";
/// assert!(String::from_utf8_lossy(&text).ends_with(line));
/// assert_eq!(csv::read_csv(&text[..])?.devices[0].events.len(), 1);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`]; [`TraceError::TooManyDevices`], before anything is written.
pub fn write_csv(history: &History, mut writer: impl Write) -> Result<()> {
    // Readers of the table see only devices with events.
    let written = history.devices.iter().filter(|device| !device.events.is_empty());
    AdmittedDevices::all(written.map(|device| device.device))?;
    let failed = TraceError::write(Format::Csv);
    let names = COLUMNS.map(|(name, ..)| name).join(",");
    writeln!(writer, "{names}").map_err(&failed)?;
    let mut line = Vec::new();
    for device in &history.devices {
        for (index, event) in device.events.iter().enumerate() {
            line.clear();
            let refusal = device.refusal(index);
            write_event(device.device, event, refusal, &history.sites, &mut line).map_err(&failed)?;
            writer.write_all(&line).map_err(&failed)?;
        }
    }
    writer.flush().map_err(failed)?;
    Ok(())
}

fn write_event(
    device: u32,
    event: &HistoryEvent,
    refusal: Option<&RefusalDetail>,
    sites: &Sites,
    line: &mut Vec<u8>,
) -> std::io::Result<()> {
    let &HistoryEvent { time, address, bytes, stream, thread, kind, .. } = event;
    let action = event.action.name();
    write!(line, "{device},{time},{action},{address:#x},{bytes},{:#x},{thread},{kind},", stream.raw())?;
    escape::quote(&escape::escaped(sites.name(event.text)), line);
    line.push(b',');
    escape::quote(&escape::frames(event.site, sites), line);
    line.push(b',');
    if let Some(refusal) = refusal {
        escape::quote(&escape::refusal(refusal, sites), line);
    }
    line.push(b'\n');
    Ok(())
}

/// Reads events, plain or gzip. The devices are those that have events.
///
/// # Errors
///
/// [`TraceError`], for the first invalid line.
pub fn read_csv(reader: impl Read) -> Result<History> {
    let mut rows = Rows::open(reader, Format::Csv)?;
    let mut sites = Sites::default();
    let mut collector = EventCollector::default();
    let places = match rows.next()? {
        Some(row) => places(row)?,
        None => return Err(TraceError::WrongFormat { format: Format::Csv }),
    };
    while let Some(row) = rows.next()? {
        let (device, event) = read_event(row, &places, &mut sites)?;
        collector.push(device, event)?;
        match cell(row, places[10]) {
            b"" => {}
            cell => {
                let refusal = escape::read_refusal(cell, &mut sites);
                let refusal = refusal.ok_or_else(|| row.unexpected(EventField::Refusal, cell))?;
                collector.refusal(device, refusal);
            }
        }
    }
    Ok(History { devices: collector.finish(), sites, ..History::default() })
}

/// The index of each of [`COLUMNS`] in a row.
type ColumnPlaces = [Option<usize>; COLUMNS.len()];

fn places(row: TableRow<'_>) -> Result<ColumnPlaces> {
    let cells: Vec<&[u8]> = row.cells().collect();
    let mut places = [None; COLUMNS.len()];
    for (place, (name, field, needed)) in places.iter_mut().zip(COLUMNS) {
        *place = cells.iter().position(|cell| *cell == name.as_bytes());
        if needed && place.is_none() {
            return Err(TraceError::Missing { line: row.line, field });
        }
    }
    Ok(places)
}

fn read_event(row: TableRow<'_>, places: &ColumnPlaces, sites: &mut Sites) -> Result<(u32, HistoryEvent)> {
    let [device, time, action, address, bytes, stream, thread, kind, text, frames, _] = *places;
    let action = cell(row, action);
    let action = EventAction::from_name(action).ok_or_else(|| row.unexpected(EventField::Action, action))?;
    let kind = match cell(row, kind) {
        b"" => MemoryKind::Default,
        name => std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok())
            .ok_or_else(|| row.unexpected(EventField::Kind, name))?,
    };
    let text = match cell(row, text) {
        b"" => TextId::NONE,
        cell => {
            let text = escape::unescaped(cell).ok_or_else(|| row.unexpected(EventField::Text, cell))?;
            sites.text(&text)
        }
    };
    let site = match cell(row, frames) {
        b"" => SiteId::UNKNOWN,
        cell => escape::site(cell, sites).ok_or_else(|| row.unexpected(EventField::Frames, cell))?,
    };
    let event = HistoryEvent {
        time: number(row, time, EventField::Time, 10)?,
        address: number(row, address, EventField::Address, 16)?,
        bytes: number(row, bytes, EventField::Bytes, 10)?,
        stream: StreamId::from_raw(number(row, stream, EventField::Stream, 16)?),
        site,
        text,
        thread: short(row, thread, EventField::Thread)?,
        action,
        kind,
    };
    Ok((short(row, device, EventField::Device)?, event))
}

/// Returns an empty cell if there is none.
fn cell<'a>(row: TableRow<'a>, place: Option<usize>) -> &'a [u8] {
    place.and_then(|place| row.cell(place)).unwrap_or_default()
}

/// Returns 0 if there is no such column or the cell is empty.
fn number(row: TableRow<'_>, place: Option<usize>, field: EventField, base: u32) -> Result<u64> {
    match place {
        Some(place) if !cell(row, Some(place)).is_empty() => row.number(place, field, base),
        // The cells of required columns must not be empty.
        Some(place) if COLUMNS.iter().any(|&(_, one, needed)| one == field && needed) => {
            row.number(place, field, base)
        }
        _ => Ok(0),
    }
}

fn short(row: TableRow<'_>, place: Option<usize>, field: EventField) -> Result<u32> {
    let number = number(row, place, field, 10)?;
    u32::try_from(number).map_err(|_| row.unexpected(field, cell(row, place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_may_stand_anywhere() {
        let text = "note,bytes,address,action,time_ns,device\nx,5,ff,allocate,7,1\n";
        let history = read_csv(text.as_bytes()).unwrap();
        let event = history.devices[0].events[0];
        assert_eq!((history.devices[0].device, event.bytes, event.address, event.time), (1, 5, 255, 7));
        assert_eq!((event.stream, event.thread, event.text), (StreamId::from_raw(0), 0, TextId::NONE));
    }

    #[test]
    fn errors_name_the_column() {
        let header = COLUMNS.map(|(name, ..)| name).join(",");
        for (line, place) in [
            ("0,,allocate,0,0,0,0,,,", "the time is missing"),
            ("0,0,free,0,0,0,0,,,", "the action cannot be \"free\""),
            ("4294967296,0,allocate,0,0,0,0,,,", "the device cannot be \"4294967296\""),
            ("0,0,allocate,0,0,0,0,vram,,", "the kind cannot be \"vram\""),
            ("0,0,allocate,0,0,0,0,,a\\x,", "the text cannot be \"a\\\\x\""),
            ("0,0,allocate,0,0,0,0,,,f|g", "the call site cannot be \"f|g\""),
            ("0,0,refused,0,0,0,0,,,,vram|x|served", "the refusal cannot be \"vram|x|served\""),
            ("0,0,allocate", "the address is missing"),
        ] {
            let error = read_csv(format!("{header}\n{line}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line 2: {place}")), "{error}");
        }
        assert!(read_csv(&b""[..]).is_err());
        let error = read_csv(&b"device,time_ns,action,address\n"[..]).unwrap_err();
        assert!(error.to_string().starts_with("line 1: the size is missing"), "{error}");
    }

    #[test]
    fn files_are_known_by_their_beginning() {
        assert!(sniff(b"device,time_ns,action,address,bytes\r\n1"));
        assert!(!sniff(b"Thread,Time,Action,Pointer,Size,Stream\n") && !sniff(b""));
    }
}
