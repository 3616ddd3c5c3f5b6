//! `orlop what-if`.

use crate::arguments::WhatIfArguments;
use crate::{histories, output, snapshot, table};
use orlop::lab::analyze::{DeviceInfo, SiteNaming, OutOfMemoryReport, SnapshotInfo};
use orlop::lab::simulate::{MAX_STREAMS, MemoryLimit, SimulationOutcome};
use orlop::lab::what_if::{AdviceReason, UnreliableReplay, SmallestMemory, WhatIf, WhatIfReport, WhatIfRow};
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
    /// What the baseline leaves out of the recorded settings, and why.
    unknown_settings: Vec<String>,
    /// Bytes that lived when the recording began, of which no segment is known.
    held_before: Option<HeldBefore>,
    /// Whether the source tells of segments, and has not only counted those bytes.
    has_segments: bool,
    /// Bytes that were held at the end of the recorded run.
    recorded_reserved: Option<u64>,
    /// Requests that failed when they were recorded.
    failed: Vec<OutOfMemoryReport>,
    #[serde(flatten)]
    report: WhatIfReport,
}

/// What lived when a recording began, and is replayed as so many blocks.
#[derive(Serialize)]
struct HeldBefore {
    bytes: u64,
    blocks: u64,
}

/// Runs `orlop what-if`.
pub(crate) fn run(arguments: &WhatIfArguments) -> Result<(), Vec<String>> {
    let history = histories::read(&arguments.file).map_err(|error| vec![error])?;
    let mut infos = SnapshotInfo::of(&history, SiteNaming::default()).devices;
    let mut answers = Vec::new();
    histories::tell_left_out(&arguments.file, &history, arguments.device);
    for device in histories::devices(&history, arguments.device) {
        let Some(place) = infos.iter().position(|info| info.device == device.device) else { continue };
        let answer = answer(arguments, &history, device, infos.swap_remove(place));
        tell_folded(&arguments.file, device.device, answer.report.rows.iter().map(|row| &row.outcome));
        answers.push(answer);
    }
    if answers.is_empty() {
        let on = arguments.device.map_or_else(String::new, |device| format!(" on device {device}"));
        return Err(vec![format!("{}: nothing was recorded{on}", arguments.file.display())]);
    }
    if arguments.json {
        return output::print_json(&answers);
    }
    let mut out = String::new();
    for answer in &answers {
        out.push_str(&text(arguments, answer));
    }
    output::print(&out)
}

fn answer(
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
    let held = device.end.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
    WhatIfEntry {
        file: arguments.file.display().to_string(),
        device: device.device,
        warnings: HistoryWarning::count(&history.warnings),
        unknown_settings: unknown.iter().map(ToString::to_string).collect(),
        held_before: (!device.unplaced.is_empty())
            .then_some(HeldBefore { bytes: before, blocks: device.unplaced.len() as u64 }),
        has_segments: info.has_segments,
        recorded_reserved: (!device.end.is_empty()).then_some(held),
        failed,
        report: sweep.run(),
    }
}

fn text(arguments: &WhatIfArguments, answer: &WhatIfEntry) -> String {
    let mut out = String::new();
    let report = &answer.report;
    // Writing to a string cannot fail.
    let _ = write_head(&mut out, answer);
    let shown = arguments.top.map_or(report.rows.len(), |top| top.get());
    let mut table = table::new(
        ["allocator and settings"],
        [
            "reserved MiB",
            "ratio",
            "saves",
            "without retry",
            "smallest memory",
            "fails in",
            "retries",
            "moved",
            "ns/op",
        ],
    );
    for row in report.rows.iter().take(shown) {
        table.add_row(table::row([label(row, report).as_str()], columns(row)));
    }
    if !matches!(report.reason, AdviceReason::Withheld(UnreliableReplay::NoHistory)) {
        let _ = write!(out, "\n{}\n", table.trim_fmt());
    }
    let _ = write_advice(&mut out, answer);
    for failure in &answer.failed {
        snapshot::failure_text(&mut out, failure);
    }
    out
}

fn write_head(out: &mut String, answer: &WhatIfEntry) -> std::fmt::Result {
    let report = &answer.report;
    writeln!(out, "{}, device {}", answer.file, table::device(answer.device))?;
    writeln!(
        out,
        "  peak of live bytes           {}: no allocator can do with less",
        table::bytes(report.peak_live)
    )?;
    if let Some(perfect) = report.perfect {
        let proof = if perfect.optimal { ", and none is smaller" } else { "" };
        writeln!(out, "  a perfect plan               {}{proof}", table::bytes(perfect.bytes))?;
    }
    if let Some(HeldBefore { bytes, blocks }) = answer.held_before {
        writeln!(
            out,
            "  held before the recording    {}, replayed as {} blocks: more is not known of it",
            table::bytes(bytes),
            table::count(blocks)
        )?;
    }
    write_run(out, answer)?;
    if let Some(recorded) = answer.recorded_reserved {
        writeln!(out, "  held at the recorded end     {}", table::bytes(recorded))?;
    }
    if let Some(fidelity) = report.fidelity {
        let (same, all) = (table::count(fidelity.same), table::count(fidelity.allocations));
        writeln!(out, "  addresses as recorded        {same} of {all} by PyTorch's rules")?;
        if fidelity.unrequested > 0 {
            let blocks = table::count(fidelity.unrequested);
            writeln!(
                out,
                "  freed without a request      {blocks} blocks: given back where that was completed"
            )?;
        }
    }
    if !report.baseline_is_recorded {
        writeln!(
            out,
            "  settings of the run          not recorded: others are compared with PyTorch's defaults"
        )?;
    }
    for error in &answer.unknown_settings {
        writeln!(out, "  left out of the recorded settings: {error}")?;
    }
    if answer.warnings > 0 {
        writeln!(
            out,
            "  the file does not fit together in {} places: see orlop snapshot info",
            answer.warnings
        )?;
    }
    Ok(())
}

/// The recorded run beside its replay, and under which conditions both were.
fn write_run(out: &mut String, answer: &WhatIfEntry) -> std::fmt::Result {
    let report = &answer.report;
    if let Some(recorded) = report.recorded_peak_reserved {
        let counted = if answer.has_segments { "" } else { ", as the source counted" };
        write!(out, "  most held in the recording   {}{counted}", table::bytes(recorded))?;
        match report.replayed_peak_reserved {
            Some(replayed) => writeln!(out, "; in its replay {}", table::bytes(replayed))?,
            None => writeln!(out)?,
        }
    }
    let calls = report.conditions.cache_releases.len() as u64;
    if calls > 0 {
        writeln!(out, "  empty_cache() was called     {} times, and is in the replays", table::count(calls))?;
    }
    let Some(memory) = report.memory else { return Ok(()) };
    match report.conditions.limit.filter(|limit| limit.bytes == memory) {
        Some(MemoryLimit { of_process: true, .. }) => writeln!(
            out,
            "  memory of the process        {}: more was refused, and the device had it",
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
        // In other memory than it was recorded in.
        (true, true) => " (recorded settings)",
        (true, false) => " (compared with)",
        (false, _) => "",
    };
    format!("{}{mark}", row.outcome.rules)
}

/// Bytes of memory are in MiB, rounded up: differences between settings are a hundredth of the whole.
fn columns(row: &WhatIfRow) -> [String; 9] {
    let outcome = &row.outcome;
    let saves = match row.saves {
        costs @ ..0 => format!("-{}", mebibytes(costs.unsigned_abs())),
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
        each(outcome),
    ]
}

/// The smallest memory in which it runs, and how often it gives its cached memory back there.
fn runs_in(smallest: SmallestMemory) -> String {
    let memory = mebibytes(smallest.runs);
    match smallest.retries {
        0 => memory,
        1 => format!("{memory} (1 retry)"),
        retries => format!("{memory} ({} retries)", table::count(retries)),
    }
}

/// Nanoseconds that an operation took, where that is known.
pub(crate) fn each(outcome: &SimulationOutcome) -> String {
    let operations = outcome.operations.max(1) as f64;
    outcome.nanoseconds.map_or_else(|| "-".to_owned(), |time| format!("{:.0}", time as f64 / operations))
}

/// Says that a recording has more streams than a replay tells apart.
pub(crate) fn tell_folded<'a>(
    path: &Path,
    device: u32,
    outcomes: impl IntoIterator<Item = &'a SimulationOutcome>,
) {
    let folded = outcomes.into_iter().map(|outcome| outcome.folded).max().unwrap_or(0);
    if folded > 0 {
        output::complain(&format!(
            "{}: device {device} has more than {MAX_STREAMS} streams: {} requests and uses of the others are replayed \
             as of one",
            path.display(),
            table::count(folded)
        ));
    }
}

fn mebibytes(bytes: u64) -> String {
    table::count(bytes.div_ceil(1 << 20))
}

/// The line to paste, or why there is none.
fn write_advice(out: &mut String, answer: &WhatIfEntry) -> std::fmt::Result {
    let report = &answer.report;
    let Some(advice) = &report.advice else {
        return match report.reason {
            AdviceReason::NothingRuns => writeln!(out, "\nNo settings of PyTorch's run in this memory."),
            AdviceReason::NothingToGain => {
                let best =
                    if report.baseline_is_recorded { "the recorded run" } else { "PyTorch's defaults" };
                writeln!(
                    out,
                    "\nNothing to gain: no settings of PyTorch's are better than those of {best} by 1 %."
                )
            }
            reason => writeln!(out, "\nNo advice: {reason}."),
        };
    };
    let than =
        if report.baseline_is_recorded { "the settings of the recorded run" } else { "PyTorch's defaults" };
    writeln!(out, "\nThe best of PyTorch's settings:\n  {}", setting(&advice.conf))?;
    writeln!(out, "Compared with {than}, {}.", report.reason)?;
    if advice.conf.contains(LATE)
        && let Some(older) = report.advice_without(LATE)
    {
        writeln!(
            out,
            "{LATE} is known from PyTorch 2.11 on; before, the best is\n  {}",
            setting(&older.conf)
        )?;
    }
    Ok(())
}

/// A setting that PyTorch 2.11.0 knows and 2.10.0 refuses.
const LATE: &str = "large_segment_size_mb";

/// What to type.
fn setting(conf: &str) -> String {
    match conf {
        "" => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        conf => format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
    }
}
