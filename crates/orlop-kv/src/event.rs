//! Events: what enters and leaves the index, for one outside that mirrors it.
//!
//! A mirror keeps the hashes of units and of boundaries. It matches a chain as far as it knows every unit,
//! and ends the hit at the last boundary inside; in a model whose groups all keep every token, at the last
//! unit.

use crate::{BlockKey, KvTier};

/// Why something left the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalReason {
    /// Its pages were needed, or no hit could reach it any more.
    Evicted,
    /// As [`Evicted`](Self::Evicted), and a lower tier has it.
    Demoted,
    /// A block that was partial has more tokens, under another name.
    Extended,
    /// It could not be used: it was torn, stale or foreign.
    Invalidated,
    /// The cache was discarded.
    Discarded,
}

/// A change of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvEvent {
    /// Events before this one were lost: more than [the limit](crate::KvPoolBuilder::event_limit) were not
    /// taken, or tiers were attached or detached. A mirror forgets everything: units, boundaries, and the
    /// blocks of all tiers. The events that follow announce all that the index and host memory have. Blocks
    /// that a store had before are not announced again.
    Reset {
        /// The number of events that were dropped.
        lost: u64,
    },
    /// Match units were added behind a known one.
    UnitsStored {
        /// The hash of the unit before; `None` at the start of a chain.
        parent: Option<u128>,
        /// The hashes, in the order of the chain.
        hashes: Box<[u128]>,
    },
    /// Match units were removed.
    UnitsRemoved {
        /// The hashes, in the order of the chain.
        hashes: Box<[u128]>,
        /// The reason.
        reason: RemovalReason,
    },
    /// A tier has a block. The blocks stored and not removed are what the tier holds; on the device the
    /// blocks of running sequences come besides. A store may hold more, from before a
    /// [reset](Self::Reset) or before it was attached, and has a block once, however often it is announced.
    BlockStored {
        /// The tier.
        tier: KvTier,
        /// The name of the content, with the group.
        key: BlockKey,
        /// Tokens of a block of this group.
        block_tokens: u32,
        /// Bytes of the block in this tier.
        bytes: u64,
    },
    /// A tier does not have a block any more. A block of a store need not have been announced: a mirror
    /// ignores the removal of one that it does not know.
    BlockRemoved {
        /// The tier.
        tier: KvTier,
        /// The name of the content, with the group.
        key: BlockKey,
        /// Tokens of a block of this group.
        block_tokens: u32,
        /// Bytes of the block in this tier.
        bytes: u64,
        /// The reason.
        reason: RemovalReason,
    },
    /// A hit can end behind this unit.
    BoundaryStored {
        /// The hash of the unit.
        hash: u128,
    },
    /// A hit cannot end behind this unit any more.
    BoundaryRemoved {
        /// The hash of the unit.
        hash: u128,
        /// The reason.
        reason: RemovalReason,
    },
}

impl KvEvent {
    /// Returns how often the event counts in the limit: once, or once for each hash.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::UnitsStored { hashes, .. } | Self::UnitsRemoved { hashes, .. } => hashes.len().max(1),
            _ => 1,
        }
    }
}
