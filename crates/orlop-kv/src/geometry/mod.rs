//! The geometry of a model's KV memory: layer groups, and how their blocks share one budget of large pages.
//!
//! A *group* has layers that keep the same tokens. A *block* holds `block_tokens` tokens of one group, for
//! all its layers. It consists of one or more *pages* of equal size, each for some of the layers: so a group
//! whose block is large does not force large pages on the others. A *large page* is a multiple of every page
//! size.

mod group;
mod page_sizes;

pub use self::group::{ArenaSpec, GroupKind, LayerGroup};
pub(crate) use self::page_sizes::GroupPages;

use crate::{GroupProblem, KvError, Result};
use std::ops::Range;

/// The maximum number of groups of a model.
pub(crate) const MAX_GROUPS: usize = 64;

/// The layer groups of a model, and the page sizes that follow.
///
/// ```
/// use orlop_kv::{KvGeometry, LayerGroup};
///
/// // 10 full layers and 52 with a window of 1,024 tokens, 8,192 B per token and layer.
/// let geometry = KvGeometry::new(vec![
///     LayerGroup::full("full", 10, 8192),
///     LayerGroup::window("window", 52, 8192, 1024),
/// ])?;
/// // A block of the first group is 5 pages of two layers, one of the second 13 pages of four layers.
/// assert_eq!((geometry.parts(0), geometry.parts(1)), (5, 13));
/// assert_eq!(geometry.large_page_bytes(), 4 * 16 * 8192);
/// # Ok::<(), orlop_kv::KvError>(())
/// ```
#[derive(Debug, Clone)]
pub struct KvGeometry {
    groups: Vec<LayerGroup>,
    pages: Vec<GroupPages>,
    /// The distinct page sizes, in bytes.
    classes: Vec<u64>,
    large_page: u64,
}

/// The place of one arena of one layer inside the pool's memory.
///
/// The bytes of page `id` begin at `base + id * stride`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaView {
    /// The part of the block that has the layer: the index of its block table.
    pub part: u32,
    /// Bytes from the start of the pool to the arena of page 0.
    pub base: u64,
    /// Bytes from one page to the next.
    pub stride: u64,
    /// Bytes of the arena in one page.
    pub bytes: u64,
}

impl KvGeometry {
    /// Chooses the page sizes for these groups. Groups without layers are legal and cost nothing.
    ///
    /// # Errors
    /// If a group's settings do not fit together, or a size overflows.
    pub fn new(groups: Vec<LayerGroup>) -> Result<Self> {
        if groups.len() > MAX_GROUPS {
            let group = groups[MAX_GROUPS].name.clone();
            return Err(KvError::InvalidGroup { group, problem: GroupProblem::TooMany });
        }
        for group in &groups {
            group.check()?;
        }
        let page_sizes::PageSizes { pages, classes, large_page } = page_sizes::choose(&groups)?;
        Ok(Self { groups, pages, classes, large_page })
    }

    /// Returns the groups.
    #[must_use]
    pub fn groups(&self) -> &[LayerGroup] {
        &self.groups
    }

    /// Returns the bytes of a large page.
    #[must_use]
    pub fn large_page_bytes(&self) -> u64 {
        self.large_page
    }

    /// Returns the number of pages of one block: the group has this number of block tables. An empty group
    /// has none.
    #[must_use]
    pub fn parts(&self, group: usize) -> u32 {
        self.pages.get(group).map_or(0, |pages| pages.parts)
    }

    /// Returns the bytes of one page of a group; 0 for an empty group.
    #[must_use]
    pub fn page_bytes(&self, group: usize) -> u64 {
        self.pages.get(group).filter(|pages| pages.parts > 0).map_or(0, |pages| pages.bytes)
    }

    /// Returns the place of an arena of a layer; layers count from 0 in each group. `None` if there is no
    /// such arena. The tables of layers that share another layer's memory are the owner's.
    #[must_use]
    pub fn arena(&self, group: usize, layer: u32, arena: usize) -> Option<ArenaView> {
        let (spec, pages) = (self.groups.get(group)?, self.pages.get(group)?);
        if layer >= spec.layers || pages.parts == 0 {
            return None;
        }
        let layers_per_page = spec.layers / pages.parts;
        let layer_in_page = u64::from(layer % layers_per_page);
        let before: u64 = (0..arena).map(|index| spec.arena_block_bytes(index)).sum::<Option<u64>>()?;
        Some(ArenaView {
            part: layer / layers_per_page,
            base: layer_in_page * spec.layer_block_bytes()? + before,
            stride: pages.bytes,
            bytes: spec.arena_block_bytes(arena)?,
        })
    }

    /// Returns the bytes that `tokens` computed tokens need when `in_flight` more are scheduled: every
    /// layer's bytes of the tokens it still attends to, without any rounding, and at most `u64::MAX`.
    #[must_use]
    pub fn needed_bytes(&self, tokens: u32, in_flight: u32) -> u64 {
        let groups = self.groups.iter().map(|group| group.needed_bytes(tokens, in_flight));
        groups.fold(0, u64::saturating_add)
    }

    /// Returns the ranges of the pool with the first `tokens` tokens of a block: whole pages if it is full.
    pub(crate) fn content_ranges(&self, group: usize, pages: &[u32], tokens: u32) -> Vec<Range<u64>> {
        let (spec, bytes) = (&self.groups[group], self.page_bytes(group));
        if tokens >= spec.span() {
            let page = |&page: &u32| u64::from(page) * bytes..(u64::from(page) + 1) * bytes;
            return pages.iter().map(page).collect();
        }
        let mut ranges = Vec::new();
        for layer in 0..spec.layers {
            for arena in 0..spec.arenas.len() {
                let Some(view) = self.arena(group, layer, arena) else { continue };
                let start = view.base + u64::from(pages[view.part as usize]) * view.stride;
                ranges.push(start..start + spec.arena_bytes_of(arena, tokens));
            }
        }
        ranges
    }

    /// Returns the bytes of the first `tokens` tokens of a block.
    pub(crate) fn content_bytes(&self, group: usize, tokens: u32) -> u64 {
        let spec = &self.groups[group];
        if tokens >= spec.span() {
            return self.page_bytes(group) * u64::from(self.parts(group));
        }
        let arenas = (0..spec.arenas.len()).map(|arena| spec.arena_bytes_of(arena, tokens));
        arenas.sum::<u64>() * u64::from(spec.layers)
    }

    pub(crate) fn pages(&self) -> &[GroupPages] {
        &self.pages
    }

    pub(crate) fn classes(&self) -> &[u64] {
        &self.classes
    }
}
