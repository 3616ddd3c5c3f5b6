//! `orlop report`.

use crate::arguments::ReportArguments;
use crate::output::Failures;
use crate::table::{self, bytes};
use crate::task_progress::TaskProgress;
use crate::{histories, output, target};
use orlop::lab::LabError;
use orlop::lab::analyze::{DeviceInfo, SiteNaming, SnapshotInfo};
use orlop::lab::report::{DeviceVerdict, ReportData, ReportRow};
use orlop::lab::verdict::{RunVerdict, most_urgent_first};
use orlop::lab::what_if::{MAX_SEARCHED_STEPS, WhatIf, WhatIfReport};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::{DeviceHistory, History, Workload};
use serde::Serialize;

pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failures> {
    let history = histories::read(&arguments.file)?;
    histories::require_memory(&arguments.file, &history)?;
    let source = arguments.file.display().to_string();
    let name = arguments.file.file_name().unwrap_or(arguments.file.as_os_str()).to_string_lossy();
    let title = arguments.title.as_deref().unwrap_or(&name);
    histories::report_omitted(&arguments.file, &history, arguments.device);
    let progress = TaskProgress::start(format!("replaying {source}"));
    // Rendered in memory first: a failure leaves no file behind.
    let ReportPage { html, settings, verdicts } =
        page(&history, title, &source, arguments.device).map_err(|error| format!("{source}: {error}"))?;
    drop(progress);
    let size = target::put_bytes(&arguments.output, &arguments.file, &html)?;
    let output = arguments.output.display().to_string();
    if arguments.json {
        return output::print_json(&WrittenReport { output, bytes: size, settings, verdicts });
    }
    let Some(size) = size else { return Ok(()) };
    let verdict = verdicts.first().map_or_else(String::new, |first| first.verdict.to_string());
    output::print(&format!("{}\n{output}: {}, open it in a browser\n", table::wrapped(&verdict), bytes(size)))
}

/// The output of a written report.
#[derive(Serialize)]
struct WrittenReport {
    output: String,
    /// The size of the file; `None` if it is not a regular file.
    bytes: Option<u64>,
    /// The number of settings and allocators on the page.
    settings: usize,
    /// The verdicts on the devices of the page, the most urgent first.
    verdicts: Vec<DeviceVerdict>,
}

/// A page, and what it says first.
#[derive(Debug)]
pub struct ReportPage {
    /// The page.
    pub html: Vec<u8>,
    /// The number of settings and allocators on it.
    pub settings: usize,
    /// The verdicts on its devices, the most urgent first.
    pub verdicts: Vec<DeviceVerdict>,
}

/// Renders the page of a history with the verdicts on its devices, or on one of them, and the costs of other
/// settings. `source` is the recording, as commands name it.
///
/// # Errors
///
/// [`LabError::NoSuchDevice`] if the history does not have the device.
pub fn page(
    history: &History,
    title: &str,
    source: &str,
    device: Option<u32>,
) -> Result<ReportPage, LabError> {
    let mut report = ReportData::new(history).title(title).source(source);
    if let Some(device) = device {
        report = report.device(device);
    }
    // None of these needs the others.
    let (sweeps, (infos, columns)) = rayon::join(
        || sweeps(history, device),
        || rayon::join(|| SnapshotInfo::of(history, SiteNaming::default()).devices, || report.columns()),
    );
    let (rows, mut verdicts) = (rows(&sweeps), verdicts(infos, &sweeps, source));
    let mut html = Vec::new();
    report.what_if(&rows).verdicts(&verdicts).write_with(&columns?, &mut html)?;
    verdicts.retain(|shown| device.is_none_or(|only| shown.device == only));
    Ok(ReportPage { html, settings: rows.len(), verdicts })
}

/// Tries other settings on the shown devices. The smallest memories of long runs are not searched, which
/// would take minutes.
fn sweeps(history: &History, device: Option<u32>) -> Vec<(u32, WhatIfReport)> {
    let sweep = |shown: &DeviceHistory| {
        let work = Workload::of(shown);
        let is_short = work.steps.len() <= MAX_SEARCHED_STEPS;
        (shown.device, WhatIf::recorded(&work, history, shown).smallest(is_short).run())
    };
    histories::devices(history, device).map(sweep).collect()
}

/// Returns the costs of other settings.
fn rows(sweeps: &[(u32, WhatIfReport)]) -> Vec<ReportRow> {
    let rows = |(device, sweep): &(u32, WhatIfReport)| {
        let mut rows = ReportRow::of(sweep);
        for row in rows.iter_mut().filter(|_| sweeps.len() > 1) {
            row.name = format!("{}: {}", DeviceLabel(*device), row.name);
        }
        rows
    };
    sweeps.iter().flat_map(rows).collect()
}

/// Returns the verdicts on all devices, the most urgent first.
fn verdicts(mut infos: Vec<DeviceInfo>, sweeps: &[(u32, WhatIfReport)], file: &str) -> Vec<DeviceVerdict> {
    most_urgent_first(&mut infos);
    let verdict = |info: &DeviceInfo| {
        let sweep = sweeps.iter().find(|(device, _)| *device == info.device).map(|(_, sweep)| sweep);
        DeviceVerdict { device: info.device, verdict: RunVerdict::on_page(info, sweep, file) }
    };
    infos.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop::lab::report::WhatIfVerdict;

    #[test]
    fn only_recorded_settings_are_called_recorded() {
        let lines = &b"a,0,512\na,1,4096\nf,0\n"[..];
        let mut history = History::parse(lines).expect("a trace");
        for (settings, verdict, other) in [
            (None, WhatIfVerdict::Baseline, WhatIfVerdict::Recorded),
            (Some(String::new()), WhatIfVerdict::Recorded, WhatIfVerdict::Baseline),
        ] {
            history.settings = settings;
            let rows = rows(&sweeps(&history, None));
            let found: Vec<_> = rows.iter().filter(|row| row.verdict == verdict).collect();
            assert_eq!(
                (found.len(), found[0].name.as_str(), found[0].settings.as_str()),
                (1, "torch", "default settings")
            );
            assert!(rows.iter().all(|row| row.verdict != other));
        }
    }
}
