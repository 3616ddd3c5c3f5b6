//! Frees of blocks that the fast path did not take.

use super::Caching;
use super::classes::CLASSES;
use super::thread_cache::ThreadCache;
use super::token::Token;
use crate::backing::Backing;
use crate::{AllocationId, RawBlock, Record, Result, Tag};
use orlop_sync::FastGuard;
use std::ptr::NonNull;

/// A thread may cache the reserved bytes divided by this, and at least [`MIN_MAX_CACHED`] bytes.
const CACHED_DIVISOR: usize = 2;
const MIN_MAX_CACHED: usize = 1 << 20;

impl<B: Backing> Caching<B> {
    /// Takes a freed block's record back. The caller is inside the slot of this cache.
    pub(super) fn put_back(&self, cache: &mut ThreadCache, record: Box<Record>) -> Result<()> {
        let token = Token(record.token);
        if token.class() >= CLASSES {
            cache.tags().remove_block(&record);
            self.heap.lock().put_record(record);
        } else if token.owner_slot() != cache.slot() {
            self.free_remotely(cache, record);
        } else {
            if !token.is_planned() && !cache.has_room() {
                self.make_room(cache);
            }
            if let Some(record) = cache.put(record) {
                self.heap.lock().put_placed(record)?;
            }
        }
        Ok(())
    }

    /// The fast path of a free, with no stream's use, that changes the counts by tag or belongs to another
    /// slot: a block with a tag goes back to the plan, one of another slot onto that slot's remote free list.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::give_cached`](crate::Allocator::give_cached). The guard is of this engine.
    #[inline(never)]
    pub(super) unsafe fn give_elsewhere(
        this: NonNull<Self>,
        mut guard: FastGuard<'_, ThreadCache>,
        block: RawBlock,
    ) -> Option<RawBlock> {
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record of this engine, and the caller uses it no more.
        if !guard.call(|cache| unsafe { cache.put_planned_tagged(block.record()) }) {
            let token = Token(block.token);
            if token.owner_slot() == guard.value().slot() || token.class() >= CLASSES {
                return Some(block);
            }
            // SAFETY: the engine is alive until the block is counted out (guaranteed by the caller).
            let engine = unsafe { this.as_ref() };
            // SAFETY: every block of this engine has a record of this engine.
            let record = unsafe { block.into_record() };
            guard.call(|cache| engine.free_remotely(cache, record));
        }
        guard.count_out(kind, granted, requested);
        None
    }

    /// Puts a block of a class, with no stream's use, onto the remote free list of the slot that handed it
    /// out. This slot's cache counts it out of its tag.
    fn free_remotely(&self, cache: &mut ThreadCache, mut record: Box<Record>) {
        cache.tags().remove_block(&record);
        record.tag = Tag::NONE;
        // So that a second free by address is detected.
        record.id = AllocationId::NONE;
        self.remote_frees[Token(record.token).owner_slot()].push(record);
    }

    /// Merges the cache if it is as large as it may be now, and sets its maximum by the reserved bytes.
    fn make_room(&self, cache: &mut ThreadCache) {
        let mut heap = self.heap.lock();
        let max = (heap.reserved / CACHED_DIVISOR).max(MIN_MAX_CACHED);
        if cache.cached() >= max {
            cache.drain(0, |record| heap.put_record(record));
        }
        cache.set_max_cached(max);
    }
}
