//! `orlop what-if`, and `orlop replay --policy`.

use crate::arguments::{self, Allocator, ReplayArguments, WhatIfArguments};
use crate::{histories, output, snapshot, table};
use orlop::trace::formats::binary::BinaryReader;
use orlop::trace::history::{DeviceHistory, History, Warning, Workload};
use orlop::trace::lab::{DeviceInfo, Naming, OutOfMemory, SnapshotInfo};
use orlop::trace::what_if::{
    Fidelity, MAX_STREAMS, Outcome, Rules, Simulation, StreamedReplay, WhatIf, WhatIfReport, WhatIfRow,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;

/// Settings that no run can be told to have had are taken for PyTorch's defaults.
const DEFAULT: &str = "";

/// A file's answer.
#[derive(Serialize)]
struct Answer {
    file: String,
    device: u32,
    warnings: u64,
    /// What the baseline leaves out of the recorded settings, and why.
    unknown_settings: Vec<String>,
    /// How true replays by PyTorch's rules are to the recorded run.
    fidelity: Option<Fidelity>,
    /// Bytes that lived when the recording began, of which no segment is known.
    held_before: Option<HeldBefore>,
    /// The most bytes that were held from the device in the recorded run.
    recorded_peak_reserved: Option<u64>,
    /// Whether the source tells of segments, and has not only counted those bytes.
    has_segments: bool,
    /// Bytes that were held at the end of the recorded run.
    recorded_reserved: Option<u64>,
    /// Requests that failed when they were recorded.
    failed: Vec<OutOfMemory>,
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
    let mut infos = SnapshotInfo::of(&history, Naming::default()).devices;
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
) -> Answer {
    let failed = info.out_of_memory;
    let work = Workload::of(device);
    let (baseline, unknown) = history.torch_conf();
    let memory = arguments.memory.or(device.memory).or_else(|| failed.last().and_then(OutOfMemory::memory));
    let fidelity = Fidelity::is_told_by(device).then(|| Fidelity::of(device, &baseline));
    let sweep = against_recorded(WhatIf::new(&work), history)
        .memory(memory)
        .smallest(!arguments.quick)
        .plan(!arguments.quick);
    let before = device.held.iter().fold(0, |sum: u64, block| sum.saturating_add(block.requested));
    let held = device.end.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
    Answer {
        file: arguments.file.display().to_string(),
        device: device.device,
        warnings: Warning::count(&history.warnings),
        unknown_settings: unknown.iter().map(ToString::to_string).collect(),
        fidelity,
        held_before: (!device.held.is_empty())
            .then_some(HeldBefore { bytes: before, blocks: device.held.len() as u64 }),
        recorded_peak_reserved: info.peak_reserved,
        has_segments: info.has_segments,
        recorded_reserved: (!device.end.is_empty()).then_some(held),
        failed,
        report: sweep.run(),
    }
}

/// Compares with the settings that the recorded run had, if the recording tells them. Those of other allocators than
/// PyTorch's do not, nor do a profiler's and RMM's: they are compared with PyTorch's defaults.
pub(crate) fn against_recorded<'a>(sweep: WhatIf<'a>, history: &History) -> WhatIf<'a> {
    match history.settings {
        Some(_) => sweep.baseline(Rules::Torch(history.torch_conf().0)),
        None => sweep,
    }
}

fn text(arguments: &WhatIfArguments, answer: &Answer) -> String {
    let mut out = String::new();
    let report = &answer.report;
    // Writing to a string cannot fail.
    let _ = write_head(&mut out, answer);
    let shown = arguments.top.map_or(report.rows.len(), |top| top.get());
    let mut table = table::new(
        ["allocator and settings"],
        ["reserved MiB", "ratio", "saves", "smallest memory", "fails in", "retries", "moved", "ns/op"],
    );
    for row in report.rows.iter().take(shown) {
        table.add_row(table::row([label(row, report).as_str()], columns(row)));
    }
    let _ = write!(out, "\n{}\n", table.trim_fmt());
    let _ = write_advice(&mut out, answer);
    for failure in &answer.failed {
        snapshot::failure_text(&mut out, failure);
    }
    out
}

fn write_head(out: &mut String, answer: &Answer) -> std::fmt::Result {
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
    if let Some(recorded) = answer.recorded_peak_reserved.filter(|_| !answer.has_segments) {
        writeln!(
            out,
            "  most held in the recording   {}, as the source counted: a replay begins with nothing cached",
            table::bytes(recorded)
        )?;
    }
    if let Some(recorded) = answer.recorded_reserved {
        writeln!(out, "  held at the recorded end     {}", table::bytes(recorded))?;
    }
    if let Some(memory) = report.memory {
        writeln!(out, "  memory of the device         {}", table::bytes(memory))?;
    }
    if let Some(fidelity) = answer.fidelity {
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

fn label(row: &WhatIfRow, report: &WhatIfReport) -> String {
    let mark = match (row.is_baseline, report.baseline_is_recorded) {
        (true, true) => " (as recorded)",
        (true, false) => " (compared with)",
        (false, _) => "",
    };
    format!("{}{mark}", row.outcome.rules)
}

/// Bytes of memory are in MiB, rounded up: differences between settings are a hundredth of the whole.
fn columns(row: &WhatIfRow) -> [String; 8] {
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
        row.smallest.map_or_else(String::new, |smallest| mebibytes(smallest.runs)),
        row.smallest.and_then(|smallest| smallest.fails).map_or_else(String::new, mebibytes),
        table::count(outcome.retries),
        mebibytes(outcome.remapped),
        each(outcome),
    ]
}

/// Nanoseconds that an operation took, where that is known.
fn each(outcome: &Outcome) -> String {
    let operations = outcome.operations.max(1) as f64;
    outcome.nanoseconds.map_or_else(|| "-".to_owned(), |time| format!("{:.0}", time as f64 / operations))
}

/// Says that a recording has more streams than a replay tells apart.
fn tell_folded<'a>(path: &Path, device: u32, outcomes: impl IntoIterator<Item = &'a Outcome>) {
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

/// The line to paste: the best of PyTorch's own settings.
fn write_advice(out: &mut String, answer: &Answer) -> std::fmt::Result {
    let report = &answer.report;
    let runs = |row: &&WhatIfRow| row.outcome.out_of_memory.is_none();
    let best = report.rows.iter().filter(runs).find(|row| row.outcome.conf.is_some());
    let Some(best) = best else {
        return writeln!(out, "\nNo settings of PyTorch's run in this memory.");
    };
    if best.is_baseline {
        let best =
            if report.baseline_is_recorded { "those of the recorded run are" } else { "the defaults are" };
        return writeln!(out, "\nOf PyTorch's settings, {best} the best.");
    }
    writeln!(out, "\nThe best of PyTorch's settings:\n  {}", setting(best))?;
    let needs = |row: &WhatIfRow| row.smallest.map(|smallest| format!("{} MiB", mebibytes(smallest.runs)));
    let baseline = report.rows.iter().find(|row| row.is_baseline).and_then(needs);
    let name =
        if report.baseline_is_recorded { "the settings of the recorded run" } else { "PyTorch's defaults" };
    if let (Some(now), Some(before)) = (needs(best), baseline) {
        writeln!(out, "It runs in {now}; with {name} it takes {before}.")?;
    }
    let is_late = |row: &WhatIfRow| row.outcome.conf.as_deref().is_some_and(|conf| conf.contains(LATE));
    if is_late(best)
        && let Some(older) =
            report.rows.iter().filter(runs).find(|row| row.outcome.conf.is_some() && !is_late(row))
    {
        writeln!(out, "{LATE} is known from PyTorch 2.11 on; before, the best is\n  {}", setting(older))?;
    }
    Ok(())
}

/// A setting that PyTorch 2.11.0 knows and 2.10.0 refuses.
const LATE: &str = "large_segment_size_mb";

/// What to type.
fn setting(row: &WhatIfRow) -> String {
    match row.outcome.conf.as_deref() {
        None | Some("") => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        Some(conf) => format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
    }
}

/// Runs `orlop replay --policy`.
pub(crate) fn replay(arguments: &ReplayArguments, policy: Allocator) -> Result<(), Vec<String>> {
    if arguments.conf.is_some() && policy != Allocator::Torch {
        arguments::refuse("--conf: these are PyTorch's settings, which only --policy torch has");
    }
    let rules = match policy {
        Allocator::Torch => Rules::torch(arguments.conf.as_deref().unwrap_or(DEFAULT))
            .map_err(|error| vec![format!("--conf: {error}")])?,
        Allocator::Orlop => Rules::Orlop,
        Allocator::OrlopSegments => Rules::OrlopSegments,
        Allocator::Tensorflow => Rules::TensorFlow,
    };
    let mut outcomes = Vec::new();
    for path in &arguments.traces {
        let file = path.display().to_string();
        let once = arguments.repeat.is_none();
        // A file of ours may be larger than the memory: once through it does not have to be there as a whole.
        let devices = match if once { stream(path, &rules, arguments.memory)? } else { None } {
            Some(streamed) => {
                histories::tell(path, &streamed.warnings);
                streamed.devices
            }
            None => whole(path, &rules, arguments).map_err(|error| vec![error])?,
        };
        for (device, outcome) in devices {
            tell_folded(path, device, [&outcome]);
            outcomes.push(Replayed { file: file.clone(), device, outcome });
        }
    }
    if arguments.json {
        return output::print_json(&outcomes);
    }
    let mut table = table::new(
        ["trace", "allocator"],
        ["peak live", "peak reserved", "ratio", "retries", "moved", "operations", "ns/op"],
    );
    let mut failures = String::new();
    for Replayed { file, outcome, .. } in &outcomes {
        let numbers = [
            table::bytes(outcome.peak_live),
            table::bytes(outcome.peak_reserved),
            format!("{:.4}", outcome.ratio),
            table::count(outcome.retries),
            table::bytes(outcome.remapped),
            table::count(outcome.operations),
            each(outcome),
        ];
        let name = Path::new(file)
            .file_name()
            .map_or_else(|| file.clone(), |name| name.to_string_lossy().into_owned());
        table.add_row(table::row([name.as_str(), outcome.rules.as_str()], numbers));
        if let Some(failed) = outcome.out_of_memory {
            let _ = writeln!(
                failures,
                "{name}: out of memory at {}: {} asked, {} live, {} reserved, {} of it free (largest piece {})",
                failed.event.map_or_else(|| "the start".to_owned(), |event| format!("event {event}")),
                table::bytes(failed.bytes),
                table::bytes(failed.live),
                table::bytes(failed.reserved),
                table::bytes(failed.cached),
                table::bytes(failed.largest_free),
            );
        }
    }
    output::print(&format!("{}\n{failures}", table.trim_fmt()))
}

/// A replay of all that a file has.
fn whole(path: &Path, rules: &Rules, arguments: &ReplayArguments) -> Result<Vec<(u32, Outcome)>, String> {
    let history = histories::read(path)?;
    let replay = |device: &DeviceHistory| {
        let work = Workload::of(device);
        let simulation = Simulation::new(&work).passes(arguments.repeat.map_or(1, NonZeroUsize::get));
        let simulation = arguments.memory.map_or(simulation, |memory| simulation.memory(memory));
        (device.device, simulation.run(rules))
    };
    Ok(history.devices.iter().map(replay).collect())
}

/// A replay event by event; `None` if the file is not one of orlop's own. What is wrong with it then is for whoever reads
/// it as a whole to say.
fn stream(path: &Path, rules: &Rules, memory: Option<u64>) -> Result<Option<StreamedReplay>, Vec<String>> {
    // What was looked at in a pipe is gone.
    if !fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    let Ok(file) = File::open(path) else { return Ok(None) };
    let Ok(reader) = BinaryReader::new(file) else { return Ok(None) };
    let replay = StreamedReplay::of(reader, rules, memory)
        .map_err(|error| vec![format!("{}: {error}", path.display())])?;
    if replay.devices.is_empty() {
        histories::to_the_end(path, &replay.warnings).map_err(|failure| vec![failure])?;
    }
    Ok(Some(replay))
}

#[derive(Serialize)]
struct Replayed {
    file: String,
    device: u32,
    #[serde(flatten)]
    outcome: Outcome,
}
