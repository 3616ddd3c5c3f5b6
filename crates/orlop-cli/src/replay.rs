//! `orlop replay`.

use crate::allocators::{self, NULL};
use crate::arguments::ReplayArguments;
use crate::inputs::{self, NamedTrace};
use crate::isolated::{self, ProgramCommand};
use crate::output::{self, Failures};
use crate::progress::Progress;
use crate::table;
use orlop::lab::cpu_bench::{Replay, ReplayReport, ReplaySummary, TouchPattern};
use orlop::memory::backing::{Backing as _, BackingRef};
use std::time::Duration;

/// The time for one trace with one allocator, unless the number of passes is given.
const TIME: Duration = Duration::from_millis(250);

/// The number of passes if it is not given: more than fit into [`TIME`].
const MAX_PASSES: usize = 10_000;

pub(crate) fn run(arguments: &ReplayArguments, program: &ProgramCommand) -> Result<(), Failures> {
    let backing = allocators::backing(arguments.backing.as_deref()).map_err(|error| error.to_string())?;
    let traces = inputs::read(&arguments.traces)?;
    let choices = choices(arguments);
    Failures::check(unrepeatable(&traces, &choices))?;
    let (reports, failures) = reports(arguments, &traces, &choices, &backing, program);
    if arguments.json {
        output::print_json(&reports)?;
    } else {
        output::print(&text(arguments, &traces, &reports, backing.name()))?;
    }
    Failures::check(failures)
}

fn choices(arguments: &ReplayArguments) -> Vec<String> {
    let mut choices = Vec::new();
    for choice in &arguments.allocators {
        if !choices.contains(choice) {
            choices.push(choice.clone());
        }
    }
    if choices.is_empty() { allocators::default_names() } else { choices }
}

/// Returns failures for traces that cannot be read again: several runs are processes that read their trace
/// again, which is impossible for a pipe.
fn unrepeatable(traces: &[NamedTrace], choices: &[String]) -> Vec<String> {
    let pipes = traces.iter().filter(|named| !named.file.is_file());
    let failure = |named: &NamedTrace| {
        format!(
            "{}: this can be read only once: name a single allocator and no other trace",
            named.file.display()
        )
    };
    if traces.len() * choices.len() > 1 { pipes.map(failure).collect() } else { Vec::new() }
}

fn touch(arguments: &ReplayArguments) -> TouchPattern {
    let default =
        if arguments.backing.as_deref() == Some(NULL) { TouchPattern::None } else { TouchPattern::First };
    arguments.touch.unwrap_or(default)
}

/// Creates the replay of a trace from the arguments.
fn prepared<'a>(arguments: &ReplayArguments, named: &'a NamedTrace) -> Replay<'a> {
    let replay =
        Replay::new(&named.trace).named(&named.name).threads(arguments.threads.get()).touch(touch(arguments));
    match arguments.repeat {
        Some(passes) => replay.repeat(passes.get()),
        None => replay.repeat(MAX_PASSES).max_time(TIME),
    }
}

/// Runs all replays. Returns reports and failures: a failed run does not stop the others.
fn reports(
    arguments: &ReplayArguments,
    traces: &[NamedTrace],
    choices: &[String],
    backing: &BackingRef,
    program: &ProgramCommand,
) -> (Vec<ReplayReport>, Vec<String>) {
    let progress = Progress::new(traces.len() * choices.len());
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    let runs = traces.iter().flat_map(|named| choices.iter().map(move |choice| (named, choice)));
    let alone = traces.len() * choices.len() == 1;
    for (run, (named, choice)) in runs.enumerate() {
        progress.start(run, &named.name, choice);
        let report = if alone {
            let watcher = |pass| progress.pass(run, pass);
            here(&prepared(arguments, named).watched(&watcher), choice, backing)
        } else {
            isolated::replay(arguments, &named.file, choice, program)
        };
        match report {
            Ok(report) => reports.push(report),
            Err(Failures(more)) => failures.extend(more),
        }
    }
    (reports, failures)
}

/// Replays in this process. The report has the requested name of the allocator.
fn here(replay: &Replay<'_>, choice: &str, backing: &BackingRef) -> Result<ReplayReport, Failures> {
    let mut report =
        allocators::replay(choice, replay, backing).map_err(|error| format!("{}: {error}", replay.name()))?;
    choice.clone_into(&mut report.allocator);
    Ok(report)
}

fn text(
    arguments: &ReplayArguments,
    traces: &[NamedTrace],
    reports: &[ReplayReport],
    backing: &str,
) -> String {
    let means = if traces.len() > 1 { ReplaySummary::by_allocator(reports) } else { Vec::new() };
    let file = traces.first().map_or_else(String::new, |named| named.file.display().to_string());
    let verdict = table::wrapped(&ReplayReport::verdict(reports, &file).to_string());
    let mut text = format!("{verdict}\n{}", table::replay(reports, &means));
    let idle = traces.iter().map(|named| Replay::new(&named.trace).repeat(8).overhead());
    let overhead = idle.fold(0.0, f64::max);
    let threads = table::counted(arguments.threads.get() as u64, "thread");
    text += &table::wrapped(&format!(
        "{threads}, touching {}, over {backing}. ns/op is the median of the passes after the first; cold is \
         the first pass. The replay loop alone takes up to {overhead:.1} ns/op.",
        touch(arguments),
    ));
    text
}
