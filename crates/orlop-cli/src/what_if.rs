//! `orlop what-if`.

use crate::arguments::WhatIfArguments;
use crate::output::Failures;
use crate::{histories, output, snapshot, table};
use orlop::lab::analyze::{DeviceInfo, OutOfMemoryReport, SiteNaming, SnapshotInfo};
use orlop::lab::simulate::{MAX_STREAMS, MemoryLimit, SimulationOutcome};
use orlop::lab::what_if::{AdviceReason, SmallestMemory, UnreliableReplay, WhatIf, WhatIfReport, WhatIfRow};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::{DeviceHistory, History, HistoryWarning, Workload};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// The what-if report of a file.
#[derive(Serialize)]
struct WhatIfEntry {
    file: String,
    device: u32,
    warnings: u64,
    /// The recorded settings that the baseline ignores, and why.
    unknown_settings: Vec<String>,
    /// Bytes that were live when the recording began, in no known segment.
    #[serde(rename = "held_before")]
    unplaced: Option<UnplacedMemory>,
    /// Whether the source records segments, or only counts reserved bytes.
    has_segments: bool,
    /// Reserved bytes at the end of the recorded run.
    recorded_reserved: Option<u64>,
    /// Requests that failed in the recording.
    failed: Vec<OutOfMemoryReport>,
    #[serde(flatten)]
    report: WhatIfReport,
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
    let mut infos = SnapshotInfo::of(&history, SiteNaming::default()).devices;
    let mut entries = Vec::new();
    histories::report_omitted(&arguments.file, &history, arguments.device);
    for device in histories::devices(&history, arguments.device) {
        let Some(index) = infos.iter().position(|info| info.device == device.device) else { continue };
        let entry = entry(arguments, &history, device, infos.swap_remove(index));
        report_folded(&arguments.file, device.device, entry.report.rows.iter().map(|row| &row.outcome));
        entries.push(entry);
    }
    if entries.is_empty() {
        let on = arguments.device.map_or_else(String::new, |device| format!(" on {}", DeviceLabel(device)));
        return Err(format!("{}: nothing was recorded{on}", arguments.file.display()).into());
    }
    if arguments.json {
        return output::print_json(&entries);
    }
    let mut out = String::new();
    for entry in &entries {
        out.push_str(&text(arguments, entry));
    }
    output::print(&out)
}

fn entry(
    arguments: &WhatIfArguments,
    history: &History,
    device: &DeviceHistory,
    info: DeviceInfo,
) -> WhatIfEntry {
    let failed = info.out_of_memory;
    let work = Workload::of(device);
    let (_, unknown) = history.torch_conf();
    let mut sweep =
        WhatIf::recorded(&work, history, device).smallest(!arguments.quick).plan(!arguments.quick);
    if arguments.memory.is_some() {
        sweep = sweep.memory(arguments.memory);
    }
    let before = device.unplaced.iter().fold(0, |sum: u64, block| sum.saturating_add(block.requested));
    let reserved = device.end.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
    WhatIfEntry {
        file: arguments.file.display().to_string(),
        device: device.device,
        warnings: HistoryWarning::count(&history.warnings),
        unknown_settings: unknown.iter().map(ToString::to_string).collect(),
        unplaced: (!device.unplaced.is_empty())
            .then_some(UnplacedMemory { bytes: before, blocks: device.unplaced.len() as u64 }),
        has_segments: info.has_segments,
        recorded_reserved: (!device.end.is_empty()).then_some(reserved),
        failed,
        report: sweep.run(),
    }
}

fn text(arguments: &WhatIfArguments, entry: &WhatIfEntry) -> String {
    let mut out = String::new();
    let report = &entry.report;
    // Writing to a string cannot fail.
    let _ = write_head(&mut out, entry);
    let shown = arguments.top.map_or(report.rows.len(), |top| top.get());
    let mut table = table::new_with_text(
        [
            "reserved\nMiB",
            "ratio",
            "saves",
            "without\nretry",
            "smallest\nmemory",
            "fails\nin",
            "retries",
            "moved",
            "ns/op",
        ],
        "allocator and settings",
    );
    for row in report.rows.iter().take(shown) {
        table.add_row(table::row_with_text(columns(row), &label(row, report)));
    }
    if !matches!(report.reason, AdviceReason::Withheld(UnreliableReplay::NoHistory)) {
        let _ = write!(out, "\n{}\n", table.trim_fmt());
    }
    let _ = write_advice(&mut out, entry);
    for failure in &entry.failed {
        snapshot::failure_text(&mut out, failure);
    }
    out
}

fn write_head(out: &mut String, entry: &WhatIfEntry) -> std::fmt::Result {
    let report = &entry.report;
    writeln!(out, "{}, {}", entry.file, DeviceLabel(entry.device))?;
    writeln!(
        out,
        "  peak of live bytes           {}: a lower bound for any allocator",
        table::bytes(report.peak_live)
    )?;
    if let Some(perfect) = report.perfect {
        let proof = if perfect.optimal { ", proven optimal" } else { "" };
        writeln!(out, "  perfect plan                 {}{proof}", table::bytes(perfect.bytes))?;
    }
    if let Some(UnplacedMemory { bytes, blocks }) = entry.unplaced {
        writeln!(
            out,
            "  live before the recording    {}, replayed as {}: no more is known",
            table::bytes(bytes),
            table::counted(blocks, "block")
        )?;
    }
    write_run(out, entry)?;
    if let Some(recorded) = entry.recorded_reserved {
        writeln!(out, "  reserved at the end          {}", table::bytes(recorded))?;
    }
    if let Some(fidelity) = report.fidelity {
        let (same, all) = (table::count(fidelity.same), table::count(fidelity.allocations));
        writeln!(out, "  addresses as recorded        {same} of {all} by PyTorch's rules")?;
        if fidelity.unrequested > 0 {
            let blocks = table::counted(fidelity.unrequested, "block");
            writeln!(out, "  freed without a request      {blocks}, freed at the recorded completion")?;
        }
    }
    if !report.baseline_is_recorded {
        writeln!(out, "  settings of the run          not recorded: compared with PyTorch's defaults")?;
    }
    for error in &entry.unknown_settings {
        writeln!(out, "  ignored in the recorded settings: {error}")?;
    }
    if entry.warnings > 0 {
        let warnings = table::counted(entry.warnings, "warning");
        writeln!(out, "  the recording has {warnings}: see orlop snapshot info")?;
    }
    Ok(())
}

/// Writes the recorded run, its replay, and the conditions of both.
fn write_run(out: &mut String, entry: &WhatIfEntry) -> std::fmt::Result {
    let report = &entry.report;
    if let Some(recorded) = report.recorded_peak_reserved {
        let counted = if entry.has_segments { "" } else { ", as counted by the source" };
        write!(out, "  peak reserved, as recorded   {}{counted}", table::bytes(recorded))?;
        match report.replayed_peak_reserved {
            Some(replayed) => writeln!(out, "; in the replay {}", table::bytes(replayed))?,
            None => writeln!(out)?,
        }
    }
    let calls = report.conditions.cache_releases.len() as u64;
    if calls > 0 {
        writeln!(out, "  calls of empty_cache()       {}, also made by the replays", table::count(calls))?;
    }
    let Some(memory) = report.memory else { return Ok(()) };
    match report.conditions.limit.filter(|limit| limit.bytes == memory) {
        Some(MemoryLimit { of_process: true, .. }) => writeln!(
            out,
            "  memory of the process        {}: more was refused, although the device had it",
            table::bytes(memory)
        ),
        Some(MemoryLimit { below: Some(_), .. }) => {
            writeln!(out, "  memory of the run            {}: more was refused", table::bytes(memory))
        }
        _ => writeln!(out, "  memory of the device         {}", table::bytes(memory)),
    }
}

fn label(row: &WhatIfRow, report: &WhatIfReport) -> String {
    let is_run = report.memory == report.conditions.limit.map(|limit| limit.bytes);
    let mark = match (row.is_baseline, report.baseline_is_recorded) {
        (true, true) if is_run => " (as recorded)",
        // The memory is not that of the recording.
        (true, true) => " (recorded settings)",
        (true, false) => " (baseline)",
        (false, _) => "",
    };
    format!("{}{mark}", row.outcome.rules)
}

/// Formats the columns of a row. Memory is in MiB, rounded up: differences between settings are about one
/// percent.
fn columns(row: &WhatIfRow) -> [String; 9] {
    let outcome = &row.outcome;
    let saves = match row.saves {
        more @ ..0 => format!("-{}", mebibytes(more.unsigned_abs())),
        saves => mebibytes(saves.unsigned_abs()),
    };
    let reserved = match outcome.out_of_memory {
        Some(_) => "out of memory".to_owned(),
        None => mebibytes(outcome.peak_reserved),
    };
    [
        reserved,
        format!("{:.3}", outcome.ratio),
        saves,
        row.smallest.and_then(|smallest| smallest.without_retry).map_or_else(String::new, mebibytes),
        row.smallest.map_or_else(String::new, runs_in),
        row.smallest.and_then(|smallest| smallest.fails).map_or_else(String::new, mebibytes),
        table::count(outcome.retries),
        mebibytes(outcome.remapped),
        nanoseconds_each(outcome),
    ]
}

/// Formats the smallest memory in which it runs, and the number of retries there.
fn runs_in(smallest: SmallestMemory) -> String {
    let memory = mebibytes(smallest.runs);
    match smallest.retries {
        0 => memory,
        1 => format!("{memory} (1 retry)"),
        retries => format!("{memory} ({} retries)", table::count(retries)),
    }
}

/// Formats the nanoseconds of an operation, if they were measured.
pub(crate) fn nanoseconds_each(outcome: &SimulationOutcome) -> String {
    let operations = outcome.operations.max(1) as f64;
    outcome.nanoseconds.map_or_else(|| "-".to_owned(), |time| format!("{:.0}", time as f64 / operations))
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

fn mebibytes(bytes: u64) -> String {
    table::count(bytes.div_ceil(1 << 20))
}

/// Writes the advice, or why there is none.
fn write_advice(out: &mut String, entry: &WhatIfEntry) -> std::fmt::Result {
    let report = &entry.report;
    let Some(advice) = &report.advice else {
        return match report.reason {
            AdviceReason::NothingRuns => writeln!(out, "\nNo settings of PyTorch run in this memory."),
            AdviceReason::NothingToGain => {
                let best =
                    if report.baseline_is_recorded { "the recorded ones" } else { "PyTorch's defaults" };
                writeln!(out, "\nNothing to gain: no settings of PyTorch are better than {best} by 1 %.")
            }
            reason => writeln!(out, "\nNo advice: {reason}."),
        };
    };
    let than =
        if report.baseline_is_recorded { "the settings of the recorded run" } else { "PyTorch's defaults" };
    writeln!(out, "\nThe best settings of PyTorch:\n  {}", setting(&advice.conf))?;
    writeln!(out, "Compared with {than}, {}.", report.reason)?;
    if advice.conf.contains(NEWEST_SETTING)
        && let Some(older) = report.advice_without(NEWEST_SETTING)
    {
        writeln!(
            out,
            "{NEWEST_SETTING} requires PyTorch 2.11; for earlier versions, the best is\n  {}",
            setting(&older.conf)
        )?;
    }
    Ok(())
}

/// A setting that PyTorch 2.11.0 supports and 2.10.0 refuses.
const NEWEST_SETTING: &str = "large_segment_size_mb";

/// Formats the setting of the environment.
fn setting(conf: &str) -> String {
    match conf {
        "" => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        conf => format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
    }
}
