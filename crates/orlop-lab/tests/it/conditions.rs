//! The memory limits of recorded runs and their calls of `empty_cache`, inferred from releases.

use crate::torch_runs::{device, recordings};
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceBlock, DeviceError, DeviceRequest, Engine, NullDevice, Policy, TorchConf};
use orlop_lab::simulate::{AllocatorRules, RunConditions, Simulation};
use orlop_lab::what_if::WhatIf;
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, SiteId, Sites, Workload};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// The limits that `run.py` was given, as far as the recordings show them.
#[test]
fn the_limits_of_recorded_runs_are_found() {
    let limits = BTreeMap::from([
        ("gpt2-train.limit1", (12_426_867_386, true)),
        ("llama-decode.limit1", (1_230_900_072, true)),
        ("resnet-train.gc1", (4_898_279_308, true)),
        ("resnet-train.limit1", (4_898_279_308, true)),
        // These succeeded: that the limit was on the process is not visible.
        ("resnet-train.limit3", (5_714_803_456, false)),
        ("streams.gc3", (4_308_386_560, true)),
        ("streams.limit3", (4_308_386_560, false)),
    ]);
    for (name, history) in &recordings() {
        let conditions = RunConditions::of(device(history), &history.torch_conf().0);
        assert!(conditions.cache_releases.is_empty(), "{name}: none of them calls empty_cache");
        let Some(&(limit, of_process)) = limits.get(name.as_str()) else {
            // The device was full: its free memory is recorded.
            let full = (name == "gpt2-train.expandable").then_some(9276 * MIB);
            assert_eq!(conditions.limit.map(|limit| limit.bytes), full, "{name}");
            continue;
        };
        let found = conditions.limit.expect("something was refused");
        assert!(found.bytes <= limit && found.below.is_some_and(|below| limit < below), "{name}: {found:?}");
        assert_eq!(found.of_process, of_process, "{name}");
    }
}

#[test]
fn the_replay_under_the_conditions_of_a_run_is_the_run() {
    for (name, history) in &recordings() {
        let device = device(history);
        let work = Workload::of(device);
        let report = WhatIf::recorded(&work, history, device).rules(Vec::new()).run();
        let (recorded, replayed) = (report.recorded_peak_reserved, report.replayed_peak_reserved);
        let (recorded, replayed) = (recorded.expect("it is recorded"), replayed.expect("it is replayed"));
        // Programs that continue after a failure request more than their replays.
        let is_same =
            recorded == replayed || (name.starts_with("resnet-train") && replayed * 1000 > recorded * 995);
        assert!(is_same, "{name}: {recorded} and {replayed}");
    }
}

/// Files may have a release at every request, with as many blocks as possible, or releases that no request
/// follows. Each is analyzed in seconds; inspecting all blocks or all events for each release would take
/// many minutes.
#[test]
fn many_releases_are_read_in_time() {
    let (common, region) = (1 << 40, 2 << 40);
    let event = |action, address, bytes| HistoryEvent::new(action, address, bytes);
    let lost_and_gained = [EventAction::RegionReleased, EventAction::RegionReserved]
        .map(|action| event(action, region, 20 * MIB));
    let mut alone = vec![event(EventAction::RegionReserved, region, 20 * MIB)];
    alone.extend(std::iter::repeat_n(lost_and_gained, 50_000).flatten());
    let mut many = vec![event(EventAction::RegionReserved, common, 1 << 30)];
    many.extend((0..25_000).map(|place| event(EventAction::Allocate, common + 4096 * place, 4096)));
    many.push(event(EventAction::RegionReserved, region, 20 * MIB));
    for _ in 0..12_500 {
        many.extend(lost_and_gained);
        many.extend(
            [EventAction::Allocate, EventAction::FreeRequested].map(|action| event(action, region, 2 * MIB)),
        );
    }
    for events in [alone, many] {
        let mut history = DeviceHistory::default();
        history.events = events;
        let begun = std::time::Instant::now();
        let _ = RunConditions::of(&history, &TorchConf::default());
        assert!(begun.elapsed().as_secs() < 60);
    }
}

/// A workload that runs without a retry in the memory of the run does so in some memory.
#[test]
fn where_a_limit_counts_whole_requests_there_is_memory_without_a_retry() {
    let recordings = recordings();
    let history = &recordings["streams.gc3"];
    let device = device(history);
    let rules = vec![AllocatorRules::torch("expandable_segments:True").expect("it is known")];
    let report = WhatIf::recorded(&Workload::of(device), history, device).rules(rules).smallest(true).run();
    for row in &report.rows {
        let calm = row.smallest.expect("it runs").without_retry;
        assert!(row.outcome.retries > 0 || calm.is_some_and(|calm| Some(calm) <= report.memory), "{row:?}");
    }
}

/// A run of PyTorch's allocator, recorded as PyTorch records it.
struct Recorded {
    engine: Engine<NullDevice>,
    blocks: Vec<(DeviceBlock, u64)>,
    segments: BTreeMap<u64, u64>,
    history: DeviceHistory,
    /// The call sites of requests and of `empty_cache`.
    sites: [SiteId; 2],
    /// The events at which calls released memory.
    calls: Vec<u32>,
}

impl Recorded {
    /// Creates a run with a memory limit, and call sites that may be equal.
    fn new(conf: &TorchConf, limit: Option<u64>, sites: [SiteId; 2]) -> Self {
        let mut engine =
            Engine::new(NullDevice::new(Device::cuda(0), 2 * limit.unwrap_or(1 << 40)), Policy::torch(conf));
        if limit.is_some() {
            engine.set_memory_fraction(0.5);
        }
        let (blocks, segments, calls) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { engine, blocks, segments, history: DeviceHistory::default(), sites, calls }
    }

    fn event(&mut self, action: EventAction, address: u64, bytes: u64, site: SiteId) {
        self.history.events.push(HistoryEvent { site, ..HistoryEvent::new(action, address, bytes) });
    }

    /// Records the regions that were released and then those that were reserved.
    fn regions(&mut self, site: SiteId) {
        let now = self.engine.segments();
        let now: BTreeMap<u64, u64> =
            now.iter().map(|segment| (segment.address as u64, segment.bytes as u64)).collect();
        let before = std::mem::replace(&mut self.segments, now.clone());
        for (&address, &bytes) in before.iter().filter(|(address, _)| !now.contains_key(address)) {
            self.event(EventAction::RegionReleased, address, bytes, site);
        }
        for (&address, &bytes) in now.iter().filter(|(address, _)| !before.contains_key(address)) {
            self.event(EventAction::RegionReserved, address, bytes, site);
        }
    }

    fn allocate(&mut self, bytes: u64) {
        let [site, _] = self.sites;
        let got = self
            .engine
            .allocate(DeviceRequest::new(usize::try_from(bytes).expect("a size"), StreamId::from_raw(0)));
        self.regions(site);
        match got {
            Ok(block) => {
                let address = self.engine.address(block) as u64;
                self.event(EventAction::Allocate, address, bytes, site);
                self.blocks.push((block, bytes));
            }
            Err(DeviceError::OutOfMemory { reserved, limit, .. }) => {
                // The device has as much again.
                self.event(EventAction::OutOfMemory, 2 * limit - reserved, bytes, site);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&mut self, place: usize) {
        let (block, bytes) = self.blocks.swap_remove(place);
        let (address, [site, _]) = (self.engine.address(block) as u64, self.sites);
        self.engine.free(block).expect("it is live");
        self.event(EventAction::FreeRequested, address, bytes, site);
        self.event(EventAction::FreeCompleted, address, bytes, site);
    }

    fn free_all(&mut self) {
        while !self.blocks.is_empty() {
            self.free(self.blocks.len() - 1);
        }
    }

    fn empty_cache(&mut self) {
        let (event, [_, site]) = (self.history.events.len(), self.sites);
        self.engine.empty_cache().expect("a simulated device does not fail");
        self.regions(site);
        if self.history.events.len() > event {
            self.calls.push(u32::try_from(event).expect("a few events"));
        }
    }

    fn peak(&self) -> u64 {
        self.engine.stats().reserved_bytes.all.peak
    }

    fn replayed(&self, conf: &TorchConf) -> u64 {
        let mut history = History::default();
        history.settings = Some(conf.to_string());
        history.devices.push(self.history.clone());
        let work = Workload::of(&self.history);
        let report = WhatIf::recorded(&work, &history, &history.devices[0]).rules(Vec::new()).run();
        assert_eq!(report.recorded_peak_reserved, Some(self.peak()));
        report.replayed_peak_reserved.expect("it is replayed")
    }
}

fn two_sites() -> [SiteId; 2] {
    let mut sites = Sites::default();
    [1, 2].map(|line| {
        let frame = sites.frame("step", "train.py", line);
        sites.stack(&[frame])
    })
}

const NO_SITES: [SiteId; 2] = [SiteId::UNKNOWN; 2];

/// Only the figures show it: a limit that refused the first growth would have been exceeded later.
#[test]
fn a_cache_that_is_emptied_between_two_phases_is_emptied_in_the_replay() {
    let conf = TorchConf::default();
    let mut run = Recorded::new(&conf, None, NO_SITES);
    (0..50).for_each(|_| run.allocate(30 * MIB));
    run.free_all();
    run.empty_cache();
    (0..50).for_each(|_| run.allocate(40 * MIB));
    let conditions = RunConditions::of(&run.history, &conf);
    assert_eq!((conditions.limit, conditions.cache_releases), (None, run.calls.clone()));
    assert_eq!((run.peak(), run.replayed(&conf)), (2000 * MIB, 2000 * MIB));
    let work = Workload::of(&run.history);
    let without = Simulation::new(&work).run(&AllocatorRules::Torch(conf));
    assert_eq!(without.peak_reserved, 3500 * MIB, "what it came to without the call");
}

/// The peak of each step is the same, so that a limit at the peak would explain every growth. But a request
/// that a free block would have served releases nothing.
#[test]
fn a_cache_that_is_emptied_after_each_step_is_no_limit() {
    let conf = TorchConf::default();
    let mut run = Recorded::new(&conf, None, NO_SITES);
    for _ in 0..5 {
        for bytes in [1000, 30 * MIB, 5 * MIB, 70 * MIB] {
            run.allocate(bytes);
        }
        run.free_all();
        run.empty_cache();
    }
    let conditions = RunConditions::of(&run.history, &conf);
    assert_eq!((conditions.limit, conditions.cache_releases), (None, run.calls.clone()));
    assert_eq!(run.replayed(&conf), run.peak());
}

#[test]
fn a_release_within_a_request_is_no_call() {
    let conf = TorchConf::default();
    let mut run = Recorded::new(&conf, Some(100 * MIB), NO_SITES);
    run.allocate(60 * MIB);
    run.free_all();
    run.allocate(70 * MIB);
    let conditions = RunConditions::of(&run.history, &conf);
    let limit = conditions.limit.expect("it was refused");
    assert_eq!((limit.bytes, limit.below, limit.of_process), (70 * MIB, Some(130 * MIB), false));
    assert!(conditions.cache_releases.is_empty());
    assert_eq!(run.replayed(&conf), 70 * MIB);
}

/// Garbage collections bound the limit: between reserved bytes with and without a collection.
#[test]
fn collections_reveal_the_limit() {
    let conf: TorchConf = "garbage_collection_threshold:0.5".parse().unwrap();
    let mut run = Recorded::new(&conf, Some(200 * MIB), NO_SITES);
    for mib in [30, 40, 50, 60, 32, 42, 52] {
        run.allocate(mib * MIB);
        run.free_all();
    }
    let limit = RunConditions::of(&run.history, &conf).limit.expect("old segments went back");
    assert!(limit.of_process && limit.bytes <= 200 * MIB, "{limit:?}");
    assert!(limit.below.is_some_and(|below| 200 * MIB < below), "{limit:?}");
    assert!(run.peak() < 306 * MIB, "as much as the sum is held without a collection");
    assert_eq!(run.replayed(&conf), run.peak());
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Free(prop::sample::Index),
    EmptyCache,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1..MIB, MIB..10 * MIB, 10 * MIB..60 * MIB];
    prop_oneof![
        10 => bytes.prop_map(Step::Allocate),
        8 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// If call sites distinguish calls from requests, every call is found, and the limit is correct.
    #[test]
    fn calls_and_limits_are_found_in_any_run(
        steps in prop::collection::vec(step(), 1..300),
        limit in prop::option::of(100..400_u64),
        conf in prop::sample::select(vec!["", "garbage_collection_threshold:0.6", "max_split_size_mb:20"]),
    ) {
        let conf: TorchConf = conf.parse().unwrap();
        let limit = limit.map(|mib| mib * MIB);
        let mut run = Recorded::new(&conf, limit, two_sites());
        for step in &steps {
            match step {
                Step::Allocate(bytes) => run.allocate(*bytes),
                Step::Free(place) if !run.blocks.is_empty() => run.free(place.index(run.blocks.len())),
                Step::Free(_) => {}
                Step::EmptyCache => run.empty_cache(),
            }
        }
        let conditions = RunConditions::of(&run.history, &conf);
        prop_assert_eq!(&conditions.cache_releases, &run.calls);
        match (conditions.limit, limit) {
            (Some(found), Some(limit)) => {
                let is_bounded = found.bytes <= limit && found.below.is_some_and(|below| limit < below);
                                prop_assert!(is_bounded, "{found:?}");
            }
            (found, None) => prop_assert_eq!(found, None),
            (None, Some(_)) => {}
        }
    }
}
