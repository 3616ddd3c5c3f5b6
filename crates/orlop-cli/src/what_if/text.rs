//! The text of `orlop what-if`.

use super::{GivenMemory, UnplacedMemory, WhatIfEntry};
use crate::arguments::WhatIfArguments;
use crate::{snapshot, table};
use orlop::lab::simulate::{MemoryLimit, SimulationOutcome};
use orlop::lab::what_if::{AdviceReason, SmallestMemory, UnreliableReplay, WhatIfReport, WhatIfRow};
use orlop::trace::formats::DeviceLabel;
use orlop::types::torch::TorchReleases;
use std::fmt::Write as _;

/// Formats the verdict on a device, the facts that it rests on, the table of settings, and failed requests.
pub(super) fn of(arguments: &WhatIfArguments, entry: &WhatIfEntry) -> String {
    let mut head = String::new();
    // Writing to a string cannot fail.
    let _ = write_head(&mut head, entry);
    let head = if arguments.wide { head } else { table::wrapped(&head) };
    let mut out = format!("{}\n{head}", table::wrapped(&entry.verdict.to_string()));
    let report = &entry.report;
    let shown = arguments.top.map_or(report.rows.len(), |top| top.get());
    let titles = if arguments.wide { &WIDE_TITLES[..] } else { &TITLES };
    let text = format!("allocator and settings on {}", DeviceLabel(entry.device));
    let width = (!arguments.wide).then_some(table::WIDTH);
    let mut table = table::new_with_text(titles.iter().copied(), &text, width);
    for row in report.rows.iter().take(shown) {
        let columns = if arguments.wide { wide_columns(row) } else { columns(row) };
        let label = label(row, report);
        let label = if arguments.wide { label } else { one_setting_per_line(&label) };
        table.add_row(table::row_with_text(columns, &label));
    }
    if !matches!(report.reason, AdviceReason::Withheld(UnreliableReplay::NoHistory)) {
        let _ = write!(out, "\n{}\n", table.trim_fmt());
    }
    for failure in &entry.failed {
        snapshot::failure_text(&mut out, failure, width);
    }
    out
}

fn write_head(out: &mut String, entry: &WhatIfEntry) -> std::fmt::Result {
    let report = &entry.report;
    writeln!(out, "{}, {}", entry.file, DeviceLabel(entry.device))?;
    write!(out, "  peak of live bytes           {}", table::bytes(report.peak_live))?;
    if report.needed > report.peak_live {
        write!(out, "; {} with what failed", table::bytes(report.needed))?;
    }
    writeln!(out, ": a lower bound for any allocator")?;
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
    if report.releases != TorchReleases::ALL {
        writeln!(out, "  PyTorch                      {}, by what the recording contains", report.releases)?;
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
    if let Some(GivenMemory { device, foreign }) = entry.given {
        write!(out, "  memory of the device         {}", table::bytes(device))?;
        return match foreign {
            0 => writeln!(out, "; nothing is subtracted for the context and libraries"),
            _ => writeln!(
                out,
                ", less {} that others had: {} for PyTorch",
                table::bytes(foreign),
                table::bytes(memory)
            ),
        };
    }
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

/// Breaks a list of settings into lines. Lists of values have commas, too, but no names after them.
fn one_setting_per_line(label: &str) -> String {
    let mut lines = String::new();
    for (index, setting) in label.split(',').enumerate() {
        match (index, setting.starts_with(|letter: char| letter.is_ascii_lowercase())) {
            (0, _) => {}
            (_, true) => lines.push_str(",\n  "),
            (_, false) => lines.push(','),
        }
        lines.push_str(setting);
    }
    lines
}

/// The columns of numbers that fit 80 characters beside the settings.
const TITLES: [&str; 4] = ["reserved\nMiB", "saves\nMiB", "smallest\nmemory", "retries"];

/// All columns of numbers.
const WIDE_TITLES: [&str; 9] = [
    "reserved\nMiB",
    "ratio",
    "saves",
    "without\nretry",
    "smallest\nmemory",
    "fails\nin",
    "retries",
    "moved",
    "ns/op",
];

/// Formats the columns of a row. Memory is in MiB, rounded up: differences between settings are about one
/// percent.
fn columns(row: &WhatIfRow) -> Vec<String> {
    let smallest = row.smallest.map_or_else(String::new, |smallest| mebibytes(smallest.runs));
    vec![reserved(row), saves(row), smallest, table::count(row.outcome.retries)]
}

fn wide_columns(row: &WhatIfRow) -> Vec<String> {
    let outcome = &row.outcome;
    vec![
        reserved(row),
        format!("{:.3}", outcome.ratio),
        saves(row),
        row.smallest.and_then(|smallest| smallest.without_retry).map_or_else(String::new, mebibytes),
        row.smallest.map_or_else(String::new, runs_in),
        row.smallest.and_then(|smallest| smallest.fails).map_or_else(String::new, mebibytes),
        table::count(outcome.retries),
        mebibytes(outcome.remapped),
        nanoseconds_each(outcome),
    ]
}

fn reserved(row: &WhatIfRow) -> String {
    match row.outcome.out_of_memory {
        Some(_) => "OOM".to_owned(),
        None => mebibytes(row.outcome.peak_reserved),
    }
}

fn saves(row: &WhatIfRow) -> String {
    match row.saves {
        None => String::new(),
        Some(more @ ..0) => format!("-{}", mebibytes(more.unsigned_abs())),
        Some(saves) => mebibytes(saves.unsigned_abs()),
    }
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

fn mebibytes(bytes: u64) -> String {
    table::count(bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_line() {
        let label = "torch, expandable_segments:True,roundup_power2_divisions:[256:1,>:4] (as recorded)";
        assert_eq!(
            one_setting_per_line(label),
            "torch, expandable_segments:True,\n  roundup_power2_divisions:[256:1,>:4] (as recorded)"
        );
        assert_eq!(one_setting_per_line("torch, default settings"), "torch, default settings");
    }
}
