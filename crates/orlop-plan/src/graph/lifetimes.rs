//! From a graph and an order of its nodes to a problem.
//!
//! A value that is no view, with all its views, is a *group*: it is live from the step that writes the value
//! to the last step that reads one of them. A group whose value may be written over an input takes that
//! input's memory if the input's group ends in the step. So a piece of memory, which is what the problem
//! calls a buffer, holds one group after the other. What is kept is live after the last step, too. Then
//! buffers become parts of others, see `parts`.

use super::parts::{Parts, PlacedPart};
use super::{Graph, GraphError, NodeId, Source, ValueId, rounded};
use crate::{Buffer, Problem, ProblemBuilder};
use orlop_core::Alignment;
use std::ops::Range;

/// The planning problem of a graph whose nodes are executed in a certain order. Time is the position of a
/// node in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphProblem {
    problem: Problem,
    buffers: Vec<Option<usize>>,
    lifetimes: Vec<Range<u64>>,
    scratch: Vec<Option<usize>>,
}

impl GraphProblem {
    /// Returns the problem, whose buffers have the names of the values that are in them first.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the index of the buffer that a value is in, at its start. `None` for values in the memory of
    /// the caller, and for those of another graph.
    #[must_use]
    pub fn buffer(&self, value: ValueId) -> Option<usize> {
        *self.buffers.get(value.0)?
    }

    /// Returns the steps in which a value may be used: from its node, or from the first step for an input, to
    /// the last use of the value or of another view of the same bytes, the end excluded. Kept values have one
    /// step after the last node. `None` for a value of another graph.
    #[must_use]
    pub fn lifetime(&self, value: ValueId) -> Option<Range<u64>> {
        self.lifetimes.get(value.0).cloned()
    }

    /// Returns the problem for several memories, see [`SpacePlanner`](crate::SpacePlanner). The accesses of a
    /// buffer are the nodes that read or write its values; a node that only makes views does neither. Parts
    /// of other buffers have bytes of their own: their nodes copy them.
    #[must_use]
    pub fn divisible(&self, graph: &Graph) -> Problem {
        let mut problem = self.problem.clone();
        problem.constraints.parts.clear();
        problem.constraints.wholes.clear();
        let mut accesses = vec![0_u64; problem.len()];
        let is_view = |value: &ValueId| graph.view_source(*value).is_some();
        for node in graph.nodes.iter().filter(|node| !node.outputs.iter().all(is_view)) {
            let written = node.outputs.iter().filter(|value| !is_view(value));
            for buffer in node.inputs.iter().chain(written).filter_map(|&value| self.buffer(value)) {
                accesses[buffer] += 1;
            }
        }
        let several = accesses.into_iter().enumerate().filter(|&(_, accesses)| accesses > 1);
        problem.preferences.set_accesses(several);
        problem
    }

    /// Returns the index of the buffer for the scratch bytes of a node, if it has any.
    #[must_use]
    pub fn scratch(&self, node: NodeId) -> Option<usize> {
        *self.scratch.get(node.0)?
    }
}

/// A buffer, as far as the nodes up to now determine it.
pub(super) struct Memory {
    pub(super) first: ValueId,
    pub(super) start: u64,
    /// The end of the group that is in it now.
    pub(super) end: u64,
    pub(super) size: u64,
    pub(super) alignment: Alignment,
    /// The group that is in it now.
    pub(super) group: ValueId,
}

impl Memory {
    /// Returns the size, rounded up to the alignment.
    pub(super) fn bytes(&self) -> u64 {
        rounded(self.size, self.alignment)
    }
}

impl Graph {
    /// Derives the lifetimes of all values if the nodes are executed in this order.
    ///
    /// # Errors
    ///
    /// [`GraphError::InvalidOrder`]; [`GraphError::Problem`] if the sizes exceed what a problem may have.
    pub fn lifetimes(&self, order: &[NodeId]) -> Result<GraphProblem, GraphError> {
        let position = self.positions(order)?;
        let ends = self.group_ends(&position, order.len() as u64);
        let mut memories: Vec<Memory> = Vec::new();
        let mut buffers = vec![None; self.values.len()];
        let add = |value: ValueId, start: u64, buffers: &mut Vec<Option<usize>>, memories: &mut Vec<_>| {
            buffers[value.0] = Some(memories.len());
            let end = ends[value.0].max(start + 1);
            let size = self.values[value.0].size;
            memories.push(Memory { first: value, start, end, size, alignment: Alignment::ONE, group: value });
        };
        for (value, _) in self.each_value(|source| matches!(source, Source::PlannedInput)) {
            add(value, 0, &mut buffers, &mut memories);
        }
        for (step, &node) in order.iter().enumerate() {
            let now = step as u64;
            for &output in &self.nodes[node.0].outputs {
                match &self.values[output.0].source {
                    Source::Output { over, .. } => {
                        let free = |&input: &ValueId| {
                            self.free_memory(input, output, node, now, &buffers, &memories)
                        };
                        if let Some(taken) = over.iter().find_map(free) {
                            buffers[output.0] = Some(taken);
                            let memory = &mut memories[taken];
                            (memory.group, memory.end) = (output, ends[output.0].max(now + 1));
                            memory.size = memory.size.max(self.values[output.0].size);
                        } else {
                            add(output, now, &mut buffers, &mut memories);
                        }
                    }
                    _ => buffers[output.0] = buffers[self.base(output).0],
                }
            }
        }
        for (value, buffer) in self.values.iter().zip(&buffers) {
            if let Some(buffer) = *buffer {
                let alignment = &mut memories[buffer].alignment;
                *alignment = value.alignment.max(*alignment);
            }
        }
        let lifetimes = (0..self.values.len()).map(ValueId).map(|value| {
            let start = self.producer(value).map_or(0, |node| position[node.0]);
            start..ends[self.base(value).0].max(start + 1)
        });
        let lifetimes = lifetimes.collect();
        let scratch = order.iter().map(|node| self.nodes[node.0].scratch);
        let parts = Parts::new(self, &memories, &buffers, &ends, scratch.chain([0]).collect());
        let parts = parts.place(order);
        self.problem_of(order, &memories, &parts, buffers, lifetimes)
    }

    /// Returns the memory that `output` can be written over: that of `input`, if nothing needs it after this
    /// step.
    fn free_memory(
        &self,
        input: ValueId,
        output: ValueId,
        node: NodeId,
        now: u64,
        buffers: &[Option<usize>],
        memories: &[Memory],
    ) -> Option<usize> {
        let group = self.base(input);
        let buffer = buffers[group.0]?;
        let memory = &memories[buffer];
        let output = &self.values[output.0];
        let fits = rounded(output.size, output.alignment) == rounded(memory.size, output.alignment);
        // Another output of the node may have taken it.
        let is_free = memory.group == group && memory.end == now + 1 && fits;
        // Through another view the node might read what it has already overwritten.
        let is_read_once =
            || self.nodes[node.0].inputs.iter().filter(|&&other| self.base(other) == group).count() == 1;
        (is_free && is_read_once()).then_some(buffer)
    }

    fn problem_of(
        &self,
        order: &[NodeId],
        memories: &[Memory],
        parts: &[PlacedPart],
        buffers: Vec<Option<usize>>,
        lifetimes: Vec<Range<u64>>,
    ) -> Result<GraphProblem, GraphError> {
        let mut builder = ProblemBuilder::new();
        for memory in memories {
            let buffer = Buffer::new(memory.start..memory.end, memory.size).aligned(memory.alignment);
            builder.push_named(&self.values[memory.first.0].name, buffer)?;
        }
        for part in parts {
            builder.place_in(part.part, part.whole, part.offset)?;
        }
        let mut scratch = vec![None; self.nodes.len()];
        for (step, node) in order.iter().enumerate() {
            let now = step as u64;
            let bytes = self.nodes[node.0].scratch;
            if bytes > 0 {
                let name = format!("{} (scratch)", self.nodes[node.0].name);
                scratch[node.0] = Some(builder.push_named(&name, Buffer::new(now..now + 1, bytes))?);
            }
        }
        Ok(GraphProblem { problem: builder.finish(), buffers, lifetimes, scratch })
    }

    /// Returns the positions of all nodes in an order that has each once, after those whose outputs it reads.
    fn positions(&self, order: &[NodeId]) -> Result<Vec<u64>, GraphError> {
        const ABSENT: u64 = u64::MAX;
        let mut position = vec![ABSENT; self.nodes.len()];
        for (step, &node) in order.iter().enumerate() {
            let at = position.get_mut(node.0).ok_or(GraphError::UnknownNode { node })?;
            if *at != ABSENT {
                return Err(GraphError::InvalidOrder { node });
            }
            *at = step as u64;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let own = position[index];
            let is_after = |&input: &ValueId| self.producer(input).is_none_or(|from| position[from.0] < own);
            if own == ABSENT || !node.inputs.iter().all(is_after) {
                return Err(GraphError::InvalidOrder { node: NodeId(index) });
            }
        }
        Ok(position)
    }

    /// Returns, for each group, the step after the last that reads or makes one of its values. It is the end
    /// after the last step if one of them is kept, or an input that nothing reads.
    fn group_ends(&self, position: &[u64], steps: u64) -> Vec<u64> {
        let mut ends = vec![0; self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            let last = value.readers.iter().map(|reader| position[reader.0] + 1).max();
            // A view that nothing reads is still made.
            let made = self.producer(ValueId(index)).map(|node| position[node.0] + 1);
            let end = if value.is_kept { None } else { last.max(made) }.unwrap_or(steps + 1);
            let base = self.base(ValueId(index)).0;
            ends[base] = end.max(ends[base]);
        }
        ends
    }

    pub(super) fn each_value(
        &self,
        mut of: impl FnMut(&Source) -> bool,
    ) -> impl Iterator<Item = (ValueId, &super::Value)> {
        let values = self.values.iter().enumerate().map(|(index, value)| (ValueId(index), value));
        values.filter(move |(_, value)| of(&value.source))
    }
}
