//! What the content of KV memory depends on besides the tokens.

/// The secret key of the hashes. Pools that exchange keys have the same.
pub type ChainSecret = [u8; 16];

/// Whose prefixes a request may reuse. There is no default: the choice is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tenant<'a> {
    /// Prefixes are shared with every other request that says so.
    Shared,
    /// Prefixes are shared within this tenant only.
    Named(&'a str),
}

/// An adapter of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Adapter<'a> {
    /// The adapter's name.
    pub name: &'a str,
    /// Changes when the adapter is loaded again.
    pub generation: u64,
}

/// An image or a sound in place of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MediaSpan {
    /// The first token.
    pub position: u32,
    /// The number of tokens.
    pub tokens: u32,
    /// A cryptographic digest of the content. All of it goes into the key.
    pub digest: Box<[u8]>,
}

/// Everything besides the tokens that the content of KV memory depends on.
#[derive(Debug, Clone, Copy)]
pub struct ChainFields<'a> {
    /// Whose prefixes are reused.
    pub tenant: Tenant<'a>,
    /// The revision of the weights.
    pub weights: &'a str,
    /// The data type and the layout of the entries, as the engine names them.
    pub layout: &'a str,
    /// The adapter.
    pub adapter: Option<Adapter<'a>>,
    /// A salt of the request; empty without one.
    pub salt: &'a [u8],
    /// Media in the prompt, by position.
    pub media: &'a [MediaSpan],
}

impl<'a> ChainFields<'a> {
    /// Creates the fields of a request without adapter, salt and media.
    #[must_use]
    pub fn new(tenant: Tenant<'a>, weights: &'a str, layout: &'a str) -> Self {
        Self { tenant, weights, layout, adapter: None, salt: &[], media: &[] }
    }
}
