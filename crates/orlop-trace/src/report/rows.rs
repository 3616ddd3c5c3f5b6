//! The table of settings, from a sweep.

use super::{Verdict, WhatIfRow};
use crate::what_if::WhatIfReport;
use orlop_core::ByteSize;
use std::cmp::Ordering;

impl WhatIfRow {
    /// A sweep's rows, best first.
    #[must_use]
    pub fn of(sweep: &WhatIfReport) -> Vec<Self> {
        let rows = sweep.rows.iter().map(|row| {
            let outcome = &row.outcome;
            let (name, settings) = outcome.rules.split_once(", ").unwrap_or((&outcome.rules, ""));
            let smallest = row.smallest.map(|smallest| smallest.runs);
            let verdict = if row.is_baseline {
                if sweep.baseline_is_recorded { Verdict::Recorded } else { Verdict::Baseline }
            } else if outcome.out_of_memory.is_some() {
                Verdict::DoesNotFit
            } else {
                match sweep.compare(row) {
                    Ordering::Equal => Verdict::Same,
                    Ordering::Less => Verdict::Better,
                    Ordering::Greater => Verdict::Worse,
                }
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
