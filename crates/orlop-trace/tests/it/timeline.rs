//! The timeline, compared with an allocator that knows the state.

use crate::mock_allocator::{MockAllocator, plain};
use orlop_core::StreamId;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SegmentBlock, SiteId, Timeline,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    Allocate { bytes: u64, stream: u64 },
    RequestFree(usize),
    CompleteFree(usize),
    Free(usize),
    Fail(u64),
    EmptyCache,
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![1..5000_u64, 100_000..1_500_000_u64, 1_000_000..30_000_000_u64];
    prop_oneof![
        6 => (bytes, 0..2_u64).prop_map(|(bytes, stream)| Action::Allocate { bytes, stream }),
        1 => any::<usize>().prop_map(Action::RequestFree),
        1 => any::<usize>().prop_map(Action::CompleteFree),
        4 => any::<usize>().prop_map(Action::Free),
        1 => any::<u64>().prop_map(Action::Fail),
        1 => Just(Action::EmptyCache),
    ]
}

fn run(actions: &[Action], expandable: bool) -> MockAllocator {
    let mut machine = MockAllocator::default();
    machine.expandable = expandable;
    let (mut live, mut pending) = (Vec::new(), Vec::new());
    for action in actions {
        match *action {
            Action::Allocate { bytes, stream } => live.push(machine.allocate(bytes, stream, SiteId::UNKNOWN)),
            Action::RequestFree(which) if !live.is_empty() => {
                let block = live.swap_remove(which % live.len());
                machine.request_free(block);
                pending.push(block);
            }
            Action::CompleteFree(which) if !pending.is_empty() => {
                machine.complete_free(pending.swap_remove(which % pending.len()));
            }
            Action::Free(which) if !live.is_empty() => machine.free(live.swap_remove(which % live.len())),
            Action::Fail(bytes) => machine.fail(bytes, 0, 0),
            Action::EmptyCache => machine.empty_cache(),
            _ => {}
        }
    }
    // A history without completions is assumed to have only requests.
    let last = machine.allocate(1, 0, SiteId::UNKNOWN);
    machine.free(last);
    machine
}

fn raw(action: EventAction, address: u64, bytes: u64, stream: u64) -> HistoryEvent {
    HistoryEvent { stream: StreamId::from_raw(stream), ..HistoryEvent::new(action, address, bytes) }
}

fn any_event() -> impl Strategy<Value = HistoryEvent> {
    let action = prop::sample::select(vec![
        EventAction::Allocate,
        EventAction::FreeRequested,
        EventAction::FreeCompleted,
        EventAction::RegionReserved,
        EventAction::RegionReleased,
        EventAction::Mapped,
        EventAction::Unmapped,
        EventAction::OutOfMemory,
    ]);
    // Few addresses, so that ranges overlap; and the largest addresses.
    let address =
        prop_oneof![(0..64_u64).prop_map(|page| page * 512), (0..2048_u64).prop_map(|back| u64::MAX - back)];
    let bytes = prop_oneof![(0..32_u64).prop_map(|pages| pages * 512), any::<u64>(), 0..4000_u64];
    (action, address, bytes, 0..2_u64)
        .prop_map(|(action, address, bytes, stream)| raw(action, address, bytes, stream))
}

/// With blocks that do not cover it, overlap, or are outside.
fn any_segment() -> impl Strategy<Value = Segment> {
    let states = [BlockState::Live, BlockState::Pending, BlockState::Free];
    let block = (any_event(), prop::sample::select(states.to_vec()), any::<bool>()).prop_map(
        |(event, state, huge)| {
            let requested = if huge { u64::MAX } else { event.bytes };
            SegmentBlock {
                address: event.address,
                bytes: event.bytes,
                requested,
                state,
                site: SiteId::UNKNOWN,
            }
        },
    );
    (any_event(), vec(block, 0..6), any::<(bool, bool)>()).prop_map(|(event, blocks, (small, expandable))| {
        let HistoryEvent { address, bytes, stream, site, .. } = event;
        Segment { address, bytes, stream, small, expandable, pool: (0, 0), site, blocks }
    })
}

fn history(start: Vec<Segment>, events: Vec<HistoryEvent>, end: Vec<Segment>) -> DeviceHistory {
    let mut history = DeviceHistory::from_events(events);
    (history.start, history.end) = (start, end);
    history
}

/// Asserts that segments are in order, do not overlap, and are covered by their blocks.
fn check(segments: &[Segment]) {
    let mut free_from = 0;
    for segment in segments {
        assert!(segment.address >= free_from && segment.bytes > 0);
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at);
            assert!(block.bytes > 0);
            at = at.checked_add(block.bytes).expect("an address");
        }
        assert_eq!(at, segment.address + segment.bytes);
        free_from = at;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_state_after_every_event_is_what_it_was(
        actions in vec(action(), 1..200), expandable: bool, cut: prop::sample::Index, with_end: bool,
    ) {
        let machine = run(&actions, expandable);
        prop_assume!(!machine.events.is_empty());
        let cut = cut.index(machine.events.len());
        let history = machine.history(cut, with_end);
        let timeline = Timeline::new(&history);
        prop_assert_eq!(timeline.ignored_events(), 0);
        for (place, truth) in machine.truth[cut..].iter().enumerate() {
            prop_assert_eq!(&plain(timeline.at(place)), truth, "event {} of {:?}", place, history.events);
        }
    }

    #[test]
    fn inconsistent_events_cause_no_panic(
        events in vec(any_event(), 0..600),
                start in vec(any_segment(), 0..8),
                end in vec(any_segment(), 0..8),
    ) {
        let history = history(start, events, end);
        let timeline = Timeline::new(&history);
        for events in (0..=history.events.len()).step_by(37) {
            check(&timeline.after(events));
        }
    }
}

#[test]
fn every_event_is_near_a_stored_state() {
    let mut machine = MockAllocator::default();
    let mut live = Vec::new();
    for turn in 0..2000_u64 {
        live.push(machine.allocate(512 + turn % 7 * 300_000, 0, SiteId::UNKNOWN));
        if turn % 3 == 0 {
            let place = usize::try_from(turn).unwrap_or(0) * 31 % live.len();
            machine.free(live.swap_remove(place));
        }
    }
    let history = machine.history(0, true);
    let timeline = Timeline::new(&history);
    assert!(timeline.after(0).is_empty());
    for place in (0..history.events.len()).step_by(97) {
        assert_eq!(plain(timeline.at(place)), machine.truth[place]);
    }
    assert_eq!(timeline.at(usize::MAX), timeline.after(history.events.len()));
}

#[test]
fn a_block_ends_where_another_begins() {
    // Rounding up to a power of two, which the rules do not have, and rests that they would not split off.
    let events = vec![
        raw(EventAction::RegionReserved, 1 << 30, 20 << 20, 0),
        raw(EventAction::Allocate, 1 << 30, 18 << 20, 0),
        raw(EventAction::Allocate, (1 << 30) + (19 << 20), 512 << 10, 0),
        raw(EventAction::Allocate, (1 << 30) + (18 << 20), 1 << 20, 0),
        raw(EventAction::FreeRequested, 1 << 30, 18 << 20, 0),
    ];
    let history = DeviceHistory::from_events(events);
    let timeline = Timeline::new(&history);
    let sizes =
        |event| timeline.at(event)[0].blocks.iter().map(|block| block.bytes >> 10).collect::<Vec<_>>();
    assert_eq!(sizes(0), [20 << 10]);
    assert_eq!(sizes(1), [18 << 10, 2 << 10]);
    assert_eq!(sizes(2), [18 << 10, 1 << 10, 1 << 10]);
    assert_eq!(sizes(3), [18 << 10, 1 << 10, 1 << 10]);
    // Without completions a request is final.
    assert_eq!(timeline.at(4)[0].blocks[0].state, BlockState::Free);
    assert_eq!(timeline.ignored_events(), 0);
}

#[test]
fn events_outside_segments_are_ignored() {
    let events = vec![raw(EventAction::Allocate, 512, 100, 0), raw(EventAction::FreeRequested, 512, 100, 0)];
    let history = DeviceHistory::from_events(events);
    let timeline = Timeline::new(&history);
    assert_eq!((timeline.ignored_events(), timeline.at(1)), (2, Vec::new()));
}

#[test]
fn settings_determine_block_lengths() {
    let events = vec![
        raw(EventAction::RegionReserved, 1 << 30, 20 << 20, 0),
        raw(EventAction::Allocate, 1 << 30, 1200 << 10, 0),
    ];
    let history = DeviceHistory::from_events(events);
    let taken = |settings| Timeline::with_settings(&history, settings).at(1)[0].blocks[0].bytes >> 10;
    assert_eq!(taken(None), 1200);
    assert_eq!(taken(Some("roundup_power2_divisions:4")), 1280);
}

/// An allocator that rounds less than PyTorch's: a block begins where the rules would extend the previous
/// one.
#[test]
fn blocks_may_be_closer_than_pytorchs_alignment() {
    let events =
        [(0, 100), (128, 600), (768, 64)].map(|(at, bytes)| raw(EventAction::Allocate, 4096 + at, bytes, 0));
    let region = raw(EventAction::RegionReserved, 4096, 4096, 0);
    let history = DeviceHistory::from_events([region].into_iter().chain(events).collect());
    let timeline = Timeline::new(&history);
    assert_eq!(timeline.ignored_events(), 0);
    let blocks: Vec<_> =
        timeline.after(4)[0].blocks.iter().map(|block| (block.address, block.bytes)).collect();
    assert_eq!(blocks, [(4096, 128), (4224, 640), (4864, 512), (5376, 2816)]);
}
