//! Timestamped free (T9): chunks whose memory a device may still use are kept apart until it is known to be
//! done.
//!
//! With a clock, every free gets a stamp. A stamped chunk is not merged with its neighbours, and a request may
//! say that it takes only chunks freed at or before some stamp. When the *safe frontier* passes a stamp, it is
//! cleared and the chunk merges. A request without a stamp that finds nothing may merge stamped chunks anyway:
//! it does not mind.
//!
//! Source: `MergeTimestampedChunks` in TensorFlow's `bfc_allocator.cc`; the rules are the same, the addresses
//! that a merge pass remembers included.

use super::bins::FreeIndex;
use super::chunks::Index;
use super::heap::Heap;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Stamps {
    /// Places of chunks freed with a stamp, oldest first, each once. Such a place may hold another chunk since.
    queue: VecDeque<Index>,
    safe_frontier: u64,
    /// Whether a walk of the queue would find something to clear.
    due: bool,
}

impl Stamps {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Whether what was freed at `stamp` may be used by all.
    pub(crate) fn is_safe(&self, stamp: u64) -> bool {
        stamp < self.safe_frontier
    }

    /// Everything stamped below `stamp` is safe. The frontier never moves back.
    pub(crate) fn advance(&mut self, stamp: u64) {
        if stamp > self.safe_frontier {
            self.safe_frontier = stamp;
            self.due = !self.queue.is_empty();
        }
    }
}

impl<I: FreeIndex> Heap<I> {
    /// Remembers a chunk that has a stamp, until that is safe.
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

    /// Merges chunks whose stamps are safe; with `required > 0` also others, until one has so many bytes.
    /// Returns whether there is such a chunk.
    pub(crate) fn merge_stamped(&mut self, required: usize) -> bool {
        let mut satisfied = required == 0;
        let mut merge = Vec::new();
        self.stamps.due = false;
        for index in std::mem::take(&mut self.stamps.queue) {
            self.chunks[index].queued = false;
            let chunk = self.chunks[index];
            // A place in the slab may have been used again since: it counts if it is free and in the index.
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
            // Merged into a neighbour by an earlier round: no chunk begins there any more.
            let region = self.regions.containing(address);
            let Some(index) = region.and_then(|mapped| mapped.chunk_at(address, &self.chunks)) else {
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
                // The original forgets those that found no neighbour: their stamps are never cleared.
                if freed_at > 0 {
                    self.queue_stamp(merged);
                }
                satisfied = size >= required;
            }
        }
        satisfied
    }
}
