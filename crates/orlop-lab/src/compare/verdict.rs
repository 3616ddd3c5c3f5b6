//! The verdicts on a comparison, in the three lines of a [`RunVerdict`]: what changed, where, and what to do.

use super::diff::{DeviceDiff, Diff, MetricChange, SiteDiff};
use super::gate::{Gate, GateMetric, MetricCheck};
use super::profile::{DeviceProfile, Profile};
use crate::analyze::{LIVE_AT_START, NO_SITE};
use crate::verdict::{RunVerdict, counted, quoted};
use orlop_core::ByteSize;
use orlop_trace::formats::DeviceLabel;

/// Growth of reserved bytes beyond that of live bytes is significant from one part in this many of the peak
/// on.
const SIGNIFICANT: u64 = 100;

impl Diff {
    /// Judges the second run. `before` and `after` are the files, as commands name them; `is_recording` is
    /// `false` if the second is a baseline, of which there is no more to see.
    #[must_use]
    pub fn verdict(&self, before: &str, after: &str, is_recording: bool) -> RunVerdict {
        let (before, after) = (quoted(before), quoted(after));
        let device = self.devices.iter().max_by_key(|device| {
            let growth = device.peak().growth();
            (growth > 0, growth.unsigned_abs(), device.peak().after)
        });
        let Some(device) = device else {
            return RunVerdict::new(
                "No device was used in either run.".to_owned(),
                "There is nothing to compare.".to_owned(),
                format!("orlop info {after} says what is recorded."),
            );
        };
        let peak = device.peak();
        let finding = format!("{} needs {} at its peak.", DeviceLabel(device.device), device.change());
        let next = if peak.growth() <= 0 {
            format!("To keep it so: orlop gate {after} --write-baseline FILE")
        } else if !is_recording {
            format!("orlop diff {before} {after} --lines tells lines of a function apart.")
        } else if device.fragmentation().is_some() {
            format!("orlop what-if {after} shows which setting helps.")
        } else {
            format!("orlop info {after} shows what is live at its peak.")
        };
        RunVerdict::new(finding, device.cause(), next)
    }
}

impl DeviceDiff {
    /// Returns the peak of reserved bytes, or else of live bytes.
    fn peak(&self) -> MetricChange {
        self.peak_reserved.unwrap_or(self.peak_live)
    }

    /// Describes the peak and its growth.
    fn change(&self) -> String {
        let peak = self.peak();
        let what = if self.peak_reserved.is_some() { "reserved" } else { "live" };
        let size = ByteSize(peak.after);
        match growth(peak) {
            (0, _) => format!("{size} {what}, the same as before,"),
            (more, direction) => format!("{size} {what}, {} {direction} than before,", ByteSize(more)),
        }
    }

    /// Returns the growth of reserved bytes that exceeds the growth of live bytes, if it is significant.
    fn fragmentation(&self) -> Option<u64> {
        let reserved = self.peak_reserved?;
        let excess = reserved.growth() - self.peak_live.growth().max(0);
        let excess = u64::try_from(excess).ok()?;
        (excess > reserved.before / SIGNIFICANT).then_some(excess)
    }

    /// Says where the change comes from.
    fn cause(&self) -> String {
        if let Some(excess) = self.fragmentation() {
            let excess = ByteSize(excess);
            return match growth(self.peak_live) {
                (0, _) => format!("{excess} of it is fragmentation: live memory is the same."),
                (live, direction) => {
                    format!("{excess} of it is fragmentation: {} {direction} is live.", ByteSize(live))
                }
            };
        }
        if self.has_sites_of_one_run() {
            return "Only one of the runs has call sites: they cannot be compared.".to_owned();
        }
        let by_growth = |site: &&SiteDiff| site.peak.growth();
        let (grown, shrunk) =
            (self.sites.iter().max_by_key(by_growth), self.sites.iter().min_by_key(by_growth));
        let site = if self.peak().growth() < 0 { shrunk } else { grown };
        match site.map(|site| (site, growth(site.peak))) {
            None | Some((_, (0, _))) => "No call site holds more or less at the peak.".to_owned(),
            Some((site, (bytes, direction))) => format!(
                "{} holds {} {direction}: {}, {} before.",
                site.name,
                ByteSize(bytes),
                ByteSize(site.peak.after),
                ByteSize(site.peak.before)
            ),
        }
    }

    /// Returns `true` if no call site of one of the runs is known, and one of the other is.
    fn has_sites_of_one_run(&self) -> bool {
        let known = || self.sites.iter().filter(|site| ![NO_SITE, LIVE_AT_START].contains(&&*site.name));
        let is_any = known().next().is_some();
        is_any
            && (known().all(|site| site.is_new) || known().all(|site| site.is_gone))
            && self.sites.iter().any(|site| site.name == NO_SITE)
    }
}

impl Gate {
    /// Judges the run. `run` and `baseline` are the files, as commands name them.
    #[must_use]
    pub fn verdict(&self, run: &str, baseline: &str) -> RunVerdict {
        let (run, baseline) = (quoted(run), quoted(baseline));
        let tolerance = self.tolerance;
        let failed = self.breaches().count();
        let Some(breach) = self.breaches().next() else {
            let compared = self.checks.len();
            let all_less = self.checks.iter().all(|check| check.change.growth() < 0);
            let next = match all_less && compared > 0 {
                true => format!("It needs less: orlop gate {run} --write-baseline FILE lowers the limits."),
                false => format!("orlop diff {baseline} {run} shows which call sites differ."),
            };
            let finding =
                match self.checks.iter().max_by_key(|check| check.change.growth() * 1000 / check.base()) {
                    Some(closest) => format!("Passed: at worst, {}.", described(closest)),
                    None => "Passed: neither has a device to compare.".to_owned(),
                };
            return RunVerdict::new(
                finding,
                format!("No figure of {compared} is over its limit, the baseline + {tolerance}."),
                next,
            );
        };
        let others = match failed - 1 {
            0 => String::new(),
            1 => "; 1 more figure is over its limit".to_owned(),
            others => format!("; {others} more figures are over their limits"),
        };
        let limit = breach.metric.value(breach.limit);
        RunVerdict::new(
            format!("FAILED: {}, over the limit of {limit}{others}.", described(breach)),
            cause(breach),
            format!("To allow it: orlop gate {run} --write-baseline FILE"),
        )
    }
}

impl MetricCheck {
    /// Returns the value of the baseline, as a divisor.
    fn base(&self) -> i128 {
        i128::from(self.change.before.max(1))
    }
}

impl GateMetric {
    fn value(self, value: u64) -> String {
        match self {
            Self::PeakLive | Self::PeakReserved => ByteSize(value).to_string(),
            Self::Allocations => value.to_string(),
        }
    }
}

/// Describes a figure of a run: `device 0, peak live 4.34 GiB, 201 MiB less than the baseline`.
fn described(check: &MetricCheck) -> String {
    let (device, metric) = (DeviceLabel(check.device), check.metric);
    let value = metric.value(check.change.after);
    match growth(check.change) {
        (0, _) => format!("{device}, {metric} {value}, as the baseline"),
        (more, direction) => {
            format!("{device}, {metric} {value}, {} {direction} than the baseline", metric.value(more))
        }
    }
}

/// Says what a figure over its limit comes from.
fn cause(check: &MetricCheck) -> String {
    let more = |site: &SiteDiff| match check.metric {
        GateMetric::PeakLive | GateMetric::PeakReserved => site.peak,
        GateMetric::Allocations => site.allocations,
    };
    let site = check.sites.first().map(|site| {
        let (bytes, direction) = growth(more(site));
        format!("{} has {} {direction}", site.name, check.metric.value(bytes))
    });
    let fragmentation = ByteSize(check.fragmentation);
    match (site, check.fragmentation) {
        (Some(site), 0) => format!("What grew most: {site}."),
        (Some(site), _) => format!("{fragmentation} of it is fragmentation; {site}."),
        (None, 0) => "No single call site grew.".to_owned(),
        (None, _) => format!("{fragmentation} of it is fragmentation: no call site grew."),
    }
}

impl Profile {
    /// Describes what a run needs on the device with the highest peak, and how a later run is compared with
    /// it. `baseline` is the file to which this profile is written.
    #[must_use]
    pub fn verdict(&self, run: &str, baseline: &str) -> RunVerdict {
        let peak = |device: &&DeviceProfile| device.peak_reserved.unwrap_or(device.peak_live);
        let finding = match self.devices.iter().max_by_key(peak) {
            Some(device) => format!(
                "{} needs {} at its peak.",
                DeviceLabel(device.device),
                match device.peak_reserved {
                    Some(reserved) =>
                        format!("{} live, {} reserved", ByteSize(device.peak_live), ByteSize(reserved)),
                    None => format!("{} live", ByteSize(device.peak_live)),
                }
            ),
            None => "No device was used.".to_owned(),
        };
        let devices = counted(self.devices.len(), "device");
        RunVerdict::new(
            finding,
            format!(
                "{} is the baseline, with the call sites of {devices} of {}.",
                quoted(baseline),
                quoted(run)
            ),
            format!("Compare a later run with it: orlop gate RUN --baseline {}", quoted(baseline)),
        )
    }
}

/// Returns the difference without its sign, and its direction.
fn growth(change: MetricChange) -> (u64, &'static str) {
    let direction = if change.after < change.before { "less" } else { "more" };
    (change.after.abs_diff(change.before), direction)
}
