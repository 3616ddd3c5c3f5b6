//! `orlop replay --policy`: an allocator of a device, over addresses instead of memory.

use crate::arguments::{self, AllocatorChoice, ReplayArguments};
use crate::output::Failures;
use crate::{histories, output, table, what_if};
use orlop::lab::simulate::{AllocatorRules, Simulation, SimulationOutcome, StreamedReplay};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::formats::binary::BinaryReader;
use orlop::trace::history::{DeviceHistory, Workload};
use serde::Serialize;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;

/// Runs `orlop replay --policy`.
pub(crate) fn run(arguments: &ReplayArguments, policy: AllocatorChoice) -> Result<(), Failures> {
    if arguments.conf.is_some() && policy != AllocatorChoice::Torch {
        arguments::refuse("--conf: these are settings of PyTorch, which require --policy torch");
    }
    let rules = match policy {
        AllocatorChoice::Torch => AllocatorRules::torch(arguments.conf.as_deref().unwrap_or_default())
            .map_err(|error| format!("--conf: {error}"))?,
        AllocatorChoice::Orlop => AllocatorRules::Orlop,
        AllocatorChoice::OrlopSegments => AllocatorRules::OrlopSegments,
        AllocatorChoice::Tensorflow => AllocatorRules::TensorFlow,
    };
    let mut outcomes = Vec::new();
    for path in &arguments.traces {
        let file = path.display().to_string();
        let once = arguments.repeat.is_none();
        // One pass over an orlop file is streamed: the file may be larger than the memory.
        let devices = match if once { stream(path, &rules, arguments.memory)? } else { None } {
            Some(streamed) => {
                histories::report_warnings(path, &streamed.warnings);
                streamed.devices
            }
            None => whole(path, &rules, arguments)?,
        };
        for (device, outcome) in devices {
            what_if::report_folded(path, device, [&outcome]);
            outcomes.push(Replayed { file: file.clone(), device, outcome });
        }
    }
    if arguments.json {
        output::print_json(&outcomes)?;
        return failures(&outcomes);
    }
    let mut table = table::new(
        ["trace"],
        ["peak\nlive", "peak\nreserved", "ratio", "retries", "moved", "oper-\nations", "ns/op"],
    );
    table::fit(&mut table, 0, Some(table::WIDTH));
    for Replayed { file, outcome, .. } in &outcomes {
        let numbers = [
            table::bytes(outcome.peak_live),
            table::bytes(outcome.peak_reserved),
            format!("{:.3}", outcome.ratio),
            table::count(outcome.retries),
            table::bytes(outcome.remapped),
            table::count(outcome.operations),
            what_if::nanoseconds_each(outcome),
        ];
        table.add_row(table::row([&*name(file)], numbers));
    }
    // A failure first, then the run that reserves most.
    let worst = outcomes
        .iter()
        .max_by_key(|Replayed { outcome, .. }| (outcome.out_of_memory.is_some(), outcome.peak_reserved));
    let verdict = worst.map_or_else(String::new, |worst| worst.outcome.verdict(&worst.file).to_string());
    let rules = outcomes.first().map_or("", |replayed| &replayed.outcome.rules);
    let head = table::wrapped(&format!("{verdict}\n{rules}"));
    output::print(&format!("{}\n{}\n", head.trim_end(), table.trim_fmt()))?;
    failures(&outcomes)
}

fn name(file: &str) -> String {
    let name = Path::new(file).file_name();
    name.map_or_else(|| file.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the replays that ran out of memory as failures.
fn failures(outcomes: &[Replayed]) -> Result<(), Failures> {
    let failed = outcomes.iter().filter_map(|replayed| Some((replayed, replayed.outcome.out_of_memory?)));
    let failures = failed.map(|(Replayed { file, device, .. }, failed)| {
        format!(
            "{}, {}: out of memory at {}: {} requested, {} live, {} reserved, {} of it free (largest \
             chunk {})",
            name(file),
            DeviceLabel(*device),
            failed.event.map_or_else(|| "the start".to_owned(), event),
            table::bytes(failed.bytes),
            table::bytes(failed.live),
            table::bytes(failed.reserved),
            table::bytes(failed.cached),
            table::bytes(failed.largest_free),
        )
    });
    Failures::check(failures.collect())
}

/// Formats an event, numbered from 1.
fn event(index: u64) -> String {
    format!("event {}", table::count(index.saturating_add(1)))
}

/// Replays a file that is read as a whole.
fn whole(
    path: &Path,
    rules: &AllocatorRules,
    arguments: &ReplayArguments,
) -> Result<Vec<(u32, SimulationOutcome)>, String> {
    let history = histories::read(path)?;
    let replay = |device: &DeviceHistory| {
        let work = Workload::of(device);
        let simulation = Simulation::new(&work).passes(arguments.repeat.map_or(1, NonZeroUsize::get));
        let simulation = arguments.memory.map_or(simulation, |memory| simulation.memory(memory));
        (device.device, simulation.run(rules))
    };
    Ok(history.devices.iter().map(replay).collect())
}

/// Replays a file of orlop's format event by event; `None` for other formats and for files that cannot be
/// opened, which are reported when they are read as a whole.
fn stream(
    path: &Path,
    rules: &AllocatorRules,
    memory: Option<u64>,
) -> Result<Option<StreamedReplay>, Failures> {
    // Bytes that are read from a pipe for detection would be lost.
    if !fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    let Ok(file) = File::open(path) else { return Ok(None) };
    let Ok(reader) = BinaryReader::new(file) else { return Ok(None) };
    let replay =
        StreamedReplay::of(reader, rules, memory).map_err(|error| format!("{}: {error}", path.display()))?;
    if replay.devices.is_empty() {
        histories::require_complete(path, &replay.warnings)?;
    }
    Ok(Some(replay))
}

#[derive(Serialize)]
struct Replayed {
    file: String,
    device: u32,
    #[serde(flatten)]
    outcome: SimulationOutcome,
}
