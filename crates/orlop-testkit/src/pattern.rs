//! Block contents by seed, which detect writes by anything but the owner.
//!
//! A block is filled with repetitions of one page of pseudo-random bytes: filling and checking copy and
//! compare whole pages, which is fast in test builds too. Two blocks have different seeds, so their bytes
//! differ. In blocks of more than [`WHOLE`] bytes only samples are written and checked: both ends, and a page
//! every [`STRIDE`] bytes.

use orlop_core::SplitMix64;
use std::ops::Range;

/// The period of a pattern, in bytes.
const PAGE: usize = 1024;

/// Blocks of at most this number of bytes are filled and checked completely.
pub const WHOLE: usize = 256 << 10;

/// The distance of the sampled pages in larger blocks, in bytes.
pub const STRIDE: usize = 64 << 10;

/// Returns the ranges of a block that are written and checked. All begin at multiples of a page.
fn parts(len: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = (len <= WHOLE).then_some(0..len);
    let sampled = if len > WHOLE { len } else { 0 };
    let last = sampled.saturating_sub(STRIDE) / PAGE * PAGE;
    let samples = (0..sampled).step_by(STRIDE).map(move |start| start..(start + PAGE).min(len));
    whole.into_iter().chain(samples).chain((sampled > 0).then_some(last..len))
}

/// Returns one page of the pattern.
fn page(seed: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut random = SplitMix64::new(seed);
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    page
}

/// Writes the pattern of `seed`.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let page = page(seed);
    for range in parts(bytes.len()) {
        for part in bytes[range].chunks_mut(PAGE) {
            part.copy_from_slice(&page[..part.len()]);
        }
    }
}

/// Returns the first byte that differs from the pattern: offset, expected value, actual value.
#[must_use]
pub fn difference(seed: u64, bytes: &[u8]) -> Option<(usize, u8, u8)> {
    let page = page(seed);
    parts(bytes.len()).find_map(|range| {
        let start = range.start;
        first_difference(&page, &bytes[range])
            .map(|(offset, expected, found)| (start + offset, expected, found))
    })
}

/// Returns the first byte that is not zero: offset and value.
#[must_use]
pub fn nonzero(bytes: &[u8]) -> Option<(usize, u8)> {
    first_difference(&[0; PAGE], bytes).map(|(offset, _, found)| (offset, found))
}

fn first_difference(page: &[u8; PAGE], bytes: &[u8]) -> Option<(usize, u8, u8)> {
    let (number, part) = bytes.chunks(PAGE).enumerate().find(|(_, part)| *part != &page[..part.len()])?;
    let (at, (&expected, &found)) = page.iter().zip(part).enumerate().find(|(_, (a, b))| a != b)?;
    Some((number * PAGE + at, expected, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found() {
        let mut bytes = vec![0; 5000];
        assert_eq!(nonzero(&bytes), None);
        fill(7, &mut bytes);
        assert_eq!(difference(7, &bytes), None);
        assert!(difference(8, &bytes).is_some());
        bytes[4321] ^= 1;
        assert_eq!(difference(7, &bytes), Some((4321, bytes[4321] ^ 1, bytes[4321])));
        assert_eq!(nonzero(&[0, 0, 3]), Some((2, 3)));
    }

    #[test]
    fn large_blocks_are_sampled_up_to_their_ends() {
        for len in [WHOLE, WHOLE + 1, (1 << 20) - 7, (1 << 20) + 300] {
            let mut bytes = vec![0; len];
            fill(3, &mut bytes);
            assert_eq!(difference(3, &bytes), None);
            for at in [0, STRIDE, 3 * STRIDE + PAGE - 1, len - 1, len - 2000] {
                bytes[at] ^= 1;
                assert_eq!(difference(3, &bytes).map(|found| found.0), Some(at), "{len}");
                bytes[at] ^= 1;
            }
        }
    }
}
