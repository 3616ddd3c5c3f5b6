//! Logs of RMM before version 0.13 (`rmm.csv_log()`, `rmmGetLog`): a table of events with the names of its
//! columns in the first line.
//!
//! Frees have no size: it is that of the block. A `Realloc` has only its new address; the block that is live
//! there is freed, and a block that moved stays live.

use super::{parse_seconds, pointer};
use crate::formats::EventField;
use crate::formats::event_collector::EventCollector;
use crate::formats::table_rows::TableRow;
use crate::history::{EventAction, History, HistoryEvent, SiteId, Sites};
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::collections::HashMap;

/// The columns that are read.
const COLUMNS: [(&str, EventField); 6] = [
    ("Event Type", EventField::Action),
    ("Device ID", EventField::Device),
    ("Address", EventField::Address),
    ("Stream", EventField::Stream),
    ("Size (bytes)", EventField::Bytes),
    ("Start", EventField::Time),
];

/// Columns that may be missing.
const TOTAL: &str = "Total Memory";
const LOCATION: &str = "Location";

/// Returns `true` if these are the names of the columns.
pub(super) fn is_header(cells: &[&[u8]]) -> bool {
    COLUMNS[..1].iter().chain(&COLUMNS[4..5]).all(|(name, _)| cells.contains(&name.as_bytes()))
}

/// The state of reading a log.
pub(super) struct EventTable {
    columns: [usize; 6],
    total: Option<usize>,
    location: Option<usize>,
    /// The sizes of the live blocks, by device and address.
    live: HashMap<(u32, u64), u64>,
    sites: Sites,
    collector: EventCollector,
}

impl EventTable {
    pub(super) fn new(header: TableRow<'_>) -> Result<Self> {
        let cells: Vec<&[u8]> = header.cells().collect();
        let find = |name: &str| cells.iter().position(|cell| *cell == name.as_bytes());
        let mut columns = [0; 6];
        for (index, (name, field)) in columns.iter_mut().zip(COLUMNS) {
            *index = find(name).ok_or(TraceError::Missing { line: header.line, field })?;
        }
        Ok(Self {
            columns,
            total: find(TOTAL),
            location: find(LOCATION),
            live: HashMap::new(),
            sites: Sites::default(),
            collector: EventCollector::default(),
        })
    }

    pub(super) fn event(&mut self, row: TableRow<'_>) -> Result<()> {
        let [action, device, address, stream, bytes, time] = self.columns;
        let number = row.number(device, EventField::Device, 10)?;
        let device = u32::try_from(number)
            .map_err(|_| row.unexpected(EventField::Device, number.to_string().as_bytes()))?;
        let address = pointer(row, address, EventField::Address)?;
        let text = row.need(time, EventField::Time)?;
        let time = parse_seconds(text).ok_or_else(|| row.unexpected(EventField::Time, text))?;
        let stream = StreamId::from_raw(pointer(row, stream, EventField::Stream)?);
        let site = self.site(row);
        let event =
            |action, bytes| HistoryEvent { time, stream, site, ..HistoryEvent::new(action, address, bytes) };
        let text = row.need(action, EventField::Action)?;
        let is_realloc = text == b"Realloc";
        match text {
            b"Alloc" | b"Realloc" => {
                let bytes = row.number(bytes, EventField::Bytes, 10)?;
                let before = self.live.insert((device, address), bytes);
                if let Some(before) = before.filter(|_| is_realloc) {
                    self.collector.push(device, event(EventAction::FreeRequested, before))?;
                }
                self.collector.push(device, event(EventAction::Allocate, bytes))?;
            }
            b"Free" => {
                let bytes = self.live.remove(&(device, address)).unwrap_or(0);
                self.collector.push(device, event(EventAction::FreeRequested, bytes))?;
            }
            _ => return Err(row.unexpected(EventField::Action, text)),
        }
        let total = self.total.and_then(|total| row.number(total, EventField::Bytes, 10).ok());
        if let Some(total) = total.filter(|&total| total > 0) {
            self.collector.device(device).memory = Some(total);
        }
        Ok(())
    }

    /// Returns the call site of a row: `file:line`.
    fn site(&mut self, row: TableRow<'_>) -> SiteId {
        let cell = self.location.and_then(|location| row.cell(location)).unwrap_or_default();
        if cell.is_empty() {
            return SiteId::UNKNOWN;
        }
        let text = String::from_utf8_lossy(cell);
        let (file, line) = text
            .rsplit_once(':')
            .and_then(|(file, line)| Some((file, line.parse().ok()?)))
            .unwrap_or((&*text, 0));
        let frame = self.sites.frame("", file, line);
        self.sites.stack(&[frame])
    }

    pub(super) fn finish(self) -> History {
        History { devices: self.collector.finish(), sites: self.sites, ..History::default() }
    }
}
