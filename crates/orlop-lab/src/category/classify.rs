//! The category of each block, by its call site and the passes that it outlives.

use super::Category;
use super::pass::Pass;
use super::zeroed::zeroed_gradients;
use foldhash::HashMap;
use orlop_trace::history::{SiteId, Sites, WorkBlock, WorkStep, Workload};

/// Returns the category of each block of a workload. `None` if it has no call sites.
pub(super) fn by_site(work: &Workload, sites: &Sites) -> Option<Vec<Category>> {
    let passes = Passes::of(work, sites)?;
    let mut categories: Vec<Category> = work.blocks.iter().map(|block| passes.category(block)).collect();
    let sizes = Sizes::of(work, &categories, Category::Parameters);
    for (block, category) in work.blocks.iter().zip(&mut categories) {
        // What the backward pass leaves behind and never frees has the size of a parameter, or is a
        // workspace.
        let is_left = *category == Category::Gradients && block.died.is_none();
        if is_left && sizes.are_known() && !sizes.contains(block.bytes) {
            *category = if passes.ends_in(block) { Category::Temporaries } else { Category::Workspaces };
        }
    }
    // Without an optimizer, gradients may be freed before another pass begins.
    let can_be = |id: u32| {
        let is_open = categories.get(id as usize) == Some(&Category::Temporaries);
        is_open && passes.pass(&work.blocks[id as usize]) == Some(Pass::Backward)
    };
    for id in zeroed_gradients(work, &sizes, can_be).into_iter().flat_map(|zeroed| zeroed.blocks) {
        categories[id as usize] = Category::Gradients;
    }
    name_blocks_at_start(work, &passes, &mut categories);
    Some(categories)
}

/// The passes of a run, in order.
struct Passes {
    /// By the index of the site.
    by_site: Vec<Option<Pass>>,
    /// The steps at which a pass begins, in order.
    starts: Vec<(usize, Pass)>,
    has_backward: bool,
}

impl Passes {
    fn of(work: &Workload, sites: &Sites) -> Option<Self> {
        let mut sites_in_use = vec![None; sites.len()];
        for block in &work.blocks {
            if let Some(unseen @ None) = sites_in_use.get_mut(block.site.index()) {
                *unseen = Some(block.site);
            }
        }
        let pass = |site: Option<SiteId>| site.and_then(|site| Pass::of(sites, site));
        let mut by_site: Vec<Option<Pass>> = sites_in_use.into_iter().map(pass).collect();
        if by_site.iter().all(Option::is_none) {
            return None;
        }
        // PyTorch's threads of the backward pass have no Python: in a recording of Python's frames, blocks
        // without a call site are theirs.
        if let Some(unknown) = by_site.get_mut(SiteId::UNKNOWN.index()) {
            *unknown = Some(Pass::Backward);
        }
        let mut starts: Vec<(usize, Pass)> = Vec::new();
        for (step, action) in work.steps.iter().enumerate() {
            let WorkStep::Allocate(id) = *action else { continue };
            let pass = by_site.get(work.blocks[id as usize].site.index()).copied().flatten();
            if let Some(pass) = pass.filter(|&pass| starts.last().is_none_or(|&(_, last)| last != pass)) {
                starts.push((step, pass));
            }
        }
        let has_backward = starts.iter().any(|&(_, pass)| pass == Pass::Backward);
        Some(Self { by_site, starts, has_backward })
    }

    fn pass(&self, block: &WorkBlock) -> Option<Pass> {
        self.by_site.get(block.site.index()).copied().flatten()
    }

    /// Returns the steps at which passes begin after the one of `step`.
    fn after(&self, step: usize) -> &[(usize, Pass)] {
        &self.starts[self.starts.partition_point(|&(start, _)| start <= step)..]
    }

    /// Returns the pass in which a step is.
    fn at(&self, step: usize) -> Option<Pass> {
        let begun = self.starts.partition_point(|&(start, _)| start <= step);
        begun.checked_sub(1).and_then(|index| self.starts.get(index)).map(|&(_, pass)| pass)
    }

    /// Returns `true` if the recording ends in the pass that allocates the block.
    fn ends_in(&self, block: &WorkBlock) -> bool {
        block.born.is_some_and(|born| self.after(born).is_empty())
    }

    fn category(&self, block: &WorkBlock) -> Category {
        if block.pool != (0, 0) {
            return Category::CudaGraphs;
        }
        let pass = self.pass(block);
        let Some(born) = block.born else {
            return match pass.filter(|_| block.site != SiteId::UNKNOWN) {
                Some(Pass::Setup) => Category::Parameters,
                Some(Pass::Optimizer) => Category::OptimizerState,
                _ => Category::Unknown,
            };
        };
        let after = self.after(born);
        let died = block.died.unwrap_or(usize::MAX);
        let is_left = after.first().map_or(block.died.is_none(), |&(end, _)| died > end);
        match pass {
            Some(Pass::Setup) => Category::Parameters,
            Some(Pass::Optimizer) if is_left => Category::OptimizerState,
            Some(Pass::Backward) if is_left => Category::Gradients,
            Some(Pass::Forward) if self.outlives_a_step(after, died) => Category::Workspaces,
            Some(Pass::Forward) if is_left || !self.has_backward => Category::Activations,
            _ => Category::Temporaries,
        }
    }

    /// Returns `true` if a block of the forward pass that dies at the step `died` outlives the backward pass
    /// and two more forward passes. A result may be kept until the next one replaces it.
    fn outlives_a_step(&self, after: &[(usize, Pass)], died: usize) -> bool {
        let mut forward = after.iter().filter(|&&(_, pass)| pass == Pass::Forward);
        self.has_backward && forward.nth(1).is_some_and(|&(start, _)| died > start)
    }
}

/// Names blocks without a call site that were live at the start. What an optimizer frees and has the size of
/// a gradient is its state, which it replaces. What is never freed are parameters, if there is no backward
/// pass; with one, as many of each size as gradients are parameters, and the others are optimizer state.
fn name_blocks_at_start(work: &Workload, passes: &Passes, categories: &mut [Category]) {
    let mut gradients = Sizes::of(work, categories, Category::Gradients);
    let are_parameters_known = Sizes::of(work, categories, Category::Parameters).are_known();
    for (block, category) in work.blocks.iter().zip(categories).take(work.at_start) {
        if *category != Category::Unknown {
            continue;
        }
        *category = match block.died {
            Some(died) if passes.at(died) == Some(Pass::Optimizer) && gradients.contains(block.bytes) => {
                Category::OptimizerState
            }
            None if !are_parameters_known => match (passes.has_backward, gradients.take(block.bytes)) {
                (false, _) | (true, Taken::Left) => Category::Parameters,
                (true, Taken::Spent) => Category::OptimizerState,
                (true, Taken::Never) => Category::Unknown,
            },
            _ => Category::Unknown,
        };
    }
}

/// The largest number of blocks of each size that are live at once.
#[derive(Default)]
pub(super) struct Sizes(HashMap<u64, SizeCount>);

#[derive(Default)]
struct SizeCount {
    live: usize,
    max: usize,
}

enum Taken {
    Left,
    Spent,
    Never,
}

impl Sizes {
    /// Counts the blocks of a category.
    pub(super) fn of(work: &Workload, categories: &[Category], category: Category) -> Self {
        let mut sizes = Self::default();
        let blocks = work.blocks.iter().zip(categories);
        for (block, _) in blocks.take(work.at_start).filter(|(_, of)| **of == category) {
            sizes.add(block.bytes);
        }
        let bytes = |id: u32| {
            let is_of = categories.get(id as usize) == Some(&category);
            is_of.then(|| work.blocks[id as usize].bytes)
        };
        for step in &work.steps {
            match *step {
                WorkStep::Allocate(id) => bytes(id).into_iter().for_each(|bytes| sizes.add(bytes)),
                WorkStep::Free(id) => bytes(id).into_iter().for_each(|bytes| sizes.remove(bytes)),
                _ => {}
            }
        }
        sizes
    }

    fn add(&mut self, bytes: u64) {
        let count = self.0.entry(bytes).or_default();
        count.live += 1;
        count.max = count.max.max(count.live);
    }

    fn remove(&mut self, bytes: u64) {
        if let Some(count) = self.0.get_mut(&bytes) {
            count.live = count.live.saturating_sub(1);
        }
    }

    pub(super) fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn contains(&self, bytes: u64) -> bool {
        self.0.contains_key(&bytes)
    }

    /// Takes one of the blocks of a size.
    fn take(&mut self, bytes: u64) -> Taken {
        match self.0.get_mut(&bytes) {
            None => Taken::Never,
            Some(SizeCount { max: 0, .. }) => Taken::Spent,
            Some(count) => {
                count.max -= 1;
                Taken::Left
            }
        }
    }
}
