//! Pseudo-random numbers.

/// The pseudo-random generator SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014): its numbers depend on the seed only.
///
/// ```
/// use orlop_core::SplitMix64;
///
/// let mut random = SplitMix64::new(7);
/// let [_, second] = [random.next_u64(), random.next_u64()];
/// assert_eq!(SplitMix64::at(7, 1).next_u64(), second);
/// assert!(random.below(5) < 5);
/// ```
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl SplitMix64 {
    /// Creates a generator.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator that the one of `seed` is after `count` numbers.
    #[must_use]
    pub const fn at(seed: u64, count: u64) -> Self {
        Self(seed.wrapping_add(count.wrapping_mul(STEP)))
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let scaled = (u128::from(self.next_u64()) * bound as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_everywhere() {
        // The first outputs for seed 0, as published.
        let mut random = SplitMix64::new(0);
        assert_eq!([random.next_u64(), random.next_u64()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|&times| times > 150), "{seen:?}");
    }
}
