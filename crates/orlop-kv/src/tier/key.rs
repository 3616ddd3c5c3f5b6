//! [`BlockKey`]: the name of a block's content.

use std::fmt;

/// The name of a block's content. Its display is a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    /// The hash of the match unit with the last token.
    pub hash: u128,
    /// The part of the model whose content it is: that of [the pool](crate::KvPoolBuilder::shard).
    pub shard: u32,
    /// The group.
    pub group: u32,
    /// The index of the block in the sequence; 0 for a state.
    pub index: u32,
    /// Tokens of the block, from its start; 1 for a state.
    pub tokens: u32,
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, shard, group, index, tokens } = self;
        write!(f, "{hash:032x}-{shard}-{group}-{index}-{tokens}")
    }
}
