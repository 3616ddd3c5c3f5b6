//! The blocks of a prefix, by the names that tiers know them by.

use super::KvPool;
use crate::chain::Chain;
use crate::geometry::GroupKind;
use crate::tier::BlockKey;

/// A block that a prefix consists of.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixBlock {
    pub(super) group: usize,
    pub(super) index: u32,
    pub(super) key: BlockKey,
}

/// Returns the indices of a group's blocks that a hit at `tokens` tokens needs: of runs from the start, of
/// windows and states those that are kept.
pub(super) fn prefix_indices(
    pool: &KvPool,
    group: usize,
    tokens: u32,
) -> impl DoubleEndedIterator<Item = u32> {
    let spec = &pool.geometry.groups()[group];
    let is_needed = pool.geometry.parts(group) > 0 && !spec.optional && tokens > 0;
    let last = tokens.div_ceil(spec.span());
    let first = spec.first_token(tokens);
    let first = if first == tokens { last } else { first / spec.span() };
    let (sinks, rest) = match spec.kind {
        GroupKind::State => (0, 0..1),
        GroupKind::Window { sinks, .. } => (sinks.min(tokens).div_ceil(spec.span()).min(first), first..last),
        GroupKind::Cross => (0, 0..0),
        _ => (0, first..last),
    };
    let (sinks, rest) = if is_needed { (sinks, rest) } else { (0, 0..0) };
    (0..sinks).chain(rest)
}

/// Returns a block of a prefix of `tokens` tokens, all of whose units are known.
pub(super) fn prefix_block(
    pool: &KvPool,
    chain: &Chain,
    group: usize,
    index: u32,
    tokens: u32,
) -> PrefixBlock {
    let (spec, unit) = (&pool.geometry.groups()[group], pool.settings.keys.unit);
    let is_state = spec.kind == GroupKind::State;
    let start = if is_state { 0 } else { index * spec.span() };
    let end = if is_state { tokens } else { tokens.min(start.saturating_add(spec.span())) };
    let hash = chain.hashes()[(end.div_ceil(unit) - 1) as usize];
    let tokens = if is_state { 1 } else { end - start };
    let (of, shard) = (u32::try_from(group).unwrap_or(u32::MAX), pool.settings.shard);
    PrefixBlock { group, index, key: BlockKey { hash, shard, group: of, index, tokens } }
}
