//! Why a request failed, and the least live memory whose release would have made it fit.
//!
//! There are two methods. Within a segment, adjacent blocks can be released until the free range is large
//! enough: the window with the fewest live bytes is found exactly, in one pass with two pointers. Or whole
//! segments can be released to the device until it has room for a new one: those with the fewest live bytes
//! are found by a search, whose result is an estimate if it reaches its limit ([`ReleaseOption::is_exact`]).

use super::failures::FailureGroup;
use super::fragmentation::{Fragmentation, SegmentsInfo, is_cached, peak_of_segments};
use super::least_cover::{CoverItem, least_cover};
use super::live_memory::{BlockTotals, LiveMemory, SiteUsage, UsageRanking, steps_after};
use super::naming::{SiteGroups, SiteNaming};
use orlop_alloc::RefusalCause;
use orlop_trace::history::{
    BlockState, DeviceHistory, HistoryEvent, Segment, SegmentBlock, SizeRules, Timeline, Workload,
};
use serde::Serialize;
use std::collections::HashMap;

/// The analysis of a request that failed for lack of memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutOfMemoryReport {
    /// The index of the event.
    pub event: usize,
    /// The number of failed requests like this one, with this one, which is the first: refused by the same
    /// allocator, and of the same size.
    pub times: u64,
    /// The index of the event of the last of them.
    pub last_event: usize,
    /// The time in nanoseconds since the first event.
    pub time_ns: u64,
    /// Requested bytes.
    pub requested: u64,
    /// The stream.
    pub stream: u64,
    /// The call site.
    pub site: String,
    /// What refused the request: `device` or `limit`. `None` if the source does not record it.
    pub cause: Option<&'static str>,
    /// The name of the allocator that refused it, if the source records it.
    pub refuser: Option<String>,
    /// Free bytes of the device.
    pub device_free: u64,
    /// The memory limit of the process, if that refused the request while the device had enough memory
    /// (PyTorch: `per_process_memory_fraction`).
    pub limit: Option<InferredLimit>,
    /// The live memory at that time.
    #[serde(rename = "held")]
    pub live: LiveMemory,
    /// The segments at that time; `None` if the source does not record them.
    pub segments: Option<SegmentsInfo>,
    /// Free bytes that the request could have used, were they in one piece: of the device, of segments in its
    /// pool, and of segments that can be released.
    pub usable: u64,
    /// Whether these would have been enough.
    pub fragmented: bool,
    /// Releases that would have made the request fit, fewest live bytes first. Empty if there are none.
    pub releases: Vec<ReleaseOption>,
}

/// Bounds on a memory limit, inferred from requests that it allowed and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InferredLimit {
    /// Reserved bytes that the limit allowed.
    pub at_least: u64,
    /// Reserved bytes that the limit refused.
    pub below: u64,
}

/// How memory is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReleaseMethod {
    /// Adjacent blocks of one segment are freed.
    Neighbours,
    /// Whole segments are released to the device.
    Segments,
}

/// A release that would have made a request fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReleaseOption {
    /// The method.
    #[serde(rename = "way")]
    pub method: ReleaseMethod,
    /// The first address of the freed range, or of the first segment.
    pub address: u64,
    /// The length of the range including free chunks, or of all segments together.
    pub range: u64,
    /// The number of affected segments.
    pub segments: u64,
    /// Live bytes to be freed, including rounding.
    pub bytes: u64,
    /// Live blocks to be freed.
    pub blocks: u64,
    /// Pending bytes in the range.
    pub pending: u64,
    /// Whether it is proven that no release by this method frees fewer live bytes.
    pub is_exact: bool,
    /// The live bytes to be freed by call site.
    pub by_site: UsageRanking,
}

impl OutOfMemoryReport {
    /// Returns the memory that the program had: reserved bytes and free bytes of the device, or the peak of
    /// reserved bytes if it had a [limit](Self::limit). `None` if the source does not record segments.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let segments = self.segments.as_ref()?;
        match self.limit {
            Some(limit) => Some(limit.at_least),
            None => self.device_free.checked_add(segments.bytes.reserved),
        }
    }

    /// Analyzes the first [`OutOfMemory`](orlop_trace::history::EventAction::OutOfMemory) event of a group.
    /// Returns `None` if the history does not have it.
    pub(super) fn of(
        group: FailureGroup,
        history: &DeviceHistory,
        work: &Workload,
        timeline: &Timeline<'_>,
        names: &mut SiteGroups<'_>,
        naming: SiteNaming,
    ) -> Option<Self> {
        let index = group.first;
        let event = history.events.get(index)?;
        let steps = steps_after(work, index);
        let segments = timeline.after(index);
        let at_start: HashMap<u64, bool> =
            work.live_blocks(steps).map(|block| (block.address, block.born.is_none())).collect();
        let pool = history.pool(index);
        let bytes = Fragmentation::of(&segments);
        let refusal = history.refusal(index);
        let limit = match refusal.map(|refusal| refusal.cause) {
            Some(RefusalCause::Limit) => Some(InferredLimit::known(event, bytes.reserved)),
            Some(_) => None,
            None => InferredLimit::of(index, event, history, timeline.rules(), bytes.reserved),
        };
        let left = limit.map_or(event.address, |limit| limit.at_least.saturating_sub(bytes.reserved));
        let request = RequestToFit { rules: timeline.rules(), bytes: event.bytes, pool, left };
        let methods = [request.neighbours(event, &segments), request.segments(&segments)];
        let mut releases: Vec<ReleaseOption> = methods
            .into_iter()
            .flatten()
            .map(|candidate| candidate.release(&at_start, names, naming))
            .collect();
        releases.sort_by_key(|release| release.bytes);
        let memory = Some(left.saturating_add(bytes.reserved));
        // Other pools can only give back segments that are entirely free, and private pools not even those.
        let serves =
            |segment: &&Segment| segment.pool == pool || (segment.pool == (0, 0) && is_cached(segment));
        let usable = Fragmentation::of(segments.iter().filter(serves));
        let free = [usable.split, usable.cached].into_iter().fold(left, u64::saturating_add);
        let begin = history.events.first().map_or(0, |first| first.time);
        Some(Self {
            event: index,
            times: group.times,
            last_event: group.last,
            time_ns: event.time.saturating_sub(begin),
            requested: event.bytes,
            stream: event.stream.raw(),
            site: names.label(event.site, false),
            cause: refusal.map(|refusal| refusal.cause.name()),
            refuser: refusal.map(|refusal| names.sites.name(refusal.refuser).to_owned()),
            device_free: event.address,
            limit,
            live: LiveMemory::after(steps, work, history, names, naming),
            segments: (!segments.is_empty()).then(|| SegmentsInfo::of(&segments, memory)),
            usable: free,
            fragmented: free >= event.bytes,
            releases,
        })
    }
}

impl InferredLimit {
    /// Returns the recorded limit of the allocator, which had `reserved` reserved bytes.
    fn known(event: &HistoryEvent, reserved: u64) -> Self {
        let limit = reserved.saturating_add(event.address);
        Self { at_least: limit, below: limit.saturating_add(1) }
    }

    /// Infers the limit that refused this request, with `reserved` reserved bytes: the device had enough
    /// memory for a segment.
    fn of(
        index: usize,
        event: &HistoryEvent,
        history: &DeviceHistory,
        rules: &SizeRules,
        reserved: u64,
    ) -> Option<Self> {
        if !history.has_segments() {
            return None;
        }
        let growth = rules.segment_bytes(event.bytes).filter(|&growth| growth <= event.address)?;
        let at_least = peak_of_segments(history, index).unwrap_or(0);
        let below = reserved.saturating_add(growth);
        // Otherwise memory was used temporarily by something that is not recorded.
        (at_least < below).then_some(Self { at_least, below })
    }
}

/// The failed request, and the memory that the device could provide.
#[derive(Debug, Clone, Copy)]
struct RequestToFit<'a> {
    rules: &'a SizeRules,
    bytes: u64,
    /// The pool that has to serve it.
    pool: (u64, u64),
    /// The bytes that could still be reserved.
    left: u64,
}

/// Blocks that could be released.
#[derive(Debug)]
struct ReleaseCandidate<'a> {
    method: ReleaseMethod,
    address: u64,
    range: u64,
    segments: u64,
    is_exact: bool,
    blocks: Vec<&'a SegmentBlock>,
}

impl RequestToFit<'_> {
    /// Returns the window with the fewest live bytes, in a segment that serves such requests.
    fn neighbours<'a>(&self, event: &HistoryEvent, segments: &'a [Segment]) -> Option<ReleaseCandidate<'a>> {
        let serves = |segment: &&Segment| {
            segment.stream == event.stream
                && segment.pool == self.pool
                && segment.small == self.rules.is_small(self.bytes)
        };
        let windows =
            segments.iter().filter(serves).filter_map(|segment| Some((self.window(segment)?, segment)));
        let (window, segment) = windows.min_by_key(|(window, _)| window.live)?;
        let blocks = segment.blocks.get(window.from..window.to)?;
        Some(ReleaseCandidate {
            method: ReleaseMethod::Neighbours,
            address: blocks.first()?.address,
            range: window.bytes,
            segments: 1,
            is_exact: true,
            blocks: blocks.iter().collect(),
        })
    }

    /// Returns the window of a segment with the fewest live bytes.
    fn window(&self, segment: &Segment) -> Option<BlockWindow> {
        let mut best: Option<BlockWindow> = None;
        let mut window = BlockWindow { from: 0, to: 0, bytes: 0, live: 0 };
        for from in 0..segment.blocks.len() {
            window.from = from;
            // An expandable segment can grow at its end.
            let more = |window: &BlockWindow| {
                let last = segment.expandable && window.to == segment.blocks.len();
                window.bytes.saturating_add(if last { self.left } else { 0 }) < self.bytes
            };
            while more(&window) {
                let Some(block) = segment.blocks.get(window.to) else { return best };
                window.bytes = window.bytes.saturating_add(block.bytes);
                window.live = window.live.saturating_add(live_bytes(block));
                window.to += 1;
            }
            if window.to > from && best.is_none_or(|best| window.live < best.live) {
                best = Some(window);
            }
            let Some(block) = segment.blocks.get(from) else { return best };
            if window.to == from {
                // The request fits without the segment's blocks: nothing has to be released.
                return best;
            }
            window.bytes = window.bytes.saturating_sub(block.bytes);
            window.live = window.live.saturating_sub(live_bytes(block));
        }
        best
    }

    /// Selects segments to release until the device has room for a new one.
    fn segments<'a>(&self, segments: &'a [Segment]) -> Option<ReleaseCandidate<'a>> {
        let growth = self.rules.segment_bytes(self.bytes)?;
        let (cached, used): (Vec<&Segment>, Vec<&Segment>) = segments
            .iter()
            .filter(|segment| segment.pool == (0, 0) && !segment.expandable)
            .partition(|segment| is_cached(segment));
        let cached = cached.iter().fold(self.left, |sum, segment| sum.saturating_add(segment.bytes));
        let missing = growth.checked_sub(cached).filter(|&missing| missing > 0)?;
        let item = |(index, segment): (usize, &&Segment)| {
            let live = segment.blocks.iter().map(live_bytes).fold(0, u64::saturating_add);
            CoverItem { live, bytes: segment.bytes, index }
        };
        let (cover, is_exact) = least_cover(used.iter().enumerate().map(item).collect(), missing)?;
        let mut taken: Vec<&Segment> = cover.iter().filter_map(|&index| used.get(index).copied()).collect();
        taken.sort_by_key(|segment| segment.address);
        let released = taken.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
        Some(ReleaseCandidate {
            method: ReleaseMethod::Segments,
            address: taken.first()?.address,
            range: released,
            segments: taken.len() as u64,
            is_exact,
            blocks: taken.iter().flat_map(|segment| &segment.blocks).collect(),
        })
    }
}

/// A range of adjacent blocks.
#[derive(Debug, Clone, Copy)]
struct BlockWindow {
    from: usize,
    to: usize,
    bytes: u64,
    live: u64,
}

fn live_bytes(block: &SegmentBlock) -> u64 {
    if block.state == BlockState::Live { block.bytes } else { 0 }
}

impl ReleaseCandidate<'_> {
    /// `at_start`: whether the block at an address was live when the recording began.
    fn release(
        &self,
        at_start: &HashMap<u64, bool>,
        names: &mut SiteGroups<'_>,
        naming: SiteNaming,
    ) -> ReleaseOption {
        let (mut sites, mut all) = (SiteUsage::default(), BlockTotals::default());
        for block in self.blocks.iter().filter(|block| block.state == BlockState::Live) {
            let at_start = at_start.get(&block.address).copied().unwrap_or(true);
            sites.add(names, block.site, at_start, block.bytes);
            all.add(block.bytes);
        }
        let pending = self.blocks.iter().filter(|block| block.state == BlockState::Pending);
        ReleaseOption {
            method: self.method,
            address: self.address,
            range: self.range,
            segments: self.segments,
            is_exact: self.is_exact,
            bytes: all.bytes,
            blocks: all.blocks,
            pending: pending.fold(0, |sum, block| sum.saturating_add(block.bytes)),
            by_site: sites.ranking(names, all, naming),
        }
    }
}
