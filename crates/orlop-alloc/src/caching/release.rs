//! Giving free memory back: wholly free regions, the ends of lines, pages of free chunks.

use super::Caching;
use super::index::ClassIndex;
use crate::backing::Backing;
use crate::central::heap::Heap;
use crate::central::regions::RemovedMemory;
use orlop_sync::Mutex;

/// Pages of free chunks go to the system if there are so many bytes together.
const DISCARD: usize = 16 << 10;

impl<B: Backing> Caching<B> {
    /// Gives free memory back until at most `target` bytes are held, and says how much that was. The growth lock is held.
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
            // Of some regions nothing is left.
            removed.extend(self.remove_free(&mut heap, target));
            heap.release_records();
            (removed, before.saturating_sub(heap.reserved) as u64)
        };
        // With the heap unlocked: a visitor of the backing's may return blocks.
        for removed in removed {
            // SAFETY: gained from this backing and out of the heap; nobody grows it meanwhile.
            unsafe { removed.release(&self.backing) };
        }
        bytes
    }

    /// Takes wholly free regions out as long as at least `target` bytes stay held.
    fn remove_free(&self, heap: &mut Heap<ClassIndex>, target: usize) -> Vec<RemovedMemory> {
        let mut removed = Vec::new();
        for (index, bytes) in heap.free_regions() {
            if bytes == 0 || heap.reserved.saturating_sub(target) >= bytes {
                removed.extend(heap.remove_region(index));
            }
        }
        removed
    }

    /// Gives pages of free chunks back, largest first, until at most `target` bytes are held.
    fn discard(&self, heap: &mut Heap<ClassIndex>, target: usize) {
        let mut chunks = heap.discardable(DISCARD);
        chunks.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        for (index, ptr, bytes) in chunks {
            if heap.reserved <= target {
                break;
            }
            // SAFETY: a free chunk: nobody uses its bytes, and nobody can take it while we hold the heap's lock.
            let discarded = unsafe { self.backing.discard(ptr, bytes) };
            if discarded > 0 {
                heap.discarded(index, discarded);
            }
        }
    }
}
