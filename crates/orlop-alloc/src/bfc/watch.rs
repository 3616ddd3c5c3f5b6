//! Region events of a heap.
//!
//! A region that does not grow is reserved and released as a whole. One that grows in place is mapped as it
//! grows and unmapped as it shrinks. So are the discarded pages of free chunks (*holes*): a chunk knows how
//! many of its bytes are discarded, and their addresses are kept here, only while there is an observer. The
//! heap does not know the page size of the system, nor where the holes of chunks are that were merged before
//! there was an observer: it reports one hole of the same length for those. The sums are right, and all of it
//! is free memory.

use super::bins::FreeIndex;
use super::chunks::{Chunk, Index, RegionMap};
use super::heap::Heap;
use crate::{RegionAction, RegionDelivery, RegionEvent, RegionWatch, RegionWatches};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The page size assumed for the addresses of holes.
const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct WatchedRegions {
    watches: RegionWatches,
    /// Holes: address and length. Valid while there is an observer.
    holes: BTreeMap<usize, usize>,
}

impl WatchedRegions {
    /// Returns the recorded events: see [`RegionWatches::delivery`].
    pub(crate) fn delivery(&self) -> RegionDelivery {
        self.watches.delivery()
    }
}

/// Returns the actions for adding and for removing a region.
fn actions(map: &RegionMap) -> (RegionAction, RegionAction) {
    match map.reservation {
        Some(_) => (RegionAction::Mapped, RegionAction::Unmapped),
        None => (RegionAction::Reserved, RegionAction::Released),
    }
}

impl<I: FreeIndex> Heap<I> {
    /// Adds a watch, and records the current regions in it. Returns the watches that have ended: drop them
    /// with no lock held.
    #[must_use = "to be dropped with no lock held"]
    pub(crate) fn watch(&mut self, watch: &Arc<RegionWatch>) -> Vec<Arc<RegionWatch>> {
        if !self.watched.watches.is_watched() {
            let chunks = self.walk_all().filter(|chunk| chunk.discarded > 0);
            self.watched.holes = chunks.map(|chunk| hole(chunk, chunk.discarded)).collect();
        }
        let mut held = Vec::new();
        for (_, map) in self.regions.iter() {
            let mut at = map.start();
            let ends = self.watched.holes.range(at..map.end()).map(|(&hole, &bytes)| (hole, hole + bytes));
            for (hole, next) in ends.chain([(map.end(), map.end())]) {
                if hole > at {
                    held.push(RegionEvent::new(actions(map).0, at, hole - at, self.device));
                }
                at = next;
            }
        }
        self.watched.watches.add(watch, held)
    }

    pub(super) fn note_region(&self, map: &RegionMap) {
        self.note(actions(map).0, map.start(), map.region.bytes);
    }

    pub(super) fn note(&self, action: RegionAction, address: usize, bytes: usize) {
        if bytes > 0 {
            self.watched.watches.note(RegionEvent::new(action, address, bytes, self.device));
        }
    }

    /// Records the removal of a whole region. Its holes are filled first, so that the sizes of its events add
    /// up.
    pub(super) fn note_removed(&mut self, map: &RegionMap) {
        self.fill_holes(map.start(), map.end());
        self.note(actions(map).1, map.start(), map.region.bytes);
    }

    /// Records the removal of all regions.
    pub(super) fn note_all_removed(&mut self) {
        self.fill_holes(0, usize::MAX);
        for (_, map) in self.regions.iter() {
            self.note(actions(map).1, map.start(), map.region.bytes);
        }
    }

    /// Records that `bytes` bytes of a free chunk are discarded.
    pub(super) fn note_discarded(&mut self, index: Index, bytes: usize) {
        if self.watched.watches.is_watched() {
            let chunk = self.chunks[index];
            self.fill_holes(chunk.address, chunk.end());
            let (address, bytes) = hole(&chunk, bytes);
            self.watched.holes.insert(address, bytes);
            self.note(RegionAction::Unmapped, address, bytes);
        }
    }

    /// Records that the discarded pages of a chunk are used again.
    #[cold]
    pub(super) fn note_recommitted(&mut self, index: Index) {
        let Chunk { address, size, .. } = self.chunks[index];
        self.fill_holes(address, address + size);
    }

    fn fill_holes(&mut self, from: usize, to: usize) {
        while let Some((&address, &bytes)) = self.watched.holes.range(from..to).next() {
            self.watched.holes.remove(&address);
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
