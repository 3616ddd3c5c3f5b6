//! `orlop gate`.

use crate::arguments::NamingArguments;
use crate::diff::{changes, name, sites};
use crate::histories::{self, ProfileSource};
use crate::output::{self, Failures};
use crate::table::{self, bytes, count, more};
use crate::target;
use clap::Args;
use orlop::lab::compare::{Gate, GateMetric, MetricCheck, Profile, SiteDiff, Tolerance};
use orlop::lab::verdict::RunVerdict;
use orlop::trace::formats::DeviceLabel;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["baseline", "write_baseline"])]
pub(crate) struct GateArguments {
    /// The run: a snapshot, or another recording
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The baseline: a file that --write-baseline wrote, or another run
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,

    /// Writes a baseline for later runs, and compares nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) write_baseline: Option<PathBuf>,

    /// The allowed excess over the baseline, like 2.5%
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub(crate) tolerance: Tolerance,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Does not wrap call sites to fit 80 characters
    #[arg(long)]
    pub(crate) wide: bool,

    /// Prints JSON, an object, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The maximum number of call sites in a failure, which is one line of a build log.
const MAX_SITES: usize = 3;

#[derive(Serialize)]
struct GateEntry {
    file: String,
    baseline: String,
    verdict: RunVerdict,
    #[serde(flatten)]
    gate: Gate,
}

/// The output of a written baseline.
#[derive(Serialize)]
struct WrittenBaseline {
    output: String,
    verdict: RunVerdict,
    /// The size of the file; `None` if it is not a regular file.
    bytes: Option<u64>,
}

pub(crate) fn run(arguments: &GateArguments) -> Result<(), Failures> {
    let depth = arguments.naming.depth.get();
    if let Some(path) = &arguments.write_baseline {
        let history = histories::read_whole(&arguments.file)?;
        histories::require_run(&arguments.file, &history)?;
        return write(path, &arguments.file, &Profile::of(&history, depth), arguments.json);
    }
    // The command line has one or the other.
    let Some(path) = &arguments.baseline else { return Ok(()) };
    let baseline = histories::read_profile(path, depth, ProfileSource::Whole);
    // Names are compared, so they must have the same depth.
    let depth = baseline.as_ref().map_or(depth, |baseline| baseline.profile.depth);
    let run = histories::read_profile(&arguments.file, depth, ProfileSource::Whole);
    let (baseline, run) = Failures::join(baseline, run)?;
    let mut gate = Gate::check(&run.profile, &baseline.profile, arguments.tolerance);
    let names = [&arguments.file, path].map(|file| file.display().to_string());
    let verdict = gate.verdict(&names[0], &names[1]);
    let failures: Vec<String> = gate.breaches().map(|check| failure(check, gate.tolerance)).collect();
    for check in &mut gate.checks {
        check.sites.truncate(arguments.naming.top.get());
    }
    if arguments.json {
        let [file, baseline] = names;
        output::print_json(&GateEntry { file, baseline, verdict, gate })?;
    } else {
        let width = (!arguments.wide).then_some(table::WIDTH);
        output::print(&format!("{}\n{}", table::wrapped(&verdict.to_string()), text(&gate, width)))?;
    }
    Failures::check(failures)
}

fn write(path: &Path, run: &Path, profile: &Profile, json: bool) -> Result<(), Failures> {
    let text = serde_json::to_string_pretty(profile)
        .map_err(|error| format!("cannot write the baseline: {error}"))?;
    let text = text + "\n";
    let size = target::put_bytes(path, run, text.as_bytes())?;
    let output = path.display().to_string();
    let verdict = profile.verdict(&run.display().to_string(), &output);
    if json {
        return output::print_json(&WrittenBaseline { output, verdict, bytes: size });
    }
    let Some(size) = size else { return Ok(()) };
    let verdict = table::wrapped(&verdict.to_string());
    output::print(&format!("{verdict}\n{output}: {}\n", bytes(size)))
}

fn unit(metric: GateMetric) -> fn(u64) -> String {
    match metric {
        GateMetric::Allocations => count,
        _ => bytes,
    }
}

fn text(gate: &Gate, width: Option<u16>) -> String {
    let mut table = table::new(["device", ""], ["baseline", "run", "growth", "", "limit", ""]);
    table::fit(&mut table, 1, width);
    for check in &gate.checks {
        let unit = unit(check.metric);
        let limit = [unit(check.limit), if check.passed { "pass" } else { "FAIL" }.to_owned()];
        let numbers = changes(check.change, unit).into_iter().chain(limit);
        table.add_row(table::row([&*table::device(check.device), &check.metric.to_string()], numbers));
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let mut last = None;
    for check in gate.breaches().filter(|check| !check.sites.is_empty()) {
        // Reserved bytes have no call sites of their own, but those of live bytes.
        if check.metric == GateMetric::PeakReserved && last == Some((check.device, GateMetric::PeakLive)) {
            continue;
        }
        last = Some((check.device, check.metric));
        text.push_str(&format!("\n{}, {}: what grew\n", DeviceLabel(check.device), check.metric));
        text.push_str(&sites(&check.sites, width));
    }
    text
}

/// Formats a failure as one sentence with the call sites that grew.
fn failure(check: &MetricCheck, tolerance: Tolerance) -> String {
    let unit = unit(check.metric);
    let [baseline, run, growth, _] = changes(check.change, unit);
    let grown = |site: &SiteDiff| match check.metric {
        GateMetric::Allocations => more(site.allocations.growth(), count),
        _ => more(site.peak.growth(), bytes),
    };
    let named = check.sites.iter().take(MAX_SITES).map(|site| format!("{} {}", name(site), grown(site)));
    let named: Vec<String> = named.collect();
    let fragmentation = format!("{} of it fragmentation", more(i128::from(check.fragmentation), bytes));
    let reason = match (named.is_empty(), check.fragmentation) {
        (false, 0) => named.join(", "),
        (false, _) => format!("{fragmentation}, {}", named.join(", ")),
        (true, 0) => "no single call site".to_owned(),
        (true, _) => "no call site grew: it is fragmentation".to_owned(),
    };
    format!(
        "{}: {}: {run}, {growth} over the baseline of {baseline}, tolerance {tolerance}: {reason}",
        DeviceLabel(check.device),
        check.metric
    )
}
