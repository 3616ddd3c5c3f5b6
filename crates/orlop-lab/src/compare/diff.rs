//! What grew between two runs, and where.
//!
//! Between two runs somebody edits the program, and lines move. So sites are matched by file and function,
//! and their lines are shown; whoever compares two runs of the same program asks for lines.

use super::profile::{DeviceProfile, Profile, SiteProfile};
use serde::Serialize;
use std::collections::BTreeMap;

/// When two call sites are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Matching {
    /// File, function and operator are the same.
    #[default]
    Function,
    /// The lines are, too.
    Line,
}

/// A figure of the first run, and of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Amount {
    /// Of the first.
    pub before: u64,
    /// Of the second.
    pub after: u64,
}

impl Amount {
    /// How much more it is in the second; negative if less.
    #[must_use]
    pub fn growth(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

/// How the second run differs from the first.
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_lab::compare::{Diff, Matching, Profile};
///
/// let [before, after] = [History::default(), History::default()].map(|history| Profile::of(&history, 1));
/// assert!(Diff::of(&before, &after, Matching::Function).devices.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diff {
    /// By device.
    pub devices: Vec<DeviceDiff>,
}

/// How the second run differs on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeviceDiff {
    /// Which.
    pub device: u32,
    /// The most bytes that lived at once.
    pub peak_live: Amount,
    /// The most bytes that segments took at once, if both sources tell.
    pub peak_reserved: Option<Amount>,
    /// Bytes that live in the end.
    pub end_live: Amount,
    /// Blocks handed out.
    pub allocations: Amount,
    /// By call site: what grew most at the peak first, then in the end, then in number.
    pub sites: Vec<SiteDiff>,
}

/// How the second run differs at a call site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteDiff {
    /// Its name, with the line that holds most; in the second run, if it is there.
    pub name: String,
    /// Other lines of the same function that are counted with it.
    pub other_lines: usize,
    /// Whether the first run does not have it.
    pub is_new: bool,
    /// Whether the second run does not have it.
    pub is_gone: bool,
    /// Bytes held when most bytes lived.
    pub peak: Amount,
    /// Bytes held in the end.
    pub end: Amount,
    /// Blocks handed out.
    pub allocations: Amount,
}

impl Diff {
    /// Of two runs.
    #[must_use]
    pub fn of(before: &Profile, after: &Profile, matching: Matching) -> Self {
        let devices = before.devices_of_both(after).into_iter();
        Self {
            devices: devices
                .map(|device| DeviceDiff::of(&before.device(device), &after.device(device), matching))
                .collect(),
        }
    }
}

impl DeviceDiff {
    pub(super) fn of(before: &DeviceProfile, after: &DeviceProfile, matching: Matching) -> Self {
        let amount = |of: fn(&DeviceProfile) -> u64| Amount { before: of(before), after: of(after) };
        let reserved = before.peak_reserved.zip(after.peak_reserved);
        Self {
            device: after.device,
            peak_live: amount(|profile| profile.peak_live),
            peak_reserved: reserved.map(|(before, after)| Amount { before, after }),
            end_live: amount(|profile| profile.end_live),
            allocations: amount(|profile| profile.allocations),
            sites: sites(&before.sites, &after.sites, matching),
        }
    }
}

/// The rows of both runs that are one call site.
#[derive(Debug, Default)]
struct Pair<'a> {
    before: Vec<&'a SiteProfile>,
    after: Vec<&'a SiteProfile>,
}

fn sites(before: &[SiteProfile], after: &[SiteProfile], matching: Matching) -> Vec<SiteDiff> {
    let key = |site: &SiteProfile| match matching {
        Matching::Function => site.key.clone(),
        Matching::Line => site.name.clone(),
    };
    let mut pairs: BTreeMap<String, Pair<'_>> = BTreeMap::new();
    for site in before {
        pairs.entry(key(site)).or_default().before.push(site);
    }
    for site in after {
        pairs.entry(key(site)).or_default().after.push(site);
    }
    let mut sites: Vec<SiteDiff> = pairs.into_values().map(|pair| pair.diff()).collect();
    // Stable: what is equal stays in the order of the names.
    sites.sort_by_key(|site| (-site.peak.growth(), -site.end.growth(), -site.allocations.growth()));
    sites
}

impl Pair<'_> {
    fn diff(&self) -> SiteDiff {
        let sum = |of: fn(&SiteProfile) -> u64| {
            let sum =
                |sites: &[&SiteProfile]| sites.iter().fold(0, |sum: u64, site| sum.saturating_add(of(site)));
            Amount { before: sum(&self.before), after: sum(&self.after) }
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
