//! The comparison of ranks: what most have, and who differs.

use super::RankFigures;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Ranks are outliers from a difference of one part in this many of the median on.
const SIGNIFICANT: u64 = 100;

/// And if they differ by this many times the median difference.
const DEVIATIONS: u64 = 4;

/// The maximum number of outliers and of call sites.
const MAX_LISTED: usize = 10;

/// The comparison of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankReport {
    /// The number of ranks.
    pub ranks: usize,
    /// The number of ranks on which a request failed.
    pub failed: usize,
    /// The worst rank: of those on which a request failed, or else of all, the one with the highest peak.
    pub worst: RankFigures,
    /// The median of the peaks: of reserved bytes where they are recorded, or else of live bytes.
    pub median_peak: u64,
    /// The smallest of the peaks.
    pub min_peak: u64,
    /// The ranks whose peak is not like that of the others, farthest first.
    pub outliers: Vec<RankOutlier>,
    /// The number of outliers that are not listed.
    pub more_outliers: usize,
    /// The call sites that make most of the difference between the worst rank and the median, largest first.
    pub worst_sites: Vec<SiteSpread>,
    /// The call sites that differ most between any two ranks, largest first.
    pub sites: Vec<SiteSpread>,
}

/// A rank whose peak is not like that of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankOutlier {
    /// Its figures.
    #[serde(flatten)]
    pub figures: RankFigures,
    /// Its peak less the median of all.
    pub over_median: i64,
}

/// The live bytes of a call site at the peaks of the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteSpread {
    /// The call site.
    pub name: String,
    /// The least bytes of a rank; 0 if one does not have it.
    pub min: u64,
    /// The median of all ranks.
    pub median: u64,
    /// The most bytes of a rank.
    pub max: u64,
    /// The bytes of the worst rank.
    pub worst: u64,
    /// The rank with the most bytes.
    pub max_rank: String,
}

impl RankReport {
    pub(super) fn of(ranks: &[RankFigures], sites: &HashMap<String, Vec<(u32, u64)>>) -> Option<Self> {
        let (worst_index, worst) = ranks
            .iter()
            .enumerate()
            .max_by_key(|(index, rank)| (rank.failed > 0, rank.peak(), Reverse(*index)))?;
        let mut peaks: Vec<u64> = ranks.iter().map(RankFigures::peak).collect();
        let median_peak = median(&mut peaks);
        let mut distances: Vec<u64> = peaks.iter().map(|peak| peak.abs_diff(median_peak)).collect();
        let far = (median_peak / SIGNIFICANT).max(median(&mut distances).saturating_mul(DEVIATIONS));
        let mut outliers: Vec<&RankFigures> =
            ranks.iter().filter(|rank| rank.peak().abs_diff(median_peak) > far).collect();
        outliers.sort_by_key(|rank| Reverse(rank.peak().abs_diff(median_peak)));
        let more_outliers = outliers.len().saturating_sub(MAX_LISTED);
        let outliers = outliers.into_iter().take(MAX_LISTED).map(|rank| RankOutlier {
            over_median: i64::try_from(i128::from(rank.peak()) - i128::from(median_peak)).unwrap_or(i64::MAX),
            figures: rank.clone(),
        });
        let spreads: Vec<SiteSpread> =
            sites.iter().map(|(name, bytes)| spread(name, bytes, ranks, worst_index)).collect();
        Some(Self {
            ranks: ranks.len(),
            failed: ranks.iter().filter(|rank| rank.failed > 0).count(),
            worst: worst.clone(),
            median_peak,
            min_peak: peaks.iter().copied().min().unwrap_or(0),
            outliers: outliers.collect(),
            more_outliers,
            worst_sites: largest(&spreads, |site| site.worst.abs_diff(site.median)),
            sites: largest(&spreads, |site| site.max - site.min),
        })
    }
}

/// Returns the call sites with the largest differences, without those that have none.
fn largest(sites: &[SiteSpread], difference: impl Fn(&SiteSpread) -> u64) -> Vec<SiteSpread> {
    let mut sites: Vec<&SiteSpread> = sites.iter().filter(|site| difference(site) > 0).collect();
    sites.sort_by(|one, other| {
        (Reverse(difference(one)), &one.name).cmp(&(Reverse(difference(other)), &other.name))
    });
    sites.into_iter().take(MAX_LISTED).cloned().collect()
}

/// Summarizes a call site. Ranks that do not have it have 0 bytes.
fn spread(name: &str, bytes: &[(u32, u64)], ranks: &[RankFigures], worst: usize) -> SiteSpread {
    let absent = ranks.len().saturating_sub(bytes.len());
    let mut all: Vec<u64> = bytes.iter().map(|&(_, bytes)| bytes).collect();
    all.extend(std::iter::repeat_n(0, absent));
    let most = bytes.iter().max_by_key(|&&(rank, bytes)| (bytes, Reverse(rank)));
    let max_rank = most.and_then(|&(rank, _)| ranks.get(rank as usize));
    SiteSpread {
        name: name.to_owned(),
        min: all.iter().copied().min().unwrap_or(0),
        max: all.iter().copied().max().unwrap_or(0),
        median: median(&mut all),
        worst: bytes.iter().find(|&&(rank, _)| rank as usize == worst).map_or(0, |&(_, bytes)| bytes),
        max_rank: max_rank.map_or_else(String::new, |rank| rank.name.clone()),
    }
}

/// Returns the lower median; 0 of nothing.
fn median(numbers: &mut [u64]) -> u64 {
    let Some(last) = numbers.len().checked_sub(1) else { return 0 };
    *numbers.select_nth_unstable(last / 2).1
}
