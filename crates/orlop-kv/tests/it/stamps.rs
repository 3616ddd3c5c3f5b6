//! Stamps, what a query attends to, and random numbers.

use orlop_kv::GroupKind;

fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 29)
}

/// The stamp of a position: its tokens so far, the position, the group and the layer.
pub(crate) fn stamp(tokens: &[u32], position: u32, group: usize, layer: u32) -> u64 {
    let prefix = tokens[..=position as usize].iter().fold(7, |hash, &token| mix(hash, token.into()));
    mix(mix(prefix, position.into()), mix(group as u64, layer.into()))
}

/// Returns the first token that the query at a position attends to, sinks aside.
pub(crate) fn first_attended(kind: GroupKind, position: u32) -> u32 {
    match kind {
        GroupKind::Window { tokens, .. } => (position + 1).saturating_sub(tokens),
        GroupKind::Chunked { tokens } => position / tokens * tokens,
        _ => 0,
    }
}

/// A small generator of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 = mix(self.0.wrapping_add(1), 0x1234_5678);
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}
