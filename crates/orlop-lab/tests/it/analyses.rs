//! Analyses of small histories.

use crate::mock_allocator::MockAllocator;
use BlockState::{Free, Live, Pending};
use orlop_core::StreamId;
use orlop_lab::analyze::{LIVE_AT_START, ReleaseMethod, SegmentPool, SegmentsInfo, SiteNaming, SnapshotInfo};
use orlop_lab::compare::{Gate, Profile, Tolerance};
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, History, HistoryEvent, Segment, SegmentBlock, SiteId, Sites,
};
use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) const MIB: u64 = 1 << 20;

/// Three call sites.
pub(crate) struct Places {
    pub(crate) sites: Sites,
    pub(crate) model: SiteId,
    pub(crate) moved: SiteId,
    pub(crate) step: SiteId,
}

pub(crate) fn places() -> Places {
    let mut sites = Sites::default();
    let mut site = |function: &str, file: &str, line: u32| {
        let frames = [sites.frame("malloc", "??", 0), sites.frame(function, file, line)];
        sites.stack(&frames)
    };
    let model = site("forward", "/srv/proj/model.py", 10);
    let moved = site("forward", "/srv/proj/model.py", 12);
    let step = site("step", "/srv/proj/optimizer.py", 7);
    Places { sites, model, moved, step }
}

pub(crate) fn history(sites: &Sites, device: DeviceHistory) -> History {
    let mut history = History::default();
    (history.devices, history.sites) = (vec![device], sites.clone());
    history
}

#[test]
fn the_bytes_at_peak_and_end_are_complete() {
    let Places { sites, model, step, .. } = places();
    let mut machine = MockAllocator::default();
    let before = machine.allocate(3 * MIB, 0, SiteId::UNKNOWN);
    let cut = machine.events.len();
    let large = machine.allocate(30 * MIB, 0, model);
    machine.allocate(100, 0, step);
    machine.allocate(5 * MIB, 1, model);
    machine.request_free(large);
    machine.allocate(4 * MIB, 0, step);
    machine.free(before);
    machine.complete_free(large);
    let info = SnapshotInfo::of(
        &history(&sites, machine.history(cut, true)),
        SiteNaming::default().top(2).full(true),
    );
    let device = &info.devices[0];
    assert_eq!((device.allocations, device.frees, device.ignored_events), (4, 2, 0));
    assert_eq!((device.start_bytes, device.peak_reserved), (3 * MIB, Some((20 + 30 + 2 + 20) * MIB)));
    assert!(device.out_of_memory.is_empty() && info.warnings.is_empty());
    assert_eq!(
        info.to_string(),
        "device 0: live 3.00 MiB at the start, 38.0 MiB at the peak, 9.00 MiB at the end; \
         peak reserved 72.0 MiB"
    );

    let peak = &device.peak;
    assert_eq!((peak.live.bytes, peak.live.blocks), (38 * MIB + 100, 4));
    let names: Vec<_> =
        peak.live.by_site.top.iter().map(|share| (&*share.name, share.bytes, share.blocks)).collect();
    assert_eq!(names, [("model.py:10 forward", 35 * MIB, 2), (LIVE_AT_START, 3 * MIB, 1)]);
    assert_eq!((peak.live.by_site.others, peak.live.by_site.other_bytes), (1, 100));
    assert_eq!(peak.live.by_site.top[0].frames, ["malloc", "/srv/proj/model.py:10 forward"]);
    assert!((peak.live.by_site.top[1].share - 3.0 / 38.0).abs() < 1e-5);
    assert_eq!(
        (peak.live.by_stream.top[0].bytes, peak.live.by_stream.top[1].bytes),
        (33 * MIB + 100, 5 * MIB)
    );
    assert!(peak.live.by_kind.top.is_empty() && peak.live.by_tag.top.is_empty());
    let oldest = &peak.live.largest[0];
    assert_eq!((oldest.bytes, oldest.age_events, oldest.age_ns), (30 * MIB, Some(4), Some(4000)));
    let segments = peak.segments.as_ref().expect("they are recorded");
    assert_eq!((segments.segments, segments.largest_request), (4, None));
    let bytes = segments.bytes;
    assert_eq!((bytes.reserved, bytes.requested, bytes.rounding), (72 * MIB, 38 * MIB + 100, 412));
    assert_eq!((bytes.split, bytes.cached, bytes.largest_free), (34 * MIB - 512, 0, 17 * MIB));

    let end = &device.end;
    assert_eq!((end.events, end.live.bytes), (device.events, 9 * MIB + 100));
    let bytes = end.segments.as_ref().expect("they are recorded").bytes;
    assert_eq!((bytes.cached, bytes.pending, bytes.largest_free), (30 * MIB, 0, 30 * MIB));
    let whole = bytes.requested + bytes.rounding + bytes.pending + bytes.split + bytes.cached;
    assert_eq!(whole, bytes.reserved);
}

#[test]
fn free_device_memory_counts_for_the_largest_request() {
    let unknown = SiteId::UNKNOWN;
    let segments = [
        segment(0, &[(6, Live, unknown), (4, Free, unknown)]),
        segment(100, &[(50, Free, unknown)]),
        segment(200, &[(5, Pending, unknown), (5, Free, unknown)]),
    ];
    let info = SegmentsInfo::of(&segments, Some(170));
    assert_eq!(info.largest_request, Some(150));
    assert_eq!((info.bytes.split, info.bytes.cached, info.bytes.pending), (9, 50, 5));
    assert_eq!((info.bytes.free_blocks, info.pools.len(), info.pools[0].pool), (3, 1, SegmentPool::Large));
}

/// A device of 100 MiB that is nearly full.
fn full(places: &Places) -> (DeviceHistory, [u64; 3]) {
    let mut machine = MockAllocator::default();
    let first = machine.allocate(12 * MIB, 0, places.model);
    let blocks: Vec<u64> =
        [12, 2, 9, 3, 10].into_iter().map(|mib| machine.allocate(mib * MIB, 0, places.step)).collect();
    machine.free(first);
    machine.empty_cache();
    machine.fail(14 * MIB, 0, 5 * MIB);
    (machine.history(0, true), [first, blocks[1], blocks[2]])
}

#[test]
fn a_failed_request_is_reported_with_the_bytes_to_free() {
    let places = places();
    let (device, _) = full(&places);
    let info = SnapshotInfo::of(&history(&places.sites, device.clone()), SiteNaming::default());
    let failed = &info.devices[0].out_of_memory[0];
    assert_eq!(
        (failed.requested, failed.device_free, failed.event),
        (14 * MIB, 5 * MIB, device.events.len() - 1)
    );
    assert_eq!((failed.live.bytes, failed.fragmented), (36 * MIB, false));
    // Segments: 12 MiB (one block), 20 MiB with blocks of 2, 9 and 3, and 10 MiB (one block). In the middle
    // one, 9 + 3 + the rest of 6 are enough; so are 2 + 9 + 3. The device lacks 9, which the segment of 10
    // has.
    let ways: Vec<_> =
        failed.releases.iter().map(|release| (release.method, release.bytes, release.range)).collect();
    assert_eq!(
        ways,
        [(ReleaseMethod::Segments, 10 * MIB, 10 * MIB), (ReleaseMethod::Neighbours, 12 * MIB, 18 * MIB)]
    );
    let release = &failed.releases[1];
    assert_eq!((release.blocks, &*release.by_site.top[0].name), (2, "optimizer.py:7 step"));
    assert_eq!(failed.segments.as_ref().and_then(|segments| segments.largest_request), Some(6 * MIB));
}

proptest! {
    #[test]
    fn the_best_window_is_the_best_of_all(
        blocks in vec((1..50_u64, any::<bool>()), 1..12), bytes in 1..200_u64,
    ) {
        let mib = |&(mib, live): &(u64, bool)| (mib * MIB, if live { Live } else { Free }, SiteId::UNKNOWN);
        let made = segment(1 << 40, &blocks.iter().map(mib).collect::<Vec<_>>());
        let mut device = DeviceHistory::default();
        device.start = vec![made.clone()];
        let mut machine = MockAllocator::default();
        machine.fail((bytes + 1) * MIB, 0, 0);
        device.events = machine.events;
        let info = SnapshotInfo::of(&history(&Sites::default(), device), SiteNaming::default());
        let mut releases = info.devices[0].out_of_memory[0].releases.iter();
        let found = releases.find(|release| release.method == ReleaseMethod::Neighbours);
        let mut best = None;
        for from in 0..blocks.len() {
            for to in from..=blocks.len() {
                let window = &made.blocks[from..to];
                if window.iter().map(|block| block.bytes).sum::<u64>() >= (bytes + 1) * MIB {
                    let live = window.iter().filter(|block| block.state == Live);
                    let live: u64 = live.map(|block| block.bytes).sum();
                    best = Some(best.map_or(live, |best: u64| best.min(live)));
                }
            }
        }
        prop_assert_eq!(found.map(|found| found.bytes), best);
    }
}

/// A budget that refused requests says nothing about the memory of the device, and a limit is known.
#[test]
fn refusals_are_told_apart_from_the_memory_of_the_device() {
    let (cause, outcome) = (["budget", "budget", "limit"], ["served", "failed", "failed"]);
    let mut table = "device,time_ns,action,address,bytes,kind,refusal\n\
        0,1,region_gained,0x10000,65536,default,\n0,2,allocate,0x10000,64,default,\n"
        .to_owned();
    for (at, (cause, outcome)) in cause.into_iter().zip(outcome).enumerate() {
        let action = if cause == "budget" { "refused" } else { "out_of_memory" };
        table += &format!("0,{},{action},0x100,1048576,default,{cause}|x|{outcome}\n", at + 3);
    }
    table += "0,9,allocate,0x90000000,1000000,persistent,\n";
    let history = History::parse(table.as_bytes()).unwrap();
    let info = SnapshotInfo::of(&history, SiteNaming::default());
    let device = &info.devices[0];
    let counts: Vec<_> = device.refusals.iter().map(|one| (one.cause, one.served, one.failed)).collect();
    assert_eq!(counts, [("budget", 1, 1), ("limit", 0, 1)]);
    let [failed] = &device.out_of_memory[..] else { panic!("one request failed") };
    assert_eq!((failed.cause, failed.refuser.as_deref()), (Some("limit"), Some("x")));
    assert_eq!(failed.limit.map(|limit| limit.at_least), Some(65536 + 256));
    let text = device.to_string();
    assert!(
        text.contains("; 1 request failed; budgets refused 2 times, and 1 request failed by that"),
        "{text}"
    );
    // A mapped file is in no segment.
    assert_eq!((device.end.live.bytes, device.end.outside), (1_000_064, 1_000_000));
}

/// Two of three segments suffice, and the pair with the fewest live bytes is not the one of the fewest live
/// bytes for their size.
#[test]
fn the_least_memory_to_release_is_the_least() {
    let made = |at: u64, mib: u64, live: u64| {
        let blocks = [(live * MIB, Live, SiteId::UNKNOWN), ((mib - live) * MIB, Free, SiteId::UNKNOWN)];
        segment(at << 40, &blocks)
    };
    let mut device = DeviceHistory::default();
    device.start = vec![made(1, 70, 7), made(2, 60, 7), made(3, 40, 5)];
    let mut machine = MockAllocator::default();
    machine.fail(110 * MIB, 0, 0);
    device.events = machine.events;
    let info = SnapshotInfo::of(&history(&Sites::default(), device), SiteNaming::default());
    let release = &info.devices[0].out_of_memory[0].releases[0];
    assert_eq!((release.method, release.bytes, release.is_exact), (ReleaseMethod::Segments, 12 * MIB, true));
}

#[test]
fn a_request_larger_than_the_device_has_no_remedy() {
    let places = places();
    let (mut device, _) = full(&places);
    let last = device.events.last_mut().expect("events");
    last.bytes = u64::MAX;
    let info = SnapshotInfo::of(&history(&places.sites, device), SiteNaming::default());
    assert!(info.devices[0].out_of_memory[0].releases.is_empty());
}

#[test]
fn a_program_that_fails_again_and_again_is_cut_short() {
    let mut machine = MockAllocator::default();
    for request in 0..100 {
        machine.fail(1 + request % 25, 0, 0);
    }
    let info = SnapshotInfo::of(&history(&Sites::default(), machine.history(0, true)), SiteNaming::default());
    let device = &info.devices[0];
    // Requests that are alike are one report; groups beyond the first 16 are counted.
    assert_eq!((device.out_of_memory.len(), device.more_out_of_memory), (16, 36));
    let first = &device.out_of_memory[0];
    assert_eq!((first.event, first.requested, first.times, first.last_event), (0, 1, 4, 75));
    assert!(device.to_string().contains("; 100 requests failed"), "{device}");
    assert_eq!((&device.peak.segments, device.peak_reserved), (&None, None));
}

#[test]
fn a_snapshot_without_a_recording_is_its_end() {
    let places = places();
    let end = vec![segment(1 << 30, &[(MIB, Live, places.model), (MIB, Free, places.model)])];
    let mut device = DeviceHistory::default();
    (device.end, device.memory) = (end, Some(10 * MIB));
    let history = history(&places.sites, device);
    let device = &SnapshotInfo::of(&history, SiteNaming::default()).devices[0];
    assert_eq!((device.start_bytes, device.peak_reserved), (MIB, Some(2 * MIB)));
    assert_eq!(device.end.live.by_site.top[0].name, "model.py:10 forward");
    assert_eq!(device.peak.segments.as_ref().and_then(|segments| segments.largest_request), Some(8 * MIB));
    assert_eq!(Profile::of(&history, 1).devices[0].end_live, MIB);
}

/// A segment with blocks of these sizes.
pub(crate) fn segment(address: u64, blocks: &[(u64, BlockState, SiteId)]) -> Segment {
    let mut at = address;
    let block = |&(bytes, state, site): &(u64, BlockState, SiteId)| {
        let block = SegmentBlock { address: at, bytes, requested: bytes, state, site };
        at += bytes;
        block
    };
    let blocks: Vec<SegmentBlock> = blocks.iter().map(block).collect();
    Segment {
        address,
        bytes: at - address,
        stream: StreamId::from_raw(0),
        small: false,
        expandable: false,
        pool: (0, 0),
        site: SiteId::UNKNOWN,
        blocks,
    }
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
    let states = [Live, Pending, Free];
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn inconsistent_events_cause_no_panic(
        events in vec(any_event(), 0..600),
                start in vec(any_segment(), 0..8),
                end in vec(any_segment(), 0..8),
    ) {
        let mut device = DeviceHistory::from_events(events);
        (device.start, device.end) = (start, end);
        let history = history(&Sites::default(), device);
        let profile = Profile::of(&history, 1);
        prop_assert!(Gate::check(&profile, &profile, Tolerance::default()).passed);
        let info = SnapshotInfo::of(&history, SiteNaming::default());
        prop_assert_eq!(info.devices[0].peak.live.bytes, profile.devices[0].peak_live);
    }
}
