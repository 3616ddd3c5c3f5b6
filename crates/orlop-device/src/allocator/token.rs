//! The token of a block's record: where the engine's metadata of the block is, and what a cache of it needs.

use crate::engine::{Index, is_small};
use orlop_alloc::engine_support::RawBlock;

/// The bit of blocks of the small pools.
const SMALL: u64 = 1 << 63;

/// The bit of blocks that a thread may cache.
const CACHED: u64 = 1 << 62;

/// The bits of the mark of the block's stream ([`StreamMark`](super::stream_mark::StreamMark)).
pub(super) const MARK_BITS: u32 = 30;

/// A record's token: the index of the block's chunk and, if there is room, the mark of its stream and two
/// bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u64);

impl Token {
    /// Returns the token of a block in a chunk of this pool.
    #[inline(always)]
    pub(super) fn new(index: Index, mark: u32, pool: u16, may_be_cached: bool) -> Self {
        let small = if is_small(pool) { SMALL } else { 0 };
        let cached = if may_be_cached { CACHED } else { 0 };
        Self(small | cached | u64::from(mark) << u32::BITS | u64::from(index))
    }

    /// Returns the token of a block.
    #[inline(always)]
    pub(super) fn of(block: &RawBlock) -> Self {
        Self::from_bits(block.token)
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: usize) -> Self {
        Self(bits as u64)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "without room for it there is no mark, and no cache")]
    pub(super) fn bits(self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(super) fn index(self) -> Index {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) fn mark(self) -> u32 {
        (self.0 >> u32::BITS) as u32 & ((1 << MARK_BITS) - 1)
    }

    #[inline(always)]
    pub(super) fn is_small(self) -> bool {
        self.0 & SMALL != 0
    }

    #[inline(always)]
    pub(super) fn may_be_cached(self) -> bool {
        self.0 & CACHED != 0
    }
}
