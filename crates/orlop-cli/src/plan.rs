//! `orlop plan`.

use crate::arguments::refuse;
use crate::output::{self, Failures};
use crate::plan_arguments::{NodeOrder, PlanArguments};
use crate::plan_capacity::CapacityEntry;
use crate::plan_input::PlanInput;
use crate::plan_model::{self, SizedModel};
use crate::plan_output::{judgement, write_page, write_plan, write_solution};
use crate::plan_spaces;
use crate::plan_verify;
use crate::table::{self, bytes, count};
use orlop::lab::plan::{PlanFile, Unplanned};
use orlop::onnx::{ModelPlan, OnnxFile, OnnxModel};
use orlop::plan::{
    Graph, GraphError, GraphProblem, NodeId, Plan, Planner, Problem, ProblemError, SearchBudget,
};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The smallest segment of PyTorch's allocator: below, it reserves the same for any buffers.
const TORCH_SEGMENT: u64 = 2 << 20;

/// The maximum number of blocks whose sizes are printed.
const MAX_BLOCKS: usize = 8;

/// A problem with its plan.
pub(crate) struct Planned {
    pub(crate) problem: Problem,
    pub(crate) plan: Plan,
    time: Duration,
}

/// A graph with its plan.
struct PlannedGraph {
    order: Vec<NodeId>,
    /// Whether it is proven that no order has a smaller peak of live bytes.
    is_exact: bool,
    lifetimes: GraphProblem,
    planned: Planned,
}

/// The output of `orlop plan`, as JSON.
#[derive(Serialize)]
pub(crate) struct PlanEntry {
    pub(crate) file: String,
    /// What the file is: `onnx`, `csv` or `recording`.
    source: &'static str,
    /// The order of a graph's nodes: `given` or `min-peak`.
    pub(crate) order: &'static str,
    #[serde(flatten)]
    plan: PlanFile,
    /// Milliseconds to read the file and to plan.
    ms: f64,
    read_ms: f64,
    /// What the same buffers take without a plan.
    pub(crate) without_plan: Unplanned,
    /// The plan with the given order, if another was searched.
    given: Option<GivenOrder>,
    /// Whether the plan fits in `--capacity`, with the bytes that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<CapacityEntry>,
    /// The bytes of a model's weights, which are not planned.
    weights: Option<u64>,
    /// The values and the nodes of a model.
    graph: Option<ModelPlan>,
}

/// The output of `orlop plan` for several numbers of one name, as JSON.
#[derive(Serialize)]
struct PlanEntries {
    file: String,
    source: &'static str,
    /// The bytes that are enough for each of the plans.
    peak: u64,
    plans: Vec<PlanEntry>,
}

/// The plan with the given order.
#[derive(Serialize)]
struct GivenOrder {
    peak: u64,
    bound: u64,
    /// What the other order saves, in bytes.
    saved: u64,
    /// Whether all orders were searched.
    exact: bool,
}

/// A plan with what is said about it.
struct Answer {
    /// What distinguishes it from the others.
    label: String,
    entry: PlanEntry,
    given: Planned,
    /// The plan in another order, if that was searched.
    other: Option<Planned>,
    /// The time to read the input, and to infer the sizes of a model.
    read: Duration,
    /// The description of the input.
    head: String,
}

impl Answer {
    fn best(&self) -> &Planned {
        let other = self.other.as_ref().filter(|_| self.entry.order == "min-peak");
        other.unwrap_or(&self.given)
    }
}

pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failures> {
    if arguments.verify {
        return plan_verify::run(arguments);
    }
    let begin = Instant::now();
    let input = PlanInput::read(arguments)?;
    let is_model = matches!(input, PlanInput::Graph(_));
    if !is_model && arguments.is_for_model() {
        refuse("--order, --input, --bind, --value and --bound are for ONNX models");
    }
    if !matches!(input, PlanInput::Recording(_)) && arguments.device.is_some() {
        refuse("--device is for recordings");
    }
    if !arguments.spaces.is_empty() {
        return plan_spaces::run(arguments, input);
    }
    if matches!(&input, PlanInput::Table(problem) if problem.prefers_spaces()) {
        refuse("the column spaces needs --space: remove it if there is one memory");
    }
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", arguments.file.display());
    let (unit, file, answers) = match input {
        PlanInput::Graph(file) => {
            let models = plan_model::resolve(arguments, &file).map_err(|error| wrong(&error))?;
            let read = begin.elapsed();
            let answers: Result<Vec<_>, _> =
                models.into_iter().map(|sized| of_model(arguments, sized, read)).collect();
            ("step", Some(*file), answers.map_err(|error| wrong(&error))?)
        }
        PlanInput::Table(problem) => {
            let answer = of_problem(arguments, "csv", problem, begin.elapsed());
            ("time", None, vec![answer.map_err(|error| wrong(&error))?])
        }
        PlanInput::Recording(problem) => {
            let answer = of_problem(arguments, "recording", problem, begin.elapsed());
            ("event", None, vec![answer.map_err(|error| wrong(&error))?])
        }
    };
    match <[Answer; 1]>::try_from(answers) {
        Ok([answer]) => print_one(arguments, &answer, file.as_ref(), unit),
        Err(answers) => print_several(arguments, answers, file.as_ref()),
    }
}

fn print_one(
    arguments: &PlanArguments,
    answer: &Answer,
    file: Option<&OnnxFile>,
    unit: &str,
) -> Result<(), Failures> {
    let mut written = String::new();
    if let Some(path) = &arguments.output {
        written += &match arguments.writes_csv() {
            true => write_solution(path, &arguments.file, answer.best())?,
            false => write_plan(path, &arguments.file, &answer.entry, file)?,
        };
    }
    if let Some(path) = &arguments.report {
        written += &write_page(path, arguments, &answer.entry, answer.best(), unit)?;
    }
    if arguments.json {
        return output::print_json(&answer.entry);
    }
    let verdict = answer.entry.plan.judge(answer.entry.without_plan, &crate::plan_command::next(arguments));
    let rest = table::wrapped(&format!("{}{}{written}", answer.head, text(answer)));
    output::print(&(judgement(&verdict) + &rest))
}

/// Prints plans for several numbers, which may all have the same memory.
fn print_several(
    arguments: &PlanArguments,
    answers: Vec<Answer>,
    file: Option<&OnnxFile>,
) -> Result<(), Failures> {
    if arguments.report.is_some() || arguments.writes_csv() {
        refuse("--report is for one plan, and so is a CSV file: give one number for each name");
    }
    let peak = answers.iter().map(|answer| answer.entry.plan.peak).max().unwrap_or(0);
    let mut rows = table::new([""], ["peak", "bound", "verdict", "of the largest"]);
    table::fit(&mut rows, 0, Some(table::WIDTH));
    for answer in &answers {
        let plan = &answer.entry.plan;
        let numbers = [
            bytes(plan.peak),
            bytes(plan.bound),
            match &answer.entry.capacity {
                Some(capacity) => format!("{} for this order", capacity.verdict),
                None => format!("{} for this order", plan.verdict),
            },
            times(plan.peak, peak),
        ];
        rows.add_row(table::row([&*answer.label], numbers));
    }
    let head = answers.first().map_or_else(String::new, |answer| answer.head.clone());
    let path = arguments.file.display().to_string();
    let plans = answers.iter().map(|answer| &answer.entry.plan);
    let verdict = PlanFile::judge_all(plans, &crate::plan_command::next(arguments));
    let plans = answers.into_iter().map(|answer| answer.entry).collect();
    let entries = PlanEntries { file: path, source: "onnx", peak, plans };
    let mut written = String::new();
    if let Some(path) = &arguments.output {
        written += &write_plan(path, &arguments.file, &entries, file)?;
    }
    if arguments.json {
        return output::print_json(&entries);
    }
    let rest = table::wrapped(&format!("{head}\n{}\n{written}", rows.trim_fmt()));
    output::print(&(judgement(&verdict) + &rest))
}

/// Plans a problem that is no graph.
fn of_problem(
    arguments: &PlanArguments,
    source: &'static str,
    problem: Problem,
    read: Duration,
) -> Result<Answer, ProblemError> {
    let given = plan(arguments, problem, Instant::now())?;
    let buffers = count(given.problem.len() as u64);
    let path = arguments.file.display().to_string();
    let head = match source {
        "csv" => format!("{path}: a planning problem, {buffers} buffers\n"),
        _ => format!("{path}: a recording, {buffers} allocations\n"),
    };
    let entry = PlanEntry {
        file: path,
        source,
        order: "given",
        plan: PlanFile::new(&given.problem, &given.plan),
        capacity: CapacityEntry::new(arguments, &given.problem, &given.plan),
        ms: milliseconds(read + given.time),
        read_ms: milliseconds(read),
        without_plan: Unplanned::of(&given.problem),
        given: None,
        weights: None,
        graph: None,
    };
    Ok(Answer { label: String::new(), entry, given, other: None, read, head })
}

/// Plans a model, in the given order and, if that was asked for, in another one.
fn of_model(arguments: &PlanArguments, sized: SizedModel, read: Duration) -> Result<Answer, GraphError> {
    let SizedModel { label, model } = sized;
    let given = plan_graph(arguments, &model, |graph| (graph.given_order(), false))?;
    let other = match arguments.order {
        NodeOrder::Given => None,
        NodeOrder::MinPeak => Some(plan_graph(arguments, &model, |graph| {
            let found = arguments.min_peak().search(graph);
            (found.order, found.is_exact)
        })?),
    };
    let is_better = |other: &&PlannedGraph| other.planned.plan.height() < given.planned.plan.height();
    let better = other.as_ref().filter(is_better);
    let best = better.unwrap_or(&given);
    let time = read + given.planned.time + other.as_ref().map_or(Duration::ZERO, |other| other.planned.time);
    let mut without_plan = Unplanned::of(&given.planned.problem);
    // Buffers that one value takes over from another are one in the problem.
    without_plan.sum = model.value_bytes;
    let peaks = (given.planned.plan.height(), best.planned.plan.height());
    let path = arguments.file.display().to_string();
    let apart = match model.unplanned_values {
        0 => String::new(),
        values => format!("; {} in no plan", table::counted(values as u64, "value")),
    };
    let head = format!(
        "{path}: an ONNX graph, {} nodes, {} buffers; {} of weights are not planned{apart}\n",
        count(model.graph.node_count() as u64),
        count(given.planned.problem.len() as u64),
        bytes(model.weight_bytes)
    );
    let entry = PlanEntry {
        file: path,
        source: "onnx",
        order: if better.is_some() { "min-peak" } else { "given" },
        plan: PlanFile::new(&best.planned.problem, &best.planned.plan),
        capacity: CapacityEntry::new(arguments, &best.planned.problem, &best.planned.plan),
        ms: milliseconds(time),
        read_ms: milliseconds(read),
        without_plan,
        given: other.as_ref().map(|other| GivenOrder {
            exact: other.is_exact,
            peak: peaks.0,
            bound: given.planned.plan.lower_bound(),
            saved: peaks.0 - peaks.1,
        }),
        weights: Some(model.weight_bytes),
        graph: Some(ModelPlan::new(&model, &best.order, &best.lifetimes, &best.planned.plan)),
    };
    Ok(Answer { label, entry, given: given.planned, other: other.map(|other| other.planned), read, head })
}

/// Plans a graph in an order.
fn plan_graph(
    arguments: &PlanArguments,
    model: &OnnxModel,
    order: impl FnOnce(&Graph) -> (Vec<NodeId>, bool),
) -> Result<PlannedGraph, GraphError> {
    // To derive the lifetimes of a graph is a part of its planning.
    let begin = Instant::now();
    let (order, is_exact) = order(&model.graph);
    let lifetimes = model.graph.lifetimes(&order)?;
    let planned = plan(arguments, lifetimes.problem().clone(), begin)?;
    Ok(PlannedGraph { order, is_exact, lifetimes, planned })
}

/// Plans a problem. The time begins at `begin`.
fn plan(arguments: &PlanArguments, problem: Problem, begin: Instant) -> Result<Planned, ProblemError> {
    let problem = match arguments.block_limit {
        Some(limit) => problem.limit_blocks(limit)?,
        None => problem,
    };
    let budget = arguments.search_budget().unwrap_or_else(|| SearchBudget::short(problem.len()));
    let plan = Planner::new().budget(budget).capacity(arguments.capacity.unwrap_or(0)).plan(&problem);
    Ok(Planned { problem, plan, time: begin.elapsed() })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn text(answer: &Answer) -> String {
    let (entry, other) = (&answer.entry, answer.other.as_ref());
    let best = entry.plan.peak;
    // Another order of a graph's nodes can need less.
    let (title, order) = match entry.source {
        "onnx" => ("verdict for\nthis order", " for this order"),
        _ => ("verdict", ""),
    };
    let mut rows = table::new([""], ["peak", "bound", title, "time", "of the plan"]);
    table::fit(&mut rows, 0, Some(table::WIDTH));
    let mut add = |name: &str, planned: &Planned| {
        let (plan, time) = (&planned.plan, nanoseconds(planned.time));
        let verdict = plan.verdict().to_string();
        let numbers = [bytes(plan.height()), bytes(plan.lower_bound()), verdict, time];
        rows.add_row(table::row([name], numbers.into_iter().chain([times(plan.height(), best)])));
    };
    add(if other.is_some() { "plan, given order" } else { "plan" }, &answer.given);
    if let Some(other) = other {
        add("plan, order min-peak", other);
    }
    let mut without = |name: &str, peak: u64| {
        let nothing = [String::new(), String::new(), String::new()];
        let numbers = [bytes(peak)].into_iter().chain(nothing).chain([times(peak, best)]);
        rows.add_row(table::row([name], numbers));
    };
    if let Some(peak) = entry.without_plan.torch.filter(|&peak| peak > TORCH_SEGMENT) {
        without("no plan: PyTorch's allocator", peak);
    }
    without("no plan: nothing shares memory", entry.without_plan.sum);
    let mut text = format!("\n{}\nRead in {}.\n", rows.trim_fmt(), nanoseconds(answer.read));
    if let Some(limit) = entry.plan.block_limit {
        let blocks = answer.best().plan.block_sizes(&answer.best().problem);
        let mut sizes: Vec<String> = blocks.values().take(MAX_BLOCKS).map(|&size| bytes(size)).collect();
        if let Some(others) = blocks.len().checked_sub(MAX_BLOCKS).filter(|&others| others > 0) {
            sizes.push(format!("and {} others", count(others as u64)));
        }
        let (blocks, limit) = (table::counted(blocks.len() as u64, "block"), bytes(limit));
        text += &format!("In {blocks} of at most {limit}: {}.\n", sizes.join(", "));
    }
    if let Some(capacity) = &entry.capacity {
        text += &format!("In {}: {}{order}.\n", bytes(capacity.bytes), capacity.verdict);
        text += &capacity.witness_text(&answer.best().problem);
    }
    if let Some(given) = &entry.given {
        text += match given.exact {
            true => "All orders were searched: none has a smaller peak of live bytes.\n",
            false => "The orders are too many to search all of them.\n",
        };
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
