//! The differences between two runs by call site.
//!
//! The program may be edited between two runs, which moves lines. So sites are matched by file and function,
//! and their lines are only shown. For two runs of the same program, lines can be matched, too.

use super::profile::{DeviceProfile, Profile, SiteProfile};
use serde::Serialize;
use std::collections::BTreeMap;

/// The rule by which two call sites are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SiteMatching {
    /// By file, function and operator.
    #[default]
    Function,
    /// By line, too.
    Line,
}

/// A metric of the first run and of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct MetricChange {
    /// In the first run.
    pub before: u64,
    /// In the second run.
    pub after: u64,
}

impl MetricChange {
    /// Returns the difference; negative if the second is smaller.
    #[must_use]
    pub fn growth(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

/// The differences of the second run from the first.
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_lab::compare::{Diff, SiteMatching, Profile};
///
/// let [before, after] = [History::default(), History::default()].map(|history| Profile::of(&history, 1));
/// assert!(Diff::of(&before, &after, SiteMatching::Function).devices.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diff {
    /// The devices.
    pub devices: Vec<DeviceDiff>,
}

/// The differences on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeviceDiff {
    /// The number of the device.
    pub device: u32,
    /// The peak of live bytes.
    pub peak_live: MetricChange,
    /// The peak of reserved bytes, if both sources have it.
    pub peak_reserved: Option<MetricChange>,
    /// Live bytes at the end.
    pub end_live: MetricChange,
    /// The number of allocations.
    pub allocations: MetricChange,
    /// By call site: sorted by growth at the peak, then at the end, then in number.
    pub sites: Vec<SiteDiff>,
}

/// The differences at one call site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteDiff {
    /// Its name with the line with the most bytes, in the second run if it is present there.
    pub name: String,
    /// The number of other lines of the same function that are included.
    pub other_lines: usize,
    /// Whether the first run does not have it.
    pub is_new: bool,
    /// Whether the second run does not have it.
    pub is_gone: bool,
    /// Live bytes at the peak.
    pub peak: MetricChange,
    /// Live bytes at the end.
    pub end: MetricChange,
    /// The number of allocations.
    pub allocations: MetricChange,
}

impl Diff {
    /// Compares two runs.
    #[must_use]
    pub fn of(before: &Profile, after: &Profile, matching: SiteMatching) -> Self {
        let devices = before.devices_of_both(after).into_iter();
        Self {
            devices: devices
                .map(|device| DeviceDiff::of(&before.device(device), &after.device(device), matching))
                .collect(),
        }
    }
}

impl DeviceDiff {
    pub(super) fn of(before: &DeviceProfile, after: &DeviceProfile, matching: SiteMatching) -> Self {
        let change = |of: fn(&DeviceProfile) -> u64| MetricChange { before: of(before), after: of(after) };
        let reserved = before.peak_reserved.zip(after.peak_reserved);
        Self {
            device: after.device,
            peak_live: change(|profile| profile.peak_live),
            peak_reserved: reserved.map(|(before, after)| MetricChange { before, after }),
            end_live: change(|profile| profile.end_live),
            allocations: change(|profile| profile.allocations),
            sites: sites(&before.sites, &after.sites, matching),
        }
    }
}

/// The rows of both runs that are one call site.
#[derive(Debug, Default)]
struct SitePair<'a> {
    before: Vec<&'a SiteProfile>,
    after: Vec<&'a SiteProfile>,
}

fn sites(before: &[SiteProfile], after: &[SiteProfile], matching: SiteMatching) -> Vec<SiteDiff> {
    let key = |site: &SiteProfile| match matching {
        SiteMatching::Function => site.key.clone(),
        SiteMatching::Line => site.name.clone(),
    };
    let mut pairs: BTreeMap<String, SitePair<'_>> = BTreeMap::new();
    for site in before {
        pairs.entry(key(site)).or_default().before.push(site);
    }
    for site in after {
        pairs.entry(key(site)).or_default().after.push(site);
    }
    let mut sites: Vec<SiteDiff> = pairs.into_values().map(|pair| pair.diff()).collect();
    // The sort is stable: equal sites stay in order of their names.
    sites.sort_by_key(|site| (-site.peak.growth(), -site.end.growth(), -site.allocations.growth()));
    sites
}

impl SitePair<'_> {
    fn diff(&self) -> SiteDiff {
        let sum = |of: fn(&SiteProfile) -> u64| {
            let sum =
                |sites: &[&SiteProfile]| sites.iter().fold(0, |sum: u64, site| sum.saturating_add(of(site)));
            MetricChange { before: sum(&self.before), after: sum(&self.after) }
        };
        let shown = if self.after.is_empty() { &self.before } else { &self.after };
        let largest = shown.iter().max_by_key(|site| (site.peak_bytes, site.end_bytes, site.allocations));
        SiteDiff {
            name: largest.map_or_else(String::new, |site| site.name.clone()),
            other_lines: shown.len().saturating_sub(1),
            is_new: self.before.is_empty(),
            is_gone: self.after.is_empty(),
            peak: sum(|site| site.peak_bytes),
            end: sum(|site| site.end_bytes),
            allocations: sum(|site| site.allocations),
        }
    }
}
