//! `orlop plan`.

use crate::arguments::refuse;
use crate::output::{self, Failures};
use crate::plan_arguments::{NodeOrder, PlanArguments};
use crate::plan_input::PlanInput;
use crate::table::{self, bytes, count};
use crate::target;
use orlop::lab::plan::{PlanFile, PlanPage, Unplanned};
use orlop::onnx::OnnxModel;
use orlop::plan::{MinPeak, Plan, Problem, SearchBudget, Skyline};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A problem with its plan.
struct Planned {
    problem: Problem,
    plan: Plan,
    time: Duration,
}

/// The output of `orlop plan`, as JSON.
#[derive(Serialize)]
struct PlanEntry {
    file: String,
    /// What the file is: `onnx`, `csv` or `recording`.
    source: &'static str,
    /// The order of a graph's nodes: `given` or `min-peak`.
    order: &'static str,
    #[serde(flatten)]
    plan: PlanFile,
    /// Milliseconds to read the file and to plan.
    ms: f64,
    read_ms: f64,
    /// What the same buffers take without a plan.
    without_plan: Unplanned,
    /// The plan with the given order, if another was searched.
    given: Option<GivenOrder>,
    /// The bytes of a model's weights, which are not planned.
    weights: Option<u64>,
}

/// The plan with the given order.
#[derive(Serialize)]
struct GivenOrder {
    peak: u64,
    bound: u64,
    /// What the other order saves, in bytes.
    saved: u64,
}

pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failures> {
    if arguments.verify {
        return verify(&arguments.file);
    }
    let begin = Instant::now();
    let input = PlanInput::read(arguments)?;
    let read = begin.elapsed();
    // To derive the lifetimes of a graph is a part of its planning.
    let planning = Instant::now();
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", arguments.file.display());
    let (source, unit, model, given) = match input {
        PlanInput::Graph(model) => {
            let given = model.graph.lifetimes(&model.graph.given_order()).map_err(|error| wrong(&error))?;
            ("onnx", "step", Some(*model), given.problem().clone())
        }
        PlanInput::Table(problem) => ("csv", "time", None, problem),
        PlanInput::Recording(problem) => ("recording", "event", None, problem),
    };
    if model.is_none() && (arguments.order != NodeOrder::Given || !arguments.bindings.is_empty()) {
        refuse("--order and --bind are for ONNX models");
    }
    if source != "recording" && arguments.device.is_some() {
        refuse("--device is for recordings");
    }
    let given = plan(arguments, given, planning);
    let other = match (&model, arguments.order) {
        (Some(model), NodeOrder::MinPeak) => {
            Some(reordered(arguments, model).map_err(|error| wrong(&error))?)
        }
        _ => None,
    };
    let time = read + given.time + other.as_ref().map_or(Duration::ZERO, |other| other.time);
    let mut without_plan = Unplanned::of(&given.problem);
    if let Some(model) = &model {
        // Buffers that one value takes over from another are one in the problem.
        without_plan.sum = model.value_bytes;
    }
    let best = other.as_ref().filter(|other| other.plan.height() < given.plan.height()).unwrap_or(&given);
    let entry = PlanEntry {
        file: arguments.file.display().to_string(),
        source,
        order: if best.plan.height() < given.plan.height() { "min-peak" } else { "given" },
        plan: PlanFile::new(&best.problem, &best.plan),
        ms: milliseconds(time),
        read_ms: milliseconds(read),
        without_plan,
        given: other.as_ref().map(|_| GivenOrder {
            peak: given.plan.height(),
            bound: given.plan.lower_bound(),
            saved: given.plan.height() - best.plan.height(),
        }),
        weights: model.as_ref().map(|model| model.weight_bytes),
    };
    let mut written = String::new();
    if let Some(path) = &arguments.output {
        written += &write_plan(path, &arguments.file, &entry)?;
    }
    if let Some(path) = &arguments.report {
        written += &write_page(path, arguments, &entry, best, unit)?;
    }
    if arguments.json {
        return output::print_json(&entry);
    }
    let head = head(&entry, &given.problem, model.as_ref());
    output::print(&format!("{head}{}{written}", text(&entry, &given, other.as_ref(), read)))
}

/// Plans a problem. The time begins at `begin`.
fn plan(arguments: &PlanArguments, problem: Problem, begin: Instant) -> Planned {
    let budget = match arguments.budget {
        Some(time) => SearchBudget::iterations(u64::MAX).within(time),
        None => SearchBudget::short(problem.len()),
    };
    let plan = Skyline::new().budget(budget).plan(&problem);
    Planned { problem, plan, time: begin.elapsed() }
}

/// Plans a graph in an order with a small peak.
fn reordered(arguments: &PlanArguments, model: &OnnxModel) -> Result<Planned, orlop::plan::GraphError> {
    let begin = Instant::now();
    let lifetimes = model.graph.lifetimes(&MinPeak::new().order(&model.graph))?;
    Ok(plan(arguments, lifetimes.problem().clone(), begin))
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Writes a plan, reads it again and checks it. Returns a line about it.
fn write_plan(path: &Path, input: &Path, entry: &PlanEntry) -> Result<String, String> {
    let json = serde_json::to_string_pretty(entry).map_err(|error| format!("cannot write JSON: {error}"))?;
    let Some(size) = target::put_bytes(path, input, (json + "\n").as_bytes())? else {
        return Ok(String::new());
    };
    let offsets = count(check(path)?.offsets.len() as u64);
    Ok(format!("{}: {}, {offsets} offsets, verified\n", path.display(), bytes(size)))
}

/// Reads a plan and checks it.
fn check(path: &Path) -> Result<PlanFile, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let plan: PlanFile =
        serde_json::from_slice(&text).map_err(|error| wrong(&format!("not a plan: {error}")))?;
    plan.verify().map_err(|error| wrong(&format!("not a valid plan: {error}")))?;
    Ok(plan)
}

fn verify(path: &Path) -> Result<(), Failures> {
    let plan = check(path)?;
    let (offsets, peak) = (count(plan.offsets.len() as u64), bytes(plan.peak));
    output::print(&format!(
        "{}: a valid plan of {offsets} buffers in {peak}, {}\n",
        path.display(),
        table::plain(&plan.verdict)
    ))
}

/// Writes the page and returns a line about it.
fn write_page(
    path: &Path,
    arguments: &PlanArguments,
    entry: &PlanEntry,
    best: &Planned,
    unit: &str,
) -> Result<String, String> {
    let name = arguments.file.file_name().unwrap_or(arguments.file.as_os_str()).to_string_lossy();
    let order = if entry.order == "given" { "" } else { ", in an order with a small peak" };
    let source = format!("{}{order}", entry.file);
    let mut page = Vec::new();
    PlanPage::new(&best.problem, &best.plan)
        .title(&name)
        .source(&source)
        .time_unit(unit)
        .unplanned(entry.without_plan)
        .write(&mut page)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let size = target::put_bytes(path, &arguments.file, &page)?;
    Ok(size.map_or_else(String::new, |size| {
        format!("{}: {}, open it in a browser\n", path.display(), bytes(size))
    }))
}

/// Describes the input.
fn head(entry: &PlanEntry, problem: &Problem, model: Option<&OnnxModel>) -> String {
    let buffers = count(problem.len() as u64);
    match model {
        Some(model) => format!(
            "{}: an ONNX graph, {} nodes, {buffers} buffers; {} of weights are not planned\n",
            entry.file,
            count(model.graph.node_count() as u64),
            bytes(model.weight_bytes)
        ),
        None if entry.source == "csv" => format!("{}: a planning problem, {buffers} buffers\n", entry.file),
        None => format!("{}: a recording, {buffers} allocations\n", entry.file),
    }
}

fn text(entry: &PlanEntry, given: &Planned, other: Option<&Planned>, read: Duration) -> String {
    let mut rows = table::new([""], ["peak", "bound", "verdict", "time", "of the plan"]);
    let best = entry.plan.peak;
    let mut add = |name: &str, planned: &Planned| {
        let (plan, time) = (&planned.plan, nanoseconds(planned.time));
        let numbers = [bytes(plan.height()), bytes(plan.lower_bound()), plan.verdict().to_string(), time];
        rows.add_row(table::row([name], numbers.into_iter().chain([times(plan.height(), best)])));
    };
    add(if other.is_some() { "plan, given order" } else { "plan" }, given);
    if let Some(other) = other {
        add("plan, order min-peak", other);
    }
    let mut without = |name: &str, peak: u64| {
        let nothing = [String::new(), String::new(), String::new()];
        let numbers = [bytes(peak)].into_iter().chain(nothing).chain([times(peak, best)]);
        rows.add_row(table::row([name], numbers));
    };
    if let Some(peak) = entry.without_plan.torch {
        without("no plan: PyTorch's allocator", peak);
    }
    without("no plan: nothing shares memory", entry.without_plan.sum);
    let mut text = format!("\n{}\nRead in {}.\n", rows.trim_fmt(), nanoseconds(read));
    if let Some(given) = &entry.given {
        text += &match given.saved {
            0 => "No order was found with a smaller plan than the given one.\n".to_owned(),
            saved => format!(
                "The order min-peak saves {}, {} of the plan with the given order.\n",
                bytes(saved),
                table::percent(saved as f64 / given.peak as f64)
            ),
        };
    }
    text
}

fn nanoseconds(time: Duration) -> String {
    table::duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Formats a multiple of the plan.
fn times(peak: u64, plan: u64) -> String {
    match plan {
        0 => String::new(),
        plan => format!("{:.2} ×", peak as f64 / plan as f64),
    }
}
