//! Histories for tests: arbitrary ones, and one with all features; and comparisons.

use orlop_core::{MemoryKind, StreamId};
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, History, HistoryEvent, HistoryWarning, Segment, SegmentBlock,
    SiteId, Sites, TextId,
};
use proptest::prelude::*;

const ACTIONS: [EventAction; 11] = [
    EventAction::Allocate,
    EventAction::FreeRequested,
    EventAction::FreeCompleted,
    EventAction::Use,
    EventAction::RegionReserved,
    EventAction::RegionReleased,
    EventAction::Mapped,
    EventAction::Unmapped,
    EventAction::OutOfMemory,
    EventAction::Snapshot,
    EventAction::Annotation,
];

/// Typical numbers, and extremes.
fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0_u64..4, 0_u64..1 << 40, any::<u64>(), Just(u64::MAX)]
}

/// Indices of the tables of [`tables`], modulo their lengths.
type Names = (usize, usize);

fn event() -> impl Strategy<Value = (HistoryEvent, Names)> {
    let place = (number(), number(), number(), number());
    let who =
        (0_u32..3, prop_oneof![Just(0), 0_u32..9, any::<u32>()], 0..ACTIONS.len(), 0..MemoryKind::COUNT);
    (place, who, any::<Names>()).prop_map(
        |((time, address, bytes, stream), (same, thread, action, kind), names)| {
            let event = HistoryEvent {
                time,
                address: if same == 0 { 0 } else { address },
                bytes: if same == 0 { 0 } else { bytes },
                stream: StreamId::from_raw(if same == 1 { 0 } else { stream }),
                site: SiteId::UNKNOWN,
                text: TextId::NONE,
                thread,
                action: ACTIONS[action],
                kind: MemoryKind::ALL[kind],
            };
            (event, names)
        },
    )
}

fn segment() -> impl Strategy<Value = (Segment, Vec<usize>)> {
    let block = (number(), number(), number(), 0..3_usize, any::<usize>());
    let fields = (number(), number(), number(), any::<(bool, bool)>(), any::<(u64, u64)>(), any::<usize>());
    (fields, prop::collection::vec(block, 0..5)).prop_map(|(fields, blocks)| {
        let (address, bytes, stream, (small, expandable), pool, site) = fields;
        let mut sites = vec![site];
        let blocks = blocks
            .into_iter()
            .map(|(address, bytes, requested, state, site)| {
                sites.push(site);
                let state = [BlockState::Live, BlockState::Pending, BlockState::Free][state];
                SegmentBlock { address, bytes, requested, state, site: SiteId::UNKNOWN }
            })
            .collect();
        let (stream, site) = (StreamId::from_raw(stream), SiteId::UNKNOWN);
        (Segment { address, bytes, stream, small, expandable, pool, site, blocks }, sites)
    })
}

fn warning() -> impl Strategy<Value = HistoryWarning> {
    (0..11, any::<u32>(), any::<usize>(), any::<u64>(), any::<u64>()).prop_map(
        |(which, device, event, address, bytes)| match which {
            0 => HistoryWarning::FreedUnknown { device, event, address },
            1 => HistoryWarning::Overlap { device, event, address },
            2 => HistoryWarning::NotInSegments { device, address, bytes },
            3 => HistoryWarning::BrokenSegment { device, address },
            4 => HistoryWarning::SizeDiffers { device, event, address },
            5 => HistoryWarning::CutOff { at: bytes },
            6 => HistoryWarning::Damaged { at: bytes },
            7 => HistoryWarning::TotalMisfit { device, event },
            8 => HistoryWarning::RegionMisfit { device, event, address },
            9 => HistoryWarning::UnknownAction { device, event },
            _ => HistoryWarning::More { count: bytes },
        },
    )
}

/// Unplaced blocks.
fn unplaced() -> impl Strategy<Value = Vec<(SegmentBlock, usize)>> {
    let block =
        (number(), number(), number(), any::<usize>()).prop_map(|(address, bytes, requested, site)| {
            let (state, none) = (BlockState::Live, SiteId::UNKNOWN);
            (SegmentBlock { address, bytes, requested, state, site: none }, site)
        });
    prop::collection::vec(block, 0..4)
}

/// Sites from texts: some frames, some stacks.
fn tables(texts: &[String], sites: &mut Sites) -> (Vec<TextId>, Vec<SiteId>) {
    let ids = texts.iter().map(|text| sites.text(text)).collect();
    let mut stacks = vec![SiteId::UNKNOWN];
    let mut frames = Vec::new();
    for (line, text) in (0..).zip(texts) {
        frames.push(sites.frame(text, &texts[texts.len() - 1], line));
        frames.truncate(5);
        stacks.push(sites.stack(&frames));
    }
    (ids, stacks)
}

prop_compose! {
    /// Arbitrary histories.
    pub(crate) fn history()(
        texts in prop::collection::vec(any::<String>(), 1..6),
        devices in prop::collection::btree_map(
            any::<u32>(),
            (
                prop::collection::vec(event(), 0..40),
                prop::collection::vec(segment(), 0..3),
                prop::collection::vec(segment(), 0..3),
                (any::<Option<u64>>(), any::<Option<u64>>(), unplaced()),
            ),
            0..4,
        ),
        settings in any::<Option<String>>(),
        warnings in prop::collection::vec(warning(), 0..4),
    ) -> History {
        let mut history = History::default();
        let (texts, stacks) = tables(&texts, &mut history.sites);
        let name = |place: usize| stacks[place % stacks.len()];
        let named = |(mut segment, sites): (Segment, Vec<usize>)| {
            segment.site = name(sites[0]);
            for (block, site) in segment.blocks.iter_mut().zip(&sites[1..]) {
                block.site = name(*site);
            }
            segment
        };
        for (number, (events, start, end, (memory, counted, held))) in devices {
            let mut device = DeviceHistory::default();
            device.device = number;
            device.memory = memory;
            device.events = events
                .into_iter()
                .map(|(event, (text, site))| {
                    HistoryEvent { text: texts[text % texts.len()], site: name(site), ..event }
                })
                .collect();
            device.start = start.into_iter().map(named).collect();
            device.end = end.into_iter().map(named).collect();
            device.counted_reserved = counted;
            device.unplaced = held
                .into_iter()
                .map(|(block, site)| SegmentBlock { site: name(site), ..block })
                .collect();
            history.devices.push(device);
        }
        history.settings = settings;
        for warning in warnings {
            warning.add_to(&mut history.warnings);
        }
        history
    }
}

/// Frames by name.
type NamedFrames = Vec<(String, String, u32)>;

fn frames(sites: &Sites, site: SiteId) -> NamedFrames {
    let frames = sites.frames(site);
    let name = |text| sites.name(text).to_owned();
    frames.map(|frame| (name(frame.function), name(frame.file), frame.line)).collect()
}

/// An event with names instead of ids.
type NamedEvent = (HistoryEvent, String, NamedFrames);

/// The events of each device with names instead of ids.
pub(crate) fn events(history: &History) -> Vec<(u32, Vec<NamedEvent>)> {
    let sites = &history.sites;
    let named = |event: &HistoryEvent| {
        let bare = HistoryEvent { text: TextId::NONE, site: SiteId::UNKNOWN, ..*event };
        (bare, sites.name(event.text).to_owned(), frames(sites, event.site))
    };
    let devices = history.devices.iter();
    devices.map(|device| (device.device, device.events.iter().map(named).collect())).collect()
}

/// The segments of a device with names instead of ids.
pub(crate) fn segments(history: &History) -> Vec<(Segment, Vec<NamedFrames>)> {
    let all = history.devices.iter().flat_map(|device| device.start.iter().chain(&device.end));
    let named = |segment: &Segment| {
        let mut bare = segment.clone();
        let mut names = vec![frames(&history.sites, segment.site)];
        bare.site = SiteId::UNKNOWN;
        for block in &mut bare.blocks {
            names.push(frames(&history.sites, block.site));
            block.site = SiteId::UNKNOWN;
        }
        (bare, names)
    };
    all.map(named).collect()
}
