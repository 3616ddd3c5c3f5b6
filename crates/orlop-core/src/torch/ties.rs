//! The order of free blocks of equal size.

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
