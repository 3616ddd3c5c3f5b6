//! Timestamped free: chunks whose memory a device may still use stay separate until the device is done with
//! it.
//!
//! With a clock, every free gets a stamp. A stamped chunk is not merged with its neighbours, and a request
//! may accept only chunks freed at or before a given stamp. When the *safe frontier* passes a stamp, the
//! stamp is cleared and the chunk merges. A request without such a bound that finds no chunk may merge
//! stamped chunks anyway, because it accepts any chunk.
//!
//! Source: `MergeTimestampedChunks` in TensorFlow's `bfc_allocator.cc`. The rules are the same, including
//! that a merge pass identifies chunks by address.

use super::bins::FreeIndex;
use super::chunks::Index;
use super::heap::Heap;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Stamps {
    /// Slab indices of chunks freed with a stamp, oldest first, each once. An index may have been reused for
    /// another chunk.
    queue: VecDeque<Index>,
    safe_frontier: u64,
    /// Whether a pass over the queue would find a stamp to clear.
    due: bool,
}

impl Stamps {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Returns `true` if memory freed at `stamp` is safe for any use.
    pub(crate) fn is_safe(&self, stamp: u64) -> bool {
        stamp < self.safe_frontier
    }

    /// Declares everything stamped below `stamp` safe. The frontier never moves back.
    pub(crate) fn advance(&mut self, stamp: u64) {
        if stamp > self.safe_frontier {
            self.safe_frontier = stamp;
            self.due = !self.queue.is_empty();
        }
    }
}

impl<I: FreeIndex> Heap<I> {
    /// Queues a chunk that has a stamp until the stamp is safe.
    pub(crate) fn queue_stamp(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        if chunk.freed_at == 0 {
            return;
        }
        self.stamps.due |= self.stamps.is_safe(chunk.freed_at);
        if !std::mem::replace(&mut chunk.queued, true) {
            self.stamps.queue.push_back(index);
        }
    }

    /// Merges the chunks whose stamps are safe. If `required > 0`, merges others too, until one chunk has
    /// `required` bytes. Returns `true` if there is such a chunk.
    pub(crate) fn merge_stamped(&mut self, required: usize) -> bool {
        let mut satisfied = required == 0;
        let mut merge = Vec::new();
        self.stamps.due = false;
        for index in std::mem::take(&mut self.stamps.queue) {
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
