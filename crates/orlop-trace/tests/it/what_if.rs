//! The shipped snapshots under other rules.

use crate::histories;
use orlop_trace::formats::binary;
use orlop_trace::history::{Action, DeviceHistory, History, Workload};
use orlop_trace::what_if::{Fidelity, Outcome, Rules, Simulation, StreamedReplay, WhatIf};
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

fn torch(conf: &str) -> Rules {
    Rules::torch(conf).expect("settings of PyTorch's")
}

#[test]
fn from_the_recorded_state_on_every_recorded_address_comes_out() {
    for (name, allocations) in RUNS {
        let fidelity = Fidelity::of(&device(name), &"".parse().unwrap());
        assert_eq!((fidelity.allocations, fidelity.same), (allocations, allocations), "{name}");
        assert_eq!(fidelity.first_difference, None);
    }
}

#[test]
fn other_settings_lead_to_other_addresses() {
    let conf = "roundup_power2_divisions:2".parse().unwrap();
    let fidelity = Fidelity::of(&device(RUNS[0].0), &conf);
    assert!(fidelity.same < fidelity.allocations);
}

#[test]
fn ours_holds_a_hundredth_more_than_lives_and_without_pages_three() {
    for (name, _) in RUNS {
        let device = device(name);
        let work = Workload::of(&device);
        let simulation = Simulation::new(&work);
        let [ours, segments, theirs] =
            [Rules::Orlop, Rules::OrlopSegments, torch("")].map(|rules| simulation.run(&rules).ratio);
        assert!(ours <= 1.01, "{name}: {ours}");
        assert!(segments <= 1.03, "{name}: {segments}");
        assert!(ours <= theirs, "{name}: {ours} and {theirs}");
        assert!(ours >= 1.0);
    }
}

/// The round is known after it happened twice, and a round later everything is where the plan wants it.
#[test]
fn a_run_that_repeats_itself_moves_nothing_in_the_end() {
    for (name, _) in RUNS {
        let device = device(name);
        let outcome = Simulation::new(&Workload::of(&device)).passes(6).run(&Rules::Orlop);
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
    assert_eq!((baseline.len(), baseline[0].saves), (1, 0));
}

#[test]
fn too_little_memory_is_told_with_the_event() {
    let device = device("gpt-medium_512_training");
    let work = Workload::of(&device);
    let (peak, _) = work.peak();
    for rules in
        [torch(""), torch("expandable_segments:True"), Rules::Orlop, Rules::OrlopSegments, Rules::TensorFlow]
    {
        let outcome = Simulation::new(&work).memory(peak - (64 << 20)).run(&rules);
        let failed = outcome.out_of_memory.unwrap();
        assert!(failed.step.is_some() && failed.event.is_some(), "{rules}");
        assert!(failed.live + failed.bytes > peak - (512 << 20), "{rules}: {failed:?}");
        let start = Simulation::new(&work).memory(1 << 30).run(&rules);
        assert_eq!(start.out_of_memory.unwrap().step, None);
    }
}

#[test]
fn what_does_not_fit_together_is_replayed_as_far_as_it_does() {
    let work = Workload::of(&device("mosaic-sample"));
    for rules in [torch(""), Rules::Orlop, Rules::TensorFlow] {
        assert_eq!(Simulation::new(&work).passes(3).run(&rules).out_of_memory, None);
    }
}

/// But for the time that it took.
fn timeless(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    outcome.nanoseconds = 0;
    outcome
}

#[test]
fn event_by_event_comes_out_what_the_whole_gives() {
    for (name, _) in RUNS {
        let history = History::read(shipped(name)).expect("it is shipped");
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).expect("room");
        let work = Workload::of(&history.devices[0]);
        for (rules, memory) in [
            (torch(""), None),
            (torch("expandable_segments:True"), Some(1 << 30)),
            (Rules::Orlop, None),
            (Rules::OrlopSegments, Some(work.peak().0 - (64 << 20))),
            (Rules::TensorFlow, None),
        ] {
            let streamed = StreamedReplay::run(&file[..], &rules, memory).expect("it is one of ours");
            let simulation = Simulation::new(&work);
            let whole = memory.map_or(simulation, |memory| simulation.memory(memory)).run(&rules);
            let [(_, outcome)] = &streamed.devices[..] else { panic!("one device") };
            assert_eq!(timeless(outcome), timeless(&whole), "{name}");
        }
        let cut =
            StreamedReplay::run(&file[..file.len() - 9], &Rules::Orlop, None).expect("it is one of ours");
        assert_eq!((cut.devices.len(), cut.warnings.len()), (1, 1));
    }
    assert!(StreamedReplay::run(&b"a,0,100\n"[..], &Rules::Orlop, None).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_file_is_replayed_event_by_event_as_in_one(history in histories::history(), memory in any::<Option<u64>>()) {
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).expect("room");
        let streamed = StreamedReplay::run(&file[..], &Rules::Orlop, memory).expect("it is one of ours");
        for device in &history.devices {
            // One that frees by requests here and by completions there is not for a stream to tell.
            let frees = |action| device.events.iter().any(|event| event.action == action);
            if frees(Action::FreeRequested) && frees(Action::FreeCompleted) {
                continue;
            }
            let work = Workload::of(device);
            let simulation = Simulation::new(&work);
            let whole = memory.map_or(simulation, |memory| simulation.memory(memory)).run(&Rules::Orlop);
            if let Some((_, outcome)) = streamed.devices.iter().find(|(number, _)| *number == device.device) {
                prop_assert_eq!(timeless(outcome), timeless(&whole));
            } else {
                prop_assert_eq!(whole.operations, 0);
            }
        }
    }

    /// Addresses and sizes are what a file says, up to the largest numbers there are.
    #[test]
    fn whatever_a_file_says_there_is_an_answer(
        mut history in histories::history(),
        memory in any::<Option<u64>>(),
        reconstruct in any::<bool>(),
    ) {
        if reconstruct {
            history.find_start();
        }
        let (conf, _) = history.torch_conf();
        for device in &history.devices {
            let fidelity = Fidelity::of(device, &conf);
            prop_assert!(fidelity.same <= fidelity.allocations);
            let work = Workload::of(device);
            let sweep = WhatIf::new(&work).memory(memory).smallest(true).plan(true);
            let report = sweep.baseline(Rules::Torch(conf.clone())).run();
            prop_assert_eq!(report.rows.iter().filter(|row| row.is_baseline).count(), 1);
            for row in &report.rows {
                prop_assert!(row.smallest.is_none_or(|smallest| smallest.runs >= report.peak_live));
            }
        }
    }
}
