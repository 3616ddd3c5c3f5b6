//! The files that `orlop plan` writes: plans, solutions and pages.

use crate::plan::{PlanEntry, Planned};
use crate::plan_arguments::PlanArguments;
use crate::plan_verify;
use crate::table::{self, bytes, count};
use crate::target;
use orlop::lab::plan::PlanPage;
use orlop::lab::verdict::RunVerdict;
use orlop::onnx::OnnxFile;
use serde::Serialize;
use std::path::Path;

/// Formats a verdict and a blank line. Its third line is wrapped already.
pub(crate) fn judgement(verdict: &RunVerdict) -> String {
    let found = table::wrapped(&format!("{}\n{}", verdict.finding, verdict.remedy));
    format!("{found}{}\n\n", verdict.next)
}

/// Writes a plan, reads it again and checks it. Returns a line about it.
pub(crate) fn write_plan(
    path: &Path,
    input: &Path,
    entry: &impl Serialize,
    model: Option<&OnnxFile>,
) -> Result<String, String> {
    let json = serde_json::to_string_pretty(entry).map_err(|error| format!("cannot write JSON: {error}"))?;
    let Some(size) = target::put_bytes(path, input, (json + "\n").as_bytes())? else {
        return Ok(String::new());
    };
    let offsets = count(plan_verify::check(path, model)?.buffers as u64);
    Ok(format!("{}: {}, {offsets} offsets, verified\n", path.display(), bytes(size)))
}

/// Writes offsets in minimalloc's solution format. Returns a line about it.
pub(crate) fn write_solution(path: &Path, input: &Path, best: &Planned) -> Result<String, String> {
    let mut csv = Vec::new();
    best.plan.write_csv(&best.problem, &mut csv).map_err(|error| format!("{}: {error}", path.display()))?;
    let size = target::put_bytes(path, input, &csv)?;
    let offsets = count(best.plan.offsets().len() as u64);
    let line = |size| format!("{}: {}, {offsets} offsets\n", path.display(), bytes(size));
    Ok(size.map_or_else(String::new, line))
}

/// Writes the page and returns a line about it.
pub(crate) fn write_page(
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
