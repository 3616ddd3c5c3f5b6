//! Runs on a GPU: PyTorch with other settings and in less memory, predicted from one recording.

use orlop_core::torch::{TieRule, TorchConf};
use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
use orlop_lab::simulate::{AllocatorRules, Fidelity, Simulation, SimulationOutcome, StreamedReplay};
use orlop_trace::formats::binary::write_binary;
use orlop_trace::history::{DeviceHistory, History, Workload};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-runs")
}

/// All shipped runs by name.
pub(crate) fn recordings() -> BTreeMap<String, History> {
    let entries = std::fs::read_dir(folder()).expect("they are shipped");
    let read = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".pickle.gz")?.to_owned();
        Some((name, History::read(&path).expect("it is well-formed")))
    };
    entries.filter_map(|entry| read(entry.ok()?.path())).collect()
}

/// One shipped run.
pub(crate) fn recording(name: &str) -> History {
    History::read(folder().join(format!("{name}.pickle.gz"))).expect("it is shipped")
}

pub(crate) fn device(history: &History) -> &DeviceHistory {
    assert_eq!((history.devices.len(), history.warnings.len()), (1, 0));
    &history.devices[0]
}

/// The figures that PyTorch counted.
#[derive(Debug, Deserialize)]
struct Measured {
    model: String,
    conf: String,
    limit: Option<u64>,
    out_of_memory: bool,
    reserved_peak: u64,
    retries: u64,
    device_mallocs: u64,
}

fn measured() -> Vec<Measured> {
    let text = std::fs::read_to_string(folder().join("measured.jsonl")).expect("it is shipped");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

impl Measured {
    fn predict(&self, work: &Workload) -> SimulationOutcome {
        // As with `set_per_process_memory_fraction`, which a threshold requires.
        let half = self.limit.map_or("", |_| "per_process_memory_fraction:0.5");
        let settings = [self.conf.as_str(), half].into_iter().filter(|setting| !setting.is_empty());
        let settings: Vec<&str> = settings.collect();
        let conf: TorchConf = settings.join(",").parse().expect("settings of PyTorch's");
        // The runs are of PyTorch 2.11.
        let rules = AllocatorRules::Torch(conf.with_ties(TieRule::LowestAddress));
        let simulation = Simulation::new(work);
        self.limit.map_or(simulation, |limit| simulation.memory(2 * limit)).run(&rules)
    }

    fn off(&self, outcome: &SimulationOutcome) -> f64 {
        outcome.peak_reserved as f64 / self.reserved_peak as f64 - 1.0
    }
}

#[test]
fn every_recorded_address_is_reproduced() {
    let recordings = recordings();
    assert_eq!(recordings.len(), 15);
    for (name, history) in &recordings {
        let (conf, unknown) = history.torch_conf();
        assert_eq!(unknown, [], "{name}");
        let fidelity = Fidelity::of(device(history), &conf, history.releases);
        assert!(Fidelity::applies_to(device(history)) && fidelity.allocations > 100, "{name}");
        assert_eq!((fidelity.same, fidelity.first_difference), (fidelity.allocations, None), "{name}");
        // They are of PyTorch 2.11, which takes the lowest of equal blocks.
        assert_eq!(
            (history.releases.to_string(), fidelity.ties),
            ("2.10 to 2.12".into(), TieRule::LowestAddress)
        );
    }
}

#[test]
fn other_runs_are_predicted() {
    let recordings = recordings();
    let mut told = 0;
    for run in measured() {
        let Some(recording) = recordings.get(&format!("{}.default", run.model)) else { continue };
        let outcome = run.predict(&Workload::of(device(recording)));
        let off = run.off(&outcome);
        println!(
            "{} {} {:?}: {} retries {} gained {} out {} | {} {} {} {} {:+.2} %",
            run.model,
            run.conf,
            run.limit,
            run.reserved_peak,
            run.retries,
            run.device_mallocs,
            run.out_of_memory,
            outcome.peak_reserved,
            outcome.retries,
            outcome.device_allocations,
            outcome.out_of_memory.is_some(),
            100.0 * off
        );
        assert_eq!(outcome.out_of_memory.is_some(), run.out_of_memory, "{run:?}");
        // A program that continues after a failed request makes different requests. With two streams, timing
        // decides when memory is free again.
        let most = if run.model == "streams" { 0.03 } else { 0.004 };
        assert!(off.abs() <= most, "{run:?}: {off}");
        told += 1;
    }
    assert!(told > 30, "{told}");
}

/// Including blocks that wait for streams.
#[test]
fn a_replay_that_streams_gives_the_same() {
    let recordings = recordings();
    for name in ["streams.default", "streams.limit3", "streams.expandable"] {
        let history = &recordings[name];
        let mut file = Vec::new();
        write_binary(history, &mut file).unwrap();
        let work = Workload::of(device(history));
        assert!(work.blocks.iter().any(|block| block.stays_pending), "{name}");
        for (rules, memory) in
            [(AllocatorRules::torch("").unwrap(), None), (AllocatorRules::Orlop, Some(3 << 30))]
        {
            let simulation = Simulation::new(&work);
            let mut whole = memory.map_or(simulation, |memory| simulation.memory(memory)).run(&rules);
            let streamed = StreamedReplay::run(&file[..], &rules, memory).unwrap();
            whole.nanoseconds = None;
            assert_eq!(streamed.devices, [(0, whole)], "{name}");
        }
    }
}

/// The limit of a process is inferred from the recording.
#[test]
fn limits_are_found() {
    let limits = [
        ("gpt2-train.limit1", 12_426_867_386),
        ("resnet-train.limit1", 4_898_279_308),
        ("llama-decode.limit1", 1_230_900_072),
    ];
    for (name, limit) in limits {
        let history = &recordings()[name];
        let info = SnapshotInfo::of(history, SiteNaming::default());
        let failed = info.devices[0].out_of_memory.last().expect("it ends so");
        let found = failed.limit.expect("the device had room");
        assert!(found.at_least <= limit && limit < found.below, "{name}: {found:?}");
        assert_eq!(failed.memory(), Some(found.at_least));
    }
}
