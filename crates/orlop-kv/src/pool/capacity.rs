//! Capacity: how many requests of a mix fit.

use super::KvPool;
use super::lengths::RequestLengths;

/// A share of requests with these lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthMix {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens to generate.
    pub max_new: u32,
    /// The weight of this share.
    pub weight: u32,
}

impl KvPool {
    /// Returns the tokens that fit at once if the pool is filled with requests of this mix and nothing is
    /// shared: the pages of an average request divide the pool. Pages that stay free in the last large page
    /// of each page size are not taken off.
    #[must_use]
    pub fn capacity(&self, mix: &[LengthMix]) -> u64 {
        let (mut bytes, mut tokens) = (0_u128, 0_u128);
        let mut pages = Vec::new();
        for share in mix {
            let LengthMix { prompt, max_new, .. } = *share;
            let (request, weight) = (RequestLengths::new(prompt, max_new, 0), u128::from(share.weight));
            self.pledge_of(request, 0, &mut pages);
            bytes = bytes.saturating_add(u128::from(self.blocks.pages.bytes_of(&pages)) * weight);
            tokens = tokens.saturating_add(u128::from(request.limit) * weight);
        }
        let pool = u128::from(self.blocks.pages.count()) * u128::from(self.geometry.large_page_bytes());
        let fitting = pool.saturating_mul(tokens).checked_div(bytes).unwrap_or(0);
        u64::try_from(fitting).unwrap_or(u64::MAX)
    }
}
