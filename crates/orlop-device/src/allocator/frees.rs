//! The way of a free through the locks.
//!
//! A block that one stream used goes into its thread's cache; what the cache gives up, and every other block,
//! goes to the engine. A free from inside the engine's lock (from what a call of the device reports) waits
//! until the lock is taken next.

use super::thread_cache::GivenBlock;
use super::token::Token;
use super::{DeviceAllocator, Inner};
use crate::backing::DeviceBacking;
use crate::engine::{DeviceBlock, prefetch};
use orlop_alloc::engine_support::{RawBlock, RecordSlab, trace_guarded};
use orlop_alloc::{Error, Result};
use orlop_sync::MutexGuard;
use orlop_sync::atomic::Ordering;

impl<B: DeviceBacking> Inner<B> {
    /// Takes back a block of a cache, which counted its free.
    fn take_back_counted(&mut self, block: RawBlock) {
        self.engine.free_counted(Token::of(&block).index());
        // SAFETY: it is a block of this allocator, whose records are of this slab.
        unsafe { self.records.give(block) };
    }
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// Takes back a block.
    ///
    /// # Safety
    ///
    /// [`Allocator::deallocate`](orlop_alloc::Allocator::deallocate).
    #[inline(always)]
    pub(super) unsafe fn take_back(&self, block: RawBlock) -> Result<()> {
        let may_be_cached = Token::of(&block).may_be_cached() && !block.has_stream_uses();
        let block = if may_be_cached && !self.captures.is_capturing() {
            match self.caches.give(block) {
                GivenBlock::Cached => return Ok(()),
                GivenBlock::Full(block) => {
                    // SAFETY: guaranteed by the caller.
                    return unsafe { self.spill_for(block) };
                }
                GivenBlock::Refused(block) => block,
            }
        } else {
            block
        };
        // SAFETY: the block came from this allocator (guaranteed by the caller).
        let (table, entry) = unsafe { RecordSlab::hints(&block) };
        // While the record is not in the cache yet, and while the lock is taken.
        prefetch(table, entry);
        // `None`: the call came from `with_engine`, from the backing, or from what that reports.
        let Some(mut inner) = self.inner.lock_unless_held() else {
            self.take_back_later(block);
            return Ok(());
        };
        self.caches.settle_own(|turnover| inner.engine.settle(turnover));
        // SAFETY: guaranteed by the caller.
        unsafe { self.take_back_locked(&mut inner, block) }
    }

    /// Takes back a block.
    ///
    /// # Safety
    ///
    /// [`Allocator::deallocate`](orlop_alloc::Allocator::deallocate).
    #[inline(always)]
    unsafe fn take_back_locked(&self, inner: &mut Inner<B>, block: RawBlock) -> Result<()> {
        let index = Token::of(&block).index();
        if block.has_stream_uses() {
            self.record_uses(inner, DeviceBlock(index), &block)?;
        }
        if inner.engine.free_at(DeviceBlock(index), block.address()).is_err() {
            return Err(foreign(&block));
        }
        // SAFETY: it is a block of this allocator, whose records are of this slab.
        unsafe { inner.records.give(block) };
        Ok(())
    }

    /// Keeps a block that is freed inside the engine's lock, until the lock is taken next.
    #[cold]
    pub(super) fn take_back_later(&self, block: RawBlock) {
        self.returned.lock().push(block);
        // Relaxed: a hint; the blocks are behind a lock.
        self.has_returned.store(true, Ordering::Relaxed);
    }

    /// Locks the engine, and takes back the blocks that waited for it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<B>> {
        let mut inner = self.inner.lock();
        // Relaxed: as above.
        if self.has_returned.swap(false, Ordering::Relaxed) {
            self.take_back_returned(&mut inner);
        }
        inner
    }

    #[cold]
    fn take_back_returned(&self, inner: &mut Inner<B>) {
        self.settle(inner);
        loop {
            // Not locked meanwhile: a free can call the device, and what that reports can free more.
            let Some(block) = self.returned.lock().pop() else { return };
            let address = block.address();
            // SAFETY: it was returned to this allocator, once.
            if let Err(error) = unsafe { self.take_back_locked(inner, block) } {
                trace_guarded(|| tracing::error!(%error, address, "a block leaked"));
            }
        }
    }

    /// Takes back the older half of this thread's cache, which is full, and caches a block. The older half is
    /// taken out under the engine's lock: a thread that drains the caches finds it in the cache, or free.
    ///
    /// # Safety
    ///
    /// [`Allocator::deallocate`](orlop_alloc::Allocator::deallocate).
    #[inline(never)]
    unsafe fn spill_for(&self, block: RawBlock) -> Result<()> {
        // `None`: as in `take_back`.
        let Some(mut inner) = self.inner.lock_unless_held() else {
            self.take_back_later(block);
            return Ok(());
        };
        let (turnover, spilled) = self.caches.spill_own();
        inner.engine.settle(&turnover);
        for block in spilled.iter().flatten() {
            // SAFETY: it is a block of this allocator.
            let (table, entry) = unsafe { RecordSlab::hints(block) };
            prefetch(table, entry);
        }
        spilled.into_iter().flatten().for_each(|block| inner.take_back_counted(block));
        match self.caches.give(block) {
            GivenBlock::Cached => Ok(()),
            // The caches were closed, or what a call of the device reports has filled this one.
            // SAFETY: guaranteed by the caller.
            GivenBlock::Full(block) | GivenBlock::Refused(block) => unsafe {
                self.take_back_locked(&mut inner, block)
            },
        }
    }

    /// Takes back the blocks of all caches. Returns `true` if there were any.
    pub(super) fn drain(&self, inner: &mut Inner<B>) -> bool {
        let mut blocks = Vec::new();
        self.caches.for_each(|cache| {
            inner.engine.settle(&cache.take_turnover());
            blocks.extend(cache.take_blocks());
        });
        let had_blocks = !blocks.is_empty();
        // After the visit: what a call of the device reports may free more into this thread's cache.
        blocks.into_iter().for_each(|block| inner.take_back_counted(block));
        had_blocks
    }

    /// Closes the caches and takes back their blocks, until [`open_caches`](Self::open_caches). Returns
    /// `true` if there were any. The caller holds the growth lock.
    pub(super) fn close_caches(&self, inner: &mut Inner<B>) -> bool {
        self.caches.close();
        self.drain(inner)
    }

    /// Opens the caches, if the policy has any and nothing distinguishes blocks of one stream.
    pub(super) fn open_caches(&self, inner: &Inner<B>) {
        if self.has_caches && inner.engine.allows_caches() {
            self.caches.open(inner.mark.first());
        }
    }

    /// Returns the number of blocks in all caches.
    #[cfg(test)]
    pub(crate) fn cached_blocks(&self) -> usize {
        let mut blocks = 0;
        self.caches.for_each(|cache| blocks += cache.len());
        blocks
    }

    /// Tells the engine what all caches did.
    pub(super) fn settle(&self, inner: &mut Inner<B>) {
        self.caches.for_each(|cache| inner.engine.settle(&cache.take_turnover()));
    }

    /// Records the streams that used a block.
    #[inline(never)]
    fn record_uses(&self, inner: &mut Inner<B>, own: DeviceBlock, block: &RawBlock) -> Result<()> {
        if !inner.engine.is_within(own, block.address()) {
            return Err(foreign(block));
        }
        for stream in block.stream_uses() {
            inner.engine.record_stream(own, self.device_stream(stream)).map_err(|_| foreign(block))?;
        }
        Ok(())
    }
}

#[cold]
fn foreign(block: &RawBlock) -> Error {
    Error::ForeignPointer { address: block.ptr.as_ptr().addr() }
}
