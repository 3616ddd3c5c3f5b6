//! `orlop what-if`.

mod text;

pub(crate) use self::text::nanoseconds_each;

use crate::arguments::WhatIfArguments;
use crate::output::Failures;
use crate::task_progress::TaskProgress;
use crate::{histories, output, table};
use orlop::lab::analyze::{DeviceInfo, OutOfMemoryReport, SiteNaming, SnapshotInfo};
use orlop::lab::simulate::{MAX_STREAMS, SimulationOutcome};
use orlop::lab::verdict::{RunVerdict, most_urgent_first};
use orlop::lab::what_if::{AdviceReason, UnreliableReplay, WhatIf, WhatIfReport};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::{DeviceHistory, History, HistoryWarning, Workload};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

/// The what-if report of a file.
#[derive(Serialize)]
struct WhatIfEntry {
    file: String,
    device: u32,
    verdict: RunVerdict,
    warnings: u64,
    /// The recorded settings that the baseline ignores, and why.
    unknown_settings: Vec<String>,
    /// Bytes that were live when the recording began, in no known segment.
    #[serde(rename = "held_before")]
    unplaced: Option<UnplacedMemory>,
    /// The memory of `--memory`, and what others had of the recorded device, which is subtracted.
    given: Option<GivenMemory>,
    /// Whether the source records segments, or only counts reserved bytes.
    has_segments: bool,
    /// Reserved bytes at the end of the recorded run.
    recorded_reserved: Option<u64>,
    /// Requests that failed in the recording.
    failed: Vec<OutOfMemoryReport>,
    #[serde(flatten)]
    report: WhatIfReport,
}

/// The memory that was given for a device.
#[derive(Clone, Copy, Serialize)]
struct GivenMemory {
    device: u64,
    /// Bytes of the context, libraries and other processes; 0 if the recording does not show them.
    foreign: u64,
}

/// Memory that was live when the recording began, and the blocks as which it is replayed.
#[derive(Serialize)]
struct UnplacedMemory {
    bytes: u64,
    blocks: u64,
}

/// Runs `orlop what-if`.
pub(crate) fn run(arguments: &WhatIfArguments) -> Result<(), Failures> {
    let history = histories::read(&arguments.file)?;
    histories::report_omitted(&arguments.file, &history, arguments.device);
    let progress = TaskProgress::start(format!("replaying {}", arguments.file.display()));
    let devices = || histories::devices(&history, arguments.device);
    let describe = || SnapshotInfo::of(&history, SiteNaming::default()).devices;
    let sweep_all =
        || devices().map(|device| (device.device, sweep(arguments, &history, device, None))).collect();
    let (mut infos, mut reports): (_, HashMap<u32, WhatIfReport>) = match arguments.memory {
        None => rayon::join(describe, sweep_all),
        // What others had of the memory is subtracted: the description has that.
        Some(_) => (describe(), HashMap::new()),
    };
    most_urgent_first(&mut infos);
    let mut entries = Vec::new();
    for info in infos {
        let Some(device) = devices().find(|device| device.device == info.device) else { continue };
        let given = arguments.memory.map(|device| {
            let foreign = info.foreign.and_then(|foreign| foreign.taken_of(device)).unwrap_or(0);
            GivenMemory { device, foreign }
        });
        let report = reports.remove(&device.device);
        let report = report.unwrap_or_else(|| sweep(arguments, &history, device, given));
        report_folded(&arguments.file, device.device, report.rows.iter().map(|row| &row.outcome));
        entries.push(entry(arguments, &history, device, info, given, report));
    }
    drop(progress);
    if entries.is_empty() {
        let on = arguments.device.map_or_else(String::new, |device| format!(" on {}", DeviceLabel(device)));
        return Err(format!("{}: nothing was recorded{on}", arguments.file.display()).into());
    }
    if arguments.json {
        output::print_json(&entries)?;
    } else {
        let texts: Vec<String> = entries.iter().map(|entry| text::of(arguments, entry)).collect();
        output::print(&texts.join("\n"))?;
    }
    // The verdict says how to record a run; a script needs to know that there was none.
    let no_history = AdviceReason::Withheld(UnreliableReplay::NoHistory);
    if entries.iter().all(|entry| entry.report.reason == no_history) {
        return Err(format!("{}: no allocations were recorded", arguments.file.display()).into());
    }
    Ok(())
}

fn sweep(
    arguments: &WhatIfArguments,
    history: &History,
    device: &DeviceHistory,
    given: Option<GivenMemory>,
) -> WhatIfReport {
    let work = Workload::of(device);
    let mut sweep =
        WhatIf::recorded(&work, history, device).smallest(!arguments.quick).plan(!arguments.quick);
    if let Some(given) = given {
        sweep = sweep.memory(Some(given.device.saturating_sub(given.foreign)));
    }
    if let Some(version) = arguments.torch {
        sweep = sweep.torch(version);
    }
    sweep.run()
}

fn entry(
    arguments: &WhatIfArguments,
    history: &History,
    device: &DeviceHistory,
    info: DeviceInfo,
    given: Option<GivenMemory>,
    report: WhatIfReport,
) -> WhatIfEntry {
    let (_, unknown) = history.torch_conf();
    let file = arguments.file.display().to_string();
    let before = device.unplaced.iter().fold(0, |sum: u64, block| sum.saturating_add(block.requested));
    let reserved = device.end.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
    WhatIfEntry {
        verdict: RunVerdict::of(&info, Some(&report), &file),
        file,
        device: device.device,
        warnings: HistoryWarning::count(&history.warnings),
        unknown_settings: unknown.iter().map(ToString::to_string).collect(),
        unplaced: (!device.unplaced.is_empty())
            .then_some(UnplacedMemory { bytes: before, blocks: device.unplaced.len() as u64 }),
        given,
        has_segments: info.has_segments,
        recorded_reserved: (!device.end.is_empty()).then_some(reserved),
        failed: info.out_of_memory,
        report,
    }
}

/// Prints that a recording has more streams than a replay distinguishes.
pub(crate) fn report_folded<'a>(
    path: &Path,
    device: u32,
    outcomes: impl IntoIterator<Item = &'a SimulationOutcome>,
) {
    let folded = outcomes.into_iter().map(|outcome| outcome.folded).max().unwrap_or(0);
    if folded > 0 {
        output::report(&format!(
            "{}: {} has more than {MAX_STREAMS} streams: the others are replayed as one stream (requests and \
             uses: {})",
            path.display(),
            DeviceLabel(device),
            table::count(folded)
        ));
    }
}
