//! The nodes and boundaries of the index.

use super::Rank;
use std::hash::Hasher;

/// A run of match units.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) children: u32,
    /// The first unit.
    pub(super) start: u32,
    /// The last use.
    pub(super) tick: u64,
    pub(super) hashes: Vec<u128>,
    /// For each run group, the blocks from the one with the first token to the one with the last.
    pub(super) runs: Vec<Vec<u32>>,
    /// Boundaries by position.
    pub(super) boundaries: Vec<u32>,
    /// The tokens of the units, if they are compared.
    pub(super) tokens: Vec<u32>,
    /// Positions up to which the user has pinned the prefix, one for each pin.
    pub(super) pins: Vec<u32>,
    pub(super) tenant: u32,
}

impl Node {
    /// Returns the unit after the last.
    pub(super) fn end(&self) -> u32 {
        self.start + u32::try_from(self.hashes.len()).unwrap_or(u32::MAX)
    }
}

/// A block of a group that does not keep every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) group: u32,
    /// The index of the block in the sequence.
    pub(crate) index: u32,
    pub(crate) block: u32,
}

/// A position at which a hit can end.
#[derive(Debug)]
pub(super) struct Boundary {
    pub(super) node: u32,
    /// Units before the position.
    pub(super) end: u32,
    pub(super) tails: Vec<Tail>,
    pub(super) rank: Rank,
    /// The last use.
    pub(super) tick: u64,
    /// Distinguishes boundaries that had the same number.
    pub(super) generation: u32,
    pub(super) is_parked: bool,
}

impl Boundary {
    pub(super) fn hit(&mut self, clock: u64) {
        self.tick = clock;
        self.rank = self.rank.after_hit();
    }
}

/// Hashes that are hashes already: of a keyed function, so that no caller can choose them.
#[derive(Debug, Default)]
pub(super) struct UnitHasher(u64);

impl Hasher for UnitHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, value: u128) {
        let low: u128 = value & u128::from(u64::MAX);
        self.0 = u64::try_from(low).unwrap_or_default();
    }
}
