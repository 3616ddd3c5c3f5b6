//! The check of a [`ModelPlan`] against its model.
//!
//! The model is inferred again with what was given, and its values and nodes are compared with the plan's.
//! Then the plan is executed, with names in place of elements: each node must find the values that it reads
//! as they were written. No lifetime of a planner is used.

use super::memory::Memory;
use super::{GraphPlan, ModelPlan, NodePlan, TensorPlan};
use crate::{OnnxError, OnnxFile, OnnxModel, OnnxReader, OnnxValue};
use orlop_plan::{NodeId, ValueId};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Why a plan is none of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelPlanError {
    /// The model cannot be resolved with what was given.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The plan has other values or nodes than the model.
    #[error("{part} {name:?} is not that of the model")]
    Differs {
        /// What differs.
        part: &'static str,
        /// The name of the value or the node; empty for the graph.
        name: String,
    },
    /// A value has no place, or one where it cannot be.
    #[error("the tensor {tensor:?} {reason}")]
    Place {
        /// The name of the value.
        tensor: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A node reads a value that is not in its place, or not yet.
    #[error("in step {step} the bytes of {tensor:?} are not there: others were written over them, or none")]
    Lost {
        /// The step: that after the last for results.
        step: usize,
        /// The name of the value.
        tensor: String,
    },
    /// A node writes into bytes that it reads, or writes twice.
    #[error("in step {step} {tensor:?} is written over bytes that the node uses")]
    Clash {
        /// The step.
        step: usize,
        /// The name of the value; that of the node for its workspace.
        tensor: String,
    },
}

impl ModelPlan {
    /// Checks that this is a plan of a model, which can be executed.
    ///
    /// # Errors
    ///
    /// [`ModelPlanError`]: the first fault.
    pub fn check(&self, file: &OnnxFile) -> Result<(), ModelPlanError> {
        let model = OnnxReader::with_bindings(self.given.bindings()).resolve(file)?;
        self.graph.check(&model, false)
    }
}

pub(super) fn differs<T>(part: &'static str, name: &str) -> Result<T, ModelPlanError> {
    Err(ModelPlanError::Differs { part, name: name.to_owned() })
}

pub(super) fn misplaced<T>(tensor: &TensorPlan, reason: &'static str) -> Result<T, ModelPlanError> {
    Err(ModelPlanError::Place { tensor: tensor.name.clone(), reason })
}

impl GraphPlan {
    fn check(&self, model: &OnnxModel, is_body: bool) -> Result<(), ModelPlanError> {
        if !self.spaces.is_empty() && !is_body {
            return self.joined()?.check(model, is_body);
        }
        self.check_one_memory()?;
        self.check_values(model)?;
        self.check_alignments()?;
        self.check_nodes(model)?;
        Execution::new(self, model, is_body)?.run(is_body)?;
        self.check_buffers()
    }

    fn check_values(&self, model: &OnnxModel) -> Result<(), ModelPlanError> {
        let graph = &model.graph;
        if self.tensors.len() != graph.value_count() {
            return differs("the number of tensors", "");
        }
        for (tensor, value) in self.tensors.iter().zip(graph.values()) {
            let known = model.value(value);
            let name = graph.value_name(value).unwrap_or_default();
            let is_same = tensor.name == name
                && tensor.data_type == known.and_then(OnnxValue::data_type)
                && tensor.sizes.as_deref() == known.and_then(OnnxValue::sizes)
                && Some(tensor.bytes) == graph.value_size(value)
                && known.is_some_and(|known| tensor.origin == known.origin().into())
                && tensor.is_bound == known.is_some_and(OnnxValue::is_bound);
            if !is_same {
                return differs("the tensor", &tensor.name);
            }
            let view_of = graph.view_source(value).and_then(|source| graph.value_name(source));
            if tensor.view_of.as_deref() != view_of {
                return differs("what is viewed by", &tensor.name);
            }
        }
        let names =
            |values: &[ValueId]| values.iter().map(|&value| graph.value_name(value)).collect::<Vec<_>>();
        let listed = |list: &'_ [String]| list.iter().map(|name| Some(name.clone())).collect::<Vec<_>>();
        let owned = |names: Vec<Option<&str>>| {
            names.into_iter().map(|name| name.map(str::to_owned)).collect::<Vec<_>>()
        };
        let is_same = listed(&self.inputs) == owned(names(&model.inputs))
            && listed(&self.outputs) == owned(names(&model.outputs));
        if is_same { Ok(()) } else { differs("the list of inputs or outputs", "") }
    }

    /// Checks nodes, and the plans of what they execute.
    fn check_nodes(&self, model: &OnnxModel) -> Result<(), ModelPlanError> {
        let graph = &model.graph;
        let nodes = graph.given_order();
        let mut is_executed = vec![false; nodes.len()];
        if self.nodes.len() != nodes.len() {
            return differs("the number of nodes", "");
        }
        for node in &self.nodes {
            let Some(id) = nodes.get(node.index).copied() else { return differs("the node", &node.name) };
            let is_same = |names: &[String], values: Option<&[ValueId]>| {
                let values = values.unwrap_or_default().iter().map(|&value| graph.value_name(value));
                names.iter().map(|name| Some(&**name)).eq(values)
            };
            let is_same = graph.node_name(id) == Some(&node.name)
                && model.operator(id) == Some(&node.operator)
                && is_same(&node.inputs, graph.inputs(id))
                && is_same(&node.outputs, graph.outputs(id))
                && !std::mem::replace(&mut is_executed[node.index], true);
            if !is_same {
                return differs("the node", &node.name);
            }
            check_bodies(node, model, id)?;
        }
        Ok(())
    }
}

fn check_bodies(node: &NodePlan, model: &OnnxModel, id: NodeId) -> Result<(), ModelPlanError> {
    let bodies = model.bodies(id);
    if bodies.len() != node.bodies.len() {
        return differs("the number of graphs in", &node.name);
    }
    let workspace = node.workspace.map_or(0, |workspace| workspace.bytes);
    for (planned, body) in node.bodies.iter().zip(bodies) {
        if planned.attribute != body.attribute {
            return differs("a graph in", &node.name);
        }
        if planned.graph.peak > workspace {
            return Err(ModelPlanError::Place {
                tensor: node.name.clone(),
                reason: "has a graph that is larger than its workspace",
            });
        }
        planned.graph.check(&body.model, true)?;
    }
    Ok(())
}

/// A plan that is executed without elements.
pub(super) struct Execution<'a> {
    pub(super) plan: &'a GraphPlan,
    pub(super) model: &'a OnnxModel,
    numbers: HashMap<&'a str, usize>,
    values: Vec<ValueId>,
    /// In the order of the file.
    pub(super) nodes: Vec<NodeId>,
    memory: Memory,
    /// The tensors that exist.
    written: HashSet<usize>,
}

impl<'a> Execution<'a> {
    fn new(plan: &'a GraphPlan, model: &'a OnnxModel, is_body: bool) -> Result<Self, ModelPlanError> {
        let numbers = plan.tensors.iter().enumerate().map(|(number, tensor)| (&*tensor.name, number));
        let execution = Self {
            plan,
            model,
            numbers: numbers.collect(),
            values: model.graph.values().collect(),
            nodes: model.graph.given_order(),
            memory: Memory::default(),
            written: HashSet::new(),
        };
        for (number, tensor) in plan.tensors.iter().enumerate() {
            execution.check_place(number, tensor)?;
        }
        execution.check_parts()?;
        execution.check_lifetimes(is_body)?;
        Ok(execution)
    }

    /// Returns the tensor whose bytes a tensor has.
    pub(super) fn base(&self, number: usize) -> usize {
        self.model.graph.view_base(self.values[number]).map_or(number, ValueId::index)
    }

    fn bytes(&self, number: usize) -> Option<Range<u64>> {
        let tensor = &self.plan.tensors[number];
        let start = tensor.offset?;
        Some(start..start.checked_add(tensor.bytes)?)
    }

    fn check_place(&self, number: usize, tensor: &TensorPlan) -> Result<(), ModelPlanError> {
        let (base, is_placed) = (self.base(number), self.model.is_placed(self.values[number]));
        let Some(offset) = tensor.offset else {
            return if is_placed { misplaced(tensor, "has no place") } else { Ok(()) };
        };
        if !is_placed {
            return misplaced(tensor, "is in the memory of the caller");
        }
        if !offset.is_multiple_of(self.plan.alignment) {
            return misplaced(tensor, "is not aligned");
        }
        if self.bytes(number).is_none_or(|bytes| bytes.end > self.plan.peak) {
            return misplaced(tensor, "is beyond the peak");
        }
        let in_base =
            self.plan.tensors[base].offset == Some(offset) && tensor.bytes <= self.plan.tensors[base].bytes;
        if in_base { Ok(()) } else { misplaced(tensor, "is not where the tensor is that it views") }
    }

    /// Checks that each tensor is used from its node to the last node that reads its bytes, and that no other
    /// steps are stated.
    fn check_lifetimes(&self, is_body: bool) -> Result<(), ModelPlanError> {
        let count = self.values.len();
        let (mut starts, mut ends, mut is_used) = (vec![0; count], vec![0; count], vec![false; count]);
        let numbers =
            |names: &'a [String]| names.iter().filter_map(|name| self.numbers.get(&**name).copied());
        for (step, node) in (0_u64..).zip(&self.plan.nodes) {
            numbers(&node.outputs).for_each(|output| starts[output] = step);
            for number in numbers(&node.inputs).chain(numbers(&node.outputs)) {
                is_used[number] = true;
                ends[self.base(number)] = step + 1;
            }
        }
        // What no node reads or writes is there to the end.
        let end = self.plan.nodes.len() as u64 + 1;
        (0..count).filter(|&number| !is_used[number]).for_each(|number| ends[self.base(number)] = end);
        let kept = self.plan.inputs.iter().filter(|_| is_body).chain(&self.plan.outputs);
        for number in kept.filter_map(|name| self.numbers.get(&**name).copied()) {
            ends[self.base(number)] = end;
        }
        for (number, tensor) in self.plan.tensors.iter().enumerate() {
            let end = ends[self.base(number)].max(starts[number] + 1);
            if (tensor.start, tensor.end) != (starts[number], end) {
                return misplaced(tensor, "is used in other steps than stated");
            }
        }
        Ok(())
    }

    fn run(mut self, is_body: bool) -> Result<(), ModelPlanError> {
        let inputs: Vec<usize> =
            self.plan.inputs.iter().filter_map(|name| self.numbers.get(&**name).copied()).collect();
        for &input in &inputs {
            if let Some(bytes) = self.bytes(input) {
                self.memory.write(input, &bytes);
            }
        }
        for (number, tensor) in self.plan.tensors.iter().enumerate() {
            if tensor.origin != super::TensorOrigin::Node {
                self.written.insert(number);
            }
        }
        for (step, node) in self.plan.nodes.iter().enumerate() {
            self.execute(step, node)?;
        }
        let steps = self.plan.nodes.len();
        let results = self.plan.outputs.iter().filter_map(|name| self.numbers.get(&**name).copied());
        // The old state of a body is overwritten only when all of the new one is there.
        let kept = inputs.iter().copied().filter(|_| is_body);
        results.chain(kept).try_for_each(|number| self.find(steps, number))
    }

    /// Checks that a tensor is as it was written.
    fn find(&self, step: usize, number: usize) -> Result<(), ModelPlanError> {
        let base = self.base(number);
        let is_there = self.plan.tensors[base].offset.is_none() || self.memory.has(base);
        if is_there && self.written.contains(&number) {
            return Ok(());
        }
        Err(ModelPlanError::Lost { step, tensor: self.plan.tensors[number].name.clone() })
    }

    fn execute(&mut self, step: usize, node: &NodePlan) -> Result<(), ModelPlanError> {
        let number = |names: &[String]| -> Vec<usize> {
            names.iter().filter_map(|name| self.numbers.get(&**name).copied()).collect()
        };
        let (inputs, outputs) = (number(&node.inputs), number(&node.outputs));
        let parts = self.parts(node)?;
        inputs.iter().try_for_each(|&input| self.find(step, input))?;
        // What the node uses: bytes of inputs, then of its workspace and its outputs.
        let mut used: Vec<(Option<usize>, Range<u64>)> =
            inputs.iter().filter_map(|&input| Some((Some(input), self.bytes(input)?))).collect();
        if let Some(workspace) = node.workspace {
            let end = workspace.offset.checked_add(workspace.bytes).filter(|&end| end <= self.plan.peak);
            let is_aligned = workspace.offset.is_multiple_of(self.plan.alignment);
            let Some(end) = end.filter(|_| is_aligned) else {
                return Err(ModelPlanError::Place {
                    tensor: node.name.clone(),
                    reason: "has a workspace beyond the peak, or unaligned",
                });
            };
            let bytes = workspace.offset..end;
            if used.iter().any(|(_, other)| overlap(other, &bytes)) {
                return Err(ModelPlanError::Clash { step, tensor: node.name.clone() });
            }
            self.memory.clobber(&bytes);
            used.push((None, bytes));
        }
        for output in outputs {
            self.written.insert(output);
            let is_view = self.base(output) != output;
            let Some(bytes) = self.bytes(output).filter(|_| !is_view) else { continue };
            let replaced = self.replaced(output, &inputs)?;
            let clashes = used.iter().any(|(input, other)| {
                let may_overlap = input.is_some_and(|input| {
                    let input = self.base(input);
                    let is_part = |&(part, whole): &(usize, usize)| {
                        (part, whole) == (input, output) || (part, whole) == (output, input)
                    };
                    replaced == Some(input) || parts.iter().any(is_part)
                });
                overlap(other, &bytes) && !may_overlap
            });
            if clashes {
                return Err(ModelPlanError::Clash { step, tensor: self.plan.tensors[output].name.clone() });
            }
            let joined: Vec<usize> =
                parts.iter().filter(|(_, whole)| *whole == output).map(|&(part, _)| part).collect();
            match joined.is_empty() {
                true => self.memory.write(output, &bytes),
                false => self.memory.join(output, &bytes, &joined),
            }
            used.push((None, bytes));
        }
        Ok(())
    }

    /// Returns the base of the input that an output is written over, after a check that it can be.
    fn replaced(&self, output: usize, inputs: &[usize]) -> Result<Option<usize>, ModelPlanError> {
        let tensor = &self.plan.tensors[output];
        let Some(name) = &tensor.in_place_of else { return Ok(None) };
        let input = self.numbers.get(&**name).copied();
        let sources = self.model.graph.in_place_sources(self.values[output]);
        let Some(input) = input.filter(|&input| sources.iter().any(|source| source.index() == input)) else {
            return misplaced(tensor, "cannot be written over that input");
        };
        let base = self.base(input);
        let is_read_once = inputs.iter().filter(|&&other| self.base(other) == base).count() == 1;
        let is_there = self.plan.tensors[base].offset == tensor.offset;
        if is_read_once && is_there {
            Ok(Some(base))
        } else {
            misplaced(tensor, "is not over that input alone")
        }
    }
}

fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start.max(right.start) < left.end.min(right.end)
}
