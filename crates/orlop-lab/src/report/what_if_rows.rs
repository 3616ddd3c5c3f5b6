//! The page's table of settings, from a sweep.

use super::{ReportRow, WhatIfVerdict};
use crate::what_if::{self, AdviceReason, WhatIfReport};
use orlop_core::ByteSize;
use std::cmp::Ordering;

impl ReportRow {
    /// Converts the rows of a sweep, best first.
    #[must_use]
    pub fn of(sweep: &WhatIfReport) -> Vec<Self> {
        let row = |row: &what_if::WhatIfRow| {
            let outcome = &row.outcome;
            let (name, settings) = outcome.rules.split_once(", ").unwrap_or((&outcome.rules, ""));
            let fits = outcome.out_of_memory.is_none();
            Self {
                name: name.to_owned(),
                settings: settings.to_owned(),
                peak_reserved: fits.then_some(outcome.peak_reserved),
                ratio: fits.then_some(outcome.ratio),
                without_retry: row.smallest.and_then(|smallest| smallest.without_retry),
                smallest_memory: row.smallest.map(|smallest| smallest.runs),
                verdict: verdict(sweep, row),
                note: note(sweep, row),
            }
        };
        sweep.rows.iter().map(row).collect()
    }
}

fn verdict(sweep: &WhatIfReport, row: &what_if::WhatIfRow) -> WhatIfVerdict {
    if row.is_baseline {
        return if sweep.baseline_is_recorded { WhatIfVerdict::Recorded } else { WhatIfVerdict::Baseline };
    }
    if row.outcome.out_of_memory.is_some() {
        return WhatIfVerdict::DoesNotFit;
    }
    if matches!(sweep.reason, AdviceReason::Withheld(_)) {
        return WhatIfVerdict::Unknown;
    }
    match sweep.compare(row) {
        Ordering::Equal => WhatIfVerdict::Same,
        Ordering::Less => WhatIfVerdict::Better,
        Ordering::Greater => WhatIfVerdict::Worse,
    }
}

fn note(sweep: &WhatIfReport, row: &what_if::WhatIfRow) -> String {
    let outcome = &row.outcome;
    if let AdviceReason::Withheld(reason) = sweep.reason
        && row.is_baseline
    {
        return reason.to_string();
    }
    if sweep.advice.is_some() && sweep.advice.as_ref().map(|advice| &advice.conf) == outcome.conf.as_ref() {
        return format!("the best of PyTorch's settings: {}", sweep.reason);
    }
    if outcome.remapped > 0 {
        format!("{} of pages moved", ByteSize(outcome.remapped))
    } else {
        String::new()
    }
}
