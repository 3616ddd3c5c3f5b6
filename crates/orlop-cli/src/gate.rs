//! `orlop gate`.

use crate::arguments::GateArguments;
use crate::diff::{amounts, name, sites};
use crate::histories::{self, ProfileSource};
use crate::table::{self, bytes, count, more};
use crate::{output, target};
use orlop::lab::compare::{MetricCheck, Gate, GateMetric, Profile, SiteDiff, Tolerance};
use serde::Serialize;
use std::path::Path;

/// Call sites that a complaint names: it is one line in the log of a build.
const NAMED: usize = 3;

#[derive(Serialize)]
struct GateEntry {
    file: String,
    baseline: String,
    #[serde(flatten)]
    gate: Gate,
}

/// The output of a written baseline.
#[derive(Serialize)]
struct WrittenBaseline {
    output: String,
    /// Of the file; none if it is no file.
    bytes: Option<u64>,
}

pub(crate) fn run(arguments: &GateArguments) -> Result<(), Vec<String>> {
    let depth = arguments.naming.depth.get();
    if let Some(path) = &arguments.write_baseline {
        let history = histories::read_whole(&arguments.file).map_err(|failure| vec![failure])?;
        histories::of_a_run(&arguments.file, &history).map_err(|failure| vec![failure])?;
        return write(path, &arguments.file, &Profile::of(&history, depth), arguments.json);
    }
    // The command line has one or the other.
    let Some(path) = &arguments.baseline else { return Ok(()) };
    let baseline = histories::profile_of_either(path, depth, ProfileSource::Whole);
    // Names are compared: they are made the same way.
    let depth = baseline.as_ref().map_or(depth, |baseline| baseline.depth);
    let run = histories::profile_of_either(&arguments.file, depth, ProfileSource::Whole);
    let (baseline, run) = match (baseline, run) {
        (Ok(baseline), Ok(run)) => (baseline, run),
        (baseline, run) => return Err([baseline.err(), run.err()].into_iter().flatten().collect()),
    };
    let mut gate = Gate::check(&run, &baseline, arguments.tolerance);
    let complaints: Vec<String> = gate.breaches().map(|check| complaint(check, gate.tolerance)).collect();
    for check in &mut gate.checks {
        check.sites.truncate(arguments.naming.top.get());
    }
    if arguments.json {
        let [file, baseline] = [&arguments.file, path].map(|file| file.display().to_string());
        output::print_json(&GateEntry { file, baseline, gate })?;
    } else {
        output::print(&text(&gate))?;
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints) }
}

fn write(path: &Path, run: &Path, profile: &Profile, json: bool) -> Result<(), Vec<String>> {
    let text = serde_json::to_string_pretty(profile)
        .map_err(|error| vec![format!("cannot write the baseline: {error}")])?;
    let text = text + "\n";
    let size = target::put_bytes(path, run, text.as_bytes()).map_err(|failure| vec![failure])?;
    let output = path.display().to_string();
    if json {
        return output::print_json(&WrittenBaseline { output, bytes: size });
    }
    let Some(size) = size else { return Ok(()) };
    output::print(&format!("{output}: the baseline, {}\n", bytes(size)))
}

fn unit(measure: GateMetric) -> fn(u64) -> String {
    match measure {
        GateMetric::Allocations => count,
        _ => bytes,
    }
}

fn text(gate: &Gate) -> String {
    let mut table = table::new(["device", ""], ["baseline", "run", "growth", "", "limit", "verdict"]);
    for check in &gate.checks {
        let unit = unit(check.measure);
        let limit = [unit(check.limit), if check.passed { "pass" } else { "FAIL" }.to_owned()];
        let numbers = amounts(check.amount, unit).into_iter().chain(limit);
        table.add_row(table::row([&*table::device(check.device), &check.measure.to_string()], numbers));
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let mut last = None;
    for check in gate.breaches().filter(|check| !check.sites.is_empty()) {
        // What was reserved has no call sites of its own: they are those of what lived.
        if check.measure == GateMetric::PeakReserved && last == Some((check.device, GateMetric::PeakLive)) {
            continue;
        }
        last = Some((check.device, check.measure));
        text.push_str(&format!("\ndevice {}, {}: what grew\n", table::device(check.device), check.measure));
        text.push_str(&sites(&check.sites));
    }
    text
}

/// One sentence, that names who is to blame.
fn complaint(check: &MetricCheck, tolerance: Tolerance) -> String {
    let unit = unit(check.measure);
    let [baseline, run, growth, _] = amounts(check.amount, unit);
    let grown = |site: &SiteDiff| match check.measure {
        GateMetric::Allocations => more(site.allocations.growth(), count),
        _ => more(site.peak.growth(), bytes),
    };
    let named = check.sites.iter().take(NAMED).map(|site| format!("{} {}", name(site), grown(site)));
    let named: Vec<String> = named.collect();
    let lost = format!("{} of it fragmentation", more(i128::from(check.fragmentation), bytes));
    let why = match (named.is_empty(), check.fragmentation) {
        (false, 0) => named.join(", "),
        (false, _) => format!("{lost}, {}", named.join(", ")),
        (true, 0) => "no call site alone".to_owned(),
        (true, _) => "no call site holds more: it is fragmentation".to_owned(),
    };
    format!(
        "device {}: {}: {run} after {baseline}, {growth}, where {tolerance} is allowed: {why}",
        table::device(check.device),
        check.measure
    )
}
