//! SipHash-2-4 with 128 bits of output, over 64-bit words.
//!
//! A key hashes a few words: a hasher that collects bytes in a buffer takes half as long again as the rounds.

/// The state of SipHash-2-4-128.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SipState {
    v: [u64; 4],
}

impl Default for SipState {
    fn default() -> Self {
        Self::new(&[0; 16])
    }
}

impl SipState {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        let word =
            |at: usize| key[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let (k0, k1) = (word(0), word(8));
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v }
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.v = [a, b, c, d];
    }

    /// Hashes the next 8 bytes, the first one lowest.
    pub(crate) fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    /// Returns the hash of `bytes` bytes, of which the last `bytes % 8` are in `rest`.
    pub(crate) fn finish(mut self, rest: u64, bytes: usize) -> u128 {
        self.word((bytes as u64) << 56 | rest);
        self.v[2] ^= 0xee;
        let low = self.output();
        self.v[1] ^= 0xdd;
        u128::from(self.output()) << 64 | u128::from(low)
    }

    fn output(&mut self) -> u64 {
        (0..4).for_each(|_| self.round());
        self.v.iter().fold(0, |xor, v| xor ^ v)
    }

    /// Returns the hash of bytes.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> u128 {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|bytes| self.word(u64::from_le_bytes(*bytes)));
        self.finish(word(rest), bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip128::SipHasher24;

    #[test]
    fn hashes_are_those_of_siphash() {
        let bytes: Vec<u8> = (0..100).map(|at: u8| at.wrapping_mul(37)).collect();
        for seed in 0..4 {
            let key: [u8; 16] = std::array::from_fn(|at| bytes[at + seed]);
            for len in 0..bytes.len() {
                let expected = SipHasher24::new_with_key(&key).hash(&bytes[..len]).as_u128();
                assert_eq!(SipState::new(&key).bytes(&bytes[..len]), expected, "{len} bytes");
            }
        }
    }
}
