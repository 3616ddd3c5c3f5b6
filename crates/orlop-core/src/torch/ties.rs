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
    /// That which was made first, with its segment or by a split: PyTorch 2.12. A split makes the block
    /// that is handed out; the rest stays the block that was split.
    OldestBlock,
    /// The lowest: PyTorch until 2.11.
    LowestAddress,
}

/// The first release whose rule is not [`TieRule::LowestAddress`].
const BY_CREATION: TorchVersion = TorchVersion::new(2, 12);

/// The first release whose rule is [`TieRule::OldestSegment`].
const BY_SEGMENT: TorchVersion = TorchVersion::new(2, 13);

impl TorchReleases {
    /// Returns the rules of these releases: that of the newest first, and that of 2.12 alone last.
    #[must_use]
    pub fn tie_rules(&self) -> &'static [TieRule] {
        use TieRule::{LowestAddress, OldestBlock, OldestSegment};
        let newest = self.can_be_since(BY_SEGMENT);
        let oldest = self.can_be_before(BY_CREATION);
        let between = self.can_be_since(BY_CREATION) && self.can_be_before(BY_SEGMENT);
        match (newest, oldest, between) {
            (true, true, _) => &[OldestSegment, LowestAddress, OldestBlock],
            (true, false, true) => &[OldestSegment, OldestBlock],
            (true, false, false) => &[OldestSegment],
            (false, true, true) => &[LowestAddress, OldestBlock],
            (false, true, false) => &[LowestAddress],
            (false, false, _) => &[OldestBlock],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_the_rules_of_their_range() {
        use TieRule::{LowestAddress, OldestBlock, OldestSegment};
        let rules = |since: u16, before: Option<u16>| {
            let before = before.map(|minor| TorchVersion::new(2, minor));
            TorchReleases { since: TorchVersion::new(2, since), before }.tie_rules()
        };
        assert_eq!(TorchReleases::ALL.tie_rules(), [OldestSegment, LowestAddress, OldestBlock]);
        assert_eq!(rules(5, Some(9)), [LowestAddress]);
        assert_eq!(rules(10, Some(13)), [LowestAddress, OldestBlock]);
        assert_eq!(rules(12, None), [OldestSegment, OldestBlock]);
        assert_eq!(rules(12, Some(13)), [OldestBlock]);
        assert_eq!(rules(14, None), [OldestSegment]);
    }
}
