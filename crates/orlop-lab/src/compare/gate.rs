//! A memory test: whether a run exceeds its baseline, with the call sites that do.
//!
//! All metrics are counted, not timed: the same program on the same data gives the same numbers. So the
//! tolerance only covers intended changes, and can be small.

use super::diff::{DeviceDiff, MetricChange, SiteDiff, SiteMatching};
use super::profile::Profile;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// The allowed excess over the baseline. Prints and parses as `1.5%`.
///
/// ```
/// use orlop_lab::compare::Tolerance;
///
/// let tolerance: Tolerance = "1.5%".parse()?;
/// assert_eq!(tolerance.limit(2000), 2030);
/// assert!("1.5".parse::<Tolerance>().is_err());
/// # Ok::<(), orlop_lab::compare::UnknownTolerance>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Tolerance {
    /// In hundredths of a percent.
    hundredths: u32,
}

/// The text is not a tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a percentage with at most two decimals, such as `1%` or `0.25%`")]
pub struct UnknownTolerance;

impl Tolerance {
    /// Returns the largest value that passes.
    #[must_use]
    pub fn limit(self, baseline: u64) -> u64 {
        let more = u128::from(baseline) * u128::from(self.hundredths) / 10_000;
        baseline.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.hundredths / 100, self.hundredths % 100);
        match rest {
            0 => write!(f, "{whole}%"),
            rest if rest % 10 == 0 => write!(f, "{whole}.{}%", rest / 10),
            rest => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

impl FromStr for Tolerance {
    type Err = UnknownTolerance;

    fn from_str(text: &str) -> Result<Self, UnknownTolerance> {
        let number = text.trim().strip_suffix('%').ok_or(UnknownTolerance)?.trim_end();
        let (whole, rest) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(rest) || rest.len() > 2 {
            return Err(UnknownTolerance);
        }
        let whole: u32 = whole.parse().map_err(|_| UnknownTolerance)?;
        let rest: u32 = format!("{rest:0<2}").parse().map_err(|_| UnknownTolerance)?;
        let hundredths = whole.checked_mul(100).and_then(|whole| whole.checked_add(rest));
        hundredths.map(|hundredths| Self { hundredths }).ok_or(UnknownTolerance)
    }
}

impl Serialize for Tolerance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A metric of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateMetric {
    /// The peak of live bytes.
    PeakLive,
    /// The peak of reserved bytes.
    PeakReserved,
    /// The number of allocations.
    Allocations,
}

impl fmt::Display for GateMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PeakLive => "peak live",
            Self::PeakReserved => "peak reserved",
            Self::Allocations => "allocations",
        })
    }
}

/// The verdict on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gate {
    /// Whether all metrics are within their limits.
    pub passed: bool,
    /// The allowed excess over the baseline.
    pub tolerance: Tolerance,
    /// All metrics.
    pub checks: Vec<MetricCheck>,
}

/// A metric with its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MetricCheck {
    /// The device.
    pub device: u32,
    /// The metric.
    #[serde(rename = "measure")]
    pub metric: GateMetric,
    /// The values of the baseline and of the run.
    #[serde(flatten)]
    pub change: MetricChange,
    /// The largest value that passes.
    pub limit: u64,
    /// Whether it passes.
    pub passed: bool,
    /// If it fails: the call sites that grew, most growth first. Reserved bytes have call sites only if live
    /// bytes grew.
    pub sites: Vec<SiteDiff>,
    /// If reserved bytes fail: the growth that exceeds the growth of live bytes, which has no call site.
    pub fragmentation: u64,
}

impl Gate {
    /// Compares a run with its baseline. Metrics that only one of them has are not compared.
    #[must_use]
    pub fn check(run: &Profile, baseline: &Profile, tolerance: Tolerance) -> Self {
        let mut checks = Vec::new();
        for device in baseline.devices_of_both(run) {
            let diff = DeviceDiff::of(&baseline.device(device), &run.device(device), SiteMatching::Function);
            let metrics = [
                (GateMetric::PeakLive, Some(diff.peak_live)),
                (GateMetric::PeakReserved, diff.peak_reserved),
                (GateMetric::Allocations, Some(diff.allocations)),
            ];
            for (metric, change) in metrics {
                let Some(change) = change else { continue };
                let limit = tolerance.limit(change.before);
                let passed = change.after <= limit;
                let live = diff.peak_live.growth().max(0);
                let is_reserved = metric == GateMetric::PeakReserved;
                // Growth of reserved bytes without growth of live bytes has no call site.
                let sites = if passed || (is_reserved && live == 0) {
                    Vec::new()
                } else {
                    grown_sites(&diff.sites, metric)
                };
                let excess = if passed || !is_reserved { 0 } else { change.growth() - live };
                let fragmentation = u64::try_from(excess).unwrap_or(0);
                checks.push(MetricCheck { device, metric, change, limit, passed, sites, fragmentation });
            }
        }
        Self { passed: checks.iter().all(|check| check.passed), tolerance, checks }
    }

    /// Returns the metrics that exceed their limits.
    pub fn breaches(&self) -> impl Iterator<Item = &MetricCheck> {
        self.checks.iter().filter(|check| !check.passed)
    }
}

/// Returns the sites whose metric grew.
fn grown_sites(sites: &[SiteDiff], metric: GateMetric) -> Vec<SiteDiff> {
    let growth = |site: &SiteDiff| match metric {
        GateMetric::PeakLive | GateMetric::PeakReserved => site.peak.growth(),
        GateMetric::Allocations => site.allocations.growth(),
    };
    let mut sites: Vec<SiteDiff> = sites.iter().filter(|site| growth(site) > 0).cloned().collect();
    sites.sort_by_key(|site| Reverse(growth(site)));
    sites
}
