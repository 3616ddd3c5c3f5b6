//! The check of what a plan says of its memory: alignments, and buffers.

use super::check::{differs, misplaced};
use super::{GraphPlan, ModelPlanError, NodePlan, TensorPlan};
use crate::shapes::dtype;
use std::collections::{HashMap, HashSet};

impl GraphPlan {
    /// Checks that a block of memory with the plan's alignment aligns all elements, those of bodies as well.
    /// Offsets are checked where the plan is executed: they are multiples of the alignment.
    pub(super) fn check_alignments(&self) -> Result<(), ModelPlanError> {
        if !self.alignment.is_power_of_two() {
            return differs("the alignment", "");
        }
        let alignment_of = |tensor: &TensorPlan| {
            let dtype = tensor.data_type.and_then(dtype);
            dtype.map_or(1, |dtype| dtype.alignment().bytes() as u64)
        };
        for tensor in self.tensors.iter().filter(|tensor| tensor.offset.is_some()) {
            if self.alignment < alignment_of(tensor) {
                return misplaced(tensor, "has elements that the plan does not align");
            }
        }
        let is_aligned =
            |node: &&NodePlan| node.bodies.iter().all(|body| body.graph.alignment <= self.alignment);
        match self.nodes.iter().find(|node| !is_aligned(node)) {
            Some(node) => differs("the alignment of a graph in", &node.name),
            None => Ok(()),
        }
    }

    /// Checks that tensors have the same buffer if one is a view of the other, or is written over it, and not
    /// otherwise.
    pub(super) fn check_buffers(&self) -> Result<(), ModelPlanError> {
        let buffers: HashMap<&str, Option<usize>> =
            self.tensors.iter().map(|tensor| (&*tensor.name, tensor.buffer)).collect();
        let mut owned = HashSet::new();
        for tensor in &self.tensors {
            if tensor.buffer.is_some() != tensor.offset.is_some() {
                return misplaced(tensor, "has a place without a buffer, or a buffer without a place");
            }
            let Some(buffer) = tensor.buffer else { continue };
            let is_right = match shared_with(tensor) {
                Some(other) => buffers.get(other) == Some(&tensor.buffer),
                None => owned.insert(buffer),
            };
            if !is_right {
                return misplaced(
                    tensor,
                    "is in the buffer of another tensor, or not in that which it shares",
                );
            }
        }
        for node in &self.nodes {
            if node.workspace.is_some_and(|workspace| !owned.insert(workspace.buffer)) {
                return Err(ModelPlanError::Place {
                    tensor: node.name.clone(),
                    reason: "has a workspace in the buffer of a tensor or of another node",
                });
            }
        }
        // What has no place has a buffer in the problem, too: not all of the numbers are in the plan.
        let count = self.tensors.len() + self.nodes.len();
        if owned.iter().all(|&buffer| buffer < count) { Ok(()) } else { differs("the number of buffers", "") }
    }
}

/// Returns the name of the tensor whose buffer a tensor has.
fn shared_with(tensor: &TensorPlan) -> Option<&str> {
    tensor.view_of.as_deref().or(tensor.in_place_of.as_deref())
}
