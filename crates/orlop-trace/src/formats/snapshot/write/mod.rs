//! A history as a snapshot, in either form.
//!
//! [`whole`] says what stands where; a [`SnapshotOutput`] says how it is written. A snapshot has microseconds
//! and no threads, memory kinds or [uses](EventAction::Use): those of a history that has them are left out.
//!
//! A snapshot's segments are those in the end. A recording does not have them; they follow from its events,
//! as far as these tell of regions, so that what was recorded of any allocator shows in PyTorch's viewer.
//! What was recorded without regions has no segments. The viewer has devices by place in a list, so the CPU
//! of a recording comes behind the last GPU.

mod json;
mod pickle;

use self::json::Json;
use self::pickle::Pickle;
use super::build::MAX_DEVICES;
use super::error::SnapshotError;
use super::words::Word;
use crate::history::Timeline;
use crate::history::{
    BlockState, DeviceHistory, EventAction, History, HistoryEvent, Segment, SiteId, Sites, Stage, TextId,
};
use crate::{Result, TraceError};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A microsecond in nanoseconds.
const MICROSECOND: u64 = 1000;

/// Writes a snapshot as PyTorch does, a pickle of protocol 4.
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_trace::formats::snapshot::write_pickle;
///
/// let json = r#"{"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": 100}]]}"#;
/// let history = History::parse(json.as_bytes())?;
/// let mut pickle = Vec::new();
/// write_pickle(&history, &mut pickle)?;
/// assert_eq!(History::parse(&pickle[..])?, history);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`] if the writer fails, [`SnapshotError::Device`] for more than 4096 devices, those
/// counted that only annotations name.
pub fn write_pickle(history: &History, writer: impl Write) -> Result<()> {
    let numbers = numbers(history)?;
    Pickle::write(writer, |out| whole(history, &numbers, out)).map_err(|error| TraceError::Write { error })
}

/// Writes a snapshot as JSON. It is some twenty times as long as a pickle, which has each call site once.
///
/// # Errors
///
/// As for [`write_pickle`].
pub fn write_json(history: &History, writer: impl Write) -> Result<()> {
    let numbers = numbers(history)?;
    Json::write(writer, |out| whole(history, &numbers, out)).map_err(|error| TraceError::Write { error })
}

/// Under which number each device is written. There is a list of events for every number up to the largest:
/// devices that are not numbered in a row, as the CPU in a recording, come behind the others, and between
/// them once there is no room. Numbers that only annotations name are nobody else's.
fn numbers(history: &History) -> Result<BTreeMap<u32, u32>> {
    let devices = history.devices.iter().map(|device| device.device);
    let (low, high): (BTreeSet<u32>, BTreeSet<u32>) = devices.partition(|&device| device < MAX_DEVICES);
    let named = history.annotations.iter().filter_map(|annotation| annotation.device);
    let taken: BTreeSet<u32> =
        low.iter().copied().chain(named).filter(|&device| device < MAX_DEVICES).collect();
    let next = taken.last().map_or(0, |last| last + 1);
    let mut free = (next..MAX_DEVICES).chain(0..next).filter(|number| !taken.contains(number));
    let mut numbers: BTreeMap<u32, u32> = low.iter().map(|&device| (device, device)).collect();
    for &device in &high {
        let none = SnapshotError::Device { device: device.into(), limit: MAX_DEVICES };
        numbers.insert(device, free.next().ok_or(TraceError::Snapshot(none))?);
    }
    Ok(numbers)
}

/// A form that a snapshot can be written in.
trait SnapshotOutput {
    fn begin_record(&mut self) -> io::Result<()>;
    fn end_record(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    /// The next value is the next of the list.
    fn item(&mut self) -> io::Result<()>;
    /// The next value is that of this key.
    fn key(&mut self, key: Word) -> io::Result<()>;
    fn number(&mut self, number: u64) -> io::Result<()>;
    fn flag(&mut self, flag: bool) -> io::Result<()>;
    fn word(&mut self, word: Word) -> io::Result<()>;
    fn string(&mut self, text: &str) -> io::Result<()>;
    fn pair(&mut self, pair: (u64, u64)) -> io::Result<()>;
    fn text(&mut self, sites: &Sites, text: TextId) -> io::Result<()>;
    fn site(&mut self, sites: &Sites, site: SiteId) -> io::Result<()>;

    fn numbered(&mut self, key: Word, number: u64) -> io::Result<()> {
        self.key(key)?;
        self.number(number)
    }

    fn worded(&mut self, key: Word, word: Word) -> io::Result<()> {
        self.key(key)?;
        self.word(word)
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.begin_list()?;
        for item in items {
            self.item()?;
            write(self, item)?;
        }
        self.end_list()
    }
}

fn whole(history: &History, numbers: &BTreeMap<u32, u32>, out: &mut impl SnapshotOutput) -> io::Result<()> {
    let sites = &history.sites;
    let number = |device: u32| numbers.get(&device).copied().unwrap_or(device);
    out.begin_record()?;
    out.key(Word::Segments)?;
    let ends: Vec<_> =
        history.devices.iter().map(|device| (number(device.device), end(device, history))).collect();
    let segments = ends.iter().flat_map(|(device, held)| held.iter().map(move |held| (*device, held)));
    out.list(segments, |out, (device, held)| segment(sites, device, held, out))?;
    out.key(Word::DeviceTraces)?;
    let last = numbers.values().max();
    let lists = last.map_or(0, |last| last + 1);
    out.list(0..lists, |out, list| {
        let device = history.devices.iter().find(|device| number(device.device) == list);
        let events = device.into_iter().flat_map(|device| {
            let written =
                device.events.iter().enumerate().filter(|(_, event)| action(event.action).is_some());
            written.map(move |(place, event)| (device, place, event))
        });
        out.list(events, |out, (device, place, happened)| event(sites, device, place, happened, out))
    })?;
    out.key(Word::AllocatorSettings)?;
    out.begin_record()?;
    if let Some(settings) = &history.settings {
        out.key(Word::Configuration)?;
        out.string(settings)?;
    }
    out.end_record()?;
    out.key(Word::ExternalAnnotations)?;
    out.list(&history.annotations, |out, annotation| {
        out.begin_record()?;
        out.key(Word::Stage)?;
        match annotation.stage {
            Stage::Begin => out.word(Word::Start)?,
            Stage::End => out.word(Word::End)?,
            Stage::Moment => out.string("MOMENT")?,
        }
        out.key(Word::Name)?;
        out.text(sites, annotation.name)?;
        if let Some(device) = annotation.device {
            out.numbered(Word::Device, number(device).into())?;
        }
        out.numbered(Word::TimeUs, annotation.time / MICROSECOND)?;
        out.end_record()
    })?;
    out.end_record()
}

/// The segments after the last event.
fn end<'a>(device: &'a DeviceHistory, history: &History) -> Cow<'a, [Segment]> {
    if !device.end.is_empty() || !tells_of_regions(device) {
        return Cow::Borrowed(&device.end);
    }
    Cow::Owned(Timeline::with_settings(device, history.settings.as_deref()).after(device.events.len()))
}

/// Whether segments follow from the events: not where a source tells of blocks only, nor where it tells of
/// some segments, and what is handed out lies outside of these. A snapshot with some of its segments would be
/// worse than one with none: whoever reads it takes the blocks outside for mistakes.
fn tells_of_regions(device: &DeviceHistory) -> bool {
    let gains =
        |event: &HistoryEvent| matches!(event.action, EventAction::RegionReserved | EventAction::Mapped);
    let lies_in_start = |event: &HistoryEvent| {
        let before = device.start.partition_point(|segment| segment.address <= event.address);
        let around = before.checked_sub(1).and_then(|place| device.start.get(place));
        around.is_some_and(|segment| {
            let room = segment.bytes.checked_sub(event.address - segment.address);
            room.is_some_and(|room| event.bytes <= room)
        })
    };
    let mut allocations = device.events.iter().filter(|event| event.action == EventAction::Allocate);
    device.events.iter().any(gains) || !device.start.is_empty() && allocations.all(lies_in_start)
}

fn segment(sites: &Sites, device: u32, segment: &Segment, out: &mut impl SnapshotOutput) -> io::Result<()> {
    let sum = |pending: bool, requested: bool| -> u64 {
        let used = segment.blocks.iter().filter(|block| match block.state {
            BlockState::Live => true,
            BlockState::Pending => pending,
            BlockState::Free => false,
        });
        let bytes = used.map(|block| if requested { block.requested } else { block.bytes });
        bytes.fold(0, u64::saturating_add)
    };
    out.begin_record()?;
    out.numbered(Word::Device, device.into())?;
    out.numbered(Word::Address, segment.address)?;
    out.numbered(Word::TotalSize, segment.bytes)?;
    out.numbered(Word::AllocatedSize, sum(false, false))?;
    out.numbered(Word::ActiveSize, sum(true, false))?;
    out.numbered(Word::RequestedSize, sum(true, true))?;
    out.numbered(Word::Stream, segment.stream.get())?;
    out.worded(Word::SegmentType, if segment.small { Word::Small } else { Word::Large })?;
    out.key(Word::SegmentPoolId)?;
    out.pair(segment.pool)?;
    out.key(Word::IsExpandable)?;
    out.flag(segment.expandable)?;
    out.key(Word::Frames)?;
    out.site(sites, segment.site)?;
    out.key(Word::Blocks)?;
    out.list(&segment.blocks, |out, block| {
        out.begin_record()?;
        out.numbered(Word::Address, block.address)?;
        out.numbered(Word::Size, block.bytes)?;
        out.numbered(Word::RequestedSize, block.requested)?;
        let state = match block.state {
            BlockState::Live => Word::ActiveAllocated,
            BlockState::Pending => Word::ActivePendingFree,
            BlockState::Free => Word::Inactive,
        };
        out.worded(Word::State, state)?;
        out.key(Word::Frames)?;
        out.site(sites, block.site)?;
        out.end_record()
    })?;
    out.end_record()
}

/// What PyTorch calls it; `None` for what it does not record.
fn action(action: EventAction) -> Option<Word> {
    Some(match action {
        EventAction::Allocate => Word::Alloc,
        EventAction::FreeRequested => Word::FreeRequested,
        EventAction::FreeCompleted => Word::FreeCompleted,
        EventAction::RegionReserved => Word::SegmentAlloc,
        EventAction::RegionReleased => Word::SegmentFree,
        EventAction::Mapped => Word::SegmentMap,
        EventAction::Unmapped => Word::SegmentUnmap,
        EventAction::OutOfMemory => Word::Oom,
        EventAction::Snapshot => Word::Snapshot,
        EventAction::Annotation => Word::UserDefined,
        EventAction::Use => return None,
    })
}

fn event(
    sites: &Sites,
    device: &DeviceHistory,
    place: usize,
    event: &HistoryEvent,
    out: &mut impl SnapshotOutput,
) -> io::Result<()> {
    out.begin_record()?;
    out.worded(Word::Action, action(event.action).unwrap_or(Word::UserDefined))?;
    let address = if event.action == EventAction::OutOfMemory { Word::DeviceFree } else { Word::Addr };
    out.numbered(address, event.address)?;
    out.numbered(Word::Size, event.bytes)?;
    out.numbered(Word::Stream, event.stream.get())?;
    out.numbered(Word::TimeUs, event.time / MICROSECOND)?;
    if event.text != TextId::NONE {
        out.key(Word::UserMetadata)?;
        out.text(sites, event.text)?;
    }
    if let Some(detail) = device.detail(place) {
        out.key(Word::CompileContext)?;
        if detail.context == TextId::NONE {
            out.word(Word::NotAvailable)?;
        } else {
            out.text(sites, detail.context)?;
        }
        out.key(Word::PoolId)?;
        out.pair(detail.pool)?;
    }
    out.key(Word::Frames)?;
    out.site(sites, event.site)?;
    out.end_record()
}
