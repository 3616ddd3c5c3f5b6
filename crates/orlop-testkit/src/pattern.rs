//! Contents by seed: what a block's owner writes, so that a write by anybody else shows.
//!
//! A block is filled with one page of pseudo-random bytes, over and over: filling and checking are then copies
//! and comparisons of whole pages, fast in test builds too. Two blocks have different seeds, so that bytes of
//! one never pass for bytes of the other.

/// The period of a pattern, in bytes.
const PAGE: usize = 1024;

/// One page of the pattern, by the SplitMix64 generator (Steele, Lea, Flood, 2014).
fn page(seed: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut state = seed;
    for word in page.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    page
}

/// Writes the pattern of `seed`.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let page = page(seed);
    for part in bytes.chunks_mut(PAGE) {
        part.copy_from_slice(&page[..part.len()]);
    }
}

/// The first byte that is not the pattern's: offset, the pattern's, and what is there.
#[must_use]
pub fn difference(seed: u64, bytes: &[u8]) -> Option<(usize, u8, u8)> {
    first_difference(&page(seed), bytes)
}

/// The first byte that is not zero: offset and value.
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
}
