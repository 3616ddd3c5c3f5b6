//! `orlop plan --verify`.

use crate::output::{self, Failures};
use crate::plan_arguments::PlanArguments;
use crate::plan_input::read_model;
use crate::table::{self, bytes, count};
use orlop::lab::plan::{BoundCheck, PlanFile, PlannedBuffer, SpacesFile};
use orlop::onnx::{ModelPlan, OnnxFile};
use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// A file that `orlop plan -o` wrote: one plan, or several for the same memory.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenPlans {
    Several { peak: u64, plans: Vec<WrittenPlan> },
    Spaces(SpacesFile),
    One(Box<WrittenPlan>),
}

#[derive(Deserialize)]
struct WrittenPlan {
    #[serde(flatten)]
    plan: PlanFile,
    graph: Option<ModelPlan>,
}

/// What was found to be right.
pub(crate) struct Verified {
    pub(crate) plans: usize,
    pub(crate) buffers: usize,
    peak: u64,
    verdict: String,
    /// How the bounds were checked: not, if that of one plan was not.
    bounds: BoundCheck,
}

impl Verified {
    fn of_spaces(file: &SpacesFile) -> Self {
        let plans = || file.spaces.iter().map(|space| &space.plan);
        Self {
            plans: file.spaces.len(),
            buffers: plans().map(|plan| plan.offsets.len()).sum(),
            peak: plans().map(|plan| plan.peak).fold(0, u64::saturating_add),
            verdict: file.verdict.clone(),
            bounds: BoundCheck::Unchecked,
        }
    }
}

pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failures> {
    let path = &arguments.file;
    let model = arguments.model.as_deref().map(read_model).transpose()?;
    let verified = check(path, model.as_ref())?;
    let of_model = match &arguments.model {
        Some(model) => format!(", it is one of {}", model.display()),
        None => String::new(),
    };
    let bound = match verified.bounds {
        BoundCheck::Unchecked => "; a bound was not checked",
        _ => "",
    };
    let plans = if verified.plans == 1 {
        "a valid plan".to_owned()
    } else {
        format!("{} valid plans", verified.plans)
    };
    output::print(&format!(
        "{}: {plans} of {} buffers in {}, {}{of_model}{bound}\n",
        path.display(),
        count(verified.buffers as u64),
        bytes(verified.peak),
        table::plain(&verified.verdict)
    ))
}

/// Reads plans and checks them, also against their model if it is there.
pub(crate) fn check(path: &Path, model: Option<&OnnxFile>) -> Result<Verified, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let invalid = |error: &dyn std::fmt::Display| wrong(&format!("not a valid plan: {error}"));
    let text = fs::read(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let written = serde_json::from_slice(&text).map_err(|error| wrong(&format!("not a plan: {error}")))?;
    let (peak, plans) = match written {
        WrittenPlans::Several { peak, plans } => (Some(peak), plans),
        WrittenPlans::One(plan) => (None, vec![*plan]),
        WrittenPlans::Spaces(_) if model.is_some() => return Err(invalid(&"it is no plan of a model")),
        WrittenPlans::Spaces(spaces) => {
            spaces.verify().map_err(|error| invalid(&error))?;
            return Ok(Verified::of_spaces(&spaces));
        }
    };
    let mut bounds = BoundCheck::Load;
    for plan in &plans {
        if plan.check(model).map_err(|error| invalid(&error))? == BoundCheck::Unchecked {
            bounds = BoundCheck::Unchecked;
        }
    }
    let highest = plans.iter().max_by_key(|plan| plan.plan.peak).ok_or_else(|| wrong(&"has no plan"))?;
    if peak.is_some_and(|peak| peak != highest.plan.peak) {
        return Err(invalid(&"the peak is not that of the largest plan"));
    }
    Ok(Verified {
        plans: plans.len(),
        buffers: plans.iter().map(|plan| plan.plan.offsets.len()).sum(),
        peak: highest.plan.peak,
        verdict: highest.plan.verdict.clone(),
        bounds,
    })
}

impl WrittenPlan {
    fn check(&self, model: Option<&OnnxFile>) -> Result<BoundCheck, String> {
        let bound = self.plan.verify().map_err(|error| error.to_string())?;
        let graph = match (&self.graph, model) {
            (Some(graph), _) => graph,
            (None, Some(_)) => return Err("it is no plan of a model".to_owned()),
            (None, None) => return Ok(bound),
        };
        self.check_buffers(graph)?;
        model.map_or(Ok(()), |model| graph.check(model)).map_err(|error| error.to_string())?;
        Ok(bound)
    }

    /// Checks that the buffers are those of the tensors: then the bound and the verdict are theirs, too.
    fn check_buffers(&self, graph: &ModelPlan) -> Result<(), String> {
        // Start, end, bytes and offset, by buffer.
        let mut found: Vec<Option<[u64; 4]>> = vec![None; self.plan.buffers.len()];
        let tensors = graph.graph.tensors.iter().filter_map(|tensor| {
            Some((tensor.buffer?, [tensor.start, tensor.end, tensor.bytes, tensor.offset?], &tensor.name))
        });
        let nodes = (0..).zip(&graph.graph.nodes).filter_map(|(step, node)| {
            let workspace = node.workspace?;
            let used = [step, step + 1, workspace.bytes, workspace.offset];
            Some((workspace.buffer, used, &node.name))
        });
        for (buffer, [start, end, bytes, offset], name) in tensors.chain(nodes) {
            let known = found.get_mut(buffer).ok_or_else(|| format!("{name:?} is in no buffer"))?;
            *known = Some(match *known {
                None => [start, end, bytes, offset],
                Some([_, _, _, other]) if other != offset => {
                    return Err(format!("{name:?} is not at the offset of its buffer"));
                }
                Some([first, last, most, _]) => [first.min(start), last.max(end), most.max(bytes), offset],
            });
        }
        let parts: HashSet<Option<usize>> =
            graph.graph.tensors.iter().filter(|t| t.part_of.is_some()).map(|t| t.buffer).collect();
        let is_part = |(index, buffer): (usize, &PlannedBuffer)| {
            buffer.part_of.is_some() == parts.contains(&Some(index))
        };
        if let Some((index, buffer)) = self.plan.buffers.iter().enumerate().find(|&at| !is_part(at)) {
            return Err(format!("buffer {index} ({:?}) is a part unlike its tensors", buffer.name));
        }
        for (index, (buffer, found)) in self.plan.buffers.iter().zip(found).enumerate() {
            let expected = [buffer.start, buffer.end, buffer.size, self.plan.offsets[index]];
            // Values that are in no plan have a buffer without bytes.
            if found.is_some_and(|found| found != expected) || found.is_none() && buffer.size > 0 {
                return Err(format!("buffer {index} ({:?}) is not that of its tensors", buffer.name));
            }
        }
        if graph.graph.peak == self.plan.peak { Ok(()) } else { Err("the peaks differ".to_owned()) }
    }
}
