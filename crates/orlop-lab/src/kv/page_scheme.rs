//! What the same sequences take in the pages of other systems.
//!
//! | scheme | pages |
//! |---|---|
//! | unified pages | vLLM's: layers are cut into groups of equal numbers, all groups have one page size |
//! | packed overlays | vLLM's for layers of different sizes: one page, as large as the largest group |
//! | all layers full | every layer keeps every token, in blocks of 16 |
//!
//! Unified pages have as many layers as the smallest kind has, or the largest if that is less than 1.5 times
//! the smallest. A page of attention has as many tokens, a multiple of 16, that a state of one layer fits
//! into its share; entries that are smaller than the largest have more in a block, in multiples of 16. Packed
//! overlays keep exact sizes, and layers of different sizes that keep the same tokens together: each kind is
//! cut into groups of about the bytes of the smallest. A window gives a block back when the step before has
//! finished. Where a scheme's rules are not fixed by this, the cheaper choice is taken.

use orlop_kv::{GroupKind, LayerGroup};

/// The tokens of a block.
const BLOCK: u64 = 16;

/// A way of dividing KV memory into pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PageScheme {
    /// One page size for all groups, with padding.
    UnifiedPages,
    /// One page for all groups, as large as the largest of them.
    PackedOverlays,
    /// Every layer keeps every token. Not for models with states.
    AllLayersFull,
}

/// The layers of one kind, as the schemes count them.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    layers: u64,
    /// Bytes of the largest entry, or of a state.
    entry: u64,
    /// Bytes of the entries, or of the states, of all layers.
    all_entries: u64,
    /// Tokens of an entry; 0 for a state.
    ratio: u64,
    kind: GroupKind,
}

/// The pages of the layers of one kind.
#[derive(Debug, Clone, Copy)]
struct Cut {
    kind: GroupKind,
    /// The groups that the layers are cut into.
    groups: u64,
    /// The tokens of a block; 0 for a state.
    tokens: u64,
    /// The bytes of a block of one group.
    page_bytes: u64,
}

/// A scheme's pages for one model.
#[derive(Debug, Clone)]
pub(super) struct SchemePages {
    cuts: Vec<Cut>,
}

impl PageScheme {
    /// All schemes.
    pub const ALL: [Self; 3] = [Self::UnifiedPages, Self::PackedOverlays, Self::AllLayersFull];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnifiedPages => "unified pages",
            Self::PackedOverlays => "packed overlays",
            Self::AllLayersFull => "all layers full",
        }
    }

    /// Returns the pages of a model; `None` if the scheme does not serve it.
    pub(super) fn pages(self, groups: &[LayerGroup]) -> Option<SchemePages> {
        let buckets: Vec<Bucket> = groups.iter().filter_map(bucket).collect();
        let is_chunked = |bucket: &Bucket| matches!(bucket.kind, GroupKind::Chunked { .. });
        // vLLM keeps every token of all layers if some are chunked.
        let cuts = if self == Self::AllLayersFull || buckets.iter().any(is_chunked) {
            if buckets.iter().any(|bucket| bucket.ratio == 0) {
                return None;
            }
            buckets.iter().map(all_full).collect()
        } else if self == Self::UnifiedPages {
            unified(&buckets)?
        } else {
            packed(buckets)?
        };
        Some(SchemePages { cuts })
    }
}

fn all_full(bucket: &Bucket) -> Cut {
    let Bucket { all_entries, .. } = *bucket;
    Cut { kind: GroupKind::Full, groups: 1, tokens: BLOCK * bucket.ratio, page_bytes: BLOCK * all_entries }
}

/// Returns the entries of the largest kind in a block: a multiple of 16, such that a state fits into a
/// layer's share; and the bytes of that share.
fn block_of_largest(buckets: &[Bucket]) -> (u64, u64) {
    let largest = |is_state: bool| {
        let buckets = buckets.iter().filter(|bucket| (bucket.ratio == 0) == is_state);
        buckets.map(|bucket| bucket.entry).max().unwrap_or(0)
    };
    let (entry, state) = (largest(false).max(1), largest(true));
    let entries = state.div_ceil(entry).max(1).next_multiple_of(BLOCK);
    (entries, entries * entry)
}

/// Returns the size that others are cut by: the smallest, or the largest if it is not much larger.
fn unit_of(sizes: impl Iterator<Item = u64> + Clone) -> Option<u64> {
    let (smallest, largest) = (sizes.clone().min()?, sizes.max()?);
    Some(if 2 * largest < 3 * smallest { largest } else { smallest })
}

fn unified(buckets: &[Bucket]) -> Option<Vec<Cut>> {
    let (_, share) = block_of_largest(buckets);
    let layers = unit_of(buckets.iter().map(|bucket| bucket.layers))?;
    let cut = |bucket: &Bucket| Cut {
        kind: bucket.kind,
        groups: bucket.layers.div_ceil(layers),
        tokens: (share / bucket.entry).max(BLOCK) / BLOCK * BLOCK * bucket.ratio,
        page_bytes: layers * share,
    };
    Some(buckets.iter().map(cut).collect())
}

fn packed(mut buckets: Vec<Bucket>) -> Option<Vec<Cut>> {
    let (entries, _) = block_of_largest(&buckets);
    // Layers of different sizes that keep the same tokens are one kind.
    let mut merged: Vec<Bucket> = Vec::new();
    for bucket in buckets.drain(..) {
        match merged.iter_mut().find(|other| other.kind == bucket.kind) {
            Some(other) => {
                other.layers += bucket.layers;
                other.all_entries += bucket.all_entries;
            }
            None => merged.push(bucket),
        }
    }
    let block = |bucket: &Bucket| match bucket.ratio {
        0 => bucket.all_entries,
        _ => bucket.all_entries * entries,
    };
    let unit = unit_of(merged.iter().map(block))?.max(1);
    let groups = |bucket: &Bucket| block(bucket).div_ceil(unit).clamp(1, bucket.layers);
    let page =
        |bucket: &Bucket| (block(bucket) * bucket.layers.div_ceil(groups(bucket))).div_ceil(bucket.layers);
    let page_bytes = merged.iter().map(page).max()?;
    let cut = |bucket: &Bucket| Cut {
        kind: bucket.kind,
        groups: groups(bucket),
        tokens: entries * bucket.ratio,
        page_bytes,
    };
    Some(merged.iter().map(cut).collect())
}

fn bucket(group: &LayerGroup) -> Option<Bucket> {
    let entry =
        group.arenas.iter().map(|arena| arena.bytes).sum::<u64>() / u64::from(group.tensor_shards.max(1));
    let ratio = match group.kind {
        GroupKind::State => 0,
        GroupKind::Compressed { ratio } => u64::from(ratio),
        GroupKind::Cross => return None,
        _ => 1,
    };
    let layers = u64::from(group.layers);
    (layers > 0 && entry > 0).then_some(Bucket {
        layers,
        entry,
        all_entries: layers * entry,
        ratio,
        kind: group.kind,
    })
}

impl SchemePages {
    /// Returns the bytes of a sequence of `computed` tokens, of which `before` were computed before the last
    /// step began, with `in_flight` more scheduled.
    pub(super) fn bytes(&self, before: u32, computed: u32, in_flight: u32) -> u64 {
        let end = u64::from(computed) + u64::from(in_flight);
        let of_cut = |cut: &Cut| {
            let first = match cut.kind {
                GroupKind::Window { tokens, .. } => u64::from((before + 1).saturating_sub(tokens)),
                _ => 0,
            };
            let blocks = match cut.tokens {
                0 => 1,
                tokens => end.div_ceil(tokens) - first / tokens,
            };
            cut.groups * blocks * cut.page_bytes
        };
        self.cuts.iter().map(of_cut).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_kv::model_groups;

    fn bytes(scheme: PageScheme, model: &str, computed: u32) -> Option<u64> {
        let groups = model_groups(model).unwrap();
        Some(scheme.pages(&groups)?.bytes(computed, computed, 0))
    }

    #[test]
    fn attention_grows_until_a_state_fits() {
        // 80 tokens for Jamba, 544 for Qwen3-Next; seven groups of states, three with 12 layers.
        let jamba = 4 * 80 * 4096;
        assert_eq!(bytes(PageScheme::UnifiedPages, "jamba-v0.1", 80), Some((1 + 7) * jamba));
        assert_eq!(bytes(PageScheme::PackedOverlays, "jamba-v0.1", 80), Some((1 + 7) * jamba));
        let qwen = 12 * 544 * 2048;
        assert_eq!(bytes(PageScheme::UnifiedPages, "qwen3-next-80b", 545), Some((2 + 3) * qwen));
    }

    #[test]
    fn all_full_is_twice_the_need_where_half_of_the_layers_have_a_window() {
        let (full, unified) = (PageScheme::AllLayersFull, PageScheme::UnifiedPages);
        assert_eq!(bytes(full, "gpt-oss-20b", 8192), Some(2 * 12 * 2048 * 8192));
        let window = 12 * 2048 * (8192 - (8193 - 128) / 16 * 16);
        assert_eq!(bytes(unified, "gpt-oss-20b", 8192), Some(12 * 2048 * 8192 + window));
        assert_eq!(bytes(full, "jamba-v0.1", 80), None);
        assert_eq!(bytes(unified, "llama-4-scout", 16), bytes(full, "llama-4-scout", 16));
    }

    #[test]
    fn overlays_do_not_pad_the_groups_of_smaller_entries() {
        let packed = bytes(PageScheme::PackedOverlays, "glm-5.2", 16).unwrap();
        let unified = bytes(PageScheme::UnifiedPages, "glm-5.2", 16).unwrap();
        assert_eq!((packed, unified), (16 * (57 * 1152 + 21 * 1408), 4 * 21 * 16 * 1408));
        let packed = bytes(PageScheme::PackedOverlays, "deepseek-v4-flash", 16).unwrap();
        let unified = bytes(PageScheme::UnifiedPages, "deepseek-v4-flash", 16).unwrap();
        assert_eq!((packed, unified), (6 * 20 * 16 * 1024, 6 * 20 * 16 * 1280));
    }
}
