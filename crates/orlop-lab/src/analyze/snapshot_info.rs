//! The description of a history by device: live memory at the peak and at the end, fragmentation, and failed
//! requests.

use super::fragmentation::SegmentsInfo;
use super::holders::{Holdings, events_after, live, peak};
use super::naming::{Naming, SiteGroups};
use super::out_of_memory::OutOfMemoryReport;
use orlop_trace::history::Timeline;
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryWarning, WorkStep, Workload};
use serde::Serialize;
use std::borrow::Cow;

/// The maximum number of failed requests to analyze for each device: a program that retries fails thousands
/// of times.
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
    /// Inconsistencies of the source.
    pub warnings: Vec<String>,
    /// The number of warnings, including those that are only counted.
    pub warning_count: u64,
    /// The devices.
    pub devices: Vec<DeviceInfo>,
}

/// The description of the events on a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The number of the device.
    pub device: u32,
    /// Its memory in bytes, if the source has it.
    pub memory: Option<u64>,
    /// The number of events.
    pub events: usize,
    /// The number of allocations.
    pub allocations: usize,
    /// The number of frees.
    pub frees: usize,
    /// The time from the first event to the last, in nanoseconds.
    pub duration_ns: u64,
    /// Requested bytes of blocks that were live when the recording began.
    pub start_bytes: u64,
    /// Whether the source records segments.
    pub has_segments: bool,
    /// The peak of reserved bytes: of the segments, or as counted by the source if it does not record
    /// segments. `None` if it does neither.
    pub peak_reserved: Option<u64>,
    /// The first instant with the most live bytes.
    pub peak: InstantInfo,
    /// The state after the last event.
    pub end: InstantInfo,
    /// The first failed requests.
    pub out_of_memory: Vec<OutOfMemoryReport>,
    /// The number of other failed requests.
    pub more_out_of_memory: usize,
    /// The number of events that match no segment; 0 if the source does not record segments.
    pub strays: u64,
}

/// An instant of a device's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct InstantInfo {
    /// The number of events before it; 0 is the start.
    pub events: usize,
    /// The time in nanoseconds since the first event.
    pub time_ns: u64,
    /// The live memory.
    pub held: Holdings,
    /// The segments; `None` if the source does not record them.
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

/// Returns the time of the last of the first `events` events, in nanoseconds since the first.
fn time(history: &DeviceHistory, events: usize) -> u64 {
    let last = events.checked_sub(1).and_then(|event| history.events.get(event));
    last.zip(history.events.first()).map_or(0, |(last, first)| last.time.saturating_sub(first.time))
}

/// Returns a history with a start. A snapshot without a recording has only an end, which is then also its
/// start.
pub(crate) fn with_start(history: &DeviceHistory) -> Cow<'_, DeviceHistory> {
    if history.start.is_empty() && history.events.is_empty() && !history.end.is_empty() {
        let mut whole = history.clone();
        whole.start.clone_from(&history.end);
        return Cow::Owned(whole);
    }
    Cow::Borrowed(history)
}

/// Returns the peak of reserved bytes: of the segments, or as counted by the source; `None` if there is
/// neither.
pub(crate) fn peak_reserved(history: &DeviceHistory) -> Option<u64> {
    peak_reserved_after(history, history.events.len())
}

/// Returns the peak of reserved bytes in the first `events` events.
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
