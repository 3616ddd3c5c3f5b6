//! Writing the tracks and marks of a history.

use super::super::{DeviceLabel, Format, numbered_device};
use super::counts::{CountedBlock, DeviceCounts};
use super::entry::{ArgumentValue, EntryWriter, PerfettoEntry};
use super::tracks::CounterTracks;
use crate::history::{DeviceHistory, EventAction, History, HistoryEvent, Sites};
use crate::{Result, TraceError};
use orlop_core::MemoryKind;
use std::io::{self, Write};

/// Writes the counters and marks of a history. [`PerfettoWriter`] has options.
///
/// ```
/// use orlop_trace::formats::{perfetto, rmm};
///
/// let history = rmm::read_rmm("1,0:0:1:0,allocate,0x10,256,0\n".as_bytes())?;
/// let mut json = Vec::new();
/// perfetto::write_perfetto(&history, &mut json)?;
/// assert!(String::from_utf8_lossy(&json).contains(r#""name":"live bytes""#));
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`].
pub fn write_perfetto(history: &History, writer: impl Write) -> Result<()> {
    PerfettoWriter::new().write(history, writer)
}

/// Options for writing a history.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct PerfettoWriter {
    blocks: bool,
    resolution: u64,
}

impl PerfettoWriter {
    /// Creates a writer of counters and marks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also writes each block as a slice, with its address, size, tag and call site.
    pub fn blocks(mut self, blocks: bool) -> Self {
        self.blocks = blocks;
        self
    }

    /// Writes at most two samples of the counters in each interval of this length: the one with the most live
    /// bytes, so that no peak is lost, and the last one. 0, the default, writes every change.
    pub fn resolution(mut self, nanoseconds: u64) -> Self {
        self.resolution = nanoseconds;
        self
    }

    /// Writes a history. Small writes are frequent: pass a `BufWriter` for a file.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn write(&self, history: &History, writer: impl Write) -> Result<()> {
        self.try_write(history, writer).map_err(TraceError::write(Format::Perfetto))
    }

    fn try_write(self, history: &History, writer: impl Write) -> io::Result<()> {
        let zero = history.devices.iter().filter_map(|device| Some(device.events.first()?.time)).min();
        let mut out = EntryWriter::new(writer, zero.unwrap_or(0))?;
        for device in &history.devices {
            self.device(device, &history.sites, zero.unwrap_or(0), &mut out)?;
        }
        out.finish()
    }

    fn device<W: Write>(
        self,
        device: &DeviceHistory,
        sites: &Sites,
        zero: u64,
        out: &mut EntryWriter<W>,
    ) -> io::Result<()> {
        let number = device.device;
        let name = match numbered_device(number) {
            Some(device) => device.to_string(),
            None => DeviceLabel(number).to_string(),
        };
        out.put(PerfettoEntry::metadata("process_name", number).with("name", ArgumentValue::Text(&name)))?;
        let mut counts = DeviceCounts::at_start(device);
        let mut tracks = CounterTracks::new(number, self.resolution, kinds(device));
        tracks.note(&counts, zero, out)?;
        if self.blocks {
            for (address, known) in counts.blocks() {
                out.put(begins(number, zero, address, known))?;
            }
        }
        for event in &device.events {
            let change = counts.apply(event);
            if change.counters {
                tracks.note(&counts, event.time, out)?;
            }
            if self.blocks {
                if let Some(known) = change.ended {
                    out.put(PerfettoEntry::block(false, number, event.time, known.number))?;
                }
                if let Some(known) = change.began {
                    let site = sites.frames(event.site).next();
                    let function = site.map_or("", |frame| sites.name(frame.function));
                    let entry = begins(number, event.time, event.address, known);
                    let entry = entry.with("tag", ArgumentValue::Text(sites.name(event.text)));
                    out.put(entry.with("site", ArgumentValue::Text(function)))?;
                }
            }
            mark(number, event, sites, out)?;
        }
        tracks.flush(out)
    }
}

/// Returns the memory kinds of the device's blocks.
fn kinds(device: &DeviceHistory) -> Vec<MemoryKind> {
    let mut used = [false; MemoryKind::COUNT];
    used[MemoryKind::Default.index()] = !(device.start.is_empty() && device.unplaced.is_empty());
    for event in device.events.iter().filter(|event| event.action == EventAction::Allocate) {
        used[event.kind.index()] = true;
    }
    let used: Vec<_> = MemoryKind::ALL.into_iter().filter(|kind| used[kind.index()]).collect();
    if used.is_empty() { vec![MemoryKind::Default] } else { used }
}

fn begins<'a>(number: u32, time: u64, address: u64, known: CountedBlock) -> PerfettoEntry<'a> {
    let entry = PerfettoEntry::block(true, number, time, known.number);
    entry.with("address", ArgumentValue::Address(address)).with("bytes", ArgumentValue::Number(known.bytes))
}

/// Writes an event that is not a counter.
fn mark<W: Write>(
    number: u32,
    event: &HistoryEvent,
    sites: &Sites,
    out: &mut EntryWriter<W>,
) -> io::Result<()> {
    let name = match event.action {
        EventAction::OutOfMemory => "out of memory",
        EventAction::Refused => "refused",
        EventAction::Snapshot => "snapshot",
        EventAction::Annotation => sites.name(event.text),
        _ => return Ok(()),
    };
    let mut entry = PerfettoEntry::instant(name, number, event.thread, event.time);
    if matches!(event.action, EventAction::OutOfMemory | EventAction::Refused) {
        entry = entry
            .with("requested", ArgumentValue::Number(event.bytes))
            .with("free", ArgumentValue::Number(event.address));
    }
    out.put(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::by_device;
    use crate::history::{BlockState, Segment, SegmentBlock, SiteId};
    use orlop_core::StreamId;
    use serde_json::Value as Json;

    fn event(time: u64, action: EventAction, address: u64, bytes: u64) -> HistoryEvent {
        HistoryEvent { time, ..HistoryEvent::new(action, address, bytes) }
    }

    fn entries(writer: PerfettoWriter, history: &History) -> Vec<Json> {
        let mut json = Vec::new();
        writer.write(history, &mut json).unwrap();
        let json: Json = serde_json::from_slice(&json).unwrap();
        json["traceEvents"].as_array().unwrap().clone()
    }

    fn counters(entries: &[Json], name: &str) -> Vec<(f64, u64)> {
        let of = entries.iter().filter(|entry| entry["name"] == name && entry["ph"] == "C");
        let sum =
            |entry: &Json| entry["args"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
        of.map(|entry| (entry["ts"].as_f64().unwrap(), sum(entry))).collect()
    }

    fn history() -> History {
        let mut history = History::default();
        let text = history.sites.text("step \"1\"");
        let kv = HistoryEvent { kind: MemoryKind::KvCache, ..event(3500, EventAction::Allocate, 64, 100) };
        let events = [
            event(1000, EventAction::RegionReserved, 0, 4096),
            event(2000, EventAction::Allocate, 0, 10),
            event(3000, EventAction::FreeRequested, 0, 10),
            event(3250, EventAction::FreeCompleted, 0, 10),
            kv,
            HistoryEvent { text, ..event(4000, EventAction::Annotation, 0, 0) },
            event(5000, EventAction::OutOfMemory, 77, 9000),
            event(6000, EventAction::FreeRequested, 500, 7),
        ];
        history.devices = by_device(events.map(|event| (0, event)));
        let (stream, site) = (StreamId::from_raw(0), SiteId::UNKNOWN);
        let block = SegmentBlock { address: 500, bytes: 512, requested: 7, state: BlockState::Live, site };
        let blocks = vec![block];
        let (small, expandable, pool) = (true, false, (0, 0));
        history.devices[0].start =
            vec![Segment { address: 500, bytes: 512, stream, small, expandable, pool, site, blocks }];
        history
    }

    #[test]
    fn counters_follow_the_events() {
        let entries = entries(PerfettoWriter::new(), &history());
        assert_eq!(counters(&entries, "live bytes"), [(0.0, 7), (1.0, 17), (2.0, 7), (2.5, 107), (5.0, 100)]);
        assert_eq!(counters(&entries, "reserved bytes"), [(0.0, 512), (0.0, 4608)]);
        assert_eq!(counters(&entries, "pending bytes"), [(2.0, 10), (2.25, 0), (5.0, 7)]);
        assert_eq!(entries[0]["args"]["name"], "cuda:0");
        let live = entries.iter().find(|entry| entry["name"] == "live bytes").unwrap();
        assert_eq!(live["args"], serde_json::json!({"default": 7, "kv_cache": 0}));
        let named = |name: &str| entries.iter().find(|entry| entry["name"] == name).unwrap();
        assert_eq!((&named("step \"1\"")["ts"], &named("step \"1\"")["ph"]), (&3.0.into(), &"i".into()));
        assert_eq!(named("out of memory")["args"], serde_json::json!({"requested": 9000, "free": 77}));
    }

    #[test]
    fn a_resolution_keeps_the_peaks() {
        let mut history = History::default();
        let pair = |time, bytes| {
            [
                event(time, EventAction::Allocate, 0, bytes),
                event(time + 1, EventAction::FreeRequested, 0, bytes),
            ]
        };
        let events = (0..100).flat_map(|step| pair(step * 10, if step == 33 { 900 } else { step }));
        history.devices = by_device(events.map(|event| (0, event)));
        let entries = entries(PerfettoWriter::new().resolution(1000), &history);
        assert_eq!(counters(&entries, "live bytes"), [(0.0, 0), (0.33, 900), (0.991, 0)]);
    }

    #[test]
    fn blocks_begin_and_end_once() {
        let entries = entries(PerfettoWriter::new().blocks(true), &history());
        let of = |phase: &str| -> Vec<u64> {
            let of = entries.iter().filter(|entry| entry["ph"] == phase);
            of.map(|entry| entry["id"].as_u64().unwrap()).collect()
        };
        assert_eq!((of("b"), of("e")), (vec![0, 1, 2], vec![1, 0]));
        assert_eq!(entries.iter().find(|entry| entry["ph"] == "b").unwrap()["args"]["address"], "0x1f4");
    }

    #[test]
    fn external_memory_has_a_counter_of_its_own() {
        let mut history = History::default();
        let events = [
            event(1000, EventAction::ExternalAdopted, 4096, 500),
            event(2000, EventAction::Allocate, 0, 10),
            event(3000, EventAction::ExternalFreed, 4096, 500),
        ];
        history.devices = by_device(events.map(|event| (0, event)));
        let entries = entries(PerfettoWriter::new(), &history);
        assert_eq!(counters(&entries, "external bytes"), [(0.0, 500), (2.0, 0)]);
        assert_eq!(counters(&entries, "live bytes"), [(0.0, 0), (1.0, 10)]);
    }

    #[test]
    fn an_empty_history_is_a_valid_trace() {
        assert!(entries(PerfettoWriter::new(), &History::default()).is_empty());
    }
}
