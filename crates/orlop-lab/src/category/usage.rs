//! Live memory by category: at the peak, at the end, and over time.

use super::modules::{self, ModuleUsage};
use super::{Category, classify, lifetimes};
use crate::analyze::with_start;
use orlop_trace::history::{DeviceHistory, Sites, WorkStep, Workload};
use serde::Serialize;

/// The number of samples over time.
const SAMPLES: usize = 200;

/// Where categories come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// Call sites, and the passes that blocks outlive.
    CallSites,
    /// The order of allocations and frees alone.
    Lifetimes,
}

/// The live memory of a device by category.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MemoryCategories {
    /// Where the categories come from.
    pub evidence: Evidence,
    /// At the peak of live bytes, most bytes first, without those that have none.
    pub at_peak: Vec<CategoryUsage>,
    /// At the end, likewise.
    pub at_end: Vec<CategoryUsage>,
    /// The modules with the most activations at the peak; empty if no module is recorded.
    pub modules: Vec<ModuleUsage>,
    /// Over time: at most 200 samples, each the maximum of its interval.
    pub over_time: Vec<CategorySample>,
}

/// The live memory of one category at an instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CategoryUsage {
    /// The category.
    pub category: Category,
    /// Requested bytes.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The fraction of all live bytes at this instant, from 0 to 1.
    pub share: f64,
}

/// Live bytes by category at an instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CategorySample {
    /// The index of the event that leads to it.
    pub event: u32,
    /// Requested bytes, in the order of [`Category::ALL`].
    pub bytes: [u64; Category::ALL.len()],
}

impl MemoryCategories {
    /// Finds the categories of a device's blocks.
    ///
    /// ```
    /// use orlop_lab::category::MemoryCategories;
    /// use orlop_trace::history::History;
    ///
    /// let history = History::parse("a,0,1000\na,1,500\nf,1\na,2,8\nf,2\na,3,8\nf,3\n".as_bytes())?;
    /// let categories = MemoryCategories::of(&history.devices[0], &history.sites);
    /// assert_eq!(categories.at_peak[0].bytes, 1000);
    /// assert_eq!(categories.at_peak[0].category.name(), "parameters");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of(device: &DeviceHistory, sites: &Sites) -> Self {
        Self::of_work(&Workload::of(&with_start(device)), sites)
    }

    pub(crate) fn of_work(work: &Workload, sites: &Sites) -> Self {
        let (categories, evidence) = categories(work, sites);
        let peak = work.peak().1.map_or(0, |step| step + 1);
        let is_live = |step: usize| {
            let blocks = work.blocks.iter().zip(categories.iter().copied());
            blocks.filter(move |(block, _)| {
                block.born.is_none_or(|born| born < step) && block.died.is_none_or(|died| died >= step)
            })
        };
        let usage = |step: usize| usage(is_live(step).map(|(block, category)| (block.bytes, category)));
        Self {
            evidence,
            at_peak: usage(peak),
            at_end: usage(work.steps.len()),
            modules: modules::of(is_live(peak), sites),
            over_time: samples(work, &categories),
        }
    }

    /// Returns the bytes of a category at the peak.
    #[must_use]
    pub fn bytes_at_peak(&self, category: Category) -> u64 {
        let usage = self.at_peak.iter().find(|usage| usage.category == category);
        usage.map_or(0, |usage| usage.bytes)
    }
}

/// Returns the category of each block of a workload.
pub(crate) fn categories(work: &Workload, sites: &Sites) -> (Vec<Category>, Evidence) {
    match classify::by_site(work, sites) {
        Some(categories) => (categories, Evidence::CallSites),
        None => (lifetimes::by_lifetime(work), Evidence::Lifetimes),
    }
}

fn usage(blocks: impl Iterator<Item = (u64, Category)>) -> Vec<CategoryUsage> {
    let mut usages: Vec<CategoryUsage> =
        Category::ALL.map(|category| CategoryUsage { category, bytes: 0, blocks: 0, share: 0.0 }).into();
    let mut all = 0_u64;
    for (bytes, category) in blocks {
        all = all.saturating_add(bytes);
        if let Some(usage) = usages.iter_mut().find(|usage| usage.category == category) {
            usage.bytes = usage.bytes.saturating_add(bytes);
            usage.blocks += 1;
        }
    }
    usages.retain(|usage| usage.blocks > 0);
    usages.sort_by_key(|usage| std::cmp::Reverse(usage.bytes));
    for usage in &mut usages {
        usage.share = if all == 0 { 0.0 } else { usage.bytes as f64 / all as f64 };
    }
    usages
}

/// Samples live bytes by category at the maximum of each of some intervals.
fn samples(work: &Workload, categories: &[Category]) -> Vec<CategorySample> {
    let mut bytes = [0_u64; Category::ALL.len()];
    let of = |id: u32| (categories[id as usize] as usize, work.blocks[id as usize].bytes);
    for id in 0..u32::try_from(work.at_start).unwrap_or(u32::MAX) {
        let (category, size) = of(id);
        bytes[category] = bytes[category].saturating_add(size);
    }
    let total = |bytes: &[u64]| bytes.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
    let interval = work.steps.len().div_ceil(SAMPLES).max(1);
    let mut samples: Vec<CategorySample> = Vec::new();
    for (step, (action, &event)) in work.steps.iter().zip(&work.events).enumerate() {
        match *action {
            WorkStep::Allocate(id) => {
                let (category, size) = of(id);
                bytes[category] = bytes[category].saturating_add(size);
            }
            WorkStep::Free(id) => {
                let (category, size) = of(id);
                bytes[category] = bytes[category].saturating_sub(size);
            }
            _ => {}
        }
        let sample = CategorySample { event, bytes };
        match samples.last_mut().filter(|_| step % interval != 0) {
            Some(last) if total(&last.bytes) < total(&bytes) => *last = sample,
            Some(_) => {}
            None => samples.push(sample),
        }
    }
    samples
}
