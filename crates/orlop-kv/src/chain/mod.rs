//! Keys of prefixes: keyed 128-bit hashes, chained over match units.
//!
//! The hash is SipHash-2-4 with 128-bit output under a secret key, a pseudo-random function: without the
//! secret no collisions can be searched for. Every field has a type tag and a length, so that no two lists of
//! fields have the same bytes. Processes with the same secret compute the same keys.

mod encoding;
mod fields;

use self::encoding::{FieldTag, Fields, tag_word};
pub use self::fields::{Adapter, ChainFields, ChainSecret, MediaSpan, Tenant};

use crate::sip::SipState;

/// Returns the state after the tokens of each of these units, of one length. The hash of the unit before
/// comes last, so that the units of a chain overlap up to there: the rounds of one alone wait for each other.
fn absorb<const UNITS: usize>(sip: SipState, units: [&[u32]; UNITS]) -> [SipState; UNITS] {
    let mut states = [sip; UNITS];
    let pairs = units.map(|tokens| tokens.as_chunks::<2>().0);
    states
        .iter_mut()
        .zip(units)
        .for_each(|(state, unit)| state.word(tag_word(FieldTag::Tokens, unit.len() * 4)));
    for at in 0..pairs.map(<[_]>::len).into_iter().min().unwrap_or(0) {
        for (state, pairs) in states.iter_mut().zip(pairs) {
            let [first, second] = pairs[at];
            state.word(u64::from(second) << 32 | u64::from(first));
        }
    }
    states
}

/// Returns the hash of a unit without media, of an even number of tokens: of the same bytes as its fields.
fn close(mut state: SipState, parent: u128, tokens: usize) -> u128 {
    let words = parent.to_le_bytes();
    words.as_chunks::<8>().0.iter().for_each(|word| state.word(u64::from_le_bytes(*word)));
    state.finish(0, 24 + tokens * 4)
}

/// What keys depend on besides a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySettings {
    pub(crate) secret: ChainSecret,
    /// Tokens of a match unit.
    pub(crate) unit: u32,
    /// A text that differs between geometries.
    pub(crate) geometry: Box<str>,
    /// Whether tokens are compared besides their hashes.
    pub(crate) keeps_tokens: bool,
    /// Whether keys are computed: prefixes are reused.
    pub(crate) is_used: bool,
}

/// Complete units of a chain: their hashes, and their tokens if these are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefix<'a> {
    pub(crate) hashes: &'a [u128],
    pub(crate) tokens: Option<&'a [u32]>,
}

/// The hashes of one sequence's match units, as far as its tokens are known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    /// The state after the secret.
    sip: SipState,
    unit: u32,
    seed: u128,
    media: Vec<MediaSpan>,
    hashes: Vec<u128>,
    /// Tokens after the last complete unit.
    tail: Vec<u32>,
    /// The tokens of the complete units, if they are kept for comparison.
    tokens: Option<Vec<u32>>,
    /// Scratch memory for the fields of a unit.
    unit_fields: Fields,
    /// The tokens of a chain without keys; `None` if they are hashed.
    counted: Option<u32>,
}

impl Chain {
    /// Starts a chain without tokens.
    pub(crate) fn new(settings: &KeySettings, fields: &ChainFields<'_>) -> Self {
        let KeySettings { secret, unit, geometry, keeps_tokens, is_used } = settings;
        if !is_used {
            return Self { unit: *unit, counted: Some(0), ..Self::default() };
        }
        let (unit, keeps_tokens) = (*unit, *keeps_tokens);
        let mut start = Fields::default();
        start.field(FieldTag::Geometry, geometry.as_bytes());
        match fields.tenant {
            Tenant::Shared => start.field(FieldTag::Shared, &[]),
            Tenant::Named(name) => start.field(FieldTag::Tenant, name.as_bytes()),
        }
        start.field(FieldTag::Weights, fields.weights.as_bytes());
        start.field(FieldTag::Layout, fields.layout.as_bytes());
        if let Some(adapter) = fields.adapter {
            start.field(FieldTag::AdapterName, adapter.name.as_bytes());
            start.field(FieldTag::AdapterGeneration, &adapter.generation.to_le_bytes());
        }
        start.field(FieldTag::Salt, fields.salt);
        let (media, seed) = (fields.media.to_vec(), start.hash(secret));
        let sip = SipState::new(secret);
        let (hashes, tail, tokens) = (Vec::new(), Vec::new(), keeps_tokens.then(Vec::new));
        Self { sip, unit, seed, media, hashes, tail, tokens, unit_fields: start, counted: None }
    }

    /// Appends known tokens.
    pub(crate) fn push(&mut self, mut tokens: &[u32]) {
        if let Some(counted) = &mut self.counted {
            *counted = counted.saturating_add(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
            return;
        }
        let unit = self.unit as usize;
        if !self.tail.is_empty() {
            let (first, rest) = tokens.split_at(tokens.len().min(unit - self.tail.len()));
            self.tail.extend_from_slice(first);
            tokens = rest;
            if self.tail.len() == unit {
                let tail = std::mem::take(&mut self.tail);
                self.push_unit(&tail);
                self.tail = tail;
                self.tail.clear();
            }
        }
        if self.media.is_empty() && unit.is_multiple_of(2) {
            while tokens.len() >= 2 * unit {
                let (two, rest) = tokens.split_at(2 * unit);
                self.push_two(two);
                tokens = rest;
            }
        }
        let mut units = tokens.chunks_exact(unit);
        for tokens in &mut units {
            self.push_unit(tokens);
        }
        self.tail.extend_from_slice(units.remainder());
    }

    fn parent(&self) -> u128 {
        self.hashes.last().copied().unwrap_or(self.seed)
    }

    fn keep(&mut self, tokens: &[u32]) {
        if let Some(kept) = &mut self.tokens {
            kept.extend_from_slice(tokens);
        }
    }

    /// Appends two units of an even number of tokens, without media.
    fn push_two(&mut self, tokens: &[u32]) {
        self.keep(tokens);
        let (first, second) = tokens.split_at(tokens.len() / 2);
        for state in absorb(self.sip, [first, second]) {
            self.hashes.push(close(state, self.parent(), first.len()));
        }
    }

    fn push_unit(&mut self, tokens: &[u32]) {
        self.keep(tokens);
        let parent = self.parent();
        let start = self.hashes.len() as u64 * u64::from(self.unit);
        let end = start + u64::from(self.unit);
        let is_inside = |span: &&MediaSpan| {
            u64::from(span.position) < end && u64::from(span.position) + u64::from(span.tokens) > start
        };
        let mut media = self.media.iter().filter(is_inside).peekable();
        if media.peek().is_none() && tokens.len().is_multiple_of(2) {
            let [state] = absorb(self.sip, [tokens]);
            self.hashes.push(close(state, parent, tokens.len()));
            return;
        }
        self.unit_fields.clear();
        self.unit_fields.tokens(tokens);
        for span in media {
            self.unit_fields.field(FieldTag::MediaPosition, &u64::from(span.position).to_le_bytes());
            self.unit_fields.field(FieldTag::MediaDigest, &span.digest);
        }
        // The key before is last, has a fixed length and needs no tag.
        self.unit_fields.0.extend_from_slice(&parent.to_le_bytes());
        self.hashes.push(self.sip.bytes(&self.unit_fields.0));
    }

    /// Forgets the tokens from `len` on. Returns `false` if `len` is inside a hashed unit, whose tokens are
    /// not kept: the chain then ends with the unit before it, and the caller pushes the rest again.
    pub(crate) fn truncate(&mut self, len: u32) -> bool {
        if let Some(counted) = &mut self.counted {
            *counted = len.min(*counted);
            return true;
        }
        let hashed = self.hashes.len() as u64 * u64::from(self.unit);
        if u64::from(len) >= hashed {
            let kept = usize::try_from(u64::from(len) - hashed).unwrap_or(usize::MAX);
            self.tail.truncate(kept);
            return true;
        }
        self.hashes.truncate((len / self.unit) as usize);
        if let Some(kept) = &mut self.tokens {
            kept.truncate(self.hashes.len() * self.unit as usize);
        }
        self.tail.clear();
        len.is_multiple_of(self.unit)
    }

    /// Returns the hashes of the complete units.
    pub(crate) fn hashes(&self) -> &[u128] {
        &self.hashes
    }

    /// Returns the first `units` complete units, of which there are enough.
    pub(crate) fn prefix(&self, units: usize) -> Prefix<'_> {
        let tokens = self.tokens.as_deref().map(|tokens| &tokens[..units * self.unit as usize]);
        Prefix { hashes: &self.hashes[..units], tokens }
    }

    /// Returns all complete units.
    pub(crate) fn units(&self) -> Prefix<'_> {
        self.prefix(self.hashes.len())
    }

    pub(crate) fn into_hashes(self) -> Vec<u128> {
        self.hashes
    }

    /// Returns the number of known tokens.
    pub(crate) fn known(&self) -> u32 {
        let hashed = || self.hashes.len() as u64 * u64::from(self.unit) + self.tail.len() as u64;
        self.counted.unwrap_or_else(|| u32::try_from(hashed()).unwrap_or(u32::MAX))
    }

    pub(crate) fn reserve(&mut self, tokens: u32) {
        if self.counted.is_some() {
            return;
        }
        let units = (tokens / self.unit) as usize;
        self.hashes.reserve(units.saturating_sub(self.hashes.len()));
        let tail = self.unit.min(tokens) as usize;
        self.tail.reserve(tail.saturating_sub(self.tail.len()));
        if let Some(kept) = &mut self.tokens {
            kept.reserve((units * self.unit as usize).saturating_sub(kept.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(fields: &ChainFields<'_>, tokens: &[u32]) -> Vec<u128> {
        hashes_with(&[7; 16], fields, tokens)
    }

    fn hashes_with(secret: &ChainSecret, fields: &ChainFields<'_>, tokens: &[u32]) -> Vec<u128> {
        let mut chain = Chain::new(&settings(secret), fields);
        chain.push(tokens);
        chain.hashes().to_vec()
    }

    fn settings(secret: &ChainSecret) -> KeySettings {
        KeySettings {
            secret: *secret,
            unit: 16,
            geometry: "geometry".into(),
            keeps_tokens: true,
            is_used: true,
        }
    }

    fn tokens(count: u32) -> Vec<u32> {
        (0..count).map(|token| token * 7 + 1).collect()
    }

    /// vllm#44701, #44706, #52655, confidential-model-router#386.
    #[test]
    fn fields_do_not_run_into_each_other() {
        let base = ChainFields::new(Tenant::Shared, "w", "bf16");
        let adapter = |name| Some(Adapter { name, generation: 0 });
        let all = [
            ChainFields { adapter: adapter("x"), ..base },
            ChainFields { salt: b"x", ..base },
            ChainFields { adapter: adapter("a"), salt: b"b", ..base },
            ChainFields { adapter: adapter("b"), salt: b"a", ..base },
            ChainFields { tenant: Tenant::Named("org_1"), salt: b"2345", ..base },
            ChainFields { tenant: Tenant::Named("org_12345"), ..base },
            ChainFields { tenant: Tenant::Named(""), ..base },
            base,
            ChainFields { adapter: Some(Adapter { name: "x", generation: 1 }), ..base },
        ];
        let mut keys: Vec<u128> = all.iter().map(|fields| hashes(fields, &tokens(16))[0]).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
    }

    /// LMCache#1139, #2136, #1739.
    #[test]
    fn the_secret_decides_and_nothing_else_does() {
        let fields = ChainFields::new(Tenant::Shared, "w", "bf16");
        for count in 16..1016 {
            let tokens: Vec<u32> = (0..16).map(|at| at * count).collect();
            let first = hashes(&fields, &tokens);
            assert_eq!(first, hashes(&fields, &tokens));
            assert_ne!(first, hashes_with(&[8; 16], &fields, &tokens));
        }
        // Equal in every process: this figure is part of the format of exchanged keys.
        let fixed = hashes(&fields, &tokens(16))[0];
        assert_eq!(fixed, FIXED, "{fixed:#x}");
    }

    const FIXED: u128 = 0xf967_272a_83dd_0090_4044_5314_8f04_3f21;

    /// LMCache#3301, and the position of media in mistral.rs.
    #[test]
    fn media_count_from_the_first_unit_that_they_touch() {
        let span = |position, digest: &[u8]| MediaSpan { position, tokens: 8, digest: digest.into() };
        let base = ChainFields::new(Tenant::Shared, "w", "bf16");
        let with = |media: &[MediaSpan]| hashes(&ChainFields { media, ..base }, &tokens(64));
        let (early, late) = (with(&[span(20, b"a")]), with(&[span(36, b"a")]));
        assert_eq!(early[0], late[0]);
        assert_ne!(early[1], late[1]);
        let swapped = with(&[span(20, b"b"), span(36, b"a")]);
        let both = with(&[span(20, b"a"), span(36, b"b")]);
        assert_eq!((both[0], both[1] == swapped[1]), (swapped[0], false));
        // Digests that differ in their last byte only.
        let (mut x, mut y) = ([0; 32], [0; 32]);
        (x[31], y[31]) = (1, 2);
        assert_ne!(with(&[span(0, &x)])[0], with(&[span(0, &y)])[0]);
        // The position counts inside a unit, too.
        assert_ne!(with(&[span(16, b"a")])[1], with(&[span(17, b"a")])[1]);
    }

    /// Units without media and of an even number of tokens are hashed word by word, two at once: as their
    /// bytes.
    #[test]
    fn words_are_hashed_as_their_bytes() {
        for unit in [1, 2, 7, 16, 34] {
            let settings = KeySettings { unit, ..settings(&[7; 16]) };
            let all = tokens(unit * 5);
            let mut chain = Chain::new(&settings, &ChainFields::new(Tenant::Shared, "w", "bf16"));
            let mut parent = chain.seed;
            chain.push(&all);
            for (tokens, &hash) in all.chunks(unit as usize).zip(chain.hashes()) {
                let mut fields = Fields::default();
                fields.tokens(tokens);
                fields.0.extend_from_slice(&parent.to_le_bytes());
                assert_eq!(hash, fields.hash(&[7; 16]), "unit {unit}");
                parent = hash;
            }
        }
    }

    #[test]
    fn pieces_and_the_whole_have_the_same_hashes() {
        let fields = ChainFields::new(Tenant::Shared, "w", "bf16");
        let all = tokens(100);
        for piece in [1, 3, 16, 17, 40] {
            let mut chain = Chain::new(&settings(&[7; 16]), &fields);
            all.chunks(piece).for_each(|tokens| chain.push(tokens));
            assert_eq!(chain.hashes(), hashes(&fields, &all));
            assert_eq!(chain.known(), 100);
            assert!(chain.truncate(97));
            assert!(!chain.truncate(90));
            assert_eq!(chain.known(), 80);
            assert_eq!(chain.units().tokens, Some(&all[..80]));
            chain.push(&all[80..]);
            assert_eq!(chain.hashes(), hashes(&fields, &all));
        }
    }
}
