//! The check of concatenations and splits in place.

use super::check::{Execution, misplaced};
use super::{GraphPlan, ModelPlanError, NodePlan};
use crate::OnnxModel;
use orlop_plan::{GraphProblem, ValueId};
use std::collections::HashSet;

impl GraphPlan {
    /// Notes which tensors are in place as parts of others.
    pub(super) fn note_parts(&mut self, model: &OnnxModel, lifetimes: &GraphProblem) {
        let root = |value: ValueId| {
            let buffer = lifetimes.buffer(value)?;
            Some(lifetimes.problem().part_of(buffer).map_or(buffer, |(root, _)| root))
        };
        for node in model.graph.given_order() {
            for (part, whole, offset) in model.graph.parts(node) {
                let is_same = root(part).is_some() && root(part) == root(whole);
                if is_same && self.distance(part.index(), whole.index()) == Some(offset) {
                    self.tensors[part.index()].part_of = Some(self.tensors[whole.index()].name.clone());
                }
            }
        }
    }

    /// Returns the bytes from the start of a tensor to that of another one.
    fn distance(&self, to: usize, from: usize) -> Option<u64> {
        self.tensors[to].offset?.checked_sub(self.tensors[from].offset?)
    }
}

impl Execution<'_> {
    /// Returns the tensors that a node has as parts of others, without views, and these.
    pub(super) fn parts(&self, node: &NodePlan) -> Result<Vec<(usize, usize)>, ModelPlanError> {
        let Some(&id) = self.nodes.get(node.index) else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        for (part, whole, offset) in self.model.graph.parts(id) {
            let (part, whole) = (part.index(), whole.index());
            let tensor = &self.plan.tensors[part];
            if tensor.part_of.as_ref() != Some(&self.plan.tensors[whole].name) {
                continue;
            }
            if self.plan.distance(part, whole) != Some(offset) {
                return misplaced(tensor, "is not where the tensor has it that it is a part of");
            }
            parts.push((self.base(part), self.base(whole)));
        }
        Ok(parts)
    }

    /// Checks that each tensor is a part of another one only by a node that has it so.
    pub(super) fn check_parts(&self) -> Result<(), ModelPlanError> {
        let mut found = HashSet::new();
        for node in &self.plan.nodes {
            found.extend(self.parts(node)?.into_iter().map(|(part, _)| part));
        }
        let mut stated = self.plan.tensors.iter().enumerate().filter(|(_, tensor)| tensor.part_of.is_some());
        match stated.find(|(number, _)| !found.contains(&self.base(*number))) {
            Some((_, tensor)) => misplaced(tensor, "cannot be a part of that tensor"),
            None => Ok(()),
        }
    }
}
