//! Events: what enters and leaves the index, for one outside that mirrors it.
//!
//! A mirror keeps the hashes of units and of boundaries. It matches a chain as far as it knows every unit,
//! and ends the hit at the last boundary inside; in a model whose groups all keep every token, at the last
//! unit.

/// Why something left the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalReason {
    /// Its pages were needed, or no hit could reach it any more.
    Evicted,
    /// The cache was discarded.
    Discarded,
}

/// A change of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvEvent {
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
