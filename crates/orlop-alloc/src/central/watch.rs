//! What a heap tells of its regions, to those who watch.
//!
//! A region that does not grow is gained and lost. One that grows in place is mapped as it grows, and unmapped as it
//! shrinks. So are pages of free chunks that the system has for the time being (*holes*): a chunk knows how many bytes of
//! it those are, and where they are is kept here, and only while somebody watches. The heap does not know how long pages
//! are, nor where the holes are of chunks that were merged before anybody watched: one hole of as many bytes stands for
//! them then. Sums are right, and all of it is free memory.

use super::bins::FreeIndex;
use super::chunks::{Chunk, Index, Mapped};
use super::heap::Heap;
use crate::{RegionAction, RegionEvent, RegionWatch, RegionWatches};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The page that holes are taken to begin with.
const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Watched {
    watches: RegionWatches,
    /// By address, so many bytes. Right while somebody watches.
    holes: BTreeMap<usize, usize>,
}

impl Watched {
    /// Who looks, to be told.
    pub(crate) fn all(&self) -> Vec<Arc<RegionWatch>> {
        self.watches.all()
    }
}

/// What comes with a region, or goes with it.
fn actions(mapped: &Mapped) -> (RegionAction, RegionAction) {
    match mapped.line {
        Some(_) => (RegionAction::Mapped, RegionAction::Unmapped),
        None => (RegionAction::Gained, RegionAction::Lost),
    }
}

impl<I: FreeIndex> Heap<I> {
    /// From now on this watch is told, first of what is held. To be dropped with no lock held: those that have ended.
    #[must_use = "to be dropped with no lock held"]
    pub(crate) fn watch(&mut self, watch: &Arc<RegionWatch>) -> Vec<Arc<RegionWatch>> {
        if !self.watched.watches.is_watched() {
            let chunks = self.walk_all().filter(|chunk| chunk.discarded > 0);
            self.watched.holes = chunks.map(|chunk| hole(chunk, chunk.discarded)).collect();
        }
        let mut held = Vec::new();
        for (_, mapped) in self.regions.iter() {
            let mut at = mapped.start();
            let ends = self.watched.holes.range(at..mapped.end()).map(|(&hole, &bytes)| (hole, hole + bytes));
            for (hole, next) in ends.chain([(mapped.end(), mapped.end())]) {
                if hole > at {
                    held.push(RegionEvent::new(actions(mapped).0, at, hole - at, self.device));
                }
                at = next;
            }
        }
        self.watched.watches.add(watch, held)
    }

    pub(super) fn note_region(&self, mapped: &Mapped) {
        self.note(actions(mapped).0, mapped.start(), mapped.region.bytes);
    }

    pub(super) fn note(&self, action: RegionAction, address: usize, bytes: usize) {
        if bytes > 0 {
            self.watched.watches.note(RegionEvent::new(action, address, bytes, self.device));
        }
    }

    /// All of a region goes. Its holes are filled before: what goes is as long as what came.
    pub(super) fn note_gone(&mut self, mapped: &Mapped) {
        self.fill_holes(mapped.start(), mapped.end());
        self.note(actions(mapped).1, mapped.start(), mapped.region.bytes);
    }

    /// The heap goes with all that it holds.
    pub(super) fn note_all_gone(&mut self) {
        self.fill_holes(0, usize::MAX);
        for (_, mapped) in self.regions.iter() {
            self.note(actions(mapped).1, mapped.start(), mapped.region.bytes);
        }
    }

    /// So many bytes of a free chunk are with the system.
    pub(super) fn note_discarded(&mut self, index: Index, bytes: usize) {
        if self.watched.watches.is_watched() {
            let chunk = self.chunks[index];
            self.fill_holes(chunk.address, chunk.end());
            let (address, bytes) = hole(&chunk, bytes);
            self.watched.holes.insert(address, bytes);
            self.note(RegionAction::Unmapped, address, bytes);
        }
    }

    /// What the system had of a chunk comes back when it is touched.
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

/// Where in a free chunk so many bytes of whole pages are.
fn hole(chunk: &Chunk, bytes: usize) -> (usize, usize) {
    let last = chunk.end().saturating_sub(bytes);
    let address = chunk.address.checked_next_multiple_of(PAGE).map_or(last, |page| page.min(last));
    (address, bytes)
}
