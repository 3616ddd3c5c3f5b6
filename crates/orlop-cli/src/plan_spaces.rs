//! `orlop plan --space`: plans for several memories.

use crate::arguments::refuse;
use crate::output::{self, Failures};
use crate::plan_arguments::{NodeOrder, PlanArguments};
use crate::plan_command;
use crate::plan_input::PlanInput;
use crate::plan_model;
use crate::plan_output::{judgement, write_plan};
use crate::table::{self, bytes, count};
use orlop::lab::plan::SpacesFile;
use orlop::onnx::{ModelPlan, OnnxModel};
use orlop::plan::{NodeId, Problem, SpacePlanner, SpacesPlan};
use serde::Serialize;

/// A plan for several memories, as JSON.
#[derive(Serialize)]
struct SpacesEntry {
    file: String,
    source: &'static str,
    /// The order of a graph's nodes: `given` or `min-peak`.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'static str>,
    #[serde(flatten)]
    plan: SpacesFile,
    /// The values and the nodes of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<ModelPlan>,
}

/// Plans a model, a problem or a recording for several memories.
pub(crate) fn run(arguments: &PlanArguments, input: PlanInput) -> Result<(), Failures> {
    let is_other = arguments.capacity.is_some() || arguments.block_limit.is_some();
    if is_other || arguments.report.is_some() || arguments.writes_csv() {
        refuse("--capacity, --block-limit, --report and a CSV file are for one memory, without --space");
    }
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", arguments.file.display());
    let (entry, model) = match input {
        PlanInput::Table(problem) => (of_problem(arguments, "csv", &problem), None),
        PlanInput::Recording(problem) => (of_problem(arguments, "recording", &problem), None),
        PlanInput::Graph(file) => {
            let models = plan_model::resolve(arguments, &file).map_err(|error| wrong(&error))?;
            let [sized] = &models[..] else {
                refuse("--space is for one plan: give one number for each name");
            };
            (of_model(arguments, &sized.model), Some(file))
        }
    };
    let entry = entry.map_err(|error| wrong(&error))?;
    let mut written = String::new();
    if let Some(path) = &arguments.output {
        written = write_plan(path, &arguments.file, &entry, model.as_deref())?;
    }
    if arguments.json {
        return output::print_json(&entry);
    }
    let verdict = entry.plan.judge(&plan_command::next(arguments));
    output::print(&(judgement(&verdict) + &text(&entry) + &written))
}

fn plan(arguments: &PlanArguments, problem: &Problem) -> Result<SpacesPlan, String> {
    let mut planner = SpacePlanner::new(arguments.spaces());
    if let Some(budget) = arguments.search_budget() {
        planner = planner.budget(budget);
    }
    planner.plan(problem).map_err(|error| error.to_string())
}

fn of_problem(
    arguments: &PlanArguments,
    source: &'static str,
    problem: &Problem,
) -> Result<SpacesEntry, String> {
    let plan = SpacesFile::new(problem, &plan(arguments, problem)?);
    Ok(SpacesEntry { file: arguments.file.display().to_string(), source, order: None, plan, graph: None })
}

/// Plans a model in the given order, or in one with a small peak if that costs less.
fn of_model(arguments: &PlanArguments, model: &OnnxModel) -> Result<SpacesEntry, String> {
    let given = in_order(arguments, model, model.graph.given_order(), "given");
    if arguments.order == NodeOrder::Given {
        return given;
    }
    let other = in_order(arguments, model, arguments.min_peak().order(&model.graph), "min-peak");
    match (given, other) {
        (Ok(given), Ok(other)) if other.plan.cost >= given.plan.cost => Ok(given),
        (given, Err(_)) => given,
        (_, other) => other,
    }
}

fn in_order(
    arguments: &PlanArguments,
    model: &OnnxModel,
    order: Vec<NodeId>,
    name: &'static str,
) -> Result<SpacesEntry, String> {
    let lifetimes = model.graph.lifetimes(&order).map_err(|error| error.to_string())?;
    let problem = lifetimes.divisible(&model.graph);
    let plan = plan(arguments, &problem)?;
    Ok(SpacesEntry {
        file: arguments.file.display().to_string(),
        source: "onnx",
        order: Some(name),
        plan: SpacesFile::new(&problem, &plan),
        graph: Some(ModelPlan::in_spaces(model, &order, &lifetimes, &plan)),
    })
}

fn text(entry: &SpacesEntry) -> String {
    let mut rows = table::new([""], ["peak", "capacity", "buffers", "cost per byte"]);
    for space in &entry.plan.spaces {
        let numbers = [
            bytes(space.plan.peak),
            bytes(space.capacity),
            count(space.indices.len() as u64),
            count(space.cost_per_byte),
        ];
        rows.add_row(table::row([&*table::plain(&space.name)], numbers));
    }
    format!("{}\n\n{}\n", entry.file, rows.trim_fmt())
}
