//! Reports of a heap, and the check of its invariants.

use super::bins::{BINS, FreeIndex, bin_of, lower_bound};
use super::chunks::NONE;
use super::heap::Heap;
use crate::BinUse;
use crate::{Error, OutOfMemory, Record, Result, Tag, TagUse, Usage};
use orlop_core::MemoryKind;
use std::collections::HashMap;

impl<I: FreeIndex> Heap<I> {
    /// Returns the chunks by bin, used and free.
    pub(crate) fn bin_uses(&self) -> Vec<BinUse> {
        let granule = self.policy.granule;
        let empty = |bin| BinUse { from_bytes: lower_bound(bin, granule), ..BinUse::default() };
        let mut uses: Vec<BinUse> = (0..BINS).map(empty).collect();
        for chunk in self.walk_all() {
            let bin = &mut uses[bin_of(chunk.size, granule)];
            if chunk.in_use() {
                bin.used_chunks += 1;
                bin.used_bytes += chunk.size;
                bin.requested_bytes += chunk.requested;
            } else {
                bin.free_chunks += 1;
                bin.free_bytes += chunk.size;
            }
        }
        uses
    }

    pub(crate) fn describe(&self, report: &mut OutOfMemory) {
        report.live = self.live as u64;
        report.reserved = self.reserved as u64;
        report.free = (self.reserved - self.live) as u64;
        report.largest_free = self.bins.largest() as u64;
        report.bins = self.bin_uses();
        report.set_tags(self.tag_uses());
    }

    /// Returns live bytes by kind and tag.
    pub(crate) fn tag_uses(&self) -> Vec<TagUse> {
        let mut uses: HashMap<(MemoryKind, Tag), u64> = HashMap::new();
        for chunk in self.walk_all().filter(|chunk| chunk.in_use()) {
            *uses.entry((chunk.kind, chunk.tag)).or_default() += chunk.size as u64;
        }
        uses.into_iter().map(|((kind, tag), bytes)| TagUse { kind, tag, bytes }).collect()
    }

    /// Returns the usage. `other_metadata` is the engine's metadata beside the heap's, in bytes.
    pub(crate) fn usage(&self, other_metadata: usize) -> Usage {
        Usage {
            reserved: self.reserved as u64,
            peak_reserved: self.peak_reserved as u64,
            regions: self.regions.count() as u64,
            deferred: 0,
            metadata: (self.metadata() + other_metadata) as u64,
        }
    }

    /// Restarts the peak from the bytes reserved now.
    pub(crate) fn reset_peak(&mut self) {
        self.peak_reserved = self.reserved;
    }

    /// Returns the bytes of the heap's metadata.
    pub(crate) fn metadata(&self) -> usize {
        self.records * size_of::<Record>()
            + self.chunks.bytes()
            + self.bins.bytes()
            + self.regions.iter().map(|(_, map)| map.bytes()).sum::<usize>()
    }

    /// Checks the invariants listed in `heap.rs`.
    pub(crate) fn verify(&self) -> Result<()> {
        let broken = |rule, address| Err(Error::Corrupt { rule, address });
        let (mut live, mut reserved, mut free_chunks, mut end_before) = (0, 0, 0usize, 0);
        for (index, map) in self.regions.iter() {
            if map.start() < end_before {
                return broken("regions do not overlap", map.start());
            }
            end_before = map.end();
            reserved += map.region.bytes;
            reserved -= self.walk(map).map(|(_, chunk)| chunk.discarded).sum::<usize>();
            let (mut address, mut previous, mut free_before) = (map.start(), NONE, false);
            for (chunk_index, chunk) in self.walk(map) {
                if chunk.address != address || chunk.region != index {
                    return broken("chunks cover their region without gap", chunk.address);
                }
                if chunk.previous != previous {
                    return broken("chunks are linked both ways", chunk.address);
                }
                if map.chunk_at(chunk.address, &self.chunks) != Some(chunk_index) {
                    return broken("the region map names every chunk", chunk.address);
                }
                if !self.policy.granule.is_aligned(chunk.size) || chunk.size == 0 {
                    return broken("sizes are positive multiples of the granule", chunk.address);
                }
                if chunk.in_use() {
                    live += chunk.size;
                    if chunk.requested > chunk.size {
                        return broken("a chunk is at least as large as its request", chunk.address);
                    }
                } else {
                    free_chunks += 1;
                    if free_before && chunk.freed_at == 0 {
                        return broken("free neighbours are merged", chunk.address);
                    }
                }
                if chunk.binned == chunk.in_use() {
                    return broken("a chunk is either in use or in the index", chunk.address);
                }
                free_before = !chunk.in_use() && chunk.freed_at == 0;
                address = chunk.end();
                previous = chunk_index;
            }
            if previous != map.last {
                return broken("the list of a region ends with its last chunk", address);
            }
            if address != map.start() + self.policy.granule.round_down(map.region.bytes) {
                return broken("chunks cover their region to its end", address);
            }
        }
        let mut indexed = 0usize;
        for free in self.bins.iter() {
            indexed += 1;
            let chunk = &self.chunks[free.chunk];
            if chunk.size != free.size || chunk.address != free.address || !chunk.binned {
                return broken("the index describes its chunks", free.address);
            }
        }
        if indexed != free_chunks {
            return broken("every free chunk is in the index once", 0);
        }
        if live != self.live || reserved != self.reserved {
            return broken("live and reserved add up", 0);
        }
        Ok(())
    }
}
