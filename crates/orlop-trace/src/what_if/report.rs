//! All settings side by side.

use super::rules::Rules;
use super::simulation::{Outcome, Simulation};
use super::smallest::Smallest;
use super::sweep::settings;
use crate::history::{WorkStep, Workload};
use orlop_plan::{Buffer, Problem, ProblemBuilder, Skyline, verify};
use rayon::prelude::*;
use serde::Serialize;

/// A sweep over settings.
///
/// ```
/// use orlop_trace::history::{DeviceHistory, Workload};
/// use orlop_trace::what_if::WhatIf;
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
    recorded: bool,
    smallest: bool,
    plan: bool,
}

/// What a sweep came to, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfReport {
    /// The most bytes that lived at once, as asked for: no allocator can do with less.
    pub peak_live: u64,
    /// Bytes that the device had; `None` if that was left open.
    pub memory: Option<u64>,
    /// What an allocator that knew the future could do.
    pub perfect: Option<Perfect>,
    /// The settings with which the others are compared.
    pub baseline: String,
    /// Whether the recorded run is known to have had those ([`WhatIf::baseline`]); else they are PyTorch's defaults.
    pub baseline_is_recorded: bool,
    /// One for each setting: those that fit first, then by the smallest memory, then by what they held.
    pub rows: Vec<WhatIfRow>,
}

/// The smallest static plan that was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Perfect {
    /// Its bytes, in multiples of 512 for each block.
    pub bytes: u64,
    /// Whether it is proven that there is none smaller.
    pub optimal: bool,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WhatIfRow {
    /// What came out, in the memory that was given.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Bytes held fewer than with the settings of the baseline; negative if more.
    pub saves: i64,
    /// The smallest memory in which it runs, if that was asked for and there is one.
    pub smallest: Option<Smallest>,
    /// Whether these are the settings of the baseline.
    pub is_baseline: bool,
}

impl<'a> WhatIf<'a> {
    /// Of this workload, with memory enough, over [`settings`], which are compared with PyTorch's defaults.
    #[must_use]
    pub fn new(work: &'a Workload) -> Self {
        let baseline = Rules::Torch(orlop_alloc::device::TorchConf::default());
        Self { work, memory: None, rules: None, baseline, recorded: false, smallest: false, plan: false }
    }

    /// On a device of so many bytes.
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

    /// The recorded run had these settings: the others are compared with them. Leave it out where a source does not say.
    #[must_use]
    pub fn baseline(mut self, rules: Rules) -> Self {
        self.baseline = rules;
        self.recorded = true;
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
        let mut rules =
            self.rules.clone().unwrap_or_else(|| settings(self.memory.is_some() || self.smallest));
        if !rules.contains(&self.baseline) {
            rules.insert(0, self.baseline.clone());
        }
        let (rows, perfect) = rayon::join(
            || rules.par_iter().map(|rules| self.row(rules)).collect::<Vec<_>>(),
            || if self.plan { perfect(self.work) } else { None },
        );
        let mut rows: Vec<WhatIfRow> = rows;
        let held = rows.iter().find(|row| row.is_baseline).map_or(0, |row| row.outcome.peak_reserved);
        for row in &mut rows {
            let difference = i128::from(held) - i128::from(row.outcome.peak_reserved);
            row.saves = i64::try_from(difference).unwrap_or(i64::MAX);
        }
        rows.sort_by_key(|row| {
            let failed = row.outcome.out_of_memory.is_some();
            let smallest = row.smallest.map_or(u64::MAX, |smallest| smallest.runs);
            (failed, smallest, row.outcome.peak_reserved, row.outcome.rules.len())
        });
        WhatIfReport {
            peak_live: self.work.peak().0,
            memory: self.memory,
            perfect,
            baseline: self.baseline.to_string(),
            baseline_is_recorded: self.recorded,
            rows,
        }
    }

    fn row(&self, rules: &Rules) -> WhatIfRow {
        let simulation = Simulation::new(self.work);
        let limited = self.memory.map_or(simulation, |memory| simulation.memory(memory));
        let outcome = limited.run(rules);
        let smallest = self.smallest.then(|| {
            // What is held when nothing is scarce is enough; what does not run then runs in no memory.
            let plenty = match self.memory {
                None => outcome.clone(),
                Some(_) => simulation.run(rules),
            };
            let search = || Smallest::search(&simulation, rules, plenty.peak_live, plenty.peak_reserved);
            plenty.out_of_memory.is_none().then(search).flatten()
        });
        let is_baseline = *rules == self.baseline;
        WhatIfRow { outcome, saves: 0, smallest: smallest.flatten(), is_baseline }
    }
}

/// A static plan for a workload's blocks, whose times are the steps.
fn perfect(work: &Workload) -> Option<Perfect> {
    let problem = problem(work)?;
    let plan = Skyline::new().plan(&problem);
    verify(&problem, &plan).ok()?;
    Some(Perfect { bytes: plan.height(), optimal: plan.height() == problem.lower_bound() })
}

/// A workload as a planning problem: sizes rounded to 512 bytes, as devices align them, times in steps.
fn problem(work: &Workload) -> Option<Problem> {
    let mut builder = ProblemBuilder::new();
    let end = work.steps.len() as u64 + 1;
    let mut stops: Vec<Option<usize>> =
        work.blocks.iter().map(|block| block.died.filter(|_| !block.lingers)).collect();
    for (place, step) in work.steps.iter().enumerate() {
        // Until then streams use it.
        if let WorkStep::Completed(block) = *step {
            stops[block as usize] = Some(place);
        }
    }
    for (block, stop) in work.blocks.iter().zip(stops) {
        let start = block.born.map_or(0, |step| step as u64 + 1);
        let stop = stop.map_or(end, |step| step as u64 + 1);
        if start < stop {
            builder.push(Buffer::new(start..stop, block.bytes.max(1).checked_next_multiple_of(512)?)).ok()?;
        }
    }
    Some(builder.finish())
}
