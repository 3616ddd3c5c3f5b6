//! Regions in the heap: how they come, grow, shrink and go.

use super::bins::FreeIndex;
use super::chunks::{Chunk, Index, Mapped, NONE};
use super::heap::Heap;
use crate::RegionAction;
use crate::backing::{Backing, Region, Reservation};
use orlop_core::Alignment;
use std::ptr::NonNull;

/// What growth brought.
#[derive(Debug)]
pub(crate) enum Gain {
    /// Nothing new: something was rearranged, and it is worth looking again.
    Nothing,
    /// Another region.
    Region(Mapped),
    /// A region that grows in place has so many bytes now.
    Longer { region: Index, bytes: usize },
}

/// What came out of the heap, to be given back to the backing.
#[derive(Debug)]
pub(crate) enum Gone {
    /// A region, or a whole line of which it is the gained part.
    Region(Region, Option<Reservation>),
    /// The end of a line, which has `to` bytes left of `from`.
    End { line: Reservation, from: usize, to: usize },
}

impl Gone {
    /// How many bytes that is.
    pub(crate) fn bytes(&self) -> usize {
        match *self {
            Self::Region(region, _) => region.bytes,
            Self::End { from, to, .. } => from - to,
        }
    }

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// It was gained from `backing`, and this is the one time.
    pub(crate) unsafe fn release(self, backing: &impl Backing) {
        match self {
            // SAFETY: the caller's promise; what comes out of the heap is used by nobody.
            Self::Region(region, None) => unsafe { backing.release(region) },
            // SAFETY: as above.
            Self::Region(region, Some(line)) => unsafe { backing.release_addresses(line, region.bytes) },
            // SAFETY: as above.
            Self::End { line, from, to } => unsafe { backing.decommit(&line, from, to) },
        }
    }
}

impl<I: FreeIndex> Heap<I> {
    /// Returns the bytes that the regions span. A limit bounds this and not the reserved bytes: parts that were given
    /// back to the backing can be committed again at any moment.
    pub(crate) fn spanned(&self) -> usize {
        self.regions.iter().map(|(_, mapped)| mapped.region.bytes).sum()
    }

    /// Adds a region as one free chunk.
    pub(super) fn add_region(&mut self, mapped: Mapped) {
        let size = self.policy.granule.round_down(mapped.region.bytes);
        let start = mapped.start();
        self.note_region(&mapped);
        self.reserved += mapped.region.bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        let Some(index) = self.regions.insert(mapped) else { return };
        // A slab full of chunks leaves the region held and unused; it is given back with the heap.
        if let Some(chunk) = self.chunks.insert(Chunk::free(start, size, index)) {
            if let Some(mapped) = self.regions.get_mut(index) {
                mapped.begins(start, chunk, None);
                mapped.last = chunk;
            }
            self.bin(chunk);
        }
    }

    /// A region has grown in place to `bytes`.
    pub(super) fn lengthen(&mut self, region: Index, bytes: usize) {
        let Some(mapped) = self.regions.get_mut(region) else { return };
        let (end, last) = (mapped.end(), mapped.last);
        let more = bytes.saturating_sub(mapped.region.bytes);
        let resized = mapped.resize(bytes);
        self.reserved += more;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        if !resized {
            // No memory for the map: what was gained is held and unused until the region goes.
            mapped.region.bytes = bytes;
        }
        self.note(RegionAction::Mapped, end, more);
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
            if let Some(mapped) = self.regions.get_mut(region) {
                mapped.begins(end, new, Some(before));
                mapped.last = new;
            }
            self.bin(new);
        } else {
            self.unbin(last);
            self.chunks[last].size += more;
            self.bin(last);
        }
    }

    /// Takes the free end of a region that grows in place out: about `excess` bytes, or what there is. A multiple
    /// of `grain` stays, and never nothing.
    pub(crate) fn shorten(&mut self, region: Index, grain: Alignment, excess: usize) -> Option<Gone> {
        let mapped = self.regions.get(region)?;
        let (line, start, from, last) = (mapped.line?, mapped.start(), mapped.region.bytes, mapped.last);
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
        let mapped = self.regions.get_mut(region)?;
        if size == 0 {
            mapped.ends(address, last, None);
            mapped.last = previous;
        }
        mapped.resize(to);
        mapped.clean_from = mapped.clean_from.min(start + to);
        if size == 0 {
            self.chunks[previous].next = NONE;
            self.chunks.remove(last);
        } else {
            self.bin(last);
        }
        self.reserved -= from - to;
        self.note(RegionAction::Unmapped, start + to, from - to);
        Some(Gone::End { line, from, to })
    }

    /// Free chunks whose pages the system may have: their place and length.
    pub(crate) fn discardable(&self, at_least: usize) -> Vec<(Index, NonNull<u8>, usize)> {
        let regions = self.regions.iter();
        let chunks = regions.flat_map(|(_, mapped)| self.walk(mapped).map(move |found| (mapped, found)));
        let chunks = chunks.filter(|(_, (_, chunk))| {
            chunk.binned && chunk.freed_at == 0 && chunk.size - chunk.discarded >= at_least
        });
        chunks.map(|(mapped, (index, chunk))| (index, mapped.pointer_to(chunk.address), chunk.size)).collect()
    }

    /// The pages of a free chunk, so many bytes, are with the system.
    pub(crate) fn discarded(&mut self, index: Index, bytes: usize) {
        let before = std::mem::replace(&mut self.chunks[index].discarded, bytes);
        self.reserved = self.reserved + before - bytes;
        self.note_discarded(index, bytes);
    }

    /// A chunk is about to be used: what was with the system comes back when it is touched.
    #[inline]
    pub(super) fn recommit(&mut self, index: Index) {
        let discarded = std::mem::take(&mut self.chunks[index].discarded);
        if discarded > 0 {
            self.reserved += discarded;
            self.peak_reserved = self.peak_reserved.max(self.reserved);
            self.note_recommitted(index);
        }
    }

    /// Takes a wholly free region out, with its chunks.
    pub(crate) fn remove_region(&mut self, index: Index) -> Option<Gone> {
        let mapped = self.regions.get(index)?;
        let mut discarded = 0;
        let mut next = mapped.first();
        while let Some(chunk) = next.filter(|&chunk| chunk != NONE) {
            if self.chunks[chunk].binned {
                self.unbin(chunk);
            }
            discarded += self.chunks[chunk].discarded;
            next = Some(self.chunks[chunk].next);
            self.chunks.remove(chunk);
        }
        let mapped = self.regions.remove(index)?;
        self.note_gone(&mapped);
        let Mapped { region, line, .. } = mapped;
        self.reserved -= region.bytes - discarded;
        Some(Gone::Region(region, line))
    }

    /// Regions that nobody uses, highest address first, and how many bytes of them are reserved.
    pub(crate) fn free_regions(&self) -> Vec<(Index, usize)> {
        // A chunk with a stamp that is not safe may still be used by a device: its region cannot go either.
        let free =
            |chunk: &Chunk| !chunk.in_use() && (chunk.freed_at == 0 || self.stamps.is_safe(chunk.freed_at));
        let all_free = |mapped: &Mapped| self.walk(mapped).all(|(_, chunk)| free(chunk));
        let held =
            |m: &Mapped| m.region.bytes - self.walk(m).map(|(_, chunk)| chunk.discarded).sum::<usize>();
        self.regions.iter().rev().filter(|(_, m)| all_free(m)).map(|(i, m)| (i, held(m))).collect()
    }
}
