//! Live memory at an instant, grouped by call site, stream, kind and tag, and the largest blocks.

use super::naming::{Naming, SiteGroups};
use super::site_name::stack_lines;
use orlop_trace::history::{DeviceHistory, SiteId, Sites, TextId, WorkBlock, Workload};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The live memory of a device at an instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Holdings {
    /// Requested bytes of all live blocks.
    pub bytes: u64,
    /// The number of live blocks.
    pub blocks: u64,
    /// By call site, most bytes first. Sites with the same name are one group.
    pub by_site: Shares,
    /// By stream.
    pub by_stream: Shares,
    /// By memory kind; empty if the source does not record kinds.
    pub by_kind: Shares,
    /// By tag; empty if there are no tags.
    pub by_tag: Shares,
    /// The largest blocks, largest first.
    pub largest: Vec<Holder>,
}

/// Live memory by group, most bytes first.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
#[non_exhaustive]
pub struct Shares {
    /// The groups with the most bytes.
    pub top: Vec<Share>,
    /// The number of other groups.
    pub others: u64,
    /// The bytes of the other groups.
    pub other_bytes: u64,
}

/// The live memory of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Share {
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
pub struct Holder {
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

/// The blocks that live after so many steps of a workload, in order of their birth.
pub(crate) fn live(work: &Workload, steps: usize) -> impl Iterator<Item = &WorkBlock> {
    work.blocks.iter().filter(move |block| {
        block.born.is_none_or(|born| born < steps) && block.died.is_none_or(|died| died >= steps)
    })
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

/// The number of steps after which the most bytes live for the first time, and those bytes.
pub(crate) fn peak(work: &Workload) -> (usize, u64) {
    use orlop_trace::history::WorkStep;
    let bytes = |id: u32| work.blocks.get(id as usize).map_or(0, |block| block.bytes);
    // As wide as it takes: a made-up file may have sizes that do not add up in 64 bits.
    let mut held: u128 = live(work, 0).map(|block| u128::from(block.bytes)).sum();
    let (mut most, mut when) = (held, 0);
    for (place, step) in work.steps.iter().enumerate() {
        match *step {
            WorkStep::Allocate(id) => held += u128::from(bytes(id)),
            WorkStep::Free(id) => held = held.saturating_sub(u128::from(bytes(id))),
            WorkStep::Completed(_) | WorkStep::Use(..) | WorkStep::Failed(..) => {}
        }
        if held > most {
            (most, when) = (held, place + 1);
        }
    }
    (when, u64::try_from(most).unwrap_or(u64::MAX))
}

impl Holdings {
    /// Describes the live memory after the first `steps` steps.
    pub(super) fn after(
        steps: usize,
        work: &Workload,
        history: &DeviceHistory,
        names: &mut SiteGroups<'_>,
        naming: Naming,
    ) -> Self {
        let mut all = BlockTotals::default();
        let mut sites = BySite::default();
        let mut streams: BTreeMap<_, BlockTotals> = BTreeMap::new();
        let mut kinds: BTreeMap<_, BlockTotals> = BTreeMap::new();
        let mut tags: BTreeMap<TextId, BlockTotals> = BTreeMap::new();
        for block in live(work, steps) {
            all.add(block.bytes);
            sites.add(names, block);
            streams.entry(block.stream).or_default().add(block.bytes);
            kinds.entry(block.kind).or_default().add(block.bytes);
            tags.entry(block.text).or_default().add(block.bytes);
        }
        let tag = |text: TextId| {
            let name: String = names.sites.name(text).chars().filter(|letter| !letter.is_control()).collect();
            if name.is_empty() { "(no tag)".to_owned() } else { name }
        };
        let tags_told = tags.keys().any(|&text| text != TextId::NONE);
        let kinds_told = kinds.keys().any(|&kind| kind != orlop_core::MemoryKind::default());
        let plain = |told: bool, sums: Vec<(String, BlockTotals)>| {
            if told {
                Shares::of(sums.into_iter().map(|(name, sum)| (name, sum, Vec::new())), all, naming.top)
            } else {
                Shares::default()
            }
        };
        let by_stream = plain(true, streams.iter().map(|(stream, &sum)| (stream.to_string(), sum)).collect());
        let by_kind = plain(kinds_told, kinds.iter().map(|(kind, &sum)| (kind.to_string(), sum)).collect());
        let by_tag = plain(tags_told, tags.iter().map(|(&text, &sum)| (tag(text), sum)).collect());
        Self {
            bytes: all.bytes,
            blocks: all.blocks,
            by_site: sites.shares(names, all, naming),
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
    naming: Naming,
) -> Vec<Holder> {
    let mut blocks: Vec<&WorkBlock> = live(work, steps).collect();
    blocks.sort_by_key(|block| Reverse(block.bytes));
    blocks.truncate(naming.top);
    let events = events_after(work, steps);
    let now = events.checked_sub(1).and_then(|event| history.events.get(event)).map(|event| event.time);
    let holder = |block: &WorkBlock| {
        let born = block.born.and_then(|step| work.events.get(step)).map(|&event| event as usize);
        let then = born.and_then(|event| history.events.get(event)).map(|event| event.time);
        Holder {
            address: block.address,
            bytes: block.bytes,
            site: names.label(block.site, block.born.is_none()),
            stream: block.stream.get(),
            age_ns: then.zip(now).map(|(then, now)| now.saturating_sub(then)),
            age_events: born.map(|born| (events.saturating_sub(born + 1)) as u64),
            frames: if naming.full { stack_lines(names.sites, block.site) } else { Vec::new() },
        }
    };
    blocks.into_iter().map(holder).collect()
}

/// Live memory by the name of the call site.
#[derive(Debug, Default)]
pub(super) struct BySite {
    /// By the group of the name, and whether the memory was live before the recording and has no call site.
    sums: BTreeMap<(usize, bool), SiteTotals>,
}

#[derive(Debug, Default)]
struct SiteTotals {
    sum: BlockTotals,
    /// The largest block, whose frames are shown.
    example: Option<(u64, SiteId)>,
}

impl BySite {
    pub(super) fn add(&mut self, names: &mut SiteGroups<'_>, block: &WorkBlock) {
        self.add_site(names, block.site, block.born.is_none(), block.bytes);
    }

    pub(super) fn add_site(&mut self, names: &mut SiteGroups<'_>, site: SiteId, there: bool, bytes: u64) {
        let group = names.group(site);
        let there = there && names.name(group).is_empty();
        let entry = self.sums.entry((group, there)).or_default();
        entry.sum.add(bytes);
        if entry.example.is_none_or(|(most, _)| bytes > most) {
            entry.example = Some((bytes, site));
        }
    }

    pub(super) fn shares(&self, names: &mut SiteGroups<'_>, all: BlockTotals, naming: Naming) -> Shares {
        let mut sums: Vec<_> = self.sums.iter().collect();
        sums.sort_by_key(|(_, group)| Reverse(group.sum.bytes));
        let rows = sums.iter().enumerate().map(|(place, ((_, there), group))| {
            // Names of groups beyond the limit are not shown.
            let site = group.example.map_or(SiteId::UNKNOWN, |(_, site)| site);
            let shown = place < naming.top;
            let name = if shown { names.label(site, *there) } else { String::new() };
            let frames = if shown && naming.full { frames(names.sites, site) } else { Vec::new() };
            (name, group.sum, frames)
        });
        Shares::of(rows.collect::<Vec<_>>(), all, naming.top)
    }
}

fn frames(sites: &Sites, site: SiteId) -> Vec<String> {
    stack_lines(sites, site)
}

impl Shares {
    fn of(
        sums: impl IntoIterator<Item = (String, BlockTotals, Vec<String>)>,
        all: BlockTotals,
        top: usize,
    ) -> Self {
        let mut sums: Vec<_> = sums.into_iter().collect();
        // The sort is stable: equal ones keep their order.
        sums.sort_by_key(|(_, sum, _)| Reverse(sum.bytes));
        let rest = sums.split_off(top.min(sums.len()));
        let share = |(name, sum, frames): (String, BlockTotals, Vec<String>)| Share {
            name,
            bytes: sum.bytes,
            blocks: sum.blocks,
            share: fraction(sum.bytes, all.bytes),
            frames,
        };
        Self {
            top: sums.into_iter().map(share).collect(),
            others: rest.len() as u64,
            other_bytes: rest.iter().fold(0, |bytes: u64, (_, sum, _)| bytes.saturating_add(sum.bytes)),
        }
    }
}

/// Returns `part / whole`; 0 if `whole` is 0.
pub(super) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
