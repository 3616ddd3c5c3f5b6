//! The prediction: laws for all requests, and replays of the requests at another size.

use super::align::{self, Aligned};
use super::law::{SizeLaw, whole_bytes};
use crate::analyze::{SiteGroups, peak_reserved};
use crate::simulate::{AllocatorRules, Fidelity, RunConditions, Simulation, SimulationOutcome};
use crate::{LabError, Result};
use orlop_trace::history::{DeviceHistory, History, WorkBlock, Workload};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The number of call sites in a prediction.
const MAX_SITES: usize = 10;

/// A kernel's workspace is freed within this number of steps.
const WORKSPACE_STEPS: usize = 4;

/// Fragmentation is compared at this many sizes below and above a size, up to this part of it away.
const NEIGHBOURS: u64 = 4;
const NEIGHBOURHOOD: u64 = 8;

/// No size beyond this multiple of the largest recorded one is tried.
const MAX_GROWTH: u64 = 1 << 20;

/// Recordings of the same program at different sizes.
#[derive(Debug)]
pub struct Fit<'a> {
    sizes: Vec<u64>,
    works: Vec<Workload>,
    laws: Vec<SizeLaw>,
    /// The largest recording, whose sequence is replayed.
    last: &'a History,
    rules: AllocatorRules,
    conditions: RunConditions,
    /// The largest difference between the reserved bytes of a recording and of its replay, as a fraction.
    replay_error: f64,
}

/// A run at a size that was not recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FitPrediction {
    /// The size.
    pub size: u64,
    /// The peak of live bytes, as requested.
    pub live: FitEstimate,
    /// The peak of reserved bytes with the recorded settings of PyTorch.
    pub reserved: FitEstimate,
    /// The call sites with the most live bytes at the peak.
    pub sites: Vec<SiteFit>,
}

/// A number of bytes with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FitEstimate {
    /// The most likely value.
    pub bytes: u64,
    /// The least that the recordings allow.
    pub min: u64,
    /// The most that the recordings allow.
    pub max: u64,
}

/// The live bytes of a call site at the peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SiteFit {
    /// The call site.
    pub name: String,
    /// Live bytes at the peak.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The sum of the laws of its blocks.
    pub law: SizeLaw,
}

/// The largest size that fits a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LargestSize {
    /// The memory in bytes.
    pub memory: u64,
    /// The largest size whose replay runs in it; `None` if not even the smallest recorded one does.
    pub size: Option<u64>,
    /// The largest size that runs even if every request is as large as the recordings allow.
    pub safe: Option<u64>,
}

impl<'a> Fit<'a> {
    /// Aligns recordings, each with its size, on one device, and fits the bytes of every request.
    ///
    /// # Errors
    ///
    /// [`LabError::FitSizes`] for fewer than two different sizes, or a size of 0;
    /// [`LabError::NoSuchDevice`] if a recording does not have the device;
    /// [`LabError::SequencesDiffer`] if the recordings are not of the same sequence of requests.
    pub fn new(recordings: &[(u64, &'a History)], device: u32) -> Result<Self> {
        let mut recordings = recordings.to_vec();
        recordings.sort_by_key(|&(size, _)| size);
        let sizes: Vec<u64> = recordings.iter().map(|&(size, _)| size).collect();
        let is_distinct = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        if sizes.len() < 2 || !is_distinct || sizes[0] == 0 {
            return Err(LabError::FitSizes { sizes });
        }
        let on = |history: &'a History| {
            let found = history.devices.iter().find(|one| one.device == device);
            found.ok_or(LabError::NoSuchDevice { device })
        };
        let devices: Vec<&DeviceHistory> =
            recordings.iter().map(|&(_, history)| on(history)).collect::<Result<_>>()?;
        let aligned: Vec<Aligned<'_>> = recordings
            .iter()
            .zip(&devices)
            .map(|(&(_, history), device)| Aligned { work: Workload::of(device), sites: &history.sites })
            .collect();
        align::check(&aligned, &sizes)?;
        let works: Vec<Workload> = aligned.into_iter().map(|aligned| aligned.work).collect();
        let laws = laws(&sizes, &works);
        let replays = recordings.iter().zip(&devices).zip(&works).map(|((&(_, history), device), work)| {
            let (rules, conditions) = recorded_rules(history, device);
            let replayed = replay(work, &conditions, &rules).peak_reserved;
            let error = peak_reserved(device, device.events.len())
                .map_or(0.0, |recorded| (replayed as f64 / recorded.max(1) as f64 - 1.0).abs());
            (error, rules, conditions, history)
        });
        let mut replay_error = 0.0_f64;
        let mut last = None;
        for (error, rules, conditions, history) in replays {
            replay_error = replay_error.max(error);
            last = Some((rules, conditions, history));
        }
        let (rules, conditions, last) = last.ok_or(LabError::FitSizes { sizes: sizes.clone() })?;
        Ok(Self { sizes, works, laws, last, rules, conditions, replay_error })
    }

    /// Returns the recorded sizes, in order.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Returns the largest difference between the peak of reserved bytes of a recording and of its replay, as
    /// a fraction. It is part of the bounds of predictions.
    #[must_use]
    pub fn replay_error(&self) -> f64 {
        self.replay_error
    }

    /// Predicts a run at a size.
    #[must_use]
    pub fn predict(&self, size: u64) -> FitPrediction {
        let works = self.range(size);
        let live = works.each_ref().map(|work| work.peak().0);
        let live = FitEstimate { bytes: live[1], min: live[0].min(live[1]), max: live[2].max(live[1]) };
        let [min, bytes, max] = works.each_ref().map(|work| self.reserved(work));
        let (least, most) = self.fragmentation_near(size, bytes as f64 / live.bytes.max(1) as f64);
        let times = |live: u64, ratio: f64| whole_bytes(live as f64 * ratio);
        let reserved = FitEstimate {
            bytes,
            min: times(live.min, least * (1.0 - self.replay_error)).min(bytes).min(min),
            max: times(live.max, most * (1.0 + self.replay_error)).max(bytes).max(max),
        };
        FitPrediction { size, live, reserved, sites: self.sites(&works[1]) }
    }

    fn reserved(&self, work: &Workload) -> u64 {
        replay(work, &self.conditions, &self.rules).peak_reserved
    }

    /// Returns the least and the largest ratio of reserved to live bytes at sizes near `size`, whose own is
    /// `ratio`. It changes from size to size with what happens to fit where; a request more or less, as
    /// another kernel makes it, has the same effect.
    fn fragmentation_near(&self, size: u64, ratio: f64) -> (f64, f64) {
        let step = (size / NEIGHBOURHOOD / NEIGHBOURS).max(1);
        let near =
            (1..=NEIGHBOURS).flat_map(|n| [size.saturating_sub(n * step), size.saturating_add(n * step)]);
        let ratios = near.filter(|&near| near > 0 && near != size).map(|near| {
            let work = self.workload(near, SizeLaw::at);
            self.reserved(&work) as f64 / work.peak().0.max(1) as f64
        });
        let all: Vec<f64> = ratios.chain([ratio]).collect();
        (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(1.0, f64::max))
    }

    /// Searches the largest size that runs in `memory` bytes.
    #[must_use]
    pub fn largest(&self, memory: u64) -> LargestSize {
        let runs_in = |work: &Workload| {
            let simulation = Simulation::new(work).under(&self.conditions).memory(memory);
            simulation.run(&self.rules).out_of_memory.is_none()
        };
        let size = self.search(|size| runs_in(&self.workload(size, SizeLaw::at)));
        let safe = self.search(|size| runs_in(&self.workload(size, |law, x| law.bounds(x).1)));
        LargestSize { memory, size, safe }
    }

    /// Finds the largest size that works, from the smallest recorded one on.
    fn search(&self, works: impl Fn(u64) -> bool) -> Option<u64> {
        let (Some(&min), Some(&max)) = (self.sizes.first(), self.sizes.last()) else { return None };
        if !works(min) {
            return None;
        }
        let (mut good, mut bad) = (min, min.saturating_mul(2));
        while works(bad) {
            if bad / max >= MAX_GROWTH || bad == u64::MAX {
                return Some(bad);
            }
            (good, bad) = (bad, bad.saturating_mul(2));
        }
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if works(middle) { good = middle } else { bad = middle }
        }
        Some(good)
    }

    /// Returns the requests at a size: the least, the most likely, and the most.
    fn range(&self, size: u64) -> [Workload; 3] {
        [
            self.workload(size, |law, x| law.bounds(x).0),
            self.workload(size, SizeLaw::at),
            self.workload(size, |law, x| law.bounds(x).1),
        ]
    }

    fn workload(&self, size: u64, bytes: impl Fn(&SizeLaw, f64) -> f64) -> Workload {
        let mut work = self.works.last().cloned().unwrap_or_default();
        let recorded = self.sizes.iter().position(|&recorded| recorded == size);
        for (id, (block, law)) in work.blocks.iter_mut().zip(&self.laws).enumerate() {
            block.bytes = match recorded {
                Some(index) => self.works[index].blocks[id].bytes,
                // A request of a program is far below 2^53 bytes.
                None => whole_bytes(bytes(law, size as f64)),
            };
        }
        work
    }

    /// Returns the call sites with the most live bytes at the peak.
    fn sites(&self, work: &Workload) -> Vec<SiteFit> {
        let peak = work.peak().1.map_or(0, |step| step + 1);
        let mut names = SiteGroups::new(&self.last.sites, 1);
        let mut sums: HashMap<(usize, bool), SiteFit> = HashMap::new();
        for (block, law) in work.blocks.iter().zip(&self.laws) {
            let is_live =
                block.born.is_none_or(|born| born < peak) && block.died.is_none_or(|died| died >= peak);
            if !is_live {
                continue;
            }
            let key = names.key(block.site, block.born.is_none());
            let sum = sums.entry(key).or_insert_with(|| SiteFit {
                name: names.label(block.site, block.born.is_none()),
                bytes: 0,
                blocks: 0,
                law: SizeLaw::NOTHING,
            });
            sum.bytes = sum.bytes.saturating_add(block.bytes);
            sum.blocks += 1;
            sum.law.add(law);
        }
        let mut sites: Vec<SiteFit> = sums.into_values().collect();
        sites.sort_by(|one, other| (Reverse(one.bytes), &one.name).cmp(&(Reverse(other.bytes), &other.name)));
        sites.truncate(MAX_SITES);
        sites
    }
}

/// Returns the law of each block.
fn laws(sizes: &[u64], works: &[Workload]) -> Vec<SizeLaw> {
    let blocks = works.iter().map(|work| work.blocks.len()).min().unwrap_or(0);
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(sizes.len());
    let mut law = |id: usize| {
        points.clear();
        points
            .extend(sizes.iter().zip(works).map(|(&size, work)| (size as f64, work.blocks[id].bytes as f64)));
        let law = SizeLaw::fit(&points);
        let is_workspace = works.last().is_some_and(|work| is_workspace(&work.blocks[id]));
        if is_workspace { law.may_end(points.last().map_or(0.0, |&(_, bytes)| bytes)) } else { law }
    };
    (0..blocks).map(&mut law).collect()
}

/// Returns `true` if a block is freed within a few steps, as a kernel's workspace is.
fn is_workspace(block: &WorkBlock) -> bool {
    block.born.zip(block.died).is_some_and(|(born, died)| died - born <= WORKSPACE_STEPS)
}

/// Returns the rules of the recorded run, and its calls of `empty_cache()`.
fn recorded_rules(history: &History, device: &DeviceHistory) -> (AllocatorRules, RunConditions) {
    let (conf, _) = history.torch_conf();
    let fidelity = Fidelity::applies_to(device).then(|| Fidelity::of(device, &conf, history.releases));
    let newest = history.releases.tie_rules().first().copied().unwrap_or_default();
    let conf = conf.with_ties(fidelity.map_or(newest, |fidelity| fidelity.ties));
    let conditions = RunConditions { limit: None, ..RunConditions::of(device, &conf) };
    (AllocatorRules::Torch(conf), conditions)
}

fn replay(work: &Workload, conditions: &RunConditions, rules: &AllocatorRules) -> SimulationOutcome {
    Simulation::new(work).under(conditions).run(rules)
}
