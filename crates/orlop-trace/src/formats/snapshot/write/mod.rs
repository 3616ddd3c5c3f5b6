//! Writing a history as a snapshot, in either format.
//!
//! [`write_snapshot`] defines the contents; a [`SnapshotOutput`] writes them in a format. A snapshot has
//! microseconds, and no threads, memory kinds, [uses](EventAction::Use) or external memory: these are
//! omitted.
//!
//! The segments of a snapshot are those at the end. Recordings do not have them; they are computed from the
//! events of regions, so that a recording of any allocator can be displayed by PyTorch's viewer. Without such
//! events the snapshot has no segments. The viewer identifies devices by their index in a list, so the CPU of
//! a recording is written after the last GPU.

mod json;
mod pickle;

use self::json::Json;
use self::pickle::Pickle;
use super::build::MAX_DEVICES;
use super::words::Word;
use crate::formats::Format;
use crate::history::{
    AnnotationStage, BlockState, DeviceHistory, EventAction, History, HistoryEvent, Segment, SiteId, Sites,
    TextId, Timeline,
};
use crate::{Result, TraceError};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A microsecond in nanoseconds.
const MICROSECOND: u64 = 1000;

/// Writes a snapshot as PyTorch does: a pickle of protocol 4.
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
/// [`TraceError::Write`] if the writer fails; [`TraceError::DeviceNumber`] for more than 4096 devices,
/// including those that only annotations refer to.
pub fn write_pickle(history: &History, writer: impl Write) -> Result<()> {
    let numbers = numbers(history)?;
    Pickle::write(writer, |out| write_snapshot(history, &numbers, out))
        .map_err(TraceError::write(Format::Snapshot))
}

/// Writes a snapshot as JSON. It is about twenty times as long as a pickle, which has each call site once.
///
/// # Errors
///
/// As for [`write_pickle`].
pub fn write_json(history: &History, writer: impl Write) -> Result<()> {
    let numbers = numbers(history)?;
    Json::write(writer, |out| write_snapshot(history, &numbers, out))
        .map_err(TraceError::write(Format::Snapshot))
}

/// Returns the number under which each device is written. There is a list of events for every number up to
/// the largest. Devices with large numbers, such as the CPU of a recording, come after the others, and
/// between them if there is no room. Numbers that only annotations refer to are not reused.
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
        let none = TraceError::DeviceNumber { device: device.into(), limit: MAX_DEVICES };
        numbers.insert(device, free.next().ok_or(none)?);
    }
    Ok(numbers)
}

/// A format of snapshots.
trait SnapshotOutput {
    fn begin_record(&mut self) -> io::Result<()>;
    fn end_record(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    /// Begins the next item of the list.
    fn item(&mut self) -> io::Result<()>;
    /// Begins the value of this key.
    fn key(&mut self, key: Word) -> io::Result<()>;
    fn number(&mut self, number: u64) -> io::Result<()>;
    fn flag(&mut self, flag: bool) -> io::Result<()>;
    fn word(&mut self, word: Word) -> io::Result<()>;
    fn string(&mut self, text: &str) -> io::Result<()>;
    fn pair(&mut self, pair: (u64, u64)) -> io::Result<()>;
    fn text(&mut self, text: TextId, sites: &Sites) -> io::Result<()>;
    fn site(&mut self, site: SiteId, sites: &Sites) -> io::Result<()>;

    fn number_field(&mut self, key: Word, number: u64) -> io::Result<()> {
        self.key(key)?;
        self.number(number)
    }

    fn word_field(&mut self, key: Word, word: Word) -> io::Result<()> {
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

fn write_snapshot(
    history: &History,
    numbers: &BTreeMap<u32, u32>,
    out: &mut impl SnapshotOutput,
) -> io::Result<()> {
    let sites = &history.sites;
    let number = |device: u32| numbers.get(&device).copied().unwrap_or(device);
    out.begin_record()?;
    out.key(Word::Segments)?;
    let ends: Vec<_> =
        history.devices.iter().map(|device| (number(device.device), end(device, history))).collect();
    let segments =
        ends.iter().flat_map(|(device, segments)| segments.iter().map(move |segment| (*device, segment)));
    out.list(segments, |out, (device, segment)| write_segment(device, segment, sites, out))?;
    out.key(Word::DeviceTraces)?;
    let last = numbers.values().max();
    let lists = last.map_or(0, |last| last + 1);
    out.list(0..lists, |out, list| {
        let device = history.devices.iter().find(|device| number(device.device) == list);
        let events = device.into_iter().flat_map(|device| {
            let written =
                device.events.iter().enumerate().filter(|(_, event)| action(event.action).is_some());
            written.map(move |(index, event)| (device, index, event))
        });
        out.list(events, |out, (device, index, event)| write_event(device, index, event, sites, out))
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
            AnnotationStage::Begin => out.word(Word::Start)?,
            AnnotationStage::End => out.word(Word::End)?,
            AnnotationStage::Instant => out.string("MOMENT")?,
        }
        out.key(Word::Name)?;
        out.text(annotation.name, sites)?;
        if let Some(device) = annotation.device {
            out.number_field(Word::Device, number(device).into())?;
        }
        out.number_field(Word::TimeUs, annotation.time / MICROSECOND)?;
        out.end_record()
    })?;
    out.end_record()
}

/// Returns the segments after the last event.
fn end<'a>(device: &'a DeviceHistory, history: &History) -> Cow<'a, [Segment]> {
    if !device.end.is_empty() || !has_all_regions(device) {
        return Cow::Borrowed(&device.end);
    }
    Cow::Owned(Timeline::with_settings(device, history.settings.as_deref()).after(device.events.len()))
}

/// Returns `true` if the segments follow from the events. They do not if a source records blocks only, or
/// only some of the segments. A snapshot with some of its segments would be worse than one with none: the
/// blocks outside would be taken for errors.
fn has_all_regions(device: &DeviceHistory) -> bool {
    let lies_in_start = |event: &HistoryEvent| {
        let before = device.start.partition_point(|segment| segment.address <= event.address);
        let around = before.checked_sub(1).and_then(|index| device.start.get(index));
        around.is_some_and(|segment| {
            let room = segment.bytes.checked_sub(event.address - segment.address);
            room.is_some_and(|room| event.bytes <= room)
        })
    };
    let mut allocations = device.events.iter().filter(|event| event.action == EventAction::Allocate);
    device.events.iter().any(|event| event.action.adds_region())
        || !device.start.is_empty() && allocations.all(lies_in_start)
}

fn write_segment(
    device: u32,
    segment: &Segment,
    sites: &Sites,
    out: &mut impl SnapshotOutput,
) -> io::Result<()> {
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
    out.number_field(Word::Device, device.into())?;
    out.number_field(Word::Address, segment.address)?;
    out.number_field(Word::TotalSize, segment.bytes)?;
    out.number_field(Word::AllocatedSize, sum(false, false))?;
    out.number_field(Word::ActiveSize, sum(true, false))?;
    out.number_field(Word::RequestedSize, sum(true, true))?;
    out.number_field(Word::Stream, segment.stream.raw())?;
    out.word_field(Word::SegmentType, if segment.small { Word::Small } else { Word::Large })?;
    out.key(Word::SegmentPoolId)?;
    out.pair(segment.pool)?;
    out.key(Word::IsExpandable)?;
    out.flag(segment.expandable)?;
    out.key(Word::Frames)?;
    out.site(segment.site, sites)?;
    out.key(Word::Blocks)?;
    out.list(&segment.blocks, |out, block| {
        out.begin_record()?;
        out.number_field(Word::Address, block.address)?;
        out.number_field(Word::Size, block.bytes)?;
        out.number_field(Word::RequestedSize, block.requested)?;
        let state = match block.state {
            BlockState::Live => Word::ActiveAllocated,
            BlockState::Pending => Word::ActivePendingFree,
            BlockState::Free => Word::Inactive,
        };
        out.word_field(Word::State, state)?;
        out.key(Word::Frames)?;
        out.site(block.site, sites)?;
        out.end_record()
    })?;
    out.end_record()
}

/// Returns PyTorch's word for an action; `None` if it does not record it.
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
        EventAction::Use
        | EventAction::Refused
        | EventAction::ExternalAdopted
        | EventAction::ExternalFreed => return None,
    })
}

fn write_event(
    device: &DeviceHistory,
    index: usize,
    event: &HistoryEvent,
    sites: &Sites,
    out: &mut impl SnapshotOutput,
) -> io::Result<()> {
    out.begin_record()?;
    out.word_field(Word::Action, action(event.action).unwrap_or(Word::UserDefined))?;
    let address = if event.action == EventAction::OutOfMemory { Word::DeviceFree } else { Word::Addr };
    out.number_field(address, event.address)?;
    out.number_field(Word::Size, event.bytes)?;
    out.number_field(Word::Stream, event.stream.raw())?;
    out.number_field(Word::TimeUs, event.time / MICROSECOND)?;
    if event.text != TextId::NONE {
        out.key(Word::UserMetadata)?;
        out.text(event.text, sites)?;
    }
    if let Some(detail) = device.detail(index) {
        out.key(Word::CompileContext)?;
        if detail.context == TextId::NONE {
            out.word(Word::NotAvailable)?;
        } else {
            out.text(detail.context, sites)?;
        }
        out.key(Word::PoolId)?;
        out.pair(detail.pool)?;
    }
    out.key(Word::Frames)?;
    out.site(event.site, sites)?;
    out.end_record()
}
