//! The table of settings, from a sweep.

use super::{Verdict, WhatIfRow};
use crate::what_if::WhatIfReport;
use orlop_core::ByteSize;

/// Differences of less than this share of the memory are none that count.
const COUNTS: u64 = 500;

impl WhatIfRow {
    /// A sweep's rows, best first.
    #[must_use]
    pub fn of(sweep: &WhatIfReport) -> Vec<Self> {
        let baseline = sweep.rows.iter().find(|row| row.is_baseline);
        let held = baseline.map_or(0, |row| row.outcome.peak_reserved);
        let needs = baseline.and_then(|row| row.smallest).map(|smallest| smallest.runs);
        let rows = sweep.rows.iter().map(|row| {
            let outcome = &row.outcome;
            let (name, settings) = outcome.rules.split_once(", ").unwrap_or((&outcome.rules, ""));
            let smallest = row.smallest.map(|smallest| smallest.runs);
            // What is needed says more than what was taken when there was enough.
            let (now, before) = smallest.zip(needs).unwrap_or((outcome.peak_reserved, held));
            let verdict = if row.is_baseline {
                if sweep.baseline_is_recorded { Verdict::Recorded } else { Verdict::Baseline }
            } else if outcome.out_of_memory.is_some() {
                Verdict::DoesNotFit
            } else if now.abs_diff(before) <= before / COUNTS {
                Verdict::Same
            } else if now < before {
                Verdict::Better
            } else {
                Verdict::Worse
            };
            let moved = ByteSize(outcome.remapped);
            let fits = outcome.out_of_memory.is_none();
            Self {
                name: name.to_owned(),
                settings: settings.to_owned(),
                peak_reserved: fits.then_some(outcome.peak_reserved),
                ratio: fits.then_some(outcome.ratio),
                smallest_memory: smallest,
                verdict,
                note: if outcome.remapped > 0 { format!("{moved} of pages moved") } else { String::new() },
            }
        });
        rows.collect()
    }
}
