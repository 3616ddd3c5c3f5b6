//! The data of a device on the page: its columns and other facts.

use super::annotations::{AnnotationBand, annotation_bands};
use super::block_lifetimes::{BlockLifetime, instant, lifetimes};
use super::columns::{ColumnPayload, Columns};
use super::extents::{Extent, ExtentClass, Extents};
use super::refusal_marks::{RefusalMark, refusal_marks};
use super::stacks::Stacks;
use crate::category::{self, Category};
use foldhash::HashMap;
use orlop_core::StreamId;
use orlop_trace::formats::numbered_device;
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, Workload};
use serde::Serialize;

/// The data of a device besides the columns.
#[derive(Debug, Serialize)]
pub(super) struct DevicePage {
    device: u32,
    /// The display name: only the number for GPUs.
    name: String,
    memory: Option<u64>,
    /// The peak of reserved bytes as counted by the source.
    counted_reserved: Option<u64>,
    events: usize,
    /// The base of all addresses, as text: a browser's numbers are too short for it.
    base: String,
    /// Whether the source records segments; without them there are no gaps to show.
    segments: bool,
    streams: Vec<String>,
    pools: Vec<String>,
    out_of_memory: Vec<FailureMark>,
    /// Refused requests whose cause is recorded, those that failed too.
    refusals: Vec<RefusalMark>,
    snapshots: Vec<u64>,
    notes: Vec<AnnotationBand>,
    columns: Columns,
}

/// A failed request.
#[derive(Debug, Serialize)]
struct FailureMark {
    #[serde(rename = "moment")]
    instant: u64,
    bytes: u64,
    free: u64,
    site: u64,
}

/// Streams, numbered in order of appearance; the default stream is 0.
#[derive(Debug)]
struct StreamNumbers {
    ids: HashMap<StreamId, u64>,
    names: Vec<String>,
}

impl StreamNumbers {
    fn number(&mut self, stream: StreamId) -> u64 {
        let next = u64::try_from(self.names.len()).unwrap_or(0);
        *self.ids.entry(stream).or_insert_with(|| {
            self.names.push(stream.to_string());
            next
        })
    }
}

impl DevicePage {
    pub(super) fn of(
        history: &DeviceHistory,
        all: &History,
        stacks: &mut Stacks<'_>,
        payload: &mut ColumnPayload,
    ) -> Self {
        let work = Workload::of(history);
        let (((lifetimes, _), extents), (categories, _)) = rayon::join(
            || (lifetimes(history, &work), Extents::of(history)),
            || category::categories(&work, &all.sites),
        );
        drop(work);
        let first = lifetimes
            .iter()
            .map(|lifetime| lifetime.address)
            .chain(extents.list.iter().map(|extent| extent.address));
        let base = first.min().unwrap_or(0);
        let mut streams = StreamNumbers { ids: HashMap::default(), names: Vec::new() };
        streams.number(StreamId::from_raw(0));
        let mut columns = Columns::default();
        events(&history.events, payload, &mut columns);
        // Blocks that are pending at the start come first.
        let pending =
            std::iter::repeat_n(Category::Unknown, lifetimes.len().saturating_sub(categories.len()));
        let categories = pending.chain(categories).map(|category| category as u64);
        payload.plain(&mut columns, "category", categories);
        blocks(&lifetimes, base, stacks, &mut streams, payload, &mut columns);
        regions(&extents.list, base, stacks, &mut streams, payload, &mut columns);
        let of = |action| instants(&history.events, action);
        Self {
            device: history.device,
            name: name(history.device),
            memory: history.memory,
            counted_reserved: history.counted_reserved,
            events: history.events.len(),
            base: base.to_string(),
            segments: history.has_segments(),
            streams: streams.names,
            pools: extents.pools.iter().map(|(first, second)| format!("({first}, {second})")).collect(),
            out_of_memory: of(EventAction::OutOfMemory)
                .map(|(instant, event)| FailureMark {
                    instant,
                    bytes: event.bytes,
                    free: event.address,
                    site: stacks.number(event.site),
                })
                .collect(),
            refusals: refusal_marks(history, &all.sites),
            snapshots: of(EventAction::Snapshot).map(|(instant, _)| instant).collect(),
            notes: annotation_bands(&all.annotations, history, stacks),
            columns,
        }
    }
}

fn name(number: u32) -> String {
    match numbered_device(number).filter(|device| !device.is_cuda()) {
        Some(device) => device.to_string(),
        None => number.to_string(),
    }
}

fn instants(events: &[HistoryEvent], action: EventAction) -> impl Iterator<Item = (u64, &HistoryEvent)> {
    let instants = events.iter().enumerate().map(|(index, event)| (instant(index), event));
    instants.filter(move |(_, event)| event.action == action)
}

fn events(events: &[HistoryEvent], payload: &mut ColumnPayload, columns: &mut Columns) {
    let start = events.iter().map(|event| event.time).min().unwrap_or(0);
    payload.deltas(columns, "time", events.iter().map(|event| event.time - start));
    payload.plain(columns, "action", events.iter().map(|event| u64::from(event.action.code())));
}

fn blocks(
    lifetimes: &[BlockLifetime],
    base: u64,
    stacks: &mut Stacks<'_>,
    streams: &mut StreamNumbers,
    payload: &mut ColumnPayload,
    columns: &mut Columns,
) {
    payload.deltas(columns, "born", lifetimes.iter().map(|lifetime| lifetime.born));
    payload.plain(
        columns,
        "life",
        lifetimes.iter().map(|lifetime| lifetime.freed.saturating_sub(lifetime.born)),
    );
    payload.plain(
        columns,
        "wait",
        lifetimes.iter().map(|lifetime| lifetime.done.saturating_sub(lifetime.freed)),
    );
    payload.plain(columns, "bytes", lifetimes.iter().map(|lifetime| lifetime.bytes));
    payload.plain(
        columns,
        "rest",
        lifetimes.iter().map(|lifetime| lifetime.taken.saturating_sub(lifetime.bytes)),
    );
    payload.deltas(columns, "address", lifetimes.iter().map(|lifetime| lifetime.address - base));
    payload.plain(columns, "stream", lifetimes.iter().map(|lifetime| streams.number(lifetime.stream)));
    payload.plain(columns, "site", lifetimes.iter().map(|lifetime| stacks.number(lifetime.site)));
    payload.plain(columns, "freed_by", lifetimes.iter().map(|lifetime| stacks.number(lifetime.freed_by)));
    payload.plain(columns, "text", lifetimes.iter().map(|lifetime| stacks.text_id(lifetime.text)));
    payload.plain(columns, "kind", lifetimes.iter().map(|lifetime| u64::from(lifetime.kind as u8)));
}

fn regions(
    extents: &[Extent],
    base: u64,
    stacks: &mut Stacks<'_>,
    streams: &mut StreamNumbers,
    payload: &mut ColumnPayload,
    columns: &mut Columns,
) {
    payload.deltas(columns, "extent_born", extents.iter().map(|extent| extent.born));
    payload.plain(columns, "extent_lost", extents.iter().map(|extent| extent.released));
    payload.deltas(columns, "extent_address", extents.iter().map(|extent| extent.address - base));
    payload.plain(columns, "extent_bytes", extents.iter().map(|extent| extent.bytes));
    payload.plain(columns, "extent_stream", extents.iter().map(|extent| streams.number(extent.stream)));
    payload.plain(columns, "extent_site", extents.iter().map(|extent| stacks.number(extent.site)));
    payload.plain(columns, "extent_pool", extents.iter().map(|extent| extent.pool));
    let class = |class| match class {
        ExtentClass::Unknown => 0,
        ExtentClass::Large => 1,
        ExtentClass::Small => 2,
        ExtentClass::Expandable => 3,
        ExtentClass::ExpandableSmall => 4,
    };
    payload.plain(columns, "extent_class", extents.iter().map(|extent| class(extent.class)));
}
