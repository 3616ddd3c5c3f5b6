//! The sweep: a recording under all settings, side by side.

use super::advice::{Advice, AdviceReason};
use super::perfect::PerfectPlan;
use super::rank::{self, Advantage, Cost};
use super::recorded_run::RecordedRun;
use super::smallest_memory::SmallestMemory;
use super::sweep::settings;
use crate::simulate::{
    Fidelity, MemoryCapacity, MemoryLimit, Rules, RunConditions, Simulation, SimulationOutcome, UNLIMITED,
};
use orlop_core::torch::TorchConf;
use orlop_trace::history::{DeviceHistory, History, Workload};
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Ordering;

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
    memory: Option<u64>,
    rules: Option<Vec<Rules>>,
    baseline: Rules,
    baseline_is_recorded: bool,
    run: Option<RecordedRun<'a>>,
    smallest: bool,
    plan: bool,
}

/// What a sweep came to, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfReport {
    /// The most bytes that lived at once, as asked for: no allocator can do with less.
    pub peak_live: u64,
    /// Bytes that the device had, or that the process could hold of it; `None` if that was left open.
    pub memory: Option<u64>,
    /// What an allocator that knew the future could do.
    pub perfect: Option<PerfectPlan>,
    /// The settings with which the others are compared.
    pub baseline: String,
    /// Whether the recorded run is known to have had those; else they are PyTorch's defaults.
    pub baseline_is_recorded: bool,
    /// How true replays by PyTorch's rules are to the recorded run, where that can be told.
    pub fidelity: Option<Fidelity>,
    /// What the recorded run had besides its requests: the replays have the same.
    pub conditions: RunConditions,
    /// The most bytes that were held from the device in the recorded run, where the recording tells.
    pub recorded_peak_reserved: Option<u64>,
    /// The same in its replay: by the settings of the baseline, under the conditions of the run.
    pub replayed_peak_reserved: Option<u64>,
    /// Settings of PyTorch's that are better than the baseline, if any are and replays can be trusted.
    pub advice: Option<Advice>,
    /// Why there is advice, or none.
    pub reason: AdviceReason,
    /// One for each setting: those that run first; of them those that hold least at their peak, that need the
    /// least memory to run without a retry, that have the fewest retries, and that change the fewest
    /// settings. Differences of less than one percent do not count.
    pub rows: Vec<WhatIfRow>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfRow {
    /// What came out, in the memory that was given.
    #[serde(flatten)]
    pub outcome: SimulationOutcome,
    /// Bytes held fewer than with the settings of the baseline; negative if more.
    pub saves: i64,
    /// The smallest memory in which it runs, if that was asked for and there is one.
    pub smallest: Option<SmallestMemory>,
    /// Whether these are the settings of the baseline.
    pub is_baseline: bool,
    /// How many settings are other than PyTorch's defaults.
    #[serde(skip)]
    pub(super) settings: usize,
    /// Whether the settings take a share of the device's memory, and that was not named: that of a recorded
    /// run may be only what others left of it.
    #[serde(skip)]
    pub(super) needs_device: bool,
}

impl<'a> WhatIf<'a> {
    /// Of this workload, with memory enough, over [`settings`], which are compared with PyTorch's defaults.
    #[must_use]
    pub fn new(work: &'a Workload) -> Self {
        let baseline = Rules::Torch(TorchConf::default());
        Self {
            work,
            memory: None,
            rules: None,
            baseline,
            baseline_is_recorded: false,
            run: None,
            smallest: false,
            plan: false,
        }
    }

    /// Of the workload of a device's history, under the [conditions](RunConditions) of the recorded run, and
    /// compared with its settings. Where the history does not tell the settings, these are PyTorch's
    /// defaults.
    ///
    /// The recorded run is replayed, too: there is no [advice](WhatIfReport::advice) unless the replay is
    /// true to it.
    #[must_use]
    pub fn recorded(work: &'a Workload, all: &History, history: &'a DeviceHistory) -> Self {
        let sweep = Self { run: Some(RecordedRun::of(all, history)), ..Self::new(work) };
        if all.settings.is_some() { sweep.baseline(Rules::Torch(all.torch_conf().0)) } else { sweep }
    }

    /// On a device of so many bytes, instead of in the memory of the recorded run.
    #[must_use]
    pub fn memory(mut self, bytes: Option<u64>) -> Self {
        self.memory = bytes;
        self
    }

    /// Over these settings.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// The recorded run had these settings: the others are compared with them. Leave it out where a source
    /// does not say.
    #[must_use]
    pub fn baseline(mut self, rules: Rules) -> Self {
        self.baseline = rules;
        self.baseline_is_recorded = true;
        self
    }

    /// Looking for the smallest memory, too.
    #[must_use]
    pub fn smallest(mut self, search: bool) -> Self {
        self.smallest = search;
        self
    }

    /// With a static plan beside.
    #[must_use]
    pub fn plan(mut self, plan: bool) -> Self {
        self.plan = plan;
        self
    }

    /// Replays under all settings, on as many threads as there are processors.
    #[must_use]
    pub fn run(&self) -> WhatIfReport {
        let limit = self.limit();
        let mut rules = self.rules.clone().unwrap_or_else(|| self.settings(limit));
        if !rules.contains(&self.baseline) {
            rules.insert(0, self.baseline.clone());
        }
        let (rows, perfect) = rayon::join(
            || rules.par_iter().map(|rules| self.row(rules, limit)).collect::<Vec<_>>(),
            || if self.plan { PerfectPlan::of(self.work) } else { None },
        );
        let mut rows: Vec<WhatIfRow> = rows;
        let held = rows.iter().find(|row| row.is_baseline).map_or(0, |row| row.outcome.peak_reserved);
        for row in &mut rows {
            let difference = i128::from(held) - i128::from(row.outcome.peak_reserved);
            row.saves = i64::try_from(difference).unwrap_or(i64::MAX);
        }
        let mut report = WhatIfReport {
            peak_live: self.work.peak().0,
            memory: limit.map(|limit| limit.bytes),
            perfect,
            baseline: self.baseline.to_string(),
            baseline_is_recorded: self.baseline_is_recorded,
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

    /// The memory that replays have: the device's that was named, or the recorded run's.
    fn limit(&self) -> Option<MemoryLimit> {
        let recorded = self.run.as_ref().and_then(|run| run.conditions.limit);
        match self.memory {
            Some(bytes) => Some(MemoryLimit { bytes, below: None, of_process: false }),
            None => recorded,
        }
    }

    /// What is asked about, if nothing was named.
    fn settings(&self, limit: Option<MemoryLimit>) -> Vec<Rules> {
        let of_process = limit.is_some_and(|limit| limit.of_process);
        let mut rules = settings(limit.is_some() || self.smallest);
        for rules in &mut rules {
            if let Rules::Torch(conf) = rules {
                // A process keeps the limit that it had, which is no share of this memory.
                let fraction = if of_process { None } else { conf.memory_fraction };
                conf.memory_fraction = self.baseline.memory_fraction().or(fraction);
            }
        }
        rules
    }

    /// Why there is advice, and what it is.
    fn advise(&self, report: &mut WhatIfReport) {
        let Some(baseline) = report.rows.iter().find(|row| row.is_baseline) else { return };
        if let Some(run) = &self.run {
            let replay = if self.memory.is_none() {
                baseline.outcome.clone()
            } else {
                Simulation::new(self.work).under(&run.conditions).run(&self.baseline)
            };
            report.replayed_peak_reserved = Some(replay.peak_reserved);
            if let Some(doubt) = run.doubt(&replay) {
                report.reason = AdviceReason::Withheld(doubt);
                return;
            }
        }
        let runs = |row: &WhatIfRow| row.outcome.conf.is_some() && row.outcome.out_of_memory.is_none();
        let first =
            report.gains().next().map(|(row, gain)| (Advice::of(row), AdviceReason::of(gain, row, baseline)));
        (report.advice, report.reason) = match first {
            Some(first) => first,
            None if report.rows.iter().any(runs) => (None, AdviceReason::NothingToGain),
            None => (None, AdviceReason::NothingRuns),
        };
    }

    fn row(&self, rules: &Rules, limit: Option<MemoryLimit>) -> WhatIfRow {
        let simulation = Simulation::new(self.work);
        let simulation = self.run.as_ref().map_or(simulation, |run| simulation.under(&run.conditions));
        let in_bytes = |bytes: u64| {
            let of_process = limit.is_some_and(|limit| limit.of_process);
            simulation.room(MemoryCapacity { bytes, of_process })
        };
        let plenty = in_bytes(UNLIMITED);
        let outcome = limit.map_or(plenty, |limit| in_bytes(limit.bytes.min(UNLIMITED))).run(rules);
        let smallest = self.smallest.then(|| {
            // What is held when nothing is scarce is enough; what does not run then runs in no memory.
            let enough = if limit.is_none() { outcome.clone() } else { plenty.run(rules) };
            enough.out_of_memory.is_none().then(|| SmallestMemory::search(&plenty, rules, &enough)).flatten()
        });
        WhatIfRow {
            outcome,
            saves: 0,
            smallest: smallest.flatten(),
            is_baseline: *rules == self.baseline,
            settings: rules.settings(),
            needs_device: self.memory.is_none() && rules.memory_fraction() != self.baseline.memory_fraction(),
        }
    }
}

impl WhatIfReport {
    /// The settings of PyTorch's that are better than the baseline, best first, and what is better.
    pub(super) fn gains(&self) -> impl Iterator<Item = (&WhatIfRow, Advantage)> {
        let baseline = self.rows.iter().find(|row| row.is_baseline).map(Cost::of);
        // Those behind the baseline, too: what is as good as the best may be worse than what is as good as
        // itself (`rank`).
        let better = self.rows.iter().filter(|row| {
            row.outcome.conf.is_some() && row.outcome.out_of_memory.is_none() && !row.needs_device
        });
        better.filter_map(move |row| Some((row, Cost::of(row).gain(&baseline?)?)))
    }

    /// The best settings of PyTorch's that are better than the baseline and do without this setting, which
    /// not all versions know; `None` without [advice](Self::advice).
    #[must_use]
    pub fn advice_without(&self, setting: &str) -> Option<Advice> {
        let has = |row: &WhatIfRow| row.outcome.conf.as_deref().is_some_and(|conf| conf.contains(setting));
        let found = self.gains().find(|(row, _)| !has(row));
        self.advice.as_ref().and(found).and_then(|(row, _)| Advice::of(row))
    }

    /// How a row compares with the baseline, by what rows are ranked by: less is better.
    #[must_use]
    pub fn compare(&self, row: &WhatIfRow) -> Ordering {
        let baseline = self.rows.iter().find(|row| row.is_baseline);
        baseline.map_or(Ordering::Equal, |baseline| Cost::of(row).compare(&Cost::of(baseline)))
    }
}
