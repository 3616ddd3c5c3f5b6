//! The sweep: a recording with all settings, side by side.

use super::advice::{Advice, AdviceReason, as_text};
use super::equivalent::replays;
use super::perfect::PerfectPlan;
use super::rank::{self, Advantage, SettingCost};
use super::recorded_run::RecordedRun;
use super::smallest_memory::{SmallestMemory, needed};
use super::sweep::settings;
use crate::simulate::{
    AllocatorRules, Fidelity, MemoryCapacity, MemoryLimit, RunConditions, Simulation, SimulationOutcome,
    UNLIMITED,
};
use orlop_core::torch::{TorchConf, TorchReleases, TorchVersion};
use orlop_trace::history::{DeviceHistory, History, Workload};
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Ordering;

/// The maximum number of steps of a workload for which a sweep searches memories unless
/// [`smallest`](WhatIf::smallest) ones are requested: each search takes up to two dozen replays.
pub const MAX_SEARCHED_STEPS: usize = if cfg!(test) { 20_000 } else { 500_000 };

/// A sweep over settings.
///
/// ```
/// use orlop_trace::history::{DeviceHistory, Workload};
/// use orlop_lab::what_if::WhatIf;
///
/// let history = DeviceHistory::default();
/// let report = WhatIf::new(&Workload::of(&history)).run();
/// assert_eq!(report.peak_live, 0);
/// ```
#[derive(Debug, Clone)]
pub struct WhatIf<'a> {
    work: &'a Workload,
    peak_live: u64,
    memory: Option<u64>,
    rules: Option<Vec<AllocatorRules>>,
    baseline: AllocatorRules,
    baseline_is_recorded: bool,
    run: Option<RecordedRun<'a>>,
    smallest: bool,
    plan: bool,
    version: Option<TorchVersion>,
}

/// The result of a sweep, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfReport {
    /// The peak of live bytes, as requested.
    pub peak_live: u64,
    /// The same with the requests that failed in the recording, which replays make, too: a lower bound for
    /// any allocator.
    pub needed: u64,
    /// The memory of the device, or the limit of the process; `None` if unlimited.
    pub memory: Option<u64>,
    /// The smallest plan of an allocator that knows the future.
    pub perfect: Option<PerfectPlan>,
    /// The settings with which the others are compared.
    pub baseline: String,
    /// Whether these are the recorded settings; otherwise they are PyTorch's defaults.
    pub baseline_is_recorded: bool,
    /// The releases of PyTorch that the recording can be of.
    #[serde(serialize_with = "as_text")]
    pub releases: TorchReleases,
    /// The fidelity of replays by PyTorch's rules, if it can be determined.
    pub fidelity: Option<Fidelity>,
    /// The conditions of the recorded run, which also apply to the replays.
    pub conditions: RunConditions,
    /// The peak of reserved bytes in the recorded run, if it is recorded.
    pub recorded_peak_reserved: Option<u64>,
    /// The peak of reserved bytes in its replay, with the settings of the baseline and under the conditions
    /// of the run.
    pub replayed_peak_reserved: Option<u64>,
    /// Settings of PyTorch that are better than the baseline, if there are any and replays are reliable.
    pub advice: Option<Advice>,
    /// The reason for advice, or for its absence.
    pub reason: AdviceReason,
    /// One row for each setting. Those that run come first, then those with the least peak of reserved bytes,
    /// the least memory to run without a retry, the fewest retries, the fewest changed settings, and those
    /// that the oldest releases of PyTorch have. Differences of less than one percent are ignored.
    pub rows: Vec<WhatIfRow>,
}

/// The row of one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfRow {
    /// The outcome in the given memory.
    #[serde(flatten)]
    pub outcome: SimulationOutcome,
    /// The reduction of the peak of reserved bytes from the baseline; negative if it grows. `None` if either
    /// runs out of memory.
    pub saves: Option<i64>,
    /// The smallest memory in which it runs, if that was requested and exists.
    pub smallest: Option<SmallestMemory>,
    /// The memory in which it runs without a retry, by which settings with the same peak are ranked; the
    /// maximum if there is none. `None` if no other row has this peak, and none was requested.
    #[serde(skip)]
    pub(super) without_retry: Option<u64>,
    /// Whether these are the settings of the baseline.
    pub is_baseline: bool,
    /// The number of settings that differ from PyTorch's defaults.
    #[serde(skip)]
    pub(super) settings: usize,
    /// The first release of PyTorch that has these settings.
    #[serde(skip)]
    pub(super) since: TorchVersion,
    /// Whether the settings limit a fraction of the device's memory, which was not given. The memory of a
    /// recorded run may be only a part of it.
    #[serde(skip)]
    pub(super) needs_device: bool,
}

impl<'a> WhatIf<'a> {
    /// Creates a sweep of a workload with enough memory over [`settings`], compared with PyTorch's defaults.
    #[must_use]
    pub fn new(work: &'a Workload) -> Self {
        let baseline = AllocatorRules::Torch(TorchConf::default());
        Self {
            work,
            peak_live: work.peak().0,
            memory: None,
            rules: None,
            baseline,
            baseline_is_recorded: false,
            run: None,
            smallest: false,
            plan: false,
            version: None,
        }
    }

    /// Creates a sweep of the workload of a device's history, under the [conditions](RunConditions) of the
    /// recorded run, compared with its settings. If they are not recorded, these are PyTorch's defaults.
    ///
    /// The recorded run is replayed, too: there is no [advice](WhatIfReport::advice) unless the replay
    /// reproduces it.
    #[must_use]
    pub fn recorded(work: &'a Workload, all: &History, history: &'a DeviceHistory) -> Self {
        let sweep = Self { run: Some(RecordedRun::of(all, history)), ..Self::new(work) };
        if all.settings.is_some() { sweep.baseline(AllocatorRules::Torch(all.torch_conf().0)) } else { sweep }
    }

    /// Sets the device's memory in bytes, instead of the memory of the recorded run.
    #[must_use]
    pub fn memory(mut self, bytes: Option<u64>) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the rules to try.
    #[must_use]
    pub fn rules(mut self, rules: Vec<AllocatorRules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Sets the recorded settings, with which the others are compared. Omit it if they are not recorded.
    #[must_use]
    pub fn baseline(mut self, rules: AllocatorRules) -> Self {
        self.baseline = rules;
        self.baseline_is_recorded = true;
        self
    }

    /// Sets whether to search for the smallest memory.
    #[must_use]
    pub fn smallest(mut self, search: bool) -> Self {
        self.smallest = search;
        self
    }

    /// Sets whether to compute a static plan.
    #[must_use]
    pub fn plan(mut self, plan: bool) -> Self {
        self.plan = plan;
        self
    }

    /// Restricts the settings of PyTorch to those that this release has.
    #[must_use]
    pub fn torch(mut self, version: TorchVersion) -> Self {
        self.version = Some(version);
        self
    }

    /// Replays with all settings, on as many threads as there are processors.
    #[must_use]
    pub fn run(&self) -> WhatIfReport {
        let limit = self.limit();
        let mut rules = self.rules.clone().unwrap_or_else(|| self.settings(limit));
        let mut sweep = self.clone();
        if let Some(run) = &self.run {
            // Other settings of the recorded version of PyTorch.
            for rules in rules.iter_mut().chain([&mut sweep.baseline]) {
                rules.set_ties(run.ties());
            }
        }
        sweep.run_with(rules, limit)
    }

    fn run_with(&self, mut rules: Vec<AllocatorRules>, limit: Option<MemoryLimit>) -> WhatIfReport {
        if !rules.contains(&self.baseline) {
            rules.insert(0, self.baseline.clone());
        }
        let (mut rows, perfect) = rayon::join(
            || self.rows(&rules, limit),
            || if self.plan { PerfectPlan::of(self.work) } else { None },
        );
        let baseline = rows.iter().find(|row| row.is_baseline).and_then(peak_reserved);
        for row in &mut rows {
            let peaks = baseline.zip(peak_reserved(row));
            let difference = peaks.map(|(baseline, peak)| i128::from(baseline) - i128::from(peak));
            row.saves = difference.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        let mut report = WhatIfReport {
            peak_live: self.peak_live,
            needed: needed(self.work, self.peak_live),
            memory: limit.map(|limit| limit.bytes),
            perfect,
            baseline: self.baseline.to_string(),
            baseline_is_recorded: self.baseline_is_recorded,
            releases: self.run.as_ref().map(|run| run.releases).unwrap_or_default(),
            fidelity: self.run.as_ref().and_then(|run| run.fidelity),
            conditions: self.run.as_ref().map(|run| run.conditions.clone()).unwrap_or_default(),
            recorded_peak_reserved: self.run.as_ref().and_then(|run| run.peak_reserved),
            replayed_peak_reserved: None,
            advice: None,
            reason: AdviceReason::NothingRuns,
            rows: rank::sort(rows),
        };
        self.advise(&mut report);
        report
    }

    /// Returns the memory of the replays: the given one, or that of the recorded run.
    fn limit(&self) -> Option<MemoryLimit> {
        let recorded = self.run.as_ref().and_then(|run| run.conditions.limit);
        match self.memory {
            Some(bytes) => Some(MemoryLimit { bytes, below: None, of_process: false }),
            None => recorded,
        }
    }

    /// Returns the settings to try if none were given.
    fn settings(&self, limit: Option<MemoryLimit>) -> Vec<AllocatorRules> {
        let of_process = limit.is_some_and(|limit| limit.of_process);
        let mut rules = settings(limit.is_some() || self.smallest);
        if let Some(version) = self.version {
            rules.retain(|rules| rules.since() <= version);
        }
        for rules in &mut rules {
            if let AllocatorRules::Torch(conf) = rules {
                // The limit of the process remains, which is not a fraction of this memory.
                let fraction = if of_process { None } else { conf.memory_fraction };
                conf.memory_fraction = self.baseline.memory_fraction().or(fraction);
            }
        }
        rules
    }

    /// Sets the advice and its reason.
    fn advise(&self, report: &mut WhatIfReport) {
        let Some(baseline) = report.rows.iter().find(|row| row.is_baseline) else { return };
        if let Some(run) = &self.run {
            let replay = if self.memory.is_none() {
                baseline.outcome.clone()
            } else {
                Simulation::new(self.work).under(&run.conditions).run(&self.baseline)
            };
            report.replayed_peak_reserved = Some(replay.peak_reserved);
            if let Some(reason) = run.check(&replay) {
                report.reason = AdviceReason::Withheld(reason);
                return;
            }
        }
        let runs = |row: &WhatIfRow| row.outcome.conf.is_some() && row.outcome.out_of_memory.is_none();
        let first = report
            .better_rows()
            .next()
            .map(|(row, advantage)| (Advice::of(row), AdviceReason::of(advantage, row, baseline)));
        (report.advice, report.reason) = match first {
            Some(first) => first,
            None if report.rows.iter().any(runs) => (None, AdviceReason::NothingToGain),
            None => (None, AdviceReason::NothingRuns),
        };
    }

    /// Replays with all settings.
    fn rows(&self, rules: &[AllocatorRules], limit: Option<MemoryLimit>) -> Vec<WhatIfRow> {
        let bytes = limit.map_or(UNLIMITED, |limit| limit.bytes.min(UNLIMITED));
        let replay = |rules: &AllocatorRules| self.simulation(bytes, limit).run(rules);
        let outcomes = replays(self.work, rules, limit.is_none(), replay);
        let mut rows: Vec<WhatIfRow> =
            rules.par_iter().zip(outcomes).map(|(rules, outcome)| self.row(rules, limit, outcome)).collect();
        if self.smallest || self.work.steps.len() > MAX_SEARCHED_STEPS {
            return rows;
        }
        // Settings with the least peak differ in the memory that they need without a retry: the advice then
        // is that of a search for all rows.
        let runs = |row: &WhatIfRow| row.outcome.out_of_memory.is_none();
        let of_torch = rows.iter().filter(|row| runs(row) && row.outcome.conf.is_some());
        let Some(least) = of_torch.map(|row| row.outcome.peak_reserved).min() else { return rows };
        let tied = |row: &WhatIfRow| runs(row) && rank::is_same(row.outcome.peak_reserved, least);
        if rows.iter().filter(|row| tied(row)).count() < 2 {
            return rows;
        }
        rows.par_iter_mut().zip(rules).filter(|(row, _)| tied(row)).for_each(|(row, rules)| {
            let (plenty, enough) = self.plenty(rules, limit, &row.outcome);
            let found = SmallestMemory::search_without_retry(&plenty, rules, &enough);
            row.without_retry = Some(found.unwrap_or(u64::MAX));
        });
        rows
    }

    fn row(
        &self,
        rules: &AllocatorRules,
        limit: Option<MemoryLimit>,
        outcome: SimulationOutcome,
    ) -> WhatIfRow {
        let smallest = self.smallest.then(|| {
            let (plenty, enough) = self.plenty(rules, limit, &outcome);
            // A run that fails with plenty of memory fails with less.
            enough.out_of_memory.is_none().then(|| SmallestMemory::search(&plenty, rules, &enough)).flatten()
        });
        WhatIfRow {
            outcome,
            saves: None,
            without_retry: smallest
                .map(|smallest| smallest.and_then(|smallest| smallest.without_retry).unwrap_or(u64::MAX)),
            smallest: smallest.flatten(),
            is_baseline: *rules == self.baseline,
            settings: rules.settings(),
            since: rules.since(),
            needs_device: self.memory.is_none() && rules.memory_fraction() != self.baseline.memory_fraction(),
        }
    }

    /// Creates a simulation in `bytes` bytes, under the conditions of the recorded run.
    fn simulation(&self, bytes: u64, limit: Option<MemoryLimit>) -> Simulation<'_> {
        let simulation = Simulation::new(self.work).with_peak_live(self.peak_live);
        let simulation = self.run.as_ref().map_or(simulation, |run| simulation.under(&run.conditions));
        let of_process = limit.is_some_and(|limit| limit.of_process);
        simulation.with_capacity(MemoryCapacity { bytes, of_process })
    }

    /// Creates a simulation with plenty of memory, and its outcome: `outcome` itself if nothing limited it.
    fn plenty(
        &self,
        rules: &AllocatorRules,
        limit: Option<MemoryLimit>,
        outcome: &SimulationOutcome,
    ) -> (Simulation<'_>, SimulationOutcome) {
        let plenty = self.simulation(UNLIMITED, limit);
        let enough = if limit.is_none() { outcome.clone() } else { plenty.run(rules) };
        (plenty, enough)
    }
}

/// Returns the peak of reserved bytes of a replay that does not run out of memory.
fn peak_reserved(row: &WhatIfRow) -> Option<u64> {
    row.outcome.out_of_memory.is_none().then_some(row.outcome.peak_reserved)
}

impl WhatIfReport {
    /// Returns the settings of PyTorch that are better than the baseline, best first, with their advantage.
    pub(super) fn better_rows(&self) -> impl Iterator<Item = (&WhatIfRow, Advantage)> {
        let baseline = self.rows.iter().find(|row| row.is_baseline).map(SettingCost::of);
        // Includes those behind the baseline: a row that is equivalent to the best may be worse than another
        // that is equivalent to the row itself (see `rank`).
        let better = self.rows.iter().filter(|row| {
            row.outcome.conf.is_some() && row.outcome.out_of_memory.is_none() && !row.needs_device
        });
        better.filter_map(move |row| Some((row, SettingCost::of(row).advantage(&baseline?)?)))
    }

    /// Returns the best settings of PyTorch that are better than the baseline and that the release `version`
    /// has; `None` without [advice](Self::advice).
    #[must_use]
    pub fn advice_for(&self, version: TorchVersion) -> Option<Advice> {
        let found = self.better_rows().find(|(row, _)| row.since <= version);
        self.advice.as_ref().and(found).and_then(|(row, _)| Advice::of(row))
    }

    /// Compares a row with the baseline by the criteria of the ranking: less is better.
    #[must_use]
    pub fn compare(&self, row: &WhatIfRow) -> Ordering {
        let baseline = self.rows.iter().find(|row| row.is_baseline);
        baseline.map_or(Ordering::Equal, |baseline| SettingCost::of(row).compare(&SettingCost::of(baseline)))
    }
}
