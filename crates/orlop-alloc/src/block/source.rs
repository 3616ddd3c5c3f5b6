//! What memory a block is of.

/// What a block is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemorySource {
    /// Memory of an allocator.
    Allocator,
    /// Foreign memory. The block's owner, if it has one, only counts it.
    Foreign,
    /// A part of memory that is counted as a whole. The block has no owner.
    Part,
}
