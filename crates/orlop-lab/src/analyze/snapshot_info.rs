//! What a history says, device by device: who held the memory at the peak and in the end, what fragmentation
//! cost, and why requests failed.

use super::fragmentation::SegmentsInfo;
use super::holders::{Holdings, events_after, live, peak};
use super::naming::{Naming, SiteGroups};
use super::out_of_memory::OutOfMemoryReport;
use orlop_trace::history::Timeline;
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryWarning, WorkStep, Workload};
use serde::Serialize;
use std::borrow::Cow;

/// Failed requests that are looked at, of each device: a program that tries again fails thousands of times.
const FAILURES: usize = 16;

/// The description of a history.
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_lab::analyze::{Naming, SnapshotInfo};
///
/// let info = SnapshotInfo::of(&History::default(), Naming::default().top(5));
/// assert!(info.devices.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// The allocator's settings, if the source has them.
    pub settings: Option<String>,
    /// What does not fit together in the source.
    pub warnings: Vec<String>,
    /// How many warnings there are, with those that are only counted.
    pub warning_count: u64,
    /// By device.
    pub devices: Vec<DeviceInfo>,
}

/// The description of what happened on a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number.
    pub device: u32,
    /// Bytes of memory it has, if the source says so.
    pub memory: Option<u64>,
    /// Events recorded.
    pub events: usize,
    /// Blocks handed out.
    pub allocations: usize,
    /// Blocks given back.
    pub frees: usize,
    /// From the first event to the last, in nanoseconds.
    pub duration_ns: u64,
    /// Live bytes that were there when the recording began, as asked for.
    pub start_bytes: u64,
    /// Whether the source tells of segments.
    pub has_segments: bool,
    /// The most bytes that were held from the device at once: what segments took, or what the source counted
    /// where it tells of none. `None` if it does neither.
    pub peak_reserved: Option<u64>,
    /// When the most bytes lived.
    pub peak: InstantInfo,
    /// After the last event.
    pub end: InstantInfo,
    /// Requests that failed: the first few.
    pub out_of_memory: Vec<OutOfMemoryReport>,
    /// How many more failed.
    pub more_out_of_memory: usize,
    /// Events that fit no segment that is there; 0 where the source tells of none.
    pub strays: u64,
}

/// A moment of a device's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct InstantInfo {
    /// After how many events; 0 is the start.
    pub events: usize,
    /// When, in nanoseconds since the first event.
    pub time_ns: u64,
    /// Who holds what lives.
    pub held: Holdings,
    /// The segments; `None` where the source does not tell.
    pub segments: Option<SegmentsInfo>,
}

impl SnapshotInfo {
    /// Describes a history.
    #[must_use]
    pub fn of(history: &History, naming: Naming) -> Self {
        Self {
            settings: history.settings.clone(),
            warnings: history.warnings.iter().map(ToString::to_string).collect(),
            warning_count: HistoryWarning::count(&history.warnings),
            devices: history.devices.iter().map(|device| DeviceInfo::of(device, history, naming)).collect(),
        }
    }
}

impl DeviceInfo {
    fn of(device: &DeviceHistory, all: &History, naming: Naming) -> Self {
        let history = &*with_start(device);
        let work = Workload::of(history);
        let moments = Timeline::with_settings(history, all.settings.as_deref());
        let mut names = SiteGroups::new(&all.sites, naming.depth);
        let mut moment = |steps: usize, events: usize| {
            let segments = if events == history.events.len() && !history.end.is_empty() {
                Cow::Borrowed(&history.end)
            } else {
                Cow::Owned(moments.after(events))
            };
            InstantInfo {
                events,
                time_ns: time(history, events),
                held: Holdings::after(steps, &work, history, &mut names, naming),
                segments: (!segments.is_empty()).then(|| SegmentsInfo::of(&segments, history.memory)),
            }
        };
        let (peak, _) = peak(&work);
        let peak = moment(peak, events_after(&work, peak));
        let end = moment(work.steps.len(), history.events.len());
        let failures = || {
            let events = history.events.iter().enumerate();
            events.filter(|(_, event)| event.action == EventAction::OutOfMemory)
        };
        let out_of_memory: Vec<OutOfMemoryReport> = failures()
            .take(FAILURES)
            .map(|(place, event)| {
                OutOfMemoryReport::of(place, event, history, &work, &moments, &mut names, naming)
            })
            .collect();
        let steps = |wanted: fn(&WorkStep) -> bool| work.steps.iter().filter(|step| wanted(step)).count();
        Self {
            device: history.device,
            memory: history.memory,
            events: history.events.len(),
            allocations: steps(|step| matches!(step, WorkStep::Allocate(_))),
            frees: steps(|step| matches!(step, WorkStep::Free(_))),
            duration_ns: time(history, history.events.len()),
            start_bytes: live(&work, 0).fold(0, |sum: u64, block| sum.saturating_add(block.bytes)),
            has_segments: history.has_segments(),
            peak_reserved: peak_reserved(history),
            peak,
            end,
            more_out_of_memory: failures().count() - out_of_memory.len(),
            out_of_memory,
            strays: if history.has_segments() { moments.strays() } else { 0 },
        }
    }
}

/// When so many events are done, in nanoseconds since the first.
fn time(history: &DeviceHistory, events: usize) -> u64 {
    let last = events.checked_sub(1).and_then(|event| history.events.get(event));
    last.zip(history.events.first()).map_or(0, |(last, first)| last.time.saturating_sub(first.time))
}

/// A snapshot that was taken without a recording has an end only; then nothing happened before it.
pub(crate) fn with_start(history: &DeviceHistory) -> Cow<'_, DeviceHistory> {
    if history.start.is_empty() && history.events.is_empty() && !history.end.is_empty() {
        let mut whole = history.clone();
        whole.start.clone_from(&history.end);
        return Cow::Owned(whole);
    }
    Cow::Borrowed(history)
}

/// The most bytes that segments took at once, or what the source counted; `None` if nothing tells of either.
pub(crate) fn peak_reserved(history: &DeviceHistory) -> Option<u64> {
    peak_reserved_after(history, history.events.len())
}

/// The same up to this many events.
pub(crate) fn peak_reserved_after(history: &DeviceHistory, events: usize) -> Option<u64> {
    let mut told = !history.start.is_empty();
    let mut now: u128 = history.start.iter().map(|segment| u128::from(segment.bytes)).sum();
    let mut most = now;
    for event in history.events.iter().take(events) {
        match event.action {
            EventAction::RegionReserved | EventAction::Mapped => now += u128::from(event.bytes),
            EventAction::RegionReleased | EventAction::Unmapped => {
                now = now.saturating_sub(u128::from(event.bytes));
            }
            _ => continue,
        }
        told = true;
        most = most.max(now);
    }
    if told { u64::try_from(most).ok().or(Some(u64::MAX)) } else { history.counted_reserved }
}
