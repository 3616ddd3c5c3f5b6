//! Regions in the heap: adding, extending, shortening, removing, watching.

use super::bins::FreeIndex;
use super::chunks::{Chunk, Index, NONE, RegionMap};
use super::heap::Heap;
use crate::RegionWatch;
use crate::backing::{Backing, Region, Reservation};
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that was removed from the heap and is to be released to the backing.
#[derive(Debug)]
pub(crate) enum RemovedMemory {
    /// A region, or a whole reservation of which it is the committed part.
    Region(Region, Option<Reservation>),
    /// The end of the committed part of a reservation, which shrinks from `from` to `to` bytes.
    Tail { reservation: Reservation, from: usize, to: usize },
}

impl RemovedMemory {
    /// Returns its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match *self {
            Self::Region(region, _) => region.bytes,
            Self::Tail { from, to, .. } => from - to,
        }
    }

    /// Releases the memory.
    ///
    /// # Safety
    ///
    /// 1. It was obtained from `backing`;
    /// 2. it is released only once.
    pub(crate) unsafe fn release(self, backing: &impl Backing) {
        match self {
            // SAFETY: guaranteed by the caller; memory that was removed from the heap is unused.
            Self::Region(region, None) => unsafe { backing.release(region) },
            // SAFETY: as above.
            Self::Region(region, Some(reservation)) => unsafe {
                backing.release_addresses(reservation, region.bytes);
            },
            // SAFETY: as above.
            Self::Tail { reservation, from, to } => unsafe { backing.decommit(&reservation, from, to) },
        }
    }
}

impl<I: FreeIndex> Heap<I> {
    /// Returns the bytes that the regions span. A limit bounds this and not the reserved bytes: parts that
    /// were decommitted can be committed again at any moment.
    pub(crate) fn spanned(&self) -> usize {
        self.regions.iter().map(|(_, map)| map.region.bytes).sum()
    }

    /// Adds a region as one free chunk.
    pub(super) fn add_region(&mut self, map: RegionMap) {
        let size = self.policy.granule.round_down(map.region.bytes);
        let start = map.start();
        self.watched.note_added(&map);
        self.reserved += map.region.bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        let Some(index) = self.regions.insert(map) else { return };
        // If the slab is full, the region stays reserved but unused; it is released with the heap.
        if let Some(chunk) = self.chunks.insert(Chunk::free(start, size, index)) {
            if let Some(map) = self.regions.get_mut(index) {
                map.add_start(start, chunk, None);
                map.last = chunk;
            }
            self.bin(chunk);
        }
    }

    /// Adds memory to the end of a region that has grown in place to `bytes`.
    pub(super) fn lengthen(&mut self, region: Index, bytes: usize) {
        let Some(map) = self.regions.get_mut(region) else { return };
        let (end, last) = (map.end(), map.last);
        let more = bytes.saturating_sub(map.region.bytes);
        let resized = map.resize(bytes);
        self.reserved += more;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        if !resized {
            // There is no memory for the map: the new memory stays reserved but unused until the region is
            // removed.
            map.region.bytes = bytes;
        }
        self.watched.note_lengthened(end, more);
        if !resized {
            return;
        }
        if self.chunks[last].in_use() || self.chunks[last].freed_at > 0 {
            let Some(new) = self.chunks.insert(Chunk { previous: last, ..Chunk::free(end, more, region) })
            else {
                return;
            };
            let before = self.chunks[last].address;
            self.chunks[last].next = new;
            if let Some(map) = self.regions.get_mut(region) {
                map.add_start(end, new, Some(before));
                map.last = new;
            }
            self.bin(new);
        } else {
            self.unbin(last);
            self.chunks[last].size += more;
            self.bin(last);
        }
    }

    /// Removes free memory from the end of a region that grows in place: `excess` bytes, or less if less is
    /// free there. A multiple of `grain` is left, and never zero.
    pub(crate) fn shorten(
        &mut self,
        region: Index,
        grain: Alignment,
        excess: usize,
    ) -> Option<RemovedMemory> {
        let map = self.regions.get(region)?;
        let (reservation, start, from, last) = (map.reservation?, map.start(), map.region.bytes, map.last);
        let Chunk { address, previous, freed_at, .. } = self.chunks[last];
        if self.chunks[last].in_use() || freed_at > 0 {
            return None;
        }
        let used = grain.round_up((address - start).max(1)).ok()?;
        let to = used.max(grain.round_up(from.saturating_sub(excess)).ok()?);
        if to >= from {
            return None;
        }
        self.unbin(last);
        self.recommit(last);
        let size = start + to - address;
        self.chunks[last].size = size;
        let map = self.regions.get_mut(region)?;
        if size == 0 {
            map.remove_start(address, last, None);
            map.last = previous;
        }
        map.resize(to);
        map.clean_from = map.clean_from.min(start + to);
        if size == 0 {
            self.chunks[previous].next = NONE;
            self.chunks.remove(last);
        } else {
            self.bin(last);
        }
        self.reserved -= from - to;
        self.watched.note_shortened(start + to, from - to);
        Some(RemovedMemory::Tail { reservation, from, to })
    }

    /// Returns the free chunks with at least `at_least` bytes that are not discarded: index, pointer and
    /// length.
    pub(crate) fn discardable(&self, at_least: usize) -> Vec<(Index, NonNull<u8>, usize)> {
        let regions = self.regions.iter();
        let chunks = regions.flat_map(|(_, map)| self.walk(map).map(move |found| (map, found)));
        let chunks = chunks.filter(|(_, (_, chunk))| {
            chunk.binned && chunk.freed_at == 0 && chunk.size - chunk.discarded >= at_least
        });
        chunks.map(|(map, (index, chunk))| (index, map.pointer_to(chunk.address), chunk.size)).collect()
    }

    /// Records that `bytes` bytes of a free chunk's pages were discarded.
    pub(crate) fn discarded(&mut self, index: Index, bytes: usize) {
        let before = std::mem::replace(&mut self.chunks[index].discarded, bytes);
        self.reserved = self.reserved + before - bytes;
        self.watched.note_discarded(&self.chunks[index], bytes);
    }

    /// Counts the discarded pages of a chunk as reserved again, because the chunk is about to be used: the
    /// system commits them when they are touched.
    #[inline]
    pub(super) fn recommit(&mut self, index: Index) {
        let discarded = std::mem::take(&mut self.chunks[index].discarded);
        if discarded > 0 {
            self.reserved += discarded;
            self.peak_reserved = self.peak_reserved.max(self.reserved);
            self.watched.note_recommitted(&self.chunks[index]);
        }
    }

    /// Removes a wholly free region with its chunks.
    pub(crate) fn remove_region(&mut self, index: Index) -> Option<RemovedMemory> {
        let map = self.regions.get(index)?;
        let mut discarded = 0;
        let mut next = map.first();
        while let Some(chunk) = next.filter(|&chunk| chunk != NONE) {
            if self.chunks[chunk].binned {
                self.unbin(chunk);
            }
            discarded += self.chunks[chunk].discarded;
            next = Some(self.chunks[chunk].next);
            self.chunks.remove(chunk);
        }
        let map = self.regions.remove(index)?;
        self.watched.note_removed(&map);
        let RegionMap { region, reservation, .. } = map;
        self.reserved -= region.bytes - discarded;
        Some(RemovedMemory::Region(region, reservation))
    }

    /// Returns the wholly free regions with their reserved bytes, highest address first.
    pub(crate) fn free_regions(&self) -> Vec<(Index, usize)> {
        // A device may still use a chunk whose stamp is not safe: its region cannot be released either.
        let free =
            |chunk: &Chunk| !chunk.in_use() && (chunk.freed_at == 0 || self.stamps.is_safe(chunk.freed_at));
        let all_free = |map: &RegionMap| self.walk(map).all(|(_, chunk)| free(chunk));
        let held =
            |m: &RegionMap| m.region.bytes - self.walk(m).map(|(_, chunk)| chunk.discarded).sum::<usize>();
        self.regions.iter().rev().filter(|(_, m)| all_free(m)).map(|(i, m)| (i, held(m))).collect()
    }

    /// Records the removal of all regions.
    pub(crate) fn note_all_removed(&mut self) {
        for (_, map) in self.regions.iter() {
            self.watched.note_removed(map);
        }
    }

    /// Adds a watch of the regions: see [`WatchedRegions::add`](super::watch::WatchedRegions).
    #[must_use = "to be dropped with no lock held"]
    pub(crate) fn watch(&mut self, watch: &Arc<RegionWatch>) -> Vec<Arc<RegionWatch>> {
        let regions = self.regions.iter();
        let chunks = regions.flat_map(|(_, map)| self.chunks.walk(map)).map(|(_, chunk)| chunk);
        self.watched.add(watch, &self.regions, chunks)
    }
}
