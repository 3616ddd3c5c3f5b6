//! The shipped snapshots with other rules.

use crate::histories;
use orlop_core::StreamId;
use orlop_core::torch::TorchReleases;
use orlop_lab::simulate::{
    AllocatorRules, Fidelity, MAX_STREAMS, Simulation, SimulationOutcome, StreamedReplay,
};
use orlop_lab::what_if::WhatIf;
use orlop_trace::formats::binary;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, History, HistoryEvent, Segment, SegmentBlock, SiteId, Workload,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// Name, allocations in the trace.
const RUNS: [(&str, u64); 4] = [
    ("gpt-medium_128_training", 6526),
    ("gpt-medium_256_inference", 1280),
    ("gpt-medium_512_inference", 1666),
    ("gpt-medium_512_training", 7591),
];

fn device(name: &str) -> DeviceHistory {
    let mut history = History::read(shipped(name)).expect("it is shipped");
    history.devices.remove(0)
}

fn shipped(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-snapshots");
    folder.join(format!("{name}.pickle.gz"))
}

fn torch(conf: &str) -> AllocatorRules {
    AllocatorRules::torch(conf).expect("settings of PyTorch's")
}

#[test]
fn from_the_recorded_state_every_recorded_address_is_reproduced() {
    for (name, allocations) in RUNS {
        let fidelity = Fidelity::of(&device(name), &"".parse().unwrap(), TorchReleases::ALL);
        assert_eq!((fidelity.allocations, fidelity.same), (allocations, allocations), "{name}");
        assert_eq!(fidelity.first_difference, None);
    }
}

#[test]
fn other_settings_lead_to_other_addresses() {
    let conf = "roundup_power2_divisions:2".parse().unwrap();
    let fidelity = Fidelity::of(&device(RUNS[0].0), &conf, TorchReleases::ALL);
    assert!(fidelity.same < fidelity.allocations);
}

#[test]
fn orlop_reserves_one_percent_more_than_live_and_without_pages_three() {
    for (name, _) in RUNS {
        let device = device(name);
        let work = Workload::of(&device);
        let simulation = Simulation::new(&work);
        let [ours, segments, theirs] = [AllocatorRules::Orlop, AllocatorRules::OrlopSegments, torch("")]
            .map(|rules| simulation.run(&rules).ratio);
        assert!(ours <= 1.01, "{name}: {ours}");
        assert!(segments <= 1.03, "{name}: {segments}");
        assert!(ours <= theirs, "{name}: {ours} and {theirs}");
        assert!(ours >= 1.0);
    }
}

/// A period is known after it has occurred twice, and one period later all blocks are at their planned
/// addresses.
#[test]
fn a_repeating_run_moves_no_memory_in_the_end() {
    for (name, _) in RUNS {
        let device = device(name);
        let outcome = Simulation::new(&Workload::of(&device)).passes(6).run(&AllocatorRules::Orlop);
        assert_eq!(outcome.remapped_last, 0, "{name}: {} bytes before", outcome.remapped);
        assert!(outcome.ratio <= 1.01, "{name}: {}", outcome.ratio);
    }
}

#[test]
fn the_smallest_memory_is_one_that_was_tried() {
    let device = device("gpt-medium_256_inference");
    let work = Workload::of(&device);
    let report = WhatIf::new(&work).smallest(true).plan(true).run();
    assert_eq!(report.rows.len(), 24);
    let perfect = report.perfect.unwrap();
    assert!(perfect.bytes >= report.peak_live && perfect.bytes < report.peak_live / 100 * 101);
    for row in &report.rows {
        let rules = if let Some(conf) = &row.outcome.conf { torch(conf) } else { continue };
        let Some(smallest) = row.smallest else { panic!("{rules} runs in what it held") };
        let runs = |memory| Simulation::new(&work).memory(memory).run(&rules).out_of_memory.is_none();
        assert!(runs(smallest.runs), "{rules}");
        assert!(smallest.fails.is_none_or(|memory| !runs(memory)), "{rules}");
        assert!(smallest.runs >= report.peak_live);
    }
    let baseline: Vec<_> = report.rows.iter().filter(|row| row.is_baseline).collect();
    assert_eq!((baseline.len(), baseline[0].saves), (1, Some(0)));
}

#[test]
fn too_little_memory_is_reported_with_the_event() {
    let device = device("gpt-medium_512_training");
    let work = Workload::of(&device);
    let (peak, _) = work.peak();
    for rules in [
        torch(""),
        torch("expandable_segments:True"),
        AllocatorRules::Orlop,
        AllocatorRules::OrlopSegments,
        AllocatorRules::TensorFlow,
    ] {
        let outcome = Simulation::new(&work).memory(peak - (64 << 20)).run(&rules);
        let failed = outcome.out_of_memory.unwrap();
        assert!(failed.step.is_some() && failed.event.is_some(), "{rules}");
        assert!(failed.live + failed.bytes > peak - (512 << 20), "{rules}: {failed:?}");
        let start = Simulation::new(&work).memory(1 << 30).run(&rules);
        assert_eq!(start.out_of_memory.unwrap().step, None);
    }
}

#[test]
fn inconsistent_histories_are_replayed_as_far_as_possible() {
    let work = Workload::of(&device("mosaic-sample"));
    for rules in [torch(""), AllocatorRules::Orlop, AllocatorRules::TensorFlow] {
        assert_eq!(Simulation::new(&work).passes(3).run(&rules).out_of_memory, None);
    }
}

/// Without the duration.
fn timeless(outcome: &SimulationOutcome) -> SimulationOutcome {
    let mut outcome = outcome.clone();
    outcome.nanoseconds = None;
    outcome
}

#[test]
fn streaming_gives_the_same_result() {
    for (name, _) in RUNS {
        let history = History::read(shipped(name)).expect("it is shipped");
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).expect("room");
        let work = Workload::of(&history.devices[0]);
        for (rules, memory) in [
            (torch(""), None),
            (torch("expandable_segments:True"), Some(1 << 30)),
            (AllocatorRules::Orlop, None),
            (AllocatorRules::OrlopSegments, Some(work.peak().0 - (64 << 20))),
            (AllocatorRules::TensorFlow, None),
        ] {
            let streamed = StreamedReplay::run(&file[..], &rules, memory).expect("it is one of ours");
            let simulation = Simulation::new(&work);
            let whole = memory.map_or(simulation, |memory| simulation.memory(memory)).run(&rules);
            let [(_, outcome)] = &streamed.devices[..] else { panic!("one device") };
            assert_eq!(timeless(outcome), timeless(&whole), "{name}");
        }
        let cut = StreamedReplay::run(&file[..file.len() - 9], &AllocatorRules::Orlop, None)
            .expect("it is one of ours");
        assert_eq!((cut.devices.len(), cut.warnings.len()), (1, 1));
    }
    assert!(StreamedReplay::run(&b"a,0,100\n"[..], &AllocatorRules::Orlop, None).is_err());
}

/// The offset of the flags in a binary file.
const FLAGS: usize = 10;

prop_compose! {
    /// A few blocks on a few devices, at few addresses and times, so that most events are of live blocks.
    fn busy()(
        start in prop::collection::btree_set((0_u32..3, 0_u64..4), 0..6),
        events in prop::collection::vec(
                    (0_u32..3, 0_u64..16, 0_usize..5, 0_u64..8, 0_u64..1 << 24, 0_u64..3), 0..80
                ),
    ) -> History {
        const ACTIONS: [EventAction; 5] = [
            EventAction::Allocate,
            EventAction::Allocate,
            EventAction::FreeRequested,
            EventAction::FreeCompleted,
            EventAction::Use,
        ];
        let mut history = History::default();
        for number in 0..3 {
            let mut device = DeviceHistory::default();
            device.device = number;
            for &(_, place) in start.iter().filter(|&&(of, _)| of == number) {
                let (address, bytes, site) = (place, 1 << 20, SiteId::UNKNOWN);
                let block = SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site };
                let stream = StreamId::from_raw(place % 2);
                let (small, expandable, pool) = (false, false, (0, 0));
                let blocks = vec![block];
                device.start.push(Segment { address, bytes, stream, small, expandable, pool, site, blocks });
            }
            let own = events.iter().filter(|event| event.0 == number);
            for &(_, time, action, address, bytes, stream) in own {
                let stream = StreamId::from_raw(stream);
                let event = HistoryEvent::new(ACTIONS[action], address, bytes);
                                device.events.push(HistoryEvent { time, stream, ..event });
            }
            history.devices.push(device);
        }
        history
    }
}

#[test]
fn the_first_free_event_of_a_block_counts() {
    use EventAction::{Allocate, FreeCompleted, FreeRequested};
    let mut device = DeviceHistory::default();
    // A graph's blocks are freed with its pool, without requests.
    device.events = vec![
        HistoryEvent::new(Allocate, 16, 100),
        HistoryEvent::new(Allocate, 32, 200),
        HistoryEvent::new(FreeRequested, 16, 100),
        HistoryEvent::new(FreeCompleted, 16, 100),
        HistoryEvent::new(FreeCompleted, 32, 200),
        HistoryEvent::new(Allocate, 32, 300),
    ];
    let work = Workload::of(&device);
    assert_eq!(work.events, [0, 1, 2, 4, 5]);
    assert_eq!(work.peak().0, 300);
    assert_eq!(work.blocks.iter().map(|block| block.died).collect::<Vec<_>>(), [Some(2), Some(3), None]);
}

#[test]
fn a_completion_without_a_request_frees_its_block_and_is_counted() {
    use EventAction::{Allocate, FreeCompleted, FreeRequested, RegionReserved};
    const REGION: u64 = 1 << 28;
    let mut device = DeviceHistory::default();
    device.events = vec![
        HistoryEvent::new(RegionReserved, REGION, 2 << 20),
        HistoryEvent::new(Allocate, REGION, 512),
        HistoryEvent::new(FreeCompleted, REGION, 512),
        HistoryEvent::new(Allocate, REGION, 512),
        HistoryEvent::new(FreeRequested, REGION, 512),
        HistoryEvent::new(FreeCompleted, REGION, 512),
        HistoryEvent::new(Allocate, REGION, 512),
    ];
    let fidelity = Fidelity::of(&device, &"".parse().unwrap(), TorchReleases::ALL);
    assert_eq!((fidelity.allocations, fidelity.same, fidelity.first_difference), (3, 3, None));
    assert_eq!(fidelity.unrequested, 1);
    for (name, _) in RUNS {
        assert_eq!(
            Fidelity::of(&self::device(name), &"".parse().unwrap(), TorchReleases::ALL).unrequested,
            0,
            "{name}"
        );
    }
}

/// Engines that distinguish all of them would take gigabytes, and search all of them for each request.
#[test]
fn a_stream_in_each_event_costs_no_more_than_the_event() {
    let mut device = DeviceHistory::default();
    device.events = (0..50_000)
        .map(|event| HistoryEvent {
            stream: StreamId::from_raw(event),
            ..HistoryEvent::new(EventAction::Allocate, event << 9, 512)
        })
        .collect();
    let work = Workload::of(&device);
    for rules in [torch(""), AllocatorRules::Orlop] {
        let outcome = Simulation::new(&work).run(&rules);
        assert_eq!((outcome.operations, outcome.folded), (50_000, 50_000 - 1 - MAX_STREAMS as u64));
    }
    assert_eq!(Fidelity::of(&device, &"".parse().unwrap(), TorchReleases::ALL).allocations, 50_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_file_is_replayed_event_by_event_as_in_one(
        history in prop_oneof![histories::history(), busy()],
        memory in prop::option::of(0..1_u64 << 41),
        nearly in any::<bool>(),
    ) {
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).expect("room");
        file[FLAGS] = nearly.into();
        let history = binary::read_binary(&file[..]).expect("it is one of ours");
        let streamed = StreamedReplay::run(&file[..], &AllocatorRules::Orlop, memory);
                let streamed = streamed.expect("an orlop file");
        prop_assert_eq!(&streamed.warnings, &history.warnings);
        let whole = history.devices.iter().map(|device| {
            let work = Workload::of(device);
            let simulation = Simulation::new(&work);
            let simulation = memory.map_or(simulation, |memory| simulation.memory(memory));
                        let outcome = simulation.run(&AllocatorRules::Orlop);
            (device.device, timeless(&outcome))
        });
        prop_assert_eq!(streamed.devices, whole.collect::<Vec<_>>());
    }

    /// Arbitrary addresses and sizes, up to the largest numbers.
    #[test]
    fn whatever_a_file_says_there_is_an_answer(
        mut history in histories::history(),
        memory in prop::option::of(0..1_u64 << 41),
        reconstruct in any::<bool>(),
    ) {
        if reconstruct {
            history.find_start();
        }
        let (conf, _) = history.torch_conf();
        for device in &history.devices {
            let fidelity = Fidelity::of(device, &conf, TorchReleases::ALL);
            prop_assert!(fidelity.same <= fidelity.allocations);
            let work = Workload::of(device);
            let sweep = WhatIf::recorded(&work, &history, device).memory(memory).smallest(true).plan(true);
            let report = sweep.baseline(AllocatorRules::Torch(conf.clone())).run();
            prop_assert_eq!(report.rows.iter().filter(|row| row.is_baseline).count(), 1);
            for row in &report.rows {
                prop_assert!(row.smallest.is_none_or(|smallest| smallest.runs >= report.peak_live));
            }
        }
    }
}
