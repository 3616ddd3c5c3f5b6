//! The modules of a model that hold activations.

use super::Category;
use crate::analyze::SiteName;
use orlop_trace::history::{Frame, SiteId, Sites, WorkBlock};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The activations of one module at an instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModuleUsage {
    /// The line that calls the module, and the file of its `forward`: `model.py:41 forward > attention.py`.
    /// PyTorch records no names of modules.
    pub name: String,
    /// Requested bytes.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// The maximum number of modules in a list.
const MAX_MODULES: usize = 10;

/// The function of PyTorch that calls a module's `forward`.
const CALL: &str = "_call_impl";

/// Returns the modules with the most activations among `blocks`, largest first. Empty if no module is known.
pub(super) fn of<'a>(
    blocks: impl Iterator<Item = (&'a WorkBlock, Category)>,
    sites: &Sites,
) -> Vec<ModuleUsage> {
    let mut names: HashMap<SiteId, Option<String>> = HashMap::new();
    let mut sums: HashMap<String, (u64, u64)> = HashMap::new();
    for (block, _) in blocks.filter(|&(_, category)| category == Category::Activations) {
        if let Some(name) = names.entry(block.site).or_insert_with(|| module(sites, block.site)) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = (sum.0.saturating_add(block.bytes), sum.1 + 1);
        }
    }
    let usage = |(name, (bytes, blocks))| ModuleUsage { name, bytes, blocks };
    let mut modules: Vec<ModuleUsage> = sums.into_iter().map(usage).collect();
    modules.sort_by(|one, other| (Reverse(one.bytes), &one.name).cmp(&(Reverse(other.bytes), &other.name)));
    modules.truncate(MAX_MODULES);
    modules
}

/// Names the innermost module of the program, or of a package, in which a call site is.
fn module(sites: &Sites, site: SiteId) -> Option<String> {
    let is_python = |frame: &Frame| sites.name(frame.file).ends_with(".py");
    let frames: Vec<Frame> = sites.frames(site).filter(is_python).collect();
    let calls = |frame: &Frame| sites.name(frame.function) == CALL;
    let is_torch = |frame: &Frame| sites.name(frame.file).contains("torch/nn/");
    let index = frames.windows(2).position(|pair| calls(&pair[1]) && !is_torch(&pair[0]))?;
    let module = frames.get(index)?;
    let caller = frames.get(index + 1..)?.iter().find(|frame| !is_torch(frame));
    let file = sites.name(module.file).rsplit(['/', '\\']).next().unwrap_or_default();
    let called = format!("{file} {}", sites.name(module.function));
    Some(match caller {
        Some(&caller) => {
            let name = SiteName { user: Some(caller), ..SiteName::default() };
            format!("{} > {called}", name.display(sites))
        }
        None => called,
    })
}
