//! [`LayerGroup`]: layers that keep the same tokens in the same form.

use crate::{GroupProblem, KvError, Result};

/// Which tokens the layers of a group keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupKind {
    /// Every token.
    Full,
    /// The last `tokens` tokens, the present one included, and the first `sinks` ones.
    Window {
        /// Tokens in the window.
        tokens: u32,
        /// Tokens at the start that are kept.
        sinks: u32,
    },
    /// The tokens since the last multiple of `tokens`.
    Chunked {
        /// Tokens in a chunk.
        tokens: u32,
    },
    /// One entry for each `ratio` tokens.
    Compressed {
        /// Tokens of an entry.
        ratio: u32,
    },
    /// A state of fixed size that every step rewrites.
    State,
    /// The tokens of an encoder: [`AdmissionRequest::encoder_tokens`](crate::AdmissionRequest).
    Cross,
}

/// One array that a layer keeps: its name, and the bytes of an entry.
///
/// An entry is a token, or for [`GroupKind::Compressed`] `ratio` tokens, or for [`GroupKind::State`] the
/// state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaSpec {
    /// The name, for messages.
    pub name: Box<str>,
    /// Bytes of an entry, for one layer and all shards.
    pub bytes: u64,
}

/// A group of layers. Fields are set by the constructors and the `with_` functions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerGroup {
    /// The name, for messages and events.
    pub name: Box<str>,
    /// Which tokens are kept.
    pub kind: GroupKind,
    /// Layers with memory of their own.
    pub layers: u32,
    /// Layers that read the memory of another layer of the group. They cost nothing.
    pub sharing: u32,
    /// The arrays of each layer, in the order of their places in a page.
    pub arenas: Vec<ArenaSpec>,
    /// Tokens of a block on one shard; 1 for states.
    pub block_tokens: u32,
    /// Shards that divide the bytes of an entry (tensor parallel).
    pub tensor_shards: u32,
    /// Shards that divide the tokens (decode-context parallel): a block covers this multiple of its tokens.
    pub context_shards: u32,
    /// Whether a prefix can be reused without this group. Its blocks are not cached.
    pub optional: bool,
    /// For states: whether they can be saved. If not, and the group is not optional, no prefix is reused.
    pub checkpointable: bool,
}

impl LayerGroup {
    fn new(name: &str, kind: GroupKind, layers: u32, bytes: u64, block_tokens: u32) -> Self {
        Self {
            name: name.into(),
            kind,
            layers,
            sharing: 0,
            arenas: vec![ArenaSpec { name: "kv".into(), bytes }],
            block_tokens,
            tensor_shards: 1,
            context_shards: 1,
            optional: false,
            checkpointable: true,
        }
    }

    /// Creates a group that keeps every token: `bytes` bytes per token and layer, in blocks of 16 tokens.
    #[must_use]
    pub fn full(name: &str, layers: u32, bytes: u64) -> Self {
        Self::new(name, GroupKind::Full, layers, bytes, 16)
    }

    /// Creates a group with a sliding window of `tokens` tokens, in blocks of 16.
    #[must_use]
    pub fn window(name: &str, layers: u32, bytes: u64, tokens: u32) -> Self {
        Self::new(name, GroupKind::Window { tokens, sinks: 0 }, layers, bytes, 16)
    }

    /// Creates a group of chunked local attention, in blocks of 16.
    #[must_use]
    pub fn chunked(name: &str, layers: u32, bytes: u64, tokens: u32) -> Self {
        Self::new(name, GroupKind::Chunked { tokens }, layers, bytes, 16)
    }

    /// Creates a group with one entry of `bytes` bytes for each `ratio` tokens, in blocks of 16 entries. The
    /// tail state of a compressor is a [state](Self::state) group that is [optional](Self::with_optional): at
    /// the end of an entry it is empty.
    #[must_use]
    pub fn compressed(name: &str, layers: u32, bytes: u64, ratio: u32) -> Self {
        let block = ratio.saturating_mul(16);
        Self::new(name, GroupKind::Compressed { ratio }, layers, bytes, block)
    }

    /// Creates a group of states of `bytes` bytes per layer.
    #[must_use]
    pub fn state(name: &str, layers: u32, bytes: u64) -> Self {
        Self::new(name, GroupKind::State, layers, bytes, 1)
    }

    /// Creates a group that keeps an encoder's tokens, in blocks of 16.
    #[must_use]
    pub fn cross(name: &str, layers: u32, bytes: u64) -> Self {
        Self::new(name, GroupKind::Cross, layers, bytes, 16)
    }

    /// Sets the tokens of a block on one shard.
    #[must_use]
    pub fn with_block_tokens(mut self, tokens: u32) -> Self {
        self.block_tokens = tokens;
        self
    }

    /// Sets the tokens at the start that a window keeps. Other kinds have none.
    #[must_use]
    pub fn with_sinks(mut self, tokens: u32) -> Self {
        if let GroupKind::Window { sinks, .. } = &mut self.kind {
            *sinks = tokens;
        }
        self
    }

    /// Adds an array of `bytes` bytes per entry.
    #[must_use]
    pub fn with_arena(mut self, name: &str, bytes: u64) -> Self {
        self.arenas.push(ArenaSpec { name: name.into(), bytes });
        self
    }

    /// Sets the number of further layers that read the memory of one of this group's layers.
    #[must_use]
    pub fn with_sharing(mut self, layers: u32) -> Self {
        self.sharing = layers;
        self
    }

    /// Sets the shards: those that divide the bytes, and those that divide the tokens.
    #[must_use]
    pub fn with_shards(mut self, tensor: u32, context: u32) -> Self {
        (self.tensor_shards, self.context_shards) = (tensor, context);
        self
    }

    /// Lets prefixes be reused without this group.
    #[must_use]
    pub fn with_optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Declares that the states cannot be saved.
    #[must_use]
    pub fn without_checkpoints(mut self) -> Self {
        self.checkpointable = false;
        self
    }

    /// Returns the tokens of a block over all context shards.
    #[must_use]
    pub fn span(&self) -> u32 {
        self.block_tokens.saturating_mul(self.context_shards)
    }

    pub(super) fn check(&self) -> Result<()> {
        let problem = |problem| Err(KvError::InvalidGroup { group: self.name.clone(), problem });
        if self.block_tokens == 0 || self.block_tokens.checked_mul(self.context_shards).is_none() {
            return problem(GroupProblem::EmptyBlock);
        }
        let shards = u64::from(self.tensor_shards);
        if shards == 0 || self.context_shards == 0 {
            return problem(GroupProblem::Shards);
        }
        if self.arenas.iter().any(|arena| arena.bytes % shards != 0) {
            return problem(GroupProblem::Shards);
        }
        match self.kind {
            GroupKind::Window { tokens: 0, .. } | GroupKind::Chunked { tokens: 0 } => {
                problem(GroupProblem::EmptyWindow)
            }
            GroupKind::Compressed { ratio } if ratio == 0 || !self.block_tokens.is_multiple_of(ratio) => {
                problem(GroupProblem::Ratio)
            }
            GroupKind::State if self.span() != 1 => problem(GroupProblem::EmptyBlock),
            _ => Ok(()),
        }
    }

    /// Returns the tokens of an entry.
    pub(crate) fn entry_tokens(&self) -> u32 {
        if let GroupKind::Compressed { ratio } = self.kind { ratio } else { 1 }
    }

    /// Returns the entries of a block.
    pub(crate) fn block_entries(&self) -> u32 {
        self.block_tokens / self.entry_tokens()
    }

    /// Returns the bytes of one arena of one layer in a block.
    pub(super) fn arena_block_bytes(&self, arena: usize) -> Option<u64> {
        let arena = self.arenas.get(arena)?;
        (arena.bytes / u64::from(self.tensor_shards)).checked_mul(self.block_entries().into())
    }

    /// Returns the bytes of the first `tokens` tokens of a block in one arena of one layer.
    pub(crate) fn arena_bytes_of(&self, arena: usize, tokens: u32) -> u64 {
        let entries = u64::from(tokens.div_ceil(self.context_shards) / self.entry_tokens());
        self.arenas[arena].bytes / u64::from(self.tensor_shards) * entries
    }

    /// Returns the bytes of all arenas of one layer in a block; `None` on overflow.
    pub(super) fn layer_block_bytes(&self) -> Option<u64> {
        (0..self.arenas.len()).try_fold(0_u64, |sum, arena| sum.checked_add(self.arena_block_bytes(arena)?))
    }

    /// Returns the first token that the next query attends to, after `tokens` computed ones. Sinks aside.
    pub(crate) fn first_token(&self, tokens: u32) -> u32 {
        match self.kind {
            GroupKind::Window { tokens: window, .. } => (tokens.saturating_add(1)).saturating_sub(window),
            GroupKind::Chunked { tokens: chunk } => tokens / chunk * chunk,
            _ => 0,
        }
    }

    /// Returns the bytes that the group needs, at most `u64::MAX`.
    pub(super) fn needed_bytes(&self, tokens: u32, in_flight: u32) -> u64 {
        let entries = self.arenas.iter().map(|arena| arena.bytes / u64::from(self.tensor_shards));
        let entry = entries.fold(0, u64::saturating_add);
        let end = u64::from(tokens) + u64::from(in_flight);
        let first = u64::from(self.first_token(tokens));
        let entries = match self.kind {
            GroupKind::State => u64::from(end > 0),
            GroupKind::Compressed { ratio } => end / u64::from(ratio),
            GroupKind::Cross => 0,
            GroupKind::Window { sinks, .. } => end - first + first.min(u64::from(sinks)),
            _ => end - first,
        };
        u64::from(self.layers).saturating_mul(entry).saturating_mul(entries)
    }
}
