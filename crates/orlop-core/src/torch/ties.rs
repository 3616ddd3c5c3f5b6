//! The order of free blocks of equal size.

use super::{TorchReleases, TorchVersion};

/// Which of several free blocks of one size is taken.
///
/// Source: the comparators of blocks in `libc10_cuda`; checked against the binaries (`testdata/torch-golden`,
/// `testdata/torch-golden-order`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TieRule {
    /// That in the segment that was allocated first, and there the lowest: PyTorch from 2.13 on. Where a
    /// driver puts segments makes no difference.
    #[default]
    OldestSegment,
    /// The lowest: PyTorch until 2.11.
    LowestAddress,
}

/// The first release whose rule is not [`TieRule::LowestAddress`].
const BY_CREATION: TorchVersion = TorchVersion::new(2, 12);

/// The first release whose rule is [`TieRule::OldestSegment`].
const BY_SEGMENT: TorchVersion = TorchVersion::new(2, 13);

impl TorchReleases {
    /// Returns the rules of these releases, that of the newest first.
    #[must_use]
    pub fn tie_rules(&self) -> &'static [TieRule] {
        use TieRule::{LowestAddress, OldestSegment};
        match (self.can_be_since(BY_SEGMENT), self.can_be_before(BY_CREATION)) {
            (true, true) => &[OldestSegment, LowestAddress],
            (false, true) => &[LowestAddress],
            (_, false) => &[OldestSegment],
        }
    }
}
