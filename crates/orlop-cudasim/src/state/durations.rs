//! [`Durations`]: reproducible durations of operations.

/// A pseudo-random number generator (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Durations(u64);

impl Durations {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a duration between half and one and a half times `typical`, in nanoseconds.
    pub(crate) fn around(&mut self, typical: u64) -> u64 {
        typical / 2 + self.number() % typical.max(1)
    }
}
