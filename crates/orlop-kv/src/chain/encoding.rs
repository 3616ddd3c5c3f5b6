//! The bytes that keys are hashes of: fields with a type tag and a length.

use super::ChainSecret;
use crate::sip::SipState;

/// The type tags of hashed fields.
#[derive(Clone, Copy)]
pub(super) enum FieldTag {
    Geometry = 1,
    Shared,
    Tenant,
    Weights,
    Layout,
    AdapterName,
    AdapterGeneration,
    Salt,
    Tokens,
    MediaPosition,
    MediaDigest,
}

/// The tag and the length of a field in one word; lengths are below 2^56.
pub(super) fn tag_word(tag: FieldTag, bytes: usize) -> u64 {
    ((bytes as u64) << 8) | tag as u64
}

/// The bytes of tagged fields, which are hashed at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(pub(super) Vec<u8>);

impl Fields {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn tag(&mut self, tag: FieldTag, bytes: usize) {
        self.0.extend_from_slice(&tag_word(tag, bytes).to_le_bytes());
    }

    pub(super) fn field(&mut self, tag: FieldTag, bytes: &[u8]) {
        self.tag(tag, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn tokens(&mut self, tokens: &[u32]) {
        self.tag(FieldTag::Tokens, tokens.len() * 4);
        tokens.iter().for_each(|token| self.0.extend_from_slice(&token.to_le_bytes()));
    }

    pub(super) fn hash(&self, secret: &ChainSecret) -> u128 {
        SipState::new(secret).bytes(&self.0)
    }
}
