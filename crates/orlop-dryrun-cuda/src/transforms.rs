//! Workspaces of cuFFT, by rules that follow from 30,000 answers of cuFFT 12 on an H100
//! (`testdata/dry-run/transforms-measured.jsonl.xz`): 96 % of those for one dimension are met within 5 %.
//!
//! What fits a block of threads needs none. A longer transform has a copy, and one whose length has a large
//! prime factor is a convolution of twice the length (Bluestein). Real data of an even length is complex data
//! of half of it; of an odd length, two transforms share a complex one.

/// From this length of a dimension on, and this largest prime factor, other rules hold.
struct Limits {
    /// The longest transform that is no convolution, whatever its factors are.
    any_factors: u64,
    /// The longest without a copy.
    no_copy: u64,
    /// The longest of a dimension other than the last, unless it is a power of two.
    strided: u64,
}

const SINGLE: Limits = Limits { any_factors: 4096, no_copy: 24_576, strided: 1024 };
const DOUBLE: Limits = Limits { any_factors: 2048, no_copy: 12_288, strided: 512 };
const LARGE_FACTOR: u64 = 127;

/// Lengths of real data: up to which none needs a workspace, a prime does not, small factors do not, and a
/// power of two does not.
const REAL: u64 = 32;
const REAL_PRIME: u64 = 128;
const REAL_SMALL_FACTORS: u64 = 1024;
const REAL_POWER: u64 = 16_384;
/// The small factors: of odd lengths, and of even ones.
const SMALL_ODD_FACTOR: u64 = 11;
const SMALL_EVEN_FACTOR: u64 = 12;

/// A transform in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transform {
    /// The bytes of a complex number.
    pub(crate) element: u64,
    /// Whether the input or the output is real.
    pub(crate) is_real: bool,
    pub(crate) batch: u64,
}

impl Transform {
    /// Returns the bytes of the workspace for these lengths, the last of which is contiguous.
    pub(crate) fn workspace(self, lengths: &[u64]) -> u64 {
        let limits = if self.element > 8 { &DOUBLE } else { &SINGLE };
        let Some((&last, others)) = lengths.split_last() else { return 0 };
        let elements = if others.is_empty() {
            match (self.is_real, last.is_multiple_of(2)) {
                (false, _) => of_complex(last, limits).saturating_mul(self.batch),
                (true, true) => of_even(last).saturating_mul(self.batch),
                (true, false) => of_odd_pair(last, limits).saturating_mul(self.batch.div_ceil(2)),
            }
        } else {
            let is_copied = others.iter().any(|&length| length > limits.strided && !length.is_power_of_two());
            let is_odd = self.is_real && !last.is_multiple_of(2);
            let row = match (is_odd, is_copied) {
                (true, _) if is_copied || of_odd_pair(last, limits) > 0 => last,
                (false, true) if self.is_real => last / 2 + 1,
                (false, true) => last,
                _ => 0,
            };
            others.iter().copied().fold(row.saturating_mul(self.batch), u64::saturating_mul)
        };
        elements.saturating_mul(self.element)
    }
}

/// Returns the elements for a complex transform.
fn of_complex(length: u64, limits: &Limits) -> u64 {
    if largest_factor(length) > LARGE_FACTOR {
        if length <= limits.any_factors { 0 } else { with_small_factors(2 * length - 1).saturating_mul(2) }
    } else if length > limits.no_copy {
        length
    } else {
        0
    }
}

/// Returns the elements for a real transform of an even length.
fn of_even(length: u64) -> u64 {
    let needs_none = if length.is_power_of_two() {
        length <= REAL_POWER
    } else {
        length <= REAL || (length <= REAL_SMALL_FACTORS && largest_factor(length) <= SMALL_EVEN_FACTOR)
    };
    if needs_none { 0 } else { length / 2 }
}

/// Returns the elements for two real transforms of an odd length.
fn of_odd_pair(length: u64, limits: &Limits) -> u64 {
    let factor = largest_factor(length);
    let is_short = length <= REAL
        || (length <= REAL_PRIME && factor == length)
        || (length <= REAL_SMALL_FACTORS && factor <= SMALL_ODD_FACTOR);
    if is_short {
        0
    } else if factor > LARGE_FACTOR && length > SINGLE.any_factors {
        length.saturating_add(of_complex(length, limits))
    } else {
        length.saturating_mul(2)
    }
}

fn largest_factor(mut number: u64) -> u64 {
    let (mut largest, mut factor) = (1, 2);
    while factor * factor <= number {
        while number.is_multiple_of(factor) {
            (largest, number) = (factor, number / factor);
        }
        factor += 1;
    }
    largest.max(number)
}

/// Returns the next number without a prime factor above 7.
fn with_small_factors(mut number: u64) -> u64 {
    while largest_factor(number) > 7 {
        number += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_near_to_what_was_measured() {
        let complex = Transform { element: 8, is_real: false, batch: 1 };
        let real = Transform { is_real: true, ..complex };
        let measured: [(Transform, &[u64], u64); 12] = [
            (complex, &[1024], 0),
            (complex, &[48_000], 48_000 * 8),
            (complex, &[8191], 4 * 8191 * 8),
            (Transform { batch: 33, ..complex }, &[65_537], 33 * 2_099_520),
            (real, &[512], 0),
            (real, &[16_000], 64_000),
            (Transform { batch: 8, ..real }, &[44_100], 8 * 176_400),
            (real, &[997], 16_168),
            (Transform { batch: 2, ..real }, &[1_000_003], 40_401_432),
            (complex, &[224, 224], 0),
            (complex, &[1920, 1080], 1920 * 1080 * 8),
            (Transform { batch: 3, ..real }, &[1080, 1920], 3 * 1080 * 961 * 8),
        ];
        for (transform, lengths, bytes) in measured {
            let found = transform.workspace(lengths);
            assert!(found.abs_diff(bytes) <= bytes / 20, "{transform:?} {lengths:?}: {found}, not {bytes}");
        }
        assert_eq!(complex.workspace(&[]), 0);
    }
}
