//! A thread's cache of free blocks, in front of the engine.
//!
//! What a thread frees and requests again takes no lock: the block waits in the thread's slot, and a request
//! of the same bytes, stream and lifetime gets it. To the engine it is live, so that nothing else of it is
//! touched: its chunk, its record and its address stay.
//!
//! A cache has few blocks. When it is full, the older half goes back to the engine under one lock. A slow
//! path, which grows, steals or releases, first takes back all blocks of all threads, and closes the caches
//! until it ends; so do trimming, snapshots and captures. So cached blocks neither make the engine grow nor
//! keep memory from being released.
//!
//! A block of a retired stream is not cached: the stream may come back, but the block's memory is the default
//! stream's, and a request of the stream has to wait for it. The marks of blocks tell them apart
//! ([`StreamMark::first`](super::stream_mark::StreamMark::first)).
//!
//! The engine's statistics are those of the last time that it was told ([`CacheTurnover`]): each time that
//! the thread takes the lock, and before they are read. Peaks are exact with one thread; with several, a peak
//! that one of them makes counts the caches of the others as they were when the engine was last told.
//!
//! Lock order: growth, the engine, a visit of the slots. A thread inside its slot locks nothing.

use super::stream_mark::StreamMark;
use super::token::Token;
use crate::stats::{Amounts, CacheTurnover};
use orlop_alloc::Request;
use orlop_alloc::engine_support::RawBlock;
use orlop_core::{MemoryKind, StreamId};
use orlop_sync::{Slots, thread_slot};
use std::sync::atomic::{AtomicU32, Ordering};

/// The maximum number of blocks in a cache.
pub(super) const CACHED_BLOCKS: usize = 16;

/// The number of blocks that a full cache gives back.
pub(super) const SPILLED_BLOCKS: usize = CACHED_BLOCKS / 2;

/// More than any mark.
const CLOSED: u32 = u32::MAX;

/// Blocks on their way from a cache to the engine.
pub(super) type SpilledBlocks = [Option<RawBlock>; SPILLED_BLOCKS];

/// A thread's free blocks.
#[derive(Debug, Default)]
pub(super) struct ThreadCache {
    /// The requested bytes of each block, which a search reads first.
    bytes: [usize; CACHED_BLOCKS],
    /// The blocks, the one freed last at the end.
    blocks: [Option<RawBlock>; CACHED_BLOCKS],
    len: usize,
    turnover: CacheTurnover,
}

/// The caches of all threads.
#[derive(Debug)]
pub(super) struct ThreadCaches {
    slots: Slots<ThreadCache>,
    /// The smallest mark of the blocks that are cached; [`CLOSED`] if none are.
    first_mark: AtomicU32,
}

/// The result of a free into a cache.
pub(super) enum GivenBlock {
    Cached,
    /// The cache is full.
    Full(RawBlock),
    /// The block is not cached.
    Refused(RawBlock),
}

impl ThreadCache {
    /// Takes the block that was freed last for the same request.
    #[inline(always)]
    fn take(&mut self, request: &Request, stream: StreamId) -> Option<RawBlock> {
        let is_persistent = request.kind == MemoryKind::Persistent;
        let filled = self.bytes.get(..self.len)?;
        let place = filled.iter().zip(&self.blocks).rposition(|(&bytes, block)| {
            bytes == request.bytes
                && block.as_ref().is_some_and(|block| {
                    block.stream == stream && (block.kind == MemoryKind::Persistent) == is_persistent
                })
        })?;
        let block = self.blocks.get_mut(place)?.take()?;
        let last = self.len - 1;
        self.len = last;
        if place < last {
            self.bytes.copy_within(place + 1..CACHED_BLOCKS, place);
            self.blocks.get_mut(place..=last)?.rotate_left(1);
        }
        let small = Token::of(&block).is_small();
        self.turnover.count_taken(small, Amounts::of(block.granted, block.requested));
        Some(block)
    }

    /// Adds a block, if there is room.
    #[inline(always)]
    fn give(&mut self, block: RawBlock) -> GivenBlock {
        let (Some(bytes), Some(place)) = (self.bytes.get_mut(self.len), self.blocks.get_mut(self.len)) else {
            return GivenBlock::Full(block);
        };
        let small = Token::of(&block).is_small();
        self.turnover.count_given(small, Amounts::of(block.granted, block.requested));
        *bytes = block.requested;
        *place = Some(block);
        self.len += 1;
        GivenBlock::Cached
    }

    /// Takes out the older half of a full cache.
    fn spill(&mut self) -> SpilledBlocks {
        if self.len < CACHED_BLOCKS {
            return SpilledBlocks::default();
        }
        let spilled = std::array::from_fn(|place| self.blocks[place].take());
        self.blocks.rotate_left(SPILLED_BLOCKS);
        self.bytes.rotate_left(SPILLED_BLOCKS);
        self.len -= SPILLED_BLOCKS;
        spilled
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes out what the engine was not told yet.
    pub(super) fn take_turnover(&mut self) -> CacheTurnover {
        std::mem::take(&mut self.turnover)
    }

    /// Takes out all blocks.
    pub(super) fn take_blocks(&mut self) -> impl Iterator<Item = RawBlock> + '_ {
        self.len = 0;
        self.blocks.iter_mut().filter_map(Option::take)
    }
}

impl ThreadCaches {
    pub(super) fn new(is_open: bool) -> Self {
        let first_mark = AtomicU32::new(if is_open { StreamMark::NONE } else { CLOSED });
        Self { slots: Slots::new(), first_mark }
    }

    /// Opens all caches for blocks of this mark and of later ones.
    pub(super) fn open(&self, first_mark: u32) {
        self.first_mark.store(first_mark, Ordering::Relaxed);
    }

    /// Closes all caches. The caller drains them, which makes their threads see it.
    pub(super) fn close(&self) {
        self.first_mark.store(CLOSED, Ordering::Relaxed);
    }

    /// Takes a block that this thread freed, for the same request.
    #[inline(always)]
    pub(super) fn take(&self, request: &Request, stream: StreamId) -> Option<RawBlock> {
        // SAFETY: `take` calls nothing that could enter the slots, and the guard is dropped here.
        let mut cache = unsafe { self.slots.try_enter() }?;
        cache.take(request, stream)
    }

    /// Gives a block to this thread's cache.
    #[inline(always)]
    pub(super) fn give(&self, block: RawBlock) -> GivenBlock {
        // SAFETY: `give` calls nothing that could enter the slots, and the guard is dropped here.
        let Some(mut cache) = (unsafe { self.slots.try_enter() }) else { return self.create(block) };
        // Inside: a thread that has closed the caches has visited this one, or will.
        if Token::of(&block).mark() < self.first_mark.load(Ordering::Relaxed) {
            return GivenBlock::Refused(block);
        }
        cache.give(block)
    }

    /// Creates this thread's cache, unless there are none, or the thread has no slot of its own: a shared one
    /// is never entered again.
    #[cold]
    #[inline(never)]
    fn create(&self, block: RawBlock) -> GivenBlock {
        if self.first_mark.load(Ordering::Relaxed) != CLOSED && thread_slot::index() < thread_slot::OWNED {
            self.slots.with(|_| ());
        }
        GivenBlock::Refused(block)
    }

    /// Takes the older half out of this thread's cache if it is full, and what the cache did since the last
    /// time.
    pub(super) fn spill_own(&self) -> (CacheTurnover, SpilledBlocks) {
        // SAFETY: it moves a few words, and the guard is dropped here.
        match unsafe { self.slots.try_enter() } {
            Some(mut cache) => (cache.take_turnover(), cache.spill()),
            None => Default::default(),
        }
    }

    /// Runs `tell` with what this thread's cache did since the last time.
    #[inline(always)]
    pub(super) fn settle_own(&self, tell: impl FnOnce(&CacheTurnover)) {
        // SAFETY: it copies a few words, and the guard is dropped before the call.
        let turnover = match unsafe { self.slots.try_enter() } {
            Some(mut cache) => cache.take_turnover(),
            None => return,
        };
        tell(&turnover);
    }

    /// Visits all caches.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&mut ThreadCache)) {
        self.slots.for_each_slot(|cache, ()| visit(cache));
    }
}
