//! The category of each block of a recording without call sites, by the order of allocations and frees.
//!
//! A program builds its model first, so the blocks before the first free are parameters. Gradients have the
//! sizes of parameters and are freed together; the optimizer's state has these sizes, too, and is not freed.
//! What is live at the peak of a step and freed in it is an activation.

use super::Category;
use super::classify::Sizes;
use super::zeroed::zeroed_gradients;
use foldhash::HashSet;
use orlop_trace::history::{WorkStep, Workload};

/// Returns the category of each block of a workload.
pub(super) fn by_lifetime(work: &Workload) -> Vec<Category> {
    let is_free = |step: &WorkStep| matches!(step, WorkStep::Free(_));
    let built = work.steps.iter().position(is_free).unwrap_or(work.steps.len());
    let is_early = |born: Option<usize>| born.is_none_or(|born| born < built);
    let mut categories: Vec<Category> = Vec::with_capacity(work.blocks.len());
    for block in &work.blocks {
        categories.push(match (block.pool, block.died) {
            ((0, 0), None) if is_early(block.born) => Category::Parameters,
            ((0, 0), Some(died)) if is_early(block.born) && died >= work.steps.len() / 2 => {
                Category::Parameters
            }
            ((0, 0), _) => Category::Temporaries,
            _ => Category::CudaGraphs,
        });
    }
    let sizes = Sizes::of(work, &categories, Category::Parameters);
    let is_open = |id: u32| categories.get(id as usize) == Some(&Category::Temporaries);
    // The steps of training end where gradients are freed.
    let zeroed = zeroed_gradients(work, &sizes, is_open);
    let ends: Vec<usize> = zeroed.iter().map(|gradients| gradients.step).collect();
    let gradients: HashSet<u32> = zeroed.into_iter().flat_map(|gradients| gradients.blocks).collect();
    let ends_before = |step: usize| ends.partition_point(|&end| end < step);
    let peaks = peaks(work, &ends);
    for (id, (block, category)) in (0..).zip(work.blocks.iter().zip(&mut categories)) {
        if *category != Category::Temporaries {
            continue;
        }
        let born = block.born.unwrap_or(0);
        let outlives_peak = || {
            let peak = peaks[ends_before(born)];
            born <= peak && block.died.is_none_or(|died| died > peak)
        };
        let died = block.died.unwrap_or(usize::MAX);
        let outlived = ends_before(died).saturating_sub(ends_before(born));
        *category = match (outlived, sizes.contains(block.bytes)) {
            (1.., true) => Category::OptimizerState,
            (2.., false) => Category::Workspaces,
            _ if gradients.contains(&id) => Category::Gradients,
            _ if outlives_peak() => Category::Activations,
            _ => Category::Temporaries,
        };
    }
    categories
}

/// Returns the step of the peak of live bytes before each of the `ends`, and after the last.
fn peaks(work: &Workload, ends: &[usize]) -> Vec<usize> {
    let mut peaks = vec![0; ends.len() + 1];
    let (mut live, mut max) = (0_i128, i128::MIN);
    let mut next = 0;
    for (step, action) in work.steps.iter().enumerate() {
        if ends.get(next).is_some_and(|&end| end < step) {
            (next, max) = (next + 1, i128::MIN);
        }
        match *action {
            WorkStep::Allocate(id) => live += i128::from(work.blocks[id as usize].bytes),
            WorkStep::Free(id) => live -= i128::from(work.blocks[id as usize].bytes),
            _ => {}
        }
        if live > max {
            (max, peaks[next]) = (live, step);
        }
    }
    peaks
}
