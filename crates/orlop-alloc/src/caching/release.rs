//! Giving free memory back: wholly free regions, the ends of reservations, pages of free chunks.

use super::Caching;
use super::index::ClassIndex;
use crate::backing::Backing;
use crate::bfc::heap::Heap;
use crate::bfc::regions::RemovedMemory;
use orlop_sync::Mutex;

/// The minimum of bytes that are discarded in a free chunk.
const MIN_DISCARD: usize = 16 << 10;

impl<B: Backing> Caching<B> {
    /// Releases free memory until at most `target` bytes are reserved. Returns the bytes released. The growth
    /// lock is held.
    pub(super) fn release_down_to(&self, locked: &Mutex<Heap<ClassIndex>>, target: usize) -> u64 {
        let grain = self.backing.commit_granularity();
        let (removed, bytes) = {
            let mut heap = locked.lock();
            let before = heap.reserved;
            let mut removed = self.remove_free(&mut heap, target);
            let regions: Vec<_> = heap.regions.iter().rev().map(|(index, _)| index).collect();
            for index in regions {
                let excess = heap.reserved.saturating_sub(target);
                removed.extend(heap.shorten(index, grain, excess));
            }
            self.discard(&mut heap, target);
            // Regions whose pages were all discarded can be released now.
            removed.extend(self.remove_free(&mut heap, target));
            heap.release_records();
            (removed, before.saturating_sub(heap.reserved) as u64)
        };
        // With the heap unlocked: a visitor of the backing may free blocks.
        for removed in removed {
            // SAFETY: it came from this backing and was removed from the heap, which does not grow while the
            // growth lock is held.
            unsafe { removed.release(&self.backing) };
        }
        bytes
    }

    /// Removes wholly free regions while at least `target` bytes stay reserved.
    fn remove_free(&self, heap: &mut Heap<ClassIndex>, target: usize) -> Vec<RemovedMemory> {
        let mut removed = Vec::new();
        for (index, bytes) in heap.free_regions() {
            if bytes == 0 || heap.reserved.saturating_sub(target) >= bytes {
                removed.extend(heap.remove_region(index));
            }
        }
        removed
    }

    /// Discards pages of free chunks, the largest first, until at most `target` bytes are reserved.
    fn discard(&self, heap: &mut Heap<ClassIndex>, target: usize) {
        let mut chunks = heap.discardable(MIN_DISCARD);
        chunks.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        for (index, ptr, bytes) in chunks {
            if heap.reserved <= target {
                break;
            }
            // SAFETY: a free chunk: its bytes are unused, and no thread can take it while the heap's lock is
            // held.
            let discarded = unsafe { self.backing.discard(ptr, bytes) };
            if discarded > 0 {
                heap.discarded(index, discarded);
            }
        }
    }
}
