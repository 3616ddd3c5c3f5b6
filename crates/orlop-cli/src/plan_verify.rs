//! `orlop plan --verify`.

use crate::output::{self, Failures};
use crate::plan_arguments::PlanArguments;
use crate::plan_input::read_model;
use crate::table::{self, bytes, count};
use orlop::lab::plan::{BoundCheck, PlanFile, PlannedBuffer, SpacesFile};
use orlop::onnx::{ModelPlan, OnnxFile, TensorPlan};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// A file that `orlop plan -o` wrote: one plan, or several for the same memory.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenPlans {
    Several { peak: u64, plans: Vec<WrittenPlan> },
    Spaces(Box<WrittenSpaces>),
    One(Box<WrittenPlan>),
}

#[derive(Deserialize)]
struct WrittenPlan {
    #[serde(flatten)]
    plan: PlanFile,
    graph: Option<ModelPlan>,
}

#[derive(Deserialize)]
struct WrittenSpaces {
    #[serde(flatten)]
    plan: SpacesFile,
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
        WrittenPlans::Spaces(spaces) => {
            spaces.check(model).map_err(|error| invalid(&error))?;
            return Ok(Verified::of_spaces(&spaces.plan));
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
        let buffers = self.plan.buffers.iter().zip(&self.plan.offsets);
        check_buffers(graph, &buffers.map(|(buffer, &offset)| (buffer, offset, None)).collect::<Vec<_>>())?;
        if graph.graph.peak != self.plan.peak {
            return Err("the peaks differ".to_owned());
        }
        model.map_or(Ok(()), |model| graph.check(model)).map_err(|error| error.to_string())?;
        Ok(bound)
    }
}

impl WrittenSpaces {
    fn check(&self, model: Option<&OnnxFile>) -> Result<(), String> {
        self.plan.verify().map_err(|error| error.to_string())?;
        let graph = match (&self.graph, model) {
            (Some(graph), _) => graph,
            (None, Some(_)) => return Err("it is no plan of a model".to_owned()),
            (None, None) => return Ok(()),
        };
        let spaces = &self.plan.spaces;
        let blocks = graph.graph.spaces.iter().map(|block| (&block.name, block.peak));
        if !blocks.eq(spaces.iter().map(|space| (&space.name, space.plan.peak))) {
            return Err("the memories differ".to_owned());
        }
        let mut buffers = Vec::new();
        for (number, space) in spaces.iter().enumerate() {
            let placed = space.plan.buffers.iter().zip(&space.plan.offsets).zip(&space.accesses);
            for (&index, ((buffer, &offset), &accesses)) in space.indices.iter().zip(placed) {
                buffers.push((index, accesses, (buffer, offset, Some(number))));
            }
        }
        // Each index is there once.
        buffers.sort_unstable_by_key(|&(index, ..)| index);
        check_accesses(graph, &buffers.iter().map(|&(_, accesses, _)| accesses).collect::<Vec<_>>())?;
        check_buffers(graph, &buffers.into_iter().map(|(.., place)| place).collect::<Vec<_>>())?;
        model.map_or(Ok(()), |model| graph.check(model)).map_err(|error| error.to_string())
    }
}

/// Checks that a buffer has as many accesses as nodes read or write its values. Nodes that only make views do
/// neither.
fn check_accesses(graph: &ModelPlan, accesses: &[u64]) -> Result<(), String> {
    let tensors: HashMap<&str, &TensorPlan> =
        graph.graph.tensors.iter().map(|tensor| (&*tensor.name, tensor)).collect();
    let mut found = vec![0_u64; accesses.len()];
    for node in &graph.graph.nodes {
        let tensor = |name: &String| tensors.get(&**name).copied();
        let written: Vec<_> =
            node.outputs.iter().filter_map(tensor).filter(|tensor| tensor.view_of.is_none()).collect();
        if written.is_empty() {
            continue;
        }
        for buffer in node.inputs.iter().filter_map(tensor).chain(written).filter_map(|tensor| tensor.buffer)
        {
            *found.get_mut(buffer).ok_or_else(|| format!("{:?} uses no buffer", node.name))? += 1;
        }
    }
    match found.iter().zip(accesses).position(|(&found, &accesses)| found.max(1) != accesses) {
        Some(buffer) => {
            let (found, stated) = (found[buffer].max(1), accesses[buffer]);
            Err(format!("the nodes access buffer {buffer} {found} times, not {stated}"))
        }
        None => Ok(()),
    }
}

/// An offset, and the memory if there are several.
type Place = (u64, Option<usize>);

/// The first step, the end and the bytes of a buffer, and its place.
type PlacedUse = ([u64; 3], Place);

/// Checks that the buffers, with their offsets and memories, are those of the tensors: then the bound and the
/// verdict are theirs, too.
fn check_buffers(graph: &ModelPlan, buffers: &[(&PlannedBuffer, u64, Option<usize>)]) -> Result<(), String> {
    let mut found: Vec<Option<PlacedUse>> = vec![None; buffers.len()];
    let tensors = graph.graph.tensors.iter().filter_map(|tensor| {
        let used = [tensor.start, tensor.end, tensor.bytes];
        Some((tensor.buffer?, used, (tensor.offset?, tensor.space), &tensor.name))
    });
    let nodes = (0..).zip(&graph.graph.nodes).filter_map(|(step, node)| {
        let workspace = node.workspace?;
        let place = (workspace.offset, workspace.space);
        Some((workspace.buffer, [step, step + 1, workspace.bytes], place, &node.name))
    });
    for (buffer, [start, end, bytes], place, name) in tensors.chain(nodes) {
        let known = found.get_mut(buffer).ok_or_else(|| format!("{name:?} is in no buffer"))?;
        let used = match *known {
            None => [start, end, bytes],
            Some((_, other)) if other != place => {
                return Err(format!("{name:?} is not at the offset of its buffer"));
            }
            Some(([first, last, most], _)) => [first.min(start), last.max(end), most.max(bytes)],
        };
        *known = Some((used, place));
    }
    let parts: HashSet<Option<usize>> =
        graph.graph.tensors.iter().filter(|t| t.part_of.is_some()).map(|t| t.buffer).collect();
    for (index, (&(buffer, offset, space), found)) in buffers.iter().zip(found).enumerate() {
        if buffer.part_of.is_some() != parts.contains(&Some(index)) {
            return Err(format!("buffer {index} ({:?}) is a part unlike its tensors", buffer.name));
        }
        let expected = ([buffer.start, buffer.end, buffer.size], (offset, space));
        // Values that are in no plan have a buffer without bytes.
        if found.is_some_and(|found| found != expected) || found.is_none() && buffer.size > 0 {
            return Err(format!("buffer {index} ({:?}) is not that of its tensors", buffer.name));
        }
    }
    Ok(())
}
