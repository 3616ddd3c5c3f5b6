//! Inputs that are nearly right: what is merely random is refused at the first byte.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Numbers that are often not thought of, as text.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "127",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "1e308",
];

/// The same for bytes.
const WORDS: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0x0000_0001_0000_0000,
];

/// Makes one input after the other, the same ones for the same name.
pub(crate) struct Mutator<'a> {
    random: ChaCha8Rng,
    seeds: &'a [Vec<u8>],
    longest: usize,
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(name: &str, seeds: &'a [Vec<u8>], longest: usize) -> Self {
        let number =
            name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self { random: ChaCha8Rng::seed_from_u64(number), seeds, longest }
    }

    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut input = self.seed().to_vec();
        for _ in 0..self.random.random_range(1..=6) {
            self.change(&mut input);
            input.truncate(self.longest);
        }
        input
    }

    fn seed(&mut self) -> &'a [u8] {
        &self.seeds[self.random.random_range(0..self.seeds.len())]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.range(input.len());
        match self.random.random_range(0..10) {
            0 => input.truncate(from),
            1 => drop(input.drain(from..to)),
            2 => {
                let copy = input[from..to].to_vec();
                input.splice(from..from, copy);
            }
            3 => {
                let other = self.seed();
                let (start, end) = self.range(other.len());
                input.splice(from..to, other[start..end].iter().copied());
            }
            4 => self.number(input),
            5 | 6 => {
                let word = WORDS[self.random.random_range(0..WORDS.len())];
                let word = if self.random.random() { word.to_le_bytes() } else { word.to_be_bytes() };
                let bytes = 1 << self.random.random_range(0..4);
                let end = input.len().min(from.saturating_add(bytes));
                let kept = &word[..end - from];
                input[from..end].copy_from_slice(kept);
            }
            7 => {
                let new: Vec<u8> =
                    (0..self.random.random_range(1..9)).map(|_| self.random.random()).collect();
                input.splice(from..from, new);
            }
            _ => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << self.random.random_range(0..8);
                }
            }
        }
    }

    /// Another number in the place of one in the text.
    fn number(&mut self, input: &mut Vec<u8>) {
        let begins = |at: &usize| {
            input[*at].is_ascii_digit()
                && !at.checked_sub(1).is_some_and(|before| input[before].is_ascii_digit())
        };
        let numbers: Vec<usize> = (0..input.len()).filter(begins).collect();
        if numbers.is_empty() {
            return;
        }
        let start = numbers[self.random.random_range(0..numbers.len())];
        let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = NUMBERS[self.random.random_range(0..NUMBERS.len())];
        input.splice(start..start + digits, number.bytes());
    }

    /// A range in a text of this many bytes: short ones are frequent.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.random.random_range(0..=length);
        let most = if self.random.random_range(0..4) == 0 { length - from } else { (length - from).min(16) };
        (from, from + self.random.random_range(0..=most))
    }
}
