//! Timestamped free: chunks whose memory a device may still use stay separate until the device is done with
//! it.
//!
//! With a clock, every free gets a stamp. A stamped chunk is not merged with its neighbours, and a request
//! may accept only chunks freed at or before a given stamp. When the *safe frontier* passes a stamp, the
//! stamp is cleared and the chunk merges. A request without such a bound that finds no chunk may merge
//! stamped chunks anyway, because it accepts any chunk. The pass over the queue is `Heap::merge_stamped`.

use super::chunks::Index;
use std::collections::VecDeque;

/// The stamped chunks that wait for the safe frontier, and the frontier.
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

    /// Notes a stamp of a chunk that is in the queue, or comes into it.
    pub(crate) fn note(&mut self, stamp: u64) {
        self.due |= self.is_safe(stamp);
    }

    /// Adds a chunk to the end of the queue.
    pub(crate) fn push(&mut self, index: Index) {
        self.queue.push_back(index);
    }

    /// Empties the queue for a pass over it. Chunks whose stamps are not safe are to be queued again.
    pub(crate) fn take(&mut self) -> VecDeque<Index> {
        self.due = false;
        std::mem::take(&mut self.queue)
    }
}
