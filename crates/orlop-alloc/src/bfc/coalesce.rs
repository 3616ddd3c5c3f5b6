//! Splitting and merging of chunks, by their stamps too, and their entry in the index of free chunks.

use super::bins::{Free, FreeIndex};
use super::chunks::{Chunk, Index, NONE};
use super::heap::Heap;

impl<I: FreeIndex> Heap<I> {
    /// Splits a chunk that is not in the index after `size` bytes. The new chunk behind it has the same
    /// stamp. Returns `None`, and changes nothing, if the slab is full.
    #[inline]
    pub(super) fn split(&mut self, index: Index, size: usize) -> Option<Index> {
        let Chunk { address, size: whole, next, freed_at, region, .. } = self.chunks[index];
        let start = address + size;
        let rest = Chunk { previous: index, next, freed_at, ..Chunk::free(start, whole - size, region) };
        let new = self.chunks.insert(rest)?;
        if next != NONE {
            self.chunks[next].previous = new;
        }
        if let Some(map) = self.regions.get_mut(region) {
            map.add_start(start, new, Some(address));
            if next == NONE {
                map.last = new;
            }
        }
        let chunk = &mut self.chunks[index];
        chunk.size = size;
        chunk.next = new;
        Some(new)
    }

    /// Merges a free chunk that is not in the index with its free neighbours. Stamped chunks are not merged
    /// unless `ignore_stamps`.
    pub(crate) fn coalesce(&mut self, index: Index, ignore_stamps: bool) -> Index {
        let chunk = &self.chunks[index];
        if chunk.freed_at > 0 && !ignore_stamps {
            return index;
        }
        let (previous, next) = (chunk.previous, chunk.next);
        let mergeable = |heap: &Self, neighbour: Index| {
            neighbour != NONE && {
                let neighbour = &heap.chunks[neighbour];
                !neighbour.in_use() && (neighbour.freed_at == 0 || ignore_stamps)
            }
        };
        if mergeable(self, next) {
            self.unbin(next);
            self.merge(index, next);
        }
        if mergeable(self, previous) {
            self.unbin(previous);
            self.merge(previous, index);
            return previous;
        }
        index
    }

    /// Merges two neighbours, which get the later stamp.
    pub(super) fn merge(&mut self, first: Index, second: Index) {
        let Chunk { address, size, next, freed_at, region, discarded, .. } = self.chunks[second];
        let kept = &mut self.chunks[first];
        kept.size += size;
        kept.next = next;
        kept.freed_at = kept.freed_at.max(freed_at);
        kept.discarded += discarded;
        let after = (next != NONE).then(|| {
            self.chunks[next].previous = first;
            (self.chunks[next].address, next)
        });
        if let Some(map) = self.regions.get_mut(region) {
            map.remove_start(address, second, after);
            if after.is_none() {
                map.last = first;
            }
        }
        self.chunks.remove(second);
    }

    #[inline]
    pub(crate) fn bin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        debug_assert!(!chunk.binned && !chunk.in_use());
        chunk.binned = true;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        self.bins.insert(free);
    }

    #[inline]
    pub(crate) fn unbin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        chunk.binned = false;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        let removed = self.bins.remove(free);
        debug_assert!(removed);
    }

    /// Queues a chunk that has a stamp until the stamp is safe.
    pub(crate) fn queue_stamp(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        if chunk.freed_at == 0 {
            return;
        }
        self.stamps.note(chunk.freed_at);
        if !std::mem::replace(&mut chunk.queued, true) {
            self.stamps.push(index);
        }
    }

    /// Merges the chunks whose stamps are safe. If `required > 0`, merges others too, until one chunk has
    /// `required` bytes. Returns `true` if there is such a chunk.
    ///
    /// Source: `MergeTimestampedChunks` in TensorFlow's `bfc_allocator.cc`. The rules are the same, including
    /// that a pass identifies chunks by address.
    pub(crate) fn merge_stamped(&mut self, required: usize) -> bool {
        let mut satisfied = required == 0;
        let mut merge = Vec::new();
        for index in self.stamps.take() {
            self.chunks[index].queued = false;
            let chunk = self.chunks[index];
            // The slab index may have been reused: it counts if its chunk is free and in the index.
            if chunk.in_use() || !chunk.binned {
                continue;
            }
            if chunk.freed_at == 0 {
                merge.push(chunk.address);
            } else if self.stamps.is_safe(chunk.freed_at) {
                self.chunks[index].freed_at = 0;
                merge.push(chunk.address);
            } else if required > 0 {
                merge.push(chunk.address);
            } else {
                self.queue_stamp(index);
            }
        }
        for address in merge {
            // No chunk starts there if an earlier iteration merged it into a neighbour.
            let region = self.regions.containing(address);
            let Some(index) = region.and_then(|map| map.chunk_at(address, &self.chunks)) else {
                continue;
            };
            if satisfied && required > 0 {
                self.queue_stamp(index);
                continue;
            }
            self.unbin(index);
            let merged = self.coalesce(index, required > 0);
            self.bin(merged);
            if required > 0 {
                let (size, freed_at) = (self.chunks[merged].size, self.chunks[merged].freed_at);
                // TensorFlow drops chunks that found no neighbour from the queue: their stamps are never
                // cleared there.
                if freed_at > 0 {
                    self.queue_stamp(merged);
                }
                satisfied = size >= required;
            }
        }
        satisfied
    }
}
