//! The result of a replay.

use super::TouchPattern;
use crate::verdict::{RunVerdict, quoted};
use serde::{Deserialize, Serialize};

/// The cost of a trace with an allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The trace's name.
    pub trace: String,
    /// The name of the allocator.
    pub allocator: String,
    /// The number of threads.
    pub threads: usize,
    /// How much of each block was written.
    pub touch: TouchPattern,
    /// Operations of one thread in one pass. An allocation and its free are two.
    pub operations: usize,
    /// Nanoseconds for an operation, the mean of the threads: the median of the passes after the first, or
    /// the only pass.
    pub ns_per_op: f64,
    /// The peak of live bytes: the trace's peak of requested bytes times the threads.
    pub peak_live: u64,
    /// The peak of bytes that the allocator reserved from its backing.
    pub peak_reserved: u64,
    /// `peak_reserved / peak_live`; 1 if nothing was live.
    pub ratio: f64,
    /// Page faults of the process in a pass of all threads: the mean of the passes of `ns_per_op`. Linux
    /// only.
    pub page_faults: Option<u64>,
    /// The peak of resident memory of the process in bytes, including what was resident before the replay.
    /// Linux only.
    pub rss: Option<u64>,
    /// Nanoseconds for an operation in the first pass, if there were others.
    pub cold_ns_per_op: Option<f64>,
    /// Page faults in the first pass, if there were others.
    pub cold_page_faults: Option<u64>,
    /// The number of passes.
    pub passes: usize,
}

/// One allocator over several traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplaySummary {
    /// The name of the allocator.
    pub allocator: String,
    /// The number of traces.
    pub traces: usize,
    /// The geometric mean of `ns_per_op`.
    pub ns_per_op: f64,
    /// The geometric mean of `ratio`.
    pub ratio: f64,
}

impl ReplaySummary {
    /// Summarizes each allocator, in order of the first reports. The means are geometric, so that slow traces
    /// do not dominate.
    #[must_use]
    pub fn by_allocator(reports: &[ReplayReport]) -> Vec<Self> {
        let mut names: Vec<&str> = Vec::new();
        for report in reports {
            if !names.contains(&report.allocator.as_str()) {
                names.push(&report.allocator);
            }
        }
        let summary = |name: &str| {
            let own = || reports.iter().filter(|report| report.allocator == name);
            Self {
                allocator: name.to_owned(),
                traces: own().count(),
                ns_per_op: geometric_mean(own().map(|report| report.ns_per_op)),
                ratio: geometric_mean(own().map(|report| report.ratio)),
            }
        };
        names.into_iter().map(summary).collect()
    }
}

impl ReplayReport {
    /// Judges the allocators of some reports: which is the fastest, which reserves least, and what to do
    /// next. `file` is the trace, as commands name it.
    #[must_use]
    pub fn verdict(reports: &[Self], file: &str) -> RunVerdict {
        let next = format!("orlop trace info {} shows its sizes and lifetimes.", quoted(file));
        let means = ReplaySummary::by_allocator(reports);
        let by = |figure: fn(&ReplaySummary) -> f64| {
            move |one: &&ReplaySummary, other: &&ReplaySummary| figure(one).total_cmp(&figure(other))
        };
        let (Some(fastest), Some(slowest), Some(least)) = (
            means.iter().min_by(by(|mean| mean.ns_per_op)),
            means.iter().max_by(by(|mean| mean.ns_per_op)),
            means.iter().min_by(by(|mean| mean.ratio)),
        ) else {
            return RunVerdict::new("Nothing was replayed.".to_owned(), "No allocator ran.".to_owned(), next);
        };
        let takes = |mean: &ReplaySummary| format!("{} takes {:.1} ns", mean.allocator, mean.ns_per_op);
        let reserves = |mean: &ReplaySummary| {
            format!("{} reserves {:.2} times the peak of live bytes", mean.allocator, mean.ratio)
        };
        let finding = match means.len() {
            1 => format!("{} for an allocation or a free.", takes(fastest)),
            _ => format!("{} for an allocation or a free, {}.", takes(fastest), takes(slowest)),
        };
        let remedy = match fastest.ratio <= least.ratio {
            true => format!("{}.", reserves(fastest)),
            false => format!("{}, {} {:.2}.", reserves(fastest), least.allocator, least.ratio),
        };
        RunVerdict::new(finding, remedy, next)
    }
}

/// Returns the mean of the positive values; 0 if there are none. (An empty trace takes no time.)
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values
        .filter(|value| *value > 0.0)
        .fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    if count == 0 { 0.0 } else { (sum / f64::from(count)).exp() }
}

#[cfg(test)]
pub(super) fn sample(trace: &str, allocator: &str, ns_per_op: f64, ratio: f64) -> ReplayReport {
    ReplayReport {
        trace: trace.into(),
        allocator: allocator.into(),
        threads: 1,
        touch: TouchPattern::First,
        operations: 4,
        ns_per_op,
        peak_live: 100,
        peak_reserved: 200,
        ratio,
        page_faults: None,
        rss: None,
        cold_ns_per_op: None,
        cold_page_faults: None,
        passes: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric_and_by_allocator() {
        let reports = [
            sample("x", "b", 10.0, 2.0),
            sample("x", "a", 7.0, 1.0),
            sample("y", "b", 1000.0, 8.0),
            sample("empty", "b", 0.0, 4.0),
        ];
        let [b, a] = ReplaySummary::by_allocator(&reports).try_into().unwrap();
        assert_eq!((b.allocator.as_str(), b.traces, a.allocator.as_str(), a.traces), ("b", 3, "a", 1));
        assert!((b.ns_per_op - 100.0).abs() < 1e-9 && (b.ratio - 4.0).abs() < 1e-9);
        assert!((a.ns_per_op - 7.0).abs() < 1e-9);
    }

    #[test]
    fn the_fastest_and_the_leanest_are_named() {
        let reports = [sample("x", "a", 10.0, 2.0), sample("x", "b", 30.0, 1.25)];
        let verdict = ReplayReport::verdict(&reports, "x.csv");
        assert_eq!(verdict.finding, "a takes 10.0 ns for an allocation or a free, b takes 30.0 ns.");
        assert_eq!(verdict.remedy, "a reserves 2.00 times the peak of live bytes, b 1.25.");
        let verdict = ReplayReport::verdict(&reports[1..], "x.csv");
        assert_eq!(verdict.finding, "b takes 30.0 ns for an allocation or a free.");
        assert_eq!(verdict.remedy, "b reserves 1.25 times the peak of live bytes.");
        assert_eq!(ReplayReport::verdict(&[], "x.csv").to_string().lines().count(), 3);
    }

    #[test]
    fn reports_survive_json() {
        let report = sample("x", "a", 1.5, 2.0);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains(r#""touch":"first""#) && text.contains(r#""ns_per_op":1.5"#));
        assert_eq!(serde_json::from_str::<ReplayReport>(&text).unwrap(), report);
    }
}
