//! The recordings of a program's ranks, side by side: the worst, the outliers, and the call sites that make
//! the difference.
//!
//! Recordings are added one at a time, and only their figures are kept: a few numbers for each rank, and one
//! for each of its largest call sites.
//!
//! ```
//! use orlop_lab::ranks::RankComparison;
//! use orlop_trace::history::History;
//!
//! let mut ranks = RankComparison::default();
//! for bytes in [1000, 1000, 4000] {
//!     let history = History::parse(format!("a,0,{bytes}\nf,0\n").as_bytes())?;
//!     ranks.add(&format!("rank{}", ranks.len()), &history);
//! }
//! let report = ranks.report().expect("there are ranks");
//! assert_eq!((report.worst.name.as_str(), report.median_peak), ("rank2", 1000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod report;

use crate::analyze::{SiteGroups, peak_reserved, with_start};
use orlop_trace::formats::numbered_device;
use orlop_trace::history::{DeviceHistory, EventAction, History, Workload};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

pub use self::report::{RankOutlier, RankReport, SiteSpread};

/// The number of call sites of a rank that are compared; the others are one.
const MAX_SITES: usize = 64;

/// The name of all other call sites of a rank.
const OTHER_SITES: &str = "(other call sites)";

/// The figures of a rank: of one device in one recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankFigures {
    /// The recording.
    pub name: String,
    /// The number of the device.
    pub device: u32,
    /// The peak of live bytes, as requested.
    pub peak_live: u64,
    /// The peak of reserved bytes, if it is recorded.
    pub peak_reserved: Option<u64>,
    /// Live bytes at the end.
    pub end_live: u64,
    /// The number of allocations.
    pub allocations: u64,
    /// The number of requests that failed for lack of memory.
    pub failed: u64,
}

impl RankFigures {
    /// Returns the peak by which ranks are compared: of reserved bytes, or else of live bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak_reserved.unwrap_or(self.peak_live)
    }
}

/// The ranks so far.
#[derive(Debug, Default)]
pub struct RankComparison {
    ranks: Vec<RankFigures>,
    /// Live bytes at the peak of each rank that has the call site.
    sites: HashMap<String, Vec<(u32, u64)>>,
}

impl RankComparison {
    /// Adds a recording: a rank for each of its devices. The host's memory is a rank only if there is no
    /// other device.
    pub fn add(&mut self, name: &str, history: &History) {
        let is_host = |device: &DeviceHistory| numbered_device(device.device).is_some_and(|one| one.is_cpu());
        let only_host = history.devices.iter().all(is_host);
        for device in history.devices.iter().filter(|device| only_host || !is_host(device)) {
            self.add_device(name, history, &with_start(device));
        }
    }

    fn add_device(&mut self, name: &str, history: &History, device: &DeviceHistory) {
        let work = Workload::of(device);
        let (peak_live, step) = work.peak();
        let events = |action| device.events.iter().filter(|event| event.action == action).count() as u64;
        let rank = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        self.ranks.push(RankFigures {
            name: name.to_owned(),
            device: device.device,
            peak_live,
            peak_reserved: peak_reserved(device, device.events.len()),
            end_live: work.live_before(work.steps.len()),
            allocations: events(EventAction::Allocate),
            failed: events(EventAction::OutOfMemory),
        });
        let mut names = SiteGroups::new(&history.sites, 1);
        let mut sums: HashMap<(usize, bool), (u64, String)> = HashMap::new();
        for block in work.live_blocks(step.map_or(0, |step| step + 1)) {
            let key = names.key(block.site, block.born.is_none());
            let sum = sums.entry(key);
            let sum = sum.or_insert_with(|| (0, names.label(block.site, block.born.is_none())));
            sum.0 = sum.0.saturating_add(block.bytes);
        }
        let mut sums: Vec<(u64, String)> = sums.into_values().collect();
        sums.sort_by(|one, other| (Reverse(one.0), &one.1).cmp(&(Reverse(other.0), &other.1)));
        let others = sums.iter().skip(MAX_SITES).fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
        sums.truncate(MAX_SITES);
        sums.extend((others > 0).then(|| (others, OTHER_SITES.to_owned())));
        for (bytes, site) in sums {
            self.sites.entry(site).or_default().push((rank, bytes));
        }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Returns `true` if there are no ranks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Compares the ranks; `None` if there are none.
    #[must_use]
    pub fn report(&self) -> Option<RankReport> {
        RankReport::of(&self.ranks, &self.sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::HistoryEvent;

    /// A rank with blocks of many call sites; `bytes` of one of them.
    fn rank(bytes: u64) -> History {
        let mut history = History::default();
        let mut device = DeviceHistory::default();
        for line in 0..200_u32 {
            let frame = history.sites.frame("step", "/srv/run/train.py", line + 1);
            let size = if line == 7 { bytes } else { u64::from(line) + 1 };
            let mut event = HistoryEvent::new(EventAction::Allocate, u64::from(line) << 32, size);
            event.site = history.sites.stack(&[frame]);
            device.events.push(event);
        }
        history.devices.push(device);
        history
    }

    #[test]
    fn a_thousand_ranks_leave_their_figures() {
        let (usual, other) = (rank(10_000), rank(50_000));
        let mut ranks = RankComparison::default();
        for number in 0..1000 {
            ranks.add(&format!("rank{number}"), if number == 617 { &other } else { &usual });
        }
        // A rank's call sites beyond the largest are one.
        let kept: usize = ranks.sites.values().map(Vec::len).sum();
        assert_eq!((ranks.len(), kept), (1000, 1000 * (MAX_SITES + 1)));
        let report = ranks.report().expect("there are ranks");
        assert_eq!((report.worst.name.as_str(), report.failed, report.outliers.len()), ("rank617", 0, 1));
        assert_eq!(report.outliers[0].over_median, 40_000);
        let site = &report.worst_sites[0];
        assert_eq!((site.name.as_str(), site.median, site.worst), ("train.py:8 step", 10_000, 50_000));
        assert_eq!((report.worst_sites.len(), report.sites.len()), (1, 1));
        assert!(RankComparison::default().report().is_none());
    }

    /// A rank that ran out of memory is the worst, however much another has.
    #[test]
    fn failures_come_first() {
        let mut failed = rank(1);
        failed.devices[0].events.push(HistoryEvent::new(EventAction::OutOfMemory, 0, 1 << 40));
        let mut ranks = RankComparison::default();
        ranks.add("large", &rank(1 << 30));
        ranks.add("failed", &failed);
        let report = ranks.report().expect("there are ranks");
        assert_eq!((report.worst.name.as_str(), report.failed), ("failed", 1));
    }
}
