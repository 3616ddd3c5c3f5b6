//! From the facts of a graph to the graph that is planned.

use crate::bindings::Bindings;
use crate::decode::{Node, Scope};
use crate::infer::{Fact, Facts, axis_of};
use crate::model::{OnnxBody, OnnxModel, OnnxValue, ValueOrigin};
use crate::rules::MemoryUse;
use crate::shapes::TensorSize;
use crate::undecided::UndecidedInputs;
use crate::{OnnxError, UnknownSize};
use orlop_core::Alignment;
use orlop_plan::{GraphBuilder, NodeId, Planner, SearchBudget, ValueId};
use std::collections::{HashMap, HashSet};

/// Makes the model of a whole file.
pub(crate) fn model(scope: &Scope, facts: &Facts) -> Result<OnnxModel, OnnxError> {
    let mut unknown = Vec::new();
    let model = Assembly::new(scope, facts, Place::File).run(&mut unknown)?;
    if unknown.is_empty() {
        unknown.extend(open_state(scope, facts));
    }
    if unknown.is_empty() { Ok(model) } else { Err(OnnxError::UnknownSizes { values: unknown }) }
}

/// Returns an input of a body whose size has no bound, although all that its node gives has.
fn open_state(scope: &Scope, facts: &Facts) -> Option<UnknownSize> {
    let executed = scope.nodes.iter().zip(&facts.bodies);
    let mut bodies = executed.flat_map(|(node, facts)| {
        node.bodies
            .iter()
            .zip(facts)
            .filter_map(move |(body, facts)| Some((node, &body.scope, facts.as_ref()?)))
    });
    bodies.find_map(|(node, scope, facts)| {
        let open = scope.inputs.iter().find(|&&input| !facts.values[input].has_size());
        let unknown = open.map(|&input| UnknownSize {
            value: scope.name(input).to_owned(),
            node: node.title.clone(),
            operator: node.operator.clone(),
            inputs: Vec::new(),
        });
        unknown.or_else(|| open_state(scope, facts))
    })
}

/// Whose graph is assembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The file's: inputs are in the memory of the caller.
    File,
    /// A node's: inputs are in the workspace of the node, from the first step to the last, so that a new
    /// state can be copied over the old one.
    Body,
}

/// A graph that is being assembled.
struct Assembly<'a> {
    scope: &'a Scope,
    facts: &'a Facts,
    place: Place,
    builder: GraphBuilder,
    /// By number of the scope.
    numbers: Vec<Option<ValueId>>,
    values: Vec<OnnxValue>,
    bodies: HashMap<NodeId, Vec<OnnxBody>>,
    weight_bytes: u64,
    value_bytes: u64,
    /// The same, each rounded up to its alignment.
    planned_bytes: u64,
    unplanned_values: usize,
    /// Computed for the first value whose size is not known.
    undecided: Option<UndecidedInputs>,
}

impl<'a> Assembly<'a> {
    fn new(scope: &'a Scope, facts: &'a Facts, place: Place) -> Self {
        Self {
            scope,
            facts,
            place,
            builder: GraphBuilder::new(),
            numbers: vec![None; scope.values.len()],
            values: Vec::new(),
            bodies: HashMap::new(),
            weight_bytes: 0,
            value_bytes: 0,
            planned_bytes: 0,
            unplanned_values: 0,
            undecided: None,
        }
    }

    fn run(mut self, unknown: &mut Vec<UnknownSize>) -> Result<OnnxModel, OnnxError> {
        for constant in &self.scope.constants {
            let size = match &constant.size {
                Some(size) => Some(size.clone()),
                None => self.size(constant.value)?,
            };
            let bytes = size.as_ref().map_or(0, |size| size.bytes);
            self.weight_bytes = self.weight_bytes.saturating_add(bytes);
            self.add_input(constant.value, constant.origin, size);
        }
        for &(_, captured) in &self.scope.captures {
            let size = self.size(captured)?;
            self.add_input(captured, ValueOrigin::Input, size);
        }
        for &input in &self.scope.inputs {
            let size = self.size(input)?;
            match self.place {
                Place::File => self.add_input(input, ValueOrigin::Input, size),
                Place::Body => self.add_state(input, size)?,
            }
        }
        for (node, bodies) in self.scope.nodes.iter().zip(&self.facts.bodies) {
            self.add(node, bodies, unknown)?;
        }
        for &output in &self.scope.outputs {
            if let Some(value) = self.numbers[output] {
                self.builder.keep(value)?;
            }
        }
        let ids = |values: &[usize]| values.iter().filter_map(|&value| self.numbers[value]).collect();
        let named = self.numbers.iter().enumerate();
        let named = named.filter_map(|(value, &id)| Some((self.scope.name(value).into(), id?)));
        Ok(OnnxModel {
            names: named.collect(),
            graph: self.builder.finish(),
            weight_bytes: self.weight_bytes,
            value_bytes: self.value_bytes,
            unplanned_values: self.unplanned_values,
            unused_bindings: Vec::new(),
            values: self.values,
            bodies: self.bodies,
            inputs: ids(&self.scope.inputs),
            outputs: ids(&self.scope.outputs),
            operators: self.scope.nodes.iter().map(|node| node.operator.as_str().into()).collect(),
            bindings: Bindings::default(),
        })
    }

    fn add_input(&mut self, value: usize, origin: ValueOrigin, size: Option<TensorSize>) {
        let bytes = size.as_ref().map_or(0, |size| size.bytes);
        let id = self.builder.input(self.scope.name(value), bytes);
        self.note(value, id, origin, size);
    }

    /// Adds an input of a body.
    fn add_state(&mut self, value: usize, size: Option<TensorSize>) -> Result<(), OnnxError> {
        let bytes = size.as_ref().map_or(0, |size| size.bytes);
        let id = self.builder.planned_input(self.scope.name(value), bytes);
        self.count(value, bytes)?;
        self.builder.keep(id)?;
        self.note(value, id, ValueOrigin::Input, size);
        Ok(())
    }

    /// Notes a value that was just added to the graph.
    fn note(&mut self, value: usize, id: ValueId, origin: ValueOrigin, size: Option<TensorSize>) {
        self.numbers[value] = Some(id);
        let is_bound = size.is_some() && !self.is_exact(value);
        self.values.push(OnnxValue { origin, size, is_bound });
    }

    fn add(
        &mut self,
        node: &Node,
        executed: &[Option<Facts>],
        unknown: &mut Vec<UnknownSize>,
    ) -> Result<(), OnnxError> {
        let inputs: Vec<ValueId> = node.reads().filter_map(|input| self.numbers[input]).collect();
        let id = self.builder.node(&node.title, &inputs)?;
        self.add_bodies(id, node, executed, unknown)?;
        for (index, output) in node.outputs.iter().enumerate() {
            let Some(output) = *output else { continue };
            let size = self.planned_size(node, output, unknown)?;
            let bytes = size.as_ref().map_or(0, |size| size.bytes);
            let value = self.builder.output(id, self.scope.name(output), bytes)?;
            let source = match (index, &size) {
                (0, Some(size)) => self.source(node, output, size),
                _ => Source::Own,
            };
            match source {
                Source::View(input) => self.builder.view(input, value)?,
                Source::Own => self.count(output, bytes)?,
                Source::Over(inputs) => {
                    self.count(output, bytes)?;
                    inputs.iter().try_for_each(|&input| self.builder.in_place(input, value))?;
                }
            }
            self.note(output, value, ValueOrigin::Node, size);
        }
        for Part { part, whole, offset } in self.parts(node).unwrap_or_default() {
            self.builder.part(part, whole, offset)?;
        }
        Ok(())
    }

    /// Plans the bodies of a node. The largest is its workspace: they are not executed at the same time.
    fn add_bodies(
        &mut self,
        id: NodeId,
        node: &Node,
        executed: &[Option<Facts>],
        unknown: &mut Vec<UnknownSize>,
    ) -> Result<(), OnnxError> {
        let mut bodies = Vec::new();
        for (body, facts) in node.bodies.iter().zip(executed) {
            let Some(facts) = facts else { continue };
            let model = Assembly::new(&body.scope, facts, Place::Body).run(unknown)?;
            let order = model.graph.given_order();
            let lifetimes = model.graph.lifetimes(&order)?;
            let budget = SearchBudget::short(lifetimes.problem().len());
            let plan = Planner::new().budget(budget).plan(lifetimes.problem());
            self.weight_bytes = self.weight_bytes.saturating_add(model.weight_bytes);
            self.unplanned_values += model.unplanned_values;
            bodies.push(OnnxBody { attribute: body.attribute.clone(), model, lifetimes, plan });
        }
        let value_bytes = bodies.iter().map(|body: &OnnxBody| body.model.value_bytes).max().unwrap_or(0);
        self.value_bytes = self.value_bytes.saturating_add(value_bytes);
        let workspace = bodies.iter().map(|body| body.plan.height()).max().unwrap_or(0);
        if workspace > 0 {
            self.builder.scratch(id, workspace)?;
        }
        if !bodies.is_empty() {
            self.bodies.insert(id, bodies);
        }
        Ok(())
    }

    /// Counts the bytes of a value that a node writes.
    fn count(&mut self, value: usize, bytes: u64) -> Result<(), OnnxError> {
        let planned = bytes.checked_next_multiple_of(Alignment::PLANNED.bytes() as u64);
        self.planned_bytes = planned
            .and_then(|bytes| self.planned_bytes.checked_add(bytes))
            .ok_or_else(|| OnnxError::TotalOverflow { value: self.scope.name(value).to_owned() })?;
        self.value_bytes = self.value_bytes.saturating_add(bytes);
        Ok(())
    }

    fn fact(&self, value: usize) -> &'a Fact {
        &self.facts.values[value]
    }

    fn size(&self, value: usize) -> Result<Option<TensorSize>, OnnxError> {
        match self.fact(value) {
            Fact::Tensor(tensor) => TensorSize::of_tensor(self.scope.name(value), tensor),
            _ => Ok(None),
        }
    }

    /// Returns the size of a value that a node writes. Values that are not in one piece of memory are counted
    /// apart, and have none.
    fn planned_size(
        &mut self,
        node: &Node,
        value: usize,
        unknown: &mut Vec<UnknownSize>,
    ) -> Result<Option<TensorSize>, OnnxError> {
        let (size, is_tensor) = match self.fact(value) {
            Fact::Tensor(tensor) if tensor.is_strings() => (self.size(value)?, false),
            Fact::Tensor(_) | Fact::Unknown => (self.size(value)?, true),
            _ => (None, false),
        };
        if !is_tensor {
            self.unplanned_values += 1;
        } else if size.is_none()
            && (node.rule.is_none() || node.reads().all(|input| self.fact(input).has_size()))
        {
            // Otherwise it only follows from another value.
            unknown.push(UnknownSize {
                value: self.scope.name(value).to_owned(),
                node: node.title.clone(),
                operator: node.operator.clone(),
                inputs: self.undecided_inputs(node),
            });
        }
        Ok(size)
    }

    /// Returns the names of the model's inputs from whose elements a node's sizes may be computed: the first
    /// small ones of integers, that the node depends on. Those of a body cannot be given.
    fn undecided_inputs(&mut self, node: &Node) -> Vec<String> {
        if self.place == Place::Body {
            return Vec::new();
        }
        let scope = self.scope;
        let undecided = self.undecided.get_or_insert_with(|| UndecidedInputs::of(scope, self.facts));
        undecided.read_by(node).map(|input| scope.name(input).to_owned()).collect()
    }

    fn is_exact(&self, value: usize) -> bool {
        matches!(self.fact(value), Fact::Tensor(tensor) if tensor.has_exact_shape())
    }

    /// Returns the values that a node has side by side in another one, each once. `None` if they are not in
    /// one piece there.
    fn parts(&self, node: &Node) -> Option<Vec<Part>> {
        let (whole, parts, default_axis) = match node.rule?.memory {
            MemoryUse::Concat => (node.outputs.first(), &node.inputs, 1),
            MemoryUse::Split => (node.inputs.first(), &node.outputs, 0),
            _ => return None,
        };
        let whole = (*whole?)?;
        let placed = |value: usize| {
            let id = self.numbers[value].filter(|_| self.is_exact(value))?;
            Some((id, self.values.get(id.index())?.size.as_ref()?))
        };
        let (whole, size) = placed(whole)?;
        let axis = node.attribute("axis").and_then(|axis| axis.i).unwrap_or(default_axis);
        let axis = axis_of(axis, size.sizes.len()).ok()?;
        if size.sizes[..axis].iter().any(|&size| size != 1) {
            return None;
        }
        let (mut end, mut ends_on_byte) = (0_u64, true);
        let mut placed_parts: Vec<Part> = Vec::new();
        let mut seen = HashSet::new();
        for part in parts {
            let (part, size) = placed((*part)?)?;
            if !ends_on_byte {
                return None;
            }
            if seen.insert(part) {
                placed_parts.push(Part { part, whole, offset: end });
            }
            end = end.checked_add(size.bytes)?;
            ends_on_byte = size.ends_on_byte();
        }
        (end == size.bytes).then_some(placed_parts)
    }

    /// Returns where the first output of a node may be.
    fn source(&self, node: &Node, result: usize, output: &TensorSize) -> Source {
        let memory = node.rule.map_or(MemoryUse::Own, |rule| rule.memory);
        let fits = |input: usize, check: fn(&TensorSize, &TensorSize) -> bool| {
            let id = self.numbers[input]?;
            let size = self.values.get(id.index())?.size.as_ref()?;
            check(output, size).then_some(id)
        };
        let first = node.inputs.first().copied().flatten();
        match memory {
            MemoryUse::Own | MemoryUse::Concat | MemoryUse::Split => Source::Own,
            MemoryUse::View => {
                let base = first.and_then(|input| fits(input, TensorSize::is_view_of));
                base.map_or(Source::Own, Source::View)
            }
            MemoryUse::OverFirst => {
                Source::Over(first.and_then(|input| fits(input, TensorSize::fits_over)).into_iter().collect())
            }
            MemoryUse::OverAny => {
                // Inputs that are broadcast are read after the bytes in their places were written.
                let is_whole =
                    |&input: &usize| self.is_exact(input) || self.fact(input).has_sizes_of(self.fact(result));
                let inputs = node.inputs.iter().copied().flatten().filter(is_whole);
                Source::Over(inputs.filter_map(|input| fits(input, TensorSize::fits_over)).collect())
            }
        }
    }
}

/// A value whose bytes are some of those of another one.
struct Part {
    part: ValueId,
    whole: ValueId,
    offset: u64,
}

/// Where an output is.
enum Source {
    Own,
    View(ValueId),
    /// It may take the memory of these.
    Over(Vec<ValueId>),
}
