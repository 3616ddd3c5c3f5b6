//! `orlop plan --space`: plans for several memories.

use crate::arguments::refuse;
use crate::output::{self, Failures};
use crate::plan_arguments::PlanArguments;
use crate::plan_input::PlanInput;
use crate::plan_verify;
use crate::table::{self, bytes, count};
use crate::target;
use orlop::lab::plan::SpacesFile;
use orlop::plan::{SearchBudget, SpacePlanner};
use serde::Serialize;

/// A plan for several memories, as JSON.
#[derive(Serialize)]
struct SpacesEntry {
    file: String,
    source: &'static str,
    #[serde(flatten)]
    plan: SpacesFile,
}

/// Plans a problem or a recording for several memories.
pub(crate) fn run(arguments: &PlanArguments, input: PlanInput) -> Result<(), Failures> {
    let (source, problem) = match input {
        PlanInput::Table(problem) => ("csv", problem),
        PlanInput::Recording(problem) => ("recording", problem),
        PlanInput::Graph(_) => refuse("--space is for planning problems and recordings"),
    };
    let is_other = arguments.capacity.is_some() || arguments.block_limit.is_some();
    if is_other || arguments.report.is_some() || arguments.writes_csv() {
        refuse("--capacity, --block-limit, --report and a CSV file are for one memory, without --space");
    }
    let mut planner = SpacePlanner::new(arguments.spaces());
    if let Some(time) = arguments.budget {
        planner = planner.budget(SearchBudget::iterations(u64::MAX).within(time));
    }
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", arguments.file.display());
    let plan = planner.plan(&problem).map_err(|error| wrong(&error))?;
    let entry = SpacesEntry {
        file: arguments.file.display().to_string(),
        source,
        plan: SpacesFile::new(&problem, &plan),
    };
    let mut written = String::new();
    if let Some(path) = &arguments.output {
        let json = serde_json::to_string_pretty(&entry);
        let json = json.map_err(|error| format!("cannot write JSON: {error}"))?;
        if let Some(size) = target::put_bytes(path, &arguments.file, (json + "\n").as_bytes())? {
            let buffers = count(plan_verify::check(path, None)?.buffers as u64);
            written = format!("{}: {}, {buffers} offsets, verified\n", path.display(), bytes(size));
        }
    }
    if arguments.json {
        return output::print_json(&entry);
    }
    output::print(&(text(&entry) + &written))
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
    let verdict = table::wrapped(&entry.plan.judge(&entry.file).to_string());
    format!("{verdict}\n{}\n\n{}\n", entry.file, rows.trim_fmt())
}
