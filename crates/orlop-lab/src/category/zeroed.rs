//! Where a program frees its gradients: `zero_grad()` frees them one after the other.

use super::classify::Sizes;
use orlop_trace::history::{WorkStep, Workload};

/// At least this many consecutive frees are those of gradients.
const MIN_GRADIENTS: usize = 3;

/// An optimizer allocates lists of blocks at once: this many consecutive allocations are of a list.
const LIST: usize = 3;

/// Gradients that are freed together.
pub(super) struct ZeroedGradients {
    /// The last of the frees.
    pub(super) step: usize,
    pub(super) blocks: Vec<u32>,
}

/// Finds gradients among the blocks that `can_be` of them: consecutive frees of blocks that have the sizes of
/// parameters.
pub(super) fn zeroed_gradients(
    work: &Workload,
    parameters: &Sizes,
    can_be: impl Fn(u32) -> bool,
) -> Vec<ZeroedGradients> {
    let is_candidate = |id: u32| can_be(id) && parameters.contains(work.blocks[id as usize].bytes);
    let is_listed =
        |step: usize| matches!(work.steps.get(step), Some(&WorkStep::Allocate(id)) if is_candidate(id));
    let is_of_list = |id: u32| {
        let Some(born) = work.blocks[id as usize].born else { return false };
        let first = born.saturating_sub(LIST - 1);
        (first..=born).any(|start| (start..start + LIST).all(is_listed))
    };
    let mut found = Vec::new();
    let mut run = ZeroedGradients { step: 0, blocks: Vec::new() };
    // An allocation ends the last run, too.
    for (step, action) in work.steps.iter().chain([&WorkStep::Allocate(0)]).enumerate() {
        match *action {
            WorkStep::Free(id) if is_candidate(id) => {
                run.step = step;
                if !is_of_list(id) {
                    run.blocks.push(id);
                }
            }
            WorkStep::Use(..) | WorkStep::Completed(_) => {}
            _ if run.blocks.len() >= MIN_GRADIENTS => {
                found.push(ZeroedGradients { step: run.step, blocks: std::mem::take(&mut run.blocks) });
            }
            _ => run.blocks.clear(),
        }
    }
    found
}
