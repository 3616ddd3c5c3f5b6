//! The description of a history by device: live memory at the peak and at the end, fragmentation, and failed
//! requests.

use super::external::ExternalMemory;
use super::failures;
use super::foreign_memory::ForeignMemory;
use super::fragmentation::{SegmentsInfo, peak_of_segments};
use super::live_memory::{LiveMemory, events_after};
use super::naming::{SiteGroups, SiteNaming};
use super::out_of_memory::OutOfMemoryReport;
use super::refusals::RefusalCount;
use super::site_name::cleaned;
use crate::category::MemoryCategories;
use orlop_alloc::RefusalCause;
use orlop_core::ByteSize;
use orlop_trace::formats::DeviceLabel;
use orlop_trace::history::{DeviceHistory, History, HistoryWarning, Segment, Timeline, WorkStep, Workload};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// The maximum number of groups of failed requests to analyze for each device.
const MAX_FAILURES: usize = 16;

/// The maximum number of characters of the settings in a summary.
const MAX_SETTINGS: usize = 1000;

/// The description of a history. It prints as a summary: the settings, the number of warnings, and one line
/// for each device.
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
///
/// let info = SnapshotInfo::of(&History::default(), SiteNaming::default().top(5));
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

/// The description of the events on a device. It prints as one line.
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
    /// The failed requests: the first of each group of requests that are [alike](OutOfMemoryReport::times),
    /// for the first groups.
    pub out_of_memory: Vec<OutOfMemoryReport>,
    /// The number of failed requests in other groups.
    pub more_out_of_memory: usize,
    /// All refused requests by what refused them, those that were served in the end too. Empty if the source
    /// does not record what refused a request.
    pub refusals: Vec<RefusalCount>,
    /// What the allocator could have had of its device; `None` if no request failed for lack of device
    /// memory.
    pub foreign: Option<ForeignMemory>,
    /// What the live memory is: parameters, gradients, activations.
    pub categories: MemoryCategories,
    /// Mapped files and other external memory, if the source records it. No other figure contains it.
    pub external: ExternalMemory,
    /// The number of events that match no segment; 0 if the source does not record segments.
    #[serde(rename = "strays")]
    pub ignored_events: u64,
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
    #[serde(rename = "held")]
    pub live: LiveMemory,
    /// Requested bytes of live blocks in no segment: reserved bytes do not contain them. 0 if the source does
    /// not record segments.
    pub outside: u64,
    /// The segments; `None` if the source does not record them.
    pub segments: Option<SegmentsInfo>,
}

impl SnapshotInfo {
    /// Describes a history.
    #[must_use]
    pub fn of(history: &History, naming: SiteNaming) -> Self {
        Self {
            settings: history.settings.clone(),
            warnings: history.warnings.iter().map(ToString::to_string).collect(),
            warning_count: HistoryWarning::count(&history.warnings),
            devices: history.devices.iter().map(|device| DeviceInfo::of(device, history, naming)).collect(),
        }
    }
}

impl fmt::Display for SnapshotInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line_end = "";
        if let Some(settings) = self.settings.as_deref().filter(|settings| !settings.is_empty()) {
            write!(f, "settings: {}", cleaned(settings, MAX_SETTINGS))?;
            line_end = "\n";
        }
        if self.warning_count > 0 {
            write!(f, "{line_end}warnings: {}", self.warning_count)?;
            line_end = "\n";
        }
        if self.devices.is_empty() {
            return write!(f, "{line_end}no device was used");
        }
        for device in &self.devices {
            write!(f, "{line_end}{device}")?;
            line_end = "\n";
        }
        Ok(())
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", DeviceLabel(self.device))?;
        let live = [self.start_bytes, self.peak.live.bytes, self.end.live.bytes].map(ByteSize);
        write!(f, ": live {} at the start, {} at the peak, {} at the end", live[0], live[1], live[2])?;
        if let Some(reserved) = self.peak_reserved {
            write!(f, "; peak reserved {}", ByteSize(reserved))?;
        }
        match self.failed() {
            0 => {}
            1 => f.write_str("; 1 request failed")?,
            failed => write!(f, "; {failed} requests failed")?,
        }
        let budgets = || self.refusals.iter().filter(|count| count.cause == RefusalCause::Budget.name());
        let refused: u64 = budgets().map(RefusalCount::total).sum();
        let failed: u64 = budgets().map(|count| count.failed).sum();
        match refused {
            0 => Ok(()),
            _ => {
                let times = if refused == 1 { "once" } else { &*format!("{refused} times") };
                let requests = if failed == 1 { "request" } else { "requests" };
                write!(f, "; budgets refused {times}, and {failed} {requests} failed by that")
            }
        }
    }
}

impl DeviceInfo {
    /// Returns the number of requests that failed for lack of memory.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let grouped: u64 = self.out_of_memory.iter().map(|failed| failed.times).sum();
        grouped + self.more_out_of_memory as u64
    }

    fn of(device: &DeviceHistory, all: &History, naming: SiteNaming) -> Self {
        let history = &*with_start(device);
        let events = history.events.len();
        let ((work, categories), (timeline, peak_reserved, groups, refusals, external)) = rayon::join(
            || {
                let work = Workload::of(history);
                let categories = MemoryCategories::of_work(&work, &all.sites);
                (work, categories)
            },
            || {
                let timeline = Timeline::with_settings(history, all.settings.as_deref());
                let (refusals, external) =
                    (RefusalCount::of(history, &all.sites), ExternalMemory::of(history));
                (timeline, peak_reserved(history, events), failures::groups(history), refusals, external)
            },
        );
        let mut names = SiteGroups::new(&all.sites, naming.depth);
        let mut instant = |steps: usize, events: usize| {
            let segments = if events == history.events.len() && !history.end.is_empty() {
                Cow::Borrowed(&history.end)
            } else {
                Cow::Owned(timeline.after(events))
            };
            InstantInfo {
                events,
                time_ns: time(history, events),
                outside: if history.has_segments() { outside(&work, steps, &segments) } else { 0 },
                live: LiveMemory::after(steps, &work, history, &mut names, naming),
                segments: (!segments.is_empty()).then(|| SegmentsInfo::of(&segments, history.memory)),
            }
        };
        let peak = work.peak().1.map_or(0, |step| step + 1);
        let peak = instant(peak, events_after(&work, peak));
        let end = instant(work.steps.len(), history.events.len());
        let (analyzed, others) = groups.split_at(groups.len().min(MAX_FAILURES));
        let out_of_memory: Vec<OutOfMemoryReport> = analyzed
            .iter()
            .filter_map(|&group| OutOfMemoryReport::of(group, history, &work, &timeline, &mut names, naming))
            .collect();
        let more_out_of_memory: u64 = others.iter().map(|group| group.times).sum();
        let steps = |wanted: fn(&WorkStep) -> bool| work.steps.iter().filter(|step| wanted(step)).count();
        Self {
            device: history.device,
            memory: history.memory,
            events: history.events.len(),
            allocations: steps(|step| matches!(step, WorkStep::Allocate(_))),
            frees: steps(|step| matches!(step, WorkStep::Free(_))),
            duration_ns: time(history, history.events.len()),
            start_bytes: work.live_before(0),
            has_segments: history.has_segments(),
            peak_reserved,
            peak,
            end,
            more_out_of_memory: usize::try_from(more_out_of_memory).unwrap_or(usize::MAX),
            foreign: ForeignMemory::of(history.memory, &out_of_memory),
            out_of_memory,
            refusals,
            categories,
            external,
            ignored_events: if history.has_segments() { timeline.ignored_events() } else { 0 },
        }
    }
}

/// Returns the requested bytes of the blocks after this many steps that are in none of the segments, which
/// are in order of address.
fn outside(work: &Workload, steps: usize, segments: &[Segment]) -> u64 {
    let is_inside = |address: u64| {
        let next = segments.partition_point(|segment| segment.address <= address);
        let before = next.checked_sub(1).and_then(|index| segments.get(index));
        before.is_some_and(|segment| address - segment.address < segment.bytes)
    };
    let blocks = work.live_blocks(steps).filter(|block| !is_inside(block.address));
    blocks.fold(0, |sum, block| sum.saturating_add(block.bytes))
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

/// Returns the peak of reserved bytes in the first `events` events: of the segments, or as counted by the
/// source; `None` if there is neither.
pub(crate) fn peak_reserved(history: &DeviceHistory, events: usize) -> Option<u64> {
    peak_of_segments(history, events).or(history.counted_reserved)
}
