//! Capacity: how many requests of a mix fit.

use super::KvPool;
use super::admit::RequestLengths;

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
    /// shared: the large pages of an average request divide the pool.
    #[must_use]
    pub fn capacity(&self, mix: &[LengthMix]) -> u64 {
        let large = u128::from(self.geometry.large_page_bytes());
        let (mut bytes, mut tokens) = (0_u128, 0_u128);
        let mut pages = Vec::new();
        for share in mix {
            let LengthMix { prompt, max_new, .. } = *share;
            let request = RequestLengths { prompt, max_new, drafts: 0, chunk: None, encoder_tokens: 0 };
            self.pledge_of(request, 0, &mut pages);
            let classes = self.blocks.pages.classes().iter().zip(&pages);
            let larges: u64 = classes.map(|(class, &need)| need.div_ceil(class.per_large.into())).sum();
            bytes += u128::from(larges) * large * u128::from(share.weight);
            tokens += u128::from(request.limit()) * u128::from(share.weight);
        }
        let pool = u128::from(self.blocks.pages.count()) * large;
        let fitting = (pool * tokens).checked_div(bytes).unwrap_or(0);
        u64::try_from(fitting).unwrap_or(u64::MAX)
    }
}
