//! Live memory at an instant, grouped by call site, stream, kind and tag, and the largest blocks.

use super::naming::{SiteGroups, SiteNaming};
use super::site_name::stack_lines;
use orlop_trace::history::{DeviceHistory, SiteId, TextId, WorkBlock, Workload};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The live memory of a device at an instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LiveMemory {
    /// Requested bytes of all live blocks.
    pub bytes: u64,
    /// The number of live blocks.
    pub blocks: u64,
    /// By call site, most bytes first. Sites with the same name are one group.
    pub by_site: UsageRanking,
    /// By stream.
    pub by_stream: UsageRanking,
    /// By memory kind; empty if the source does not record kinds.
    pub by_kind: UsageRanking,
    /// By tag; empty if there are no tags.
    pub by_tag: UsageRanking,
    /// The largest blocks, largest first.
    pub largest: Vec<BlockUsage>,
}

/// Live memory by group, most bytes first.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
#[non_exhaustive]
pub struct UsageRanking {
    /// The groups with the most bytes.
    pub top: Vec<GroupUsage>,
    /// The number of other groups.
    pub others: u64,
    /// The bytes of the other groups.
    pub other_bytes: u64,
}

/// The live memory of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupUsage {
    /// The call site, stream, kind or tag.
    pub name: String,
    /// Requested bytes.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The fraction of all live bytes at this instant, from 0 to 1.
    pub share: f64,
    /// All frames of the call stack of the largest block, innermost first, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<String>,
}

/// A live block.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BlockUsage {
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// The call site.
    pub site: String,
    /// The stream.
    pub stream: u64,
    /// Its age in nanoseconds; `None` if it was live when the recording began.
    pub age_ns: Option<u64>,
    /// Its age in events; `None` if it was live when the recording began.
    pub age_events: Option<u64>,
    /// All frames, innermost first, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<String>,
}

/// A sum of bytes and blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockTotals {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

impl BlockTotals {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks = self.blocks.saturating_add(1);
    }
}

/// Returns the number of steps of a workload that the first `events` events complete.
pub(super) fn steps_after(work: &Workload, events: usize) -> usize {
    work.events.partition_point(|&event| (event as usize) < events)
}

/// Returns the number of events that complete the first `steps` steps.
pub(super) fn events_after(work: &Workload, steps: usize) -> usize {
    let last = steps.checked_sub(1).and_then(|step| work.events.get(step));
    last.map_or(0, |&event| event as usize + 1)
}

impl LiveMemory {
    /// Describes the live memory after the first `steps` steps.
    pub(super) fn after(
        steps: usize,
        work: &Workload,
        history: &DeviceHistory,
        names: &mut SiteGroups<'_>,
        naming: SiteNaming,
    ) -> Self {
        let mut all = BlockTotals::default();
        let mut sites = SiteUsage::default();
        let mut streams: BTreeMap<_, BlockTotals> = BTreeMap::new();
        let mut kinds: BTreeMap<_, BlockTotals> = BTreeMap::new();
        let mut tags: BTreeMap<TextId, BlockTotals> = BTreeMap::new();
        for block in work.live_blocks(steps) {
            all.add(block.bytes);
            sites.add(names, block.site, block.born.is_none(), block.bytes);
            streams.entry(block.stream).or_default().add(block.bytes);
            kinds.entry(block.kind).or_default().add(block.bytes);
            tags.entry(block.text).or_default().add(block.bytes);
        }
        let tag = |text: TextId| {
            let name: String = names.sites.name(text).chars().filter(|letter| !letter.is_control()).collect();
            if name.is_empty() { "(no tag)".to_owned() } else { name }
        };
        let has_tags = tags.keys().any(|&text| text != TextId::NONE);
        let has_kinds = kinds.keys().any(|&kind| kind != orlop_core::MemoryKind::default());
        let ranking = |present: bool, sums: Vec<(String, BlockTotals)>| {
            if present {
                UsageRanking::of(sums.into_iter().map(|(name, sum)| (name, sum, Vec::new())), all, naming.top)
            } else {
                UsageRanking::default()
            }
        };
        let by_stream =
            ranking(true, streams.iter().map(|(stream, &sum)| (stream.to_string(), sum)).collect());
        let by_kind = ranking(has_kinds, kinds.iter().map(|(kind, &sum)| (kind.to_string(), sum)).collect());
        let by_tag = ranking(has_tags, tags.iter().map(|(&text, &sum)| (tag(text), sum)).collect());
        Self {
            bytes: all.bytes,
            blocks: all.blocks,
            by_site: sites.ranking(names, all, naming),
            by_stream,
            by_kind,
            by_tag,
            largest: largest(steps, work, history, names, naming),
        }
    }
}

/// Returns the largest live blocks after the first `steps` steps; of equal ones, the oldest.
fn largest(
    steps: usize,
    work: &Workload,
    history: &DeviceHistory,
    names: &mut SiteGroups<'_>,
    naming: SiteNaming,
) -> Vec<BlockUsage> {
    let mut blocks: Vec<&WorkBlock> = work.live_blocks(steps).collect();
    blocks.sort_by_key(|block| Reverse(block.bytes));
    blocks.truncate(naming.top);
    let events = events_after(work, steps);
    let now = events.checked_sub(1).and_then(|event| history.events.get(event)).map(|event| event.time);
    let usage = |block: &WorkBlock| {
        let born = block.born.and_then(|step| work.events.get(step)).map(|&event| event as usize);
        let then = born.and_then(|event| history.events.get(event)).map(|event| event.time);
        BlockUsage {
            address: block.address,
            bytes: block.bytes,
            site: names.label(block.site, block.born.is_none()),
            stream: block.stream.raw(),
            age_ns: then.zip(now).map(|(then, now)| now.saturating_sub(then)),
            age_events: born.map(|born| (events.saturating_sub(born + 1)) as u64),
            frames: if naming.full { stack_lines(names.sites, block.site) } else { Vec::new() },
        }
    };
    blocks.into_iter().map(usage).collect()
}

/// Live memory by the name of the call site.
#[derive(Debug, Default)]
pub(super) struct SiteUsage {
    /// By the group of the name, and whether the memory was live before the recording and has no call site.
    sums: BTreeMap<(usize, bool), SiteTotals>,
}

#[derive(Debug, Default)]
struct SiteTotals {
    sum: BlockTotals,
    /// The largest block, whose frames are shown.
    example: Option<(u64, SiteId)>,
}

impl SiteUsage {
    pub(super) fn add(&mut self, names: &mut SiteGroups<'_>, site: SiteId, at_start: bool, bytes: u64) {
        let entry = self.sums.entry(names.key(site, at_start)).or_default();
        entry.sum.add(bytes);
        if entry.example.is_none_or(|(largest, _)| bytes > largest) {
            entry.example = Some((bytes, site));
        }
    }

    pub(super) fn ranking(
        &self,
        names: &mut SiteGroups<'_>,
        all: BlockTotals,
        naming: SiteNaming,
    ) -> UsageRanking {
        let mut sums: Vec<_> = self.sums.iter().collect();
        sums.sort_by_key(|(_, group)| Reverse(group.sum.bytes));
        let rows = sums.iter().enumerate().map(|(index, ((_, at_start), group))| {
            // Names of groups beyond the limit are not shown.
            let site = group.example.map_or(SiteId::UNKNOWN, |(_, site)| site);
            let shown = index < naming.top;
            let name = if shown { names.label(site, *at_start) } else { String::new() };
            let frames = if shown && naming.full { stack_lines(names.sites, site) } else { Vec::new() };
            (name, group.sum, frames)
        });
        UsageRanking::of(rows.collect::<Vec<_>>(), all, naming.top)
    }
}

impl UsageRanking {
    fn of(
        sums: impl IntoIterator<Item = (String, BlockTotals, Vec<String>)>,
        all: BlockTotals,
        top: usize,
    ) -> Self {
        let mut sums: Vec<_> = sums.into_iter().collect();
        // The sort is stable: equal ones keep their order.
        sums.sort_by_key(|(_, sum, _)| Reverse(sum.bytes));
        let rest = sums.split_off(top.min(sums.len()));
        let usage = |(name, sum, frames): (String, BlockTotals, Vec<String>)| GroupUsage {
            name,
            bytes: sum.bytes,
            blocks: sum.blocks,
            share: fraction(sum.bytes, all.bytes),
            frames,
        };
        Self {
            top: sums.into_iter().map(usage).collect(),
            others: rest.len() as u64,
            other_bytes: rest.iter().fold(0, |bytes: u64, (_, sum, _)| bytes.saturating_add(sum.bytes)),
        }
    }
}

/// Returns `part / whole`; 0 if `whole` is 0.
pub(super) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
