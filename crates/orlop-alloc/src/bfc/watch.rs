//! Region events of a heap.
//!
//! A region that does not grow is reserved and released as a whole. One that grows in place is mapped as it
//! grows and unmapped as it shrinks. So are the discarded pages of free chunks (*holes*): a chunk knows how
//! many of its bytes are discarded, and their addresses are kept here, only while there is an observer. The
//! heap does not know the page size of the system, nor where the holes of chunks are that were merged before
//! there was an observer: it reports one hole of the same length for those. The sums are right, and all of it
//! is free memory.

use super::chunks::{Chunk, RegionMap, Regions};
use crate::{RegionAction, RegionDelivery, RegionEvent, RegionWatch, RegionWatches};
use orlop_core::Device;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The page size assumed for the addresses of holes.
const PAGE: usize = 4096;

/// The watches of a heap's regions, which record each change of them.
#[derive(Debug)]
pub(crate) struct WatchedRegions {
    device: Device,
    watches: RegionWatches,
    /// Holes: address and length. Valid while there is an observer.
    holes: BTreeMap<usize, usize>,
}

/// Returns the actions for adding and for removing a region.
fn actions(map: &RegionMap) -> (RegionAction, RegionAction) {
    match map.reservation {
        Some(_) => (RegionAction::Mapped, RegionAction::Unmapped),
        None => (RegionAction::Reserved, RegionAction::Released),
    }
}

impl WatchedRegions {
    /// Creates the list of watches of a heap of `device`, without a watch.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, watches: RegionWatches::default(), holes: BTreeMap::new() }
    }

    /// Returns the recorded events: see [`RegionWatches::delivery`].
    pub(crate) fn delivery(&self) -> RegionDelivery {
        self.watches.delivery()
    }

    /// Adds a watch, and records the current `regions` of the heap in it, whose chunks are `chunks`. Returns
    /// the watches that have ended: drop them with no lock held.
    #[must_use = "to be dropped with no lock held"]
    pub(super) fn add<'a>(
        &mut self,
        watch: &Arc<RegionWatch>,
        regions: &Regions,
        chunks: impl Iterator<Item = &'a Chunk>,
    ) -> Vec<Arc<RegionWatch>> {
        if !self.watches.is_watched() {
            let chunks = chunks.filter(|chunk| chunk.discarded > 0);
            self.holes = chunks.map(|chunk| hole(chunk, chunk.discarded)).collect();
        }
        let mut held = Vec::new();
        for (_, map) in regions.iter() {
            let mut at = map.start();
            let ends = self.holes.range(at..map.end()).map(|(&hole, &bytes)| (hole, hole + bytes));
            for (hole, next) in ends.chain([(map.end(), map.end())]) {
                if hole > at {
                    held.push(RegionEvent::new(actions(map).0, at, hole - at, self.device));
                }
                at = next;
            }
        }
        self.watches.add(watch, held)
    }

    /// Records that the region was added.
    pub(super) fn note_added(&self, map: &RegionMap) {
        self.note(actions(map).0, map.start(), map.region.bytes);
    }

    /// Records that `bytes` bytes were added to the end of a region.
    pub(super) fn note_lengthened(&self, end: usize, bytes: usize) {
        self.note(RegionAction::Mapped, end, bytes);
    }

    /// Records that `bytes` bytes were removed from the end of a region, which now is `end`.
    pub(super) fn note_shortened(&self, end: usize, bytes: usize) {
        self.note(RegionAction::Unmapped, end, bytes);
    }

    /// Records the removal of a whole region. Its holes are filled first, so that the sizes of its events add
    /// up.
    pub(super) fn note_removed(&mut self, map: &RegionMap) {
        self.fill_holes(map.start(), map.end());
        self.note(actions(map).1, map.start(), map.region.bytes);
    }

    /// Records that `bytes` bytes of a free chunk are discarded.
    pub(super) fn note_discarded(&mut self, chunk: &Chunk, bytes: usize) {
        if self.watches.is_watched() {
            self.fill_holes(chunk.address, chunk.end());
            let (address, bytes) = hole(chunk, bytes);
            self.holes.insert(address, bytes);
            self.note(RegionAction::Unmapped, address, bytes);
        }
    }

    /// Records that the discarded pages of a chunk are used again.
    #[cold]
    pub(super) fn note_recommitted(&mut self, chunk: &Chunk) {
        self.fill_holes(chunk.address, chunk.end());
    }

    fn note(&self, action: RegionAction, address: usize, bytes: usize) {
        if bytes > 0 {
            self.watches.note(RegionEvent::new(action, address, bytes, self.device));
        }
    }

    fn fill_holes(&mut self, from: usize, to: usize) {
        while let Some((&address, &bytes)) = self.holes.range(from..to).next() {
            self.holes.remove(&address);
            self.note(RegionAction::Mapped, address, bytes);
        }
    }
}

/// Returns address and length of the hole that stands for `bytes` discarded bytes of a free chunk.
fn hole(chunk: &Chunk, bytes: usize) -> (usize, usize) {
    let last = chunk.end().saturating_sub(bytes);
    let address = chunk.address.checked_next_multiple_of(PAGE).map_or(last, |page| page.min(last));
    (address, bytes)
}
