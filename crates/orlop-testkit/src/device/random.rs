//! [`Random`]: reproducible random numbers.

/// A pseudo-random number generator (xorshift*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            random.number();
        }
        random
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = (end as u64).max(1);
        usize::try_from((self.number() >> 8) % end).unwrap_or(0)
    }

    /// Returns `true` once in `n` times on average; never if `n` is 0.
    pub fn one_in(&mut self, n: usize) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// Returns a random element.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let place = self.below(of.len());
        of.get(place).copied()
    }

    /// Returns a fraction from 0 to below 1, in steps of a thousandth.
    pub fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.below(1000)).unwrap_or(0)) / 1000.0
    }
}
