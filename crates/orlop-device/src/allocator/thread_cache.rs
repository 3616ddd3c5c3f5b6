//! A thread's cache of free blocks, in front of the engine.
//!
//! What a thread frees and requests again takes no lock: the block waits in the thread's slot, and a request
//! of the same bytes, stream and lifetime gets it. To the engine it is live, so that nothing else of it is
//! touched: its chunk, its record and its address stay.
//!
//! A cache has few blocks. When it is full, the older half goes back to the engine under one lock. A slow
//! path, which grows, steals or releases, first takes back all blocks of all threads, and so do trimming,
//! snapshots and captures. So cached blocks neither make the engine grow nor keep memory from being released.
//!
//! The engine's statistics are those of the last time that it was told ([`CacheTurnover`]): each time that
//! the thread takes the lock, and before they are read. Peaks are exact with one thread; with several, blocks
//! that one of them has just freed into its cache may still count when another makes a peak.
//!
//! Lock order: growth, the engine, a visit of the slots. A thread inside its slot locks nothing.

use super::token::Token;
use crate::stats::{Amounts, CacheTurnover};
use orlop_alloc::Request;
use orlop_alloc::engine_support::RawBlock;
use orlop_core::{MemoryKind, StreamId};
use orlop_sync::Slots;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum number of blocks in a cache.
pub(super) const CACHED_BLOCKS: usize = 16;

/// The number of blocks that a full cache gives back.
pub(super) const SPILLED_BLOCKS: usize = CACHED_BLOCKS / 2;

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
    /// Whether blocks are cached: by the policy, and as long as nothing distinguishes blocks of one stream.
    is_open: AtomicBool,
}

/// The result of a free into a cache.
pub(super) enum GivenBlock {
    Cached,
    /// The cache was full: its older half goes back to the engine.
    Spilled(SpilledBlocks),
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

    /// Adds a block. Returns the older half if there is no room.
    #[inline(always)]
    fn give(&mut self, block: RawBlock) -> Option<SpilledBlocks> {
        let spilled = if self.len == CACHED_BLOCKS { Some(self.spill()) } else { None };
        let small = Token::of(&block).is_small();
        self.turnover.count_given(small, Amounts::of(block.granted, block.requested));
        if let (Some(bytes), Some(place)) = (self.bytes.get_mut(self.len), self.blocks.get_mut(self.len)) {
            *bytes = block.requested;
            *place = Some(block);
            self.len += 1;
        }
        spilled
    }

    #[cold]
    fn spill(&mut self) -> SpilledBlocks {
        let spilled = std::array::from_fn(|place| self.blocks[place].take());
        self.blocks.rotate_left(SPILLED_BLOCKS);
        self.bytes.rotate_left(SPILLED_BLOCKS);
        self.len -= SPILLED_BLOCKS;
        spilled
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
        Self { slots: Slots::new(), is_open: AtomicBool::new(is_open) }
    }

    /// Opens or closes all caches. The caller drains those that it closes, which makes their threads see it.
    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
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
        if !self.is_open.load(Ordering::Relaxed) {
            return GivenBlock::Refused(block);
        }
        cache.give(block).map_or(GivenBlock::Cached, GivenBlock::Spilled)
    }

    /// Creates this thread's cache, unless there are none, or the thread has no slot.
    #[cold]
    #[inline(never)]
    fn create(&self, block: RawBlock) -> GivenBlock {
        if self.is_open.load(Ordering::Relaxed) {
            self.slots.with(|_| ());
        }
        GivenBlock::Refused(block)
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
