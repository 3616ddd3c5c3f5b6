//! The wholly free regions of the common pools, by size.
//!
//! Where reserved bytes are limited to the peak and no page can move, wholly free regions are released before
//! the engine grows beyond the peak. They have an index of their own, so that the smallest is found at once.

use super::Engine;
use super::chunks::{Chunk, Index};
use crate::backing::DeviceBacking;
use orlop_alloc::engine_support::{FreeChunk, SortedRuns};

/// The index of wholly free regions.
#[derive(Debug)]
pub(crate) struct WholeRegions {
    /// Whether the policy needs the index. If not, it stays empty.
    is_kept: bool,
    regions: SortedRuns<FreeChunk>,
    /// Their bytes.
    bytes: u64,
}

impl WholeRegions {
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { is_kept, regions: SortedRuns::default(), bytes: 0 }
    }

    /// Returns `true` if there is an index.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns the chunk of the smallest region.
    pub(crate) fn smallest(&self) -> Option<Index> {
        self.regions.first().map(|region| region.chunk)
    }

    /// Returns the chunk of the largest region.
    pub(crate) fn largest(&self) -> Option<Index> {
        self.regions.last().map(|region| region.chunk)
    }

    /// Returns the bytes of all regions.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Index> + '_ {
        self.regions.iter().map(|region| region.chunk)
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Returns `true` if a free chunk belongs into the index.
    pub(crate) fn is_whole_region(&self, chunk: &Chunk) -> bool {
        self.whole_regions.is_kept && chunk.is_whole() && self.is_common_region(chunk)
    }

    /// Returns `true` if a chunk is in a common pool and in a region that came in one allocation.
    fn is_common_region(&self, chunk: &Chunk) -> bool {
        self.pools[chunk.pool as usize].private.is_none() && !self.is_paged(chunk)
    }

    /// Adds a free chunk to the index if it is in a common region. The caller has checked that there is an
    /// index and that the chunk is whole. It does so where it has read the chunk anyway: a function that
    /// takes the chunk costs 20 instructions more for an allocation and its free.
    #[inline(never)]
    pub(crate) fn add_whole_region(&mut self, index: Index) {
        let chunk = &self.chunks[index];
        if self.is_common_region(chunk) {
            self.whole_regions.regions.insert(chunk.as_free(index));
            self.whole_regions.bytes += chunk.size as u64;
        }
    }

    /// Removes a chunk from the index if it is in a common region. The caller has checked the same as for
    /// [`add_whole_region`](Self::add_whole_region).
    #[inline(never)]
    pub(crate) fn remove_whole_region(&mut self, index: Index) {
        let chunk = &self.chunks[index];
        if self.is_common_region(chunk) {
            let removed = self.whole_regions.regions.remove(chunk.as_free(index));
            debug_assert!(removed, "a wholly free region that is not in its index");
            self.whole_regions.bytes -= chunk.size as u64;
        }
    }
}
