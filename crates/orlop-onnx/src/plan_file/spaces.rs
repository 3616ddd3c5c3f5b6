//! Plans in several memories.
//!
//! They are checked as if the blocks of all memories were one, one behind the other.

use super::check::{differs, misplaced};
use super::{GraphPlan, ModelPlanError, SpaceBlock};
use orlop_plan::{Plan, SpacesPlan};

/// Where buffers are.
#[derive(Clone, Copy)]
pub(super) enum Places<'a> {
    One(&'a Plan),
    Several(&'a SpacesPlan),
}

impl Places<'_> {
    pub(super) fn offset(self, buffer: usize) -> Option<u64> {
        match self {
            Self::One(plan) => plan.offset(buffer),
            Self::Several(plan) => plan.offset(buffer),
        }
    }

    /// Returns the index of the memory of a buffer, if there are several.
    pub(super) fn space(self, buffer: usize) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Several(plan) => plan.space(buffer),
        }
    }

    /// Returns the bytes of all blocks.
    pub(super) fn peak(self) -> u64 {
        match self {
            Self::One(plan) => plan.height(),
            Self::Several(plan) => {
                plan.plans().iter().map(|of| of.plan.height()).fold(0, u64::saturating_add)
            }
        }
    }

    pub(super) fn blocks(self) -> Vec<SpaceBlock> {
        let Self::Several(plan) = self else { return Vec::new() };
        let blocks = plan.spaces().iter().zip(plan.plans());
        blocks
            .map(|(space, of)| SpaceBlock { name: space.name.to_string(), peak: of.plan.height() })
            .collect()
    }
}

impl GraphPlan {
    /// Returns the plan with all memories in one block, after a check that each tensor is inside of its
    /// memory.
    pub(super) fn joined(&self) -> Result<Self, ModelPlanError> {
        let mut end = 0_u64;
        let mut starts = Vec::with_capacity(self.spaces.len());
        for space in &self.spaces {
            starts.push(end);
            let block = space.peak.checked_next_multiple_of(self.alignment);
            let Some(next) = block.and_then(|block| end.checked_add(block)) else {
                return differs("the size of the memory", &space.name);
            };
            end = next;
        }
        if self.spaces.iter().map(|space| space.peak).fold(0, u64::saturating_add) != self.peak {
            return differs("the peak", "");
        }
        let place = |space: Option<usize>, offset: u64, bytes: u64| {
            let space = space?;
            let is_inside = offset.checked_add(bytes)? <= self.spaces.get(space)?.peak;
            is_inside.then(|| starts[space] + offset)
        };
        let mut joined = Self { peak: end, spaces: Vec::new(), ..self.clone() };
        for tensor in &mut joined.tensors {
            let Some(offset) = tensor.offset else { continue };
            match place(tensor.space.take(), offset, tensor.bytes) {
                Some(place) => tensor.offset = Some(place),
                None => return misplaced(tensor, "is not inside of one of the memories"),
            }
        }
        for node in &mut joined.nodes {
            let Some(workspace) = &mut node.workspace else { continue };
            match place(workspace.space.take(), workspace.offset, workspace.bytes) {
                Some(place) => workspace.offset = place,
                None => return differs("the memory of the workspace of", &node.name),
            }
        }
        Ok(joined)
    }

    /// Checks that nothing is said to be in one of several memories where there are none.
    pub(super) fn check_one_memory(&self) -> Result<(), ModelPlanError> {
        if let Some(space) = self.spaces.first() {
            return differs("the memory", &space.name);
        }
        if let Some(tensor) = self.tensors.iter().find(|tensor| tensor.space.is_some()) {
            return misplaced(tensor, "is in one of several memories, and there is one");
        }
        let has_space = |node: &&super::NodePlan| node.workspace.is_some_and(|it| it.space.is_some());
        match self.nodes.iter().find(has_space) {
            Some(node) => differs("the memory of the workspace of", &node.name),
            None => Ok(()),
        }
    }
}
